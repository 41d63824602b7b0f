//! Gives leases back: asks each shard what has to be forgotten, sees to it, and says so.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use types::id::{InodeId, ShardId};
use types::name::Name;
use wire::v1::session::{Recall, Recalls};

use crate::lease::Subject;
use crate::router::{Client, Destination};

/// Between two looks at the cluster map for shards.
const LOOK_FOR_SHARDS: Duration = Duration::from_millis(200);
/// After a shard could not be asked. What it cannot tell us, it waits for until our leases are over.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// The removal of a name may have to wait for an operation in its directory, which may itself wait for another client
/// that waits for us. After so long, all names are put in doubt instead.
const NAME_PATIENCE: Duration = Duration::from_millis(5);
/// An answer that was passed on becomes known to the keeper a moment later, when the asking thread runs again: for so
/// long, an inode that it was told of and does not know yet is tried again...
const LATE_ANSWER: Duration = Duration::from_secs(1);
/// ...as often as this.
const TRY_AGAIN: Duration = Duration::from_micros(200);

/// Who keeps what this client answers: the kernel, for a mount.
pub trait Keeper: Send + Sync + 'static {
    /// Forgets attributes and data of `inode`. False where it does not know it.
    fn forget_inode(&self, inode: InodeId) -> bool;

    /// Forgets what `name` stands for. May block for as long as an operation in `parent` is under way.
    fn forget_name(&self, parent: InodeId, name: &Name);

    /// Doubts all names: each is asked for before it is believed again. Never blocks. False where it cannot.
    fn doubt_all_names(&self) -> bool;

    /// It knows `inode`, or has an answer that it is about to learn of it from.
    fn is_told_of(&self, inode: InodeId) -> bool;
}

/// Obeys recalls until it is dropped. One task per process, on a thread that never waits for applications.
pub async fn obey_recalls(client: Rc<Client>, keeper: Arc<dyn Keeper>) {
    client.shared.kept.enable();
    let mut asked: BTreeSet<ShardId> = BTreeSet::new();
    loop {
        for &shard in client.shared.map().shards.keys() {
            if asked.insert(shard) {
                ring::spawn(listen(Rc::clone(&client), Arc::clone(&keeper), shard));
            }
        }
        client.end_lingering_of_old();
        ring::sleep(LOOK_FOR_SHARDS).await;
    }
}

async fn listen(client: Rc<Client>, keeper: Arc<dyn Keeper>, shard: ShardId) {
    let mut done = Vec::new();
    loop {
        let request = Recalls { done: done.clone() };
        match client.attempt(Destination::Shard(shard), &request, &[], 0).await {
            Ok(answer) => {
                for inode in answer.message.ends {
                    ring::spawn(Rc::clone(&client).give_back_wanted_end(inode));
                }
                obey(&client, &keeper, &answer.message.recalls).await;
                done = answer.message.recalls.iter().map(|recall| recall.id).collect();
            }
            Err(_) => ring::sleep(ASK_AGAIN).await,
        }
    }
}

async fn obey(client: &Rc<Client>, keeper: &Arc<dyn Keeper>, recalls: &[Recall]) {
    client.shared.board.recall(recalls.iter().map(|recall| match &recall.name {
        Some(name) => Subject::name(recall.inode, name),
        None => Subject::inode(recall.inode),
    }));
    let inodes = recalls.iter().filter(|recall| recall.name.is_none()).map(|recall| recall.inode);
    let give_back = inodes.map(async |inode| {
        client.give_back_draft(inode).await;
        client.give_back_unwritten(inode).await;
    });
    ring::join_all(give_back).await;
    for recall in recalls.iter().filter(|recall| recall.name.is_none()) {
        client.shared.with_file(recall.inode, |file| file.flags.recalled());
        client.forgotten(recall.inode);
        forget_inode(keeper, recall.inode).await;
    }
    let names = recalls.iter().filter_map(|recall| Some((recall.inode, recall.name.clone()?)));
    forget_names(keeper, names.collect()).await;
}

async fn forget_inode(keeper: &Arc<dyn Keeper>, inode: InodeId) {
    let begun = Instant::now();
    // What is passed on from now on is not believed.
    while !keeper.forget_inode(inode) && keeper.is_told_of(inode) && begun.elapsed() < LATE_ANSWER {
        ring::sleep(TRY_AGAIN).await;
    }
}

async fn forget_names(keeper: &Arc<dyn Keeper>, names: Vec<(InodeId, Name)>) {
    if names.is_empty() {
        return;
    }
    let blocking = Arc::clone(keeper);
    let forgotten = ring::op::unblock(move || {
        for (parent, name) in names {
            blocking.forget_name(parent, &name);
        }
    });
    let mut forgotten = std::pin::pin!(forgotten);
    if ring::timeout(NAME_PATIENCE, forgotten.as_mut()).await.is_err() && !keeper.doubt_all_names() {
        forgotten.await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Learns of each inode when it was asked so often to forget it.
    struct Late {
        told: bool,
        learns_after: u32,
        asked: AtomicU32,
    }

    impl Keeper for Late {
        fn forget_inode(&self, _: InodeId) -> bool {
            self.asked.fetch_add(1, Ordering::Relaxed) >= self.learns_after
        }

        fn forget_name(&self, _: InodeId, _: &Name) {}

        fn doubt_all_names(&self) -> bool {
            true
        }

        fn is_told_of(&self, _: InodeId) -> bool {
            self.told
        }
    }

    /// How often it is asked, and for how long.
    fn forget(told: bool, learns_after: u32) -> (u32, Duration) {
        let late = Arc::new(Late { told, learns_after, asked: AtomicU32::new(0) });
        let (keeper, begun): (Arc<dyn Keeper>, _) = (Arc::<Late>::clone(&late), Instant::now());
        let mut ring = ring::Ring::new(&ring::Config::default()).expect("a ring");
        ring.run(async { forget_inode(&keeper, InodeId(77)).await });
        (late.asked.load(Ordering::Relaxed), begun.elapsed())
    }

    #[test]
    fn what_the_keeper_was_not_told_of_is_not_waited_for() {
        assert_eq!(forget(false, u32::MAX).0, 1);
    }

    #[test]
    fn what_the_keeper_is_about_to_learn_is_forgotten_then() {
        assert_eq!(forget(true, 20).0, 21);
    }

    #[test]
    fn a_keeper_that_never_learns_is_not_waited_for_without_end() {
        let (asked, took) = forget(true, u32::MAX);
        assert!(asked > 10 && took >= LATE_ANSWER, "{asked} times, {took:?}");
    }
}
