//! The network ceiling: our own connection layer, answering nothing, or from memory.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Sender};

use anyhow::{Context, Result, ensure};
use net::bench::memory::{Memory, forget};
use net::bench::{Asker, Over, measure};
use net::{ClusterKey, Connection, Identity, Limits, Request, Service, To};
use serde::{Deserialize, Serialize};
use types::error::Errno;
use wire::codec::decode_body;
use wire::frame::Status;
use wire::op::{self, Op};
use wire::v1::netbench::{NetLoad, NetPlan, NetRead, NetReadReply, NetWritten};
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
            let stopwatch = Stopwatch::start(Who::Client, &self.watch)?;
            fly(count, in_flight, pilot).await?;
            stopwatch.stop("ping", count)
        })?;
        Ok(vec![measured])
    }
}

/// Payloads to and from its memory, by requests of NetBench.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Raw {
    /// Of each lane.
    pub(crate) servers: Vec<SocketAddr>,
    /// Bytes of a payload.
    pub(crate) block: u32,
    /// Requests in flight, over all threads.
    pub(crate) depth: u32,
    pub(crate) threads: u32,
    pub(crate) seconds: f64,
    /// Over TCP, without memory that both see.
    pub(crate) loopback: bool,
    pub(crate) watch: Watch,
}

impl Raw {
    /// `write` and `read`.
    pub(crate) fn run(&self) -> Result<Vec<Measured>> {
        let Self { block, depth, threads, .. } = *self;
        let plan = NetPlan { block, depth, threads, duration_ms: (self.seconds * 1e3) as u64 };
        let asker = Asker { identity: identity(), interfaces: Arc::from([]) };
        let over = if self.loopback { Over::Loopback } else { Over::WithinHost };
        let lanes: Vec<_> = self.servers.iter().map(|&server| vec![server]).collect();
        let phase = |(phase, load)| {
            let stopwatch = Stopwatch::start(Who::Client, &self.watch)?;
            let found = measure(&asker, &lanes, &over, load, &plan, &AtomicBool::new(false));
            let measured = stopwatch.stop(phase, found.requests)?;
            ensure!(found.failure.is_none(), "{phase}: {}", found.failure.unwrap_or_default());
            Ok(Measured { bytes: found.bytes, seconds: found.elapsed.as_secs_f64(), ..measured })
        };
        [("write", NetLoad::Write), ("read", NetLoad::Read)].into_iter().map(phase).collect()
    }
}

/// The same on both sides, and secret to nobody: nothing is behind it.
fn identity() -> Identity {
    let name = "network ceiling".to_owned();
    Identity::new(ClusterKey::from_bytes([7; 32]), name)
}

/// Knows pings, and answers NetBench as storage services do.
#[derive(Default)]
struct Nothing {
    memory: Memory,
}

impl Service for Nothing {
    fn on_request(self: &Rc<Self>, request: Request) {
        let Request { header, body, payload, room, responder, .. } = request;
        match header.op {
            Op::NetWrite => {
                forget(&payload);
                responder.reply(&NetWritten { length: payload.len() as u32 });
            }
            Op::NetRead => match decode_body::<NetRead>(&body) {
                Ok(NetRead { length }) => {
                    responder.reply_payload(&NetReadReply {}, self.memory.payload(length as usize, room));
                }
                Err(_) => responder.fail(Status::Errno(Errno::EPROTO)),
            },
            _ => responder.reply(&Empty {}),
        }
    }
}

/// As many as a storage service has by default.
fn lanes() -> usize {
    const MOST: usize = 8;
    std::thread::available_parallelism().map_or(1, |cpus| (cpus.get() / 2).clamp(1, MOST))
}

/// Serves with a thread for each lane until this process's input ends; says their addresses.
pub(crate) fn serve() -> Result<()> {
    let (tell, told) = mpsc::channel();
    for _ in 0..lanes() {
        let tell = tell.clone();
        std::thread::Builder::new().spawn(move || {
            if let Err(error) = serve_lane(&tell) {
                let _ = tell.send(Err(error));
            }
        })?;
    }
    let addresses: Vec<String> = told.iter().take(lanes()).collect::<Result<_>>()?;
    say(&addresses.join(" "))?;
    wait_for_end();
    Ok(())
}

fn serve_lane(tell: &Sender<Result<String>>) -> Result<()> {
    let mut ring = ring::Ring::new(&ring::Config::default())?;
    ring.run(async {
        let (listener, address) = ring::op::listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        tell.send(Ok(address.to_string()))?;
        let nothing = Rc::new(Nothing::default());
        net::serve(listener, Rc::new(identity()), Limits::default(), Rc::default(), nothing).await;
        Ok(())
    })
}
