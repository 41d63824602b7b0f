//! The thread that gives leases back. Applications never wait for it, and it waits for none of them.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::Context;
use client::{Client, Keeper, Shared, obey_recalls};
use ring::mailbox::{self, Sender};

/// Runs until it is stopped or dropped.
pub(crate) struct RecallThread {
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl RecallThread {
    pub(crate) fn start(shared: Arc<Shared>, keeper: Arc<dyn Keeper>) -> anyhow::Result<Self> {
        let (stop, mut stopped) = mailbox::mailbox::<()>();
        let thread = thread::Builder::new().name("recalls".into()).spawn(move || {
            let mut ring = match ring::Ring::new(&ring::Config::default()) {
                Ok(ring) => ring,
                // Who does not listen gets none.
                Err(error) => return tracing::error!(%error, "cannot make a ring for recalls: there are no leases"),
            };
            ring.run(async move {
                let client = Client::new(shared);
                ring::spawn(obey_recalls(std::rc::Rc::clone(&client), keeper));
                stopped.recv().await;
                client.shutdown().await;
            });
        });
        Ok(Self { stop, thread: Some(thread.context("cannot start a thread for recalls")?) })
    }
}

impl Drop for RecallThread {
    fn drop(&mut self) {
        self.stop.send(());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread for recalls panicked");
        }
    }
}
