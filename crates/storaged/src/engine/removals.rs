//! Makes removals durable in groups: one sync of a folder for all that left it meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ring::sync::{Sender, oneshot};
use types::error::Errno;

use super::folders::Folder;

/// How long removals gather before their folders are synced. Nobody waits for a removal but the shard's background task.
const GATHER: Duration = Duration::from_millis(10);

/// Told when a folder is synced.
type Waiting = Vec<Sender<Result<(), Errno>>>;

#[derive(Default)]
pub(super) struct Removals {
    waiting: RefCell<BTreeMap<Folder, Waiting>>,
    running: Cell<bool>,
}

impl Removals {
    /// Waits until a sync of `folder` that began after this call is done. `sync` makes one.
    pub(super) async fn made_durable(
        self: &Rc<Self>,
        folder: Folder,
        sync: impl AsyncFn(Folder) -> Result<(), Errno> + 'static,
    ) -> Result<(), Errno> {
        let (sender, receiver) = oneshot();
        self.waiting.borrow_mut().entry(folder).or_default().push(sender);
        if !self.running.replace(true) {
            let this = Rc::clone(self);
            ring::spawn(async move { this.run(sync).await });
        }
        receiver.await.unwrap_or(Err(Errno::EIO))
    }

    async fn run(&self, sync: impl AsyncFn(Folder) -> Result<(), Errno>) {
        loop {
            ring::sleep(GATHER).await;
            let batch = std::mem::take(&mut *self.waiting.borrow_mut());
            if batch.is_empty() {
                self.running.set(false);
                return;
            }
            for (folder, waiting) in batch {
                let outcome = sync(folder).await;
                for sender in waiting {
                    sender.send(outcome);
                }
            }
        }
    }
}
