//! The network ceiling: our own connection layer, answering nothing.

use std::net::SocketAddr;
use std::rc::Rc;

use anyhow::{Context, Result};
use net::{ClusterKey, Connection, Identity, Limits, Request, Service, To};
use serde::{Deserialize, Serialize};
use wire::op;
use wire::v1::session::Empty;

use super::flight::{Tickets, fly};
use super::stopwatch::Stopwatch;
use crate::cpu::{Watch, Who};
use crate::job::{Measured, say, wait_for_end};

/// Calls of a server that answers nothing, over one connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ping {
    pub(crate) server: SocketAddr,
    pub(crate) count: u64,
    pub(crate) in_flight: usize,
    pub(crate) watch: Watch,
}

impl Ping {
    pub(crate) fn run(&self) -> Result<Vec<Measured>> {
        let mut ring = ring::Ring::new(&ring::Config::default())?;
        let Self { server, count, in_flight, .. } = *self;
        let measured = ring.run(async {
            let connection = Connection::connect(server, &identity(), &Limits::default()).await?;
            let pilot = |tickets: Tickets| {
                let connection = connection.clone();
                async move {
                    while tickets.next().is_some() {
                        connection.call(To::default(), &op::Ping {}).await?;
                    }
                    Ok(())
                }
            };
            fly(count / 10, in_flight, pilot).await.context("warming up")?;
            let stopwatch = Stopwatch::start(Who::Client, &self.watch);
            fly(count, in_flight, pilot).await?;
            anyhow::Ok(stopwatch.stop("ping", count))
        })?;
        Ok(vec![measured])
    }
}

/// The same on both sides, and secret to nobody: nothing is behind it.
fn identity() -> Identity {
    let name = "network ceiling".to_owned();
    Identity { key: ClusterKey::from_bytes([7; 32]), cluster: String::new(), name, incarnation: 0 }
}

struct Nothing;

impl Service for Nothing {
    fn on_request(self: &Rc<Self>, request: Request) {
        request.responder.reply(&Empty {});
    }
}

/// Serves until this process's input ends; says its address.
pub(crate) fn serve() -> Result<()> {
    let (ended, mut end) = ring::mailbox::mailbox();
    std::thread::spawn(move || {
        wait_for_end();
        ended.send(());
    });
    let mut ring = ring::Ring::new(&ring::Config::default())?;
    ring.run(async {
        let (listener, address) = ring::op::listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let served = net::serve(listener, Rc::new(identity()), Limits::default(), Rc::default(), Rc::new(Nothing));
        ring::spawn(served);
        say(&address.to_string())?;
        end.recv().await;
        Ok(())
    })
}
