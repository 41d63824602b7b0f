//! What the shard does by itself, each in a task of its thread with a bound on what it takes.

pub(crate) mod fencing;
pub(crate) mod messenger;
pub(crate) mod removal;
pub(crate) mod space;
pub(crate) mod spill;
pub(crate) mod storage;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use net::Limits;
use net::pairs::Selector;
use ring::mailbox::Receiver;

use crate::syncer::Synced;
use crate::turn::Core;

/// How exactly sessions expire.
const TICK_EVERY: Duration = Duration::from_millis(500);

/// Of connections to other services. They stay, also unused: mounts would take their places, and to make thousands anew when a
/// session is to be fenced takes the shard's thread longer than all the rest of that.
fn limits(requests: usize, interfaces: &Arc<[Selector]>) -> Limits {
    Limits { requests, unused: Duration::MAX, interfaces: Arc::clone(interfaces), ..Limits::default() }
}

/// Lets the shard look at the clock.
pub(crate) async fn tick(core: Rc<Core>) {
    loop {
        ring::next_look(TICK_EVERY).await;
        core.tick();
    }
}

/// Between two batches of names of a directory that is being split: others have the shard to themselves.
const SPLIT_EVERY: Duration = Duration::from_millis(5);

/// Lets directories be split, batch by batch.
pub(crate) async fn split(core: Rc<Core>) {
    loop {
        let pause = if core.go_on_splitting() { ring::sleep(SPLIT_EVERY) } else { ring::next_look(TICK_EVERY) };
        pause.await;
    }
}

/// Between two pieces of what ends: as above.
const END_EVERY: Duration = Duration::from_millis(5);

/// Lets ends of much that was held come, piece by piece.
pub(crate) async fn end(core: Rc<Core>) {
    loop {
        let pause = if core.go_on_ending() { ring::sleep(END_EVERY) } else { ring::next_look(TICK_EVERY) };
        pause.await;
    }
}

/// Answers those who wait for the disk.
pub(crate) async fn answer_synced(core: Rc<Core>, mut results: Receiver<Synced>) {
    while let Some(synced) = results.recv().await {
        core.synced(&synced);
    }
}
