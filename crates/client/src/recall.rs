//! Gives leases back: asks each shard what has to be forgotten, sees to it, and says so.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use ring::Helpers;
use ring::sync::Notify;
use types::attr::Attr;
use types::id::{InodeId, ShardId};
use types::name::Name;
use wire::v1::session::{Recall, Recalls};

use crate::lease::Subject;
use crate::renewal;
use crate::retry::Sent;
use crate::router::{Client, Destination, Payloads};

/// Between two looks at the cluster map for shards, and for what ends by itself.
const LOOK: Duration = Duration::from_millis(400);
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

/// What is obeyed within this time is told the shard together. What takes longer holds up nothing else.
const PATIENCE: Duration = Duration::from_millis(5);
/// Between two questions while what takes longer is under way, and nothing else.
const NOTHING_NEW: Duration = Duration::from_millis(20);
/// What forgets files that are open, and so may be mapped: pages that are being read, or have to be written before, are waited
/// for, and so may be the storage, of other files as well.
static FORGETTERS: LazyLock<Helpers> = LazyLock::new(|| Helpers::new("forget", 32));
/// What forgets listings: while a program is handed one, its memory may be slow to come, or never come. And what forgets names:
/// that waits for such programs, too.
static LISTING_FORGETTERS: LazyLock<Helpers> = LazyLock::new(|| Helpers::new("forget-lists", 32));
static NAME_FORGETTERS: LazyLock<Helpers> = LazyLock::new(|| Helpers::new("forget-names", 8));
/// For so long such a program is waited for by who is told of its directory, or is to forget it once more.
const LISTING_WAIT: Duration = Duration::from_secs(5);

/// The recalls of one shard.
#[derive(Default)]
struct Obeying {
    under_way: RefCell<BTreeSet<u64>>,
    /// Directories whose listings are being forgotten.
    listings: RefCell<BTreeSet<InodeId>>,
    /// Obeyed, and not told yet.
    done: RefCell<BTreeSet<u64>>,
    /// One more is done.
    ended: Notify,
}

/// Who keeps what this client answers: the kernel, for a mount.
pub trait Keeper: Send + Sync + 'static {
    /// Forgets attributes and data of `inode`. False where it does not know it.
    fn forget_inode(&self, inode: InodeId) -> bool;

    /// Forgets attributes and lists of `inode`, not its data. Never blocks.
    fn forget_attributes(&self, inode: InodeId);

    /// Forgets what `name` stands for. May block for as long as an operation in `parent` is under way.
    fn forget_name(&self, parent: InodeId, name: &Name);

    /// Doubts all names: each is asked for before it is believed again. Never blocks. False where it cannot.
    fn doubt_all_names(&self) -> bool;

    /// Forgets attributes and data of all inodes, and doubts all names where it can. May block as for one inode.
    fn forget_all(&self);

    /// It knows `inode`, or has an answer that it is about to learn of it from.
    fn is_told_of(&self, inode: InodeId) -> bool;
}

/// Obeys recalls until it is dropped. One task per process, on a thread that never waits for applications.
pub async fn obey_recalls(client: Rc<Client>, keeper: Arc<dyn Keeper>) {
    let _ = client.shared.keeper.set(Arc::clone(&keeper));
    client.shared.kept.enable();
    ring::spawn(renewal::renew_leases(Rc::clone(&client)));
    let mut asked: BTreeSet<ShardId> = BTreeSet::new();
    loop {
        for &shard in client.shared.map().shards.keys() {
            if asked.insert(shard) {
                ring::spawn(listen(Rc::clone(&client), Arc::clone(&keeper), shard));
            }
        }
        client.shared.look_for_sleep();
        client.end_lingering_of_old();
        client.forget_lists(&*keeper, LOOK);
        ring::next_look(LOOK).await;
    }
}

async fn listen(client: Rc<Client>, keeper: Arc<dyn Keeper>, shard: ShardId) {
    let obeying = Rc::new(Obeying::default());
    loop {
        let request = Recalls { done: obeying.done.borrow().iter().copied().collect() };
        match client.attempt(Destination::Shard(shard), &request, Payloads::NONE, &Sent::default()).await {
            Ok(answer) => {
                for id in &request.done {
                    obeying.done.borrow_mut().remove(id);
                }
                for inode in answer.message.ends {
                    ring::spawn(Rc::clone(&client).give_back_wanted_end(inode));
                }
                // The shard names what it has not heard of yet, and of very much the rest when it has.
                let new = obeying.begin(answer.message.recalls);
                let ids: Vec<u64> = new.iter().map(|recall| recall.id).collect();
                obey(&client, &keeper, &obeying, new);
                obeying.moment(&ids).await;
            }
            Err(_) => ring::sleep(ASK_AGAIN).await,
        }
    }
}

impl Obeying {
    /// Those that are not being obeyed yet.
    fn begin(&self, recalls: Vec<Recall>) -> Vec<Recall> {
        let (mut under_way, done) = (self.under_way.borrow_mut(), self.done.borrow());
        recalls.into_iter().filter(|recall| !done.contains(&recall.id) && under_way.insert(recall.id)).collect()
    }

    fn end(&self, id: u64) {
        self.under_way.borrow_mut().remove(&id);
        self.done.borrow_mut().insert(id);
        self.ended.notify_one();
    }

    /// Waits until the new ones are obeyed, so that the shard hears of them at once; but not long for what others wait behind.
    /// Where there is nothing new, but what is under way already, the shard would say so again at once: until something is
    /// obeyed, or a while.
    async fn moment(&self, new: &[u64]) {
        let is_waited_for = || match new {
            [] => self.done.borrow().is_empty() && !self.under_way.borrow().is_empty(),
            new => new.iter().any(|id| self.under_way.borrow().contains(id)),
        };
        let until = Instant::now() + if new.is_empty() { NOTHING_NEW } else { PATIENCE };
        while is_waited_for() {
            let rest = until.saturating_duration_since(Instant::now());
            if ring::timeout(rest, self.ended.notified()).await.is_err() {
                return;
            }
        }
    }
}

fn obey(client: &Rc<Client>, keeper: &Arc<dyn Keeper>, obeying: &Rc<Obeying>, recalls: Vec<Recall>) {
    client.shared.board.recall(recalls.iter().map(|recall| match &recall.name {
        Some(name) => Subject::name(recall.inode, name),
        None => Subject::inode(recall.inode),
    }));
    let (inodes, names): (Vec<_>, Vec<_>) = recalls.into_iter().partition(|recall| recall.name.is_none());
    for Recall { id, inode, .. } in inodes {
        client.shared.with_file(inode, |file| file.flags.recalled());
        let (client, keeper, obeying) = (Rc::clone(client), Arc::clone(keeper), Rc::clone(obeying));
        ring::spawn(async move {
            client.give_back_draft(inode).await;
            client.give_back_unwritten(inode).await;
            client.forgotten(inode);
            let is_open = client.shared.file_is(inode, |file| file.handles > 0);
            client.shared.listings.forgotten(inode);
            if is_open {
                forget_inode_aside(&keeper, inode).await;
            } else if client.shared.listings.may_be_kept(inode) {
                // One at a time: it may take for ever.
                let begun = Instant::now();
                while !obeying.listings.borrow_mut().insert(inode) {
                    if begun.elapsed() >= LISTING_WAIT {
                        // The shard names it again, if it still waits.
                        obeying.under_way.borrow_mut().remove(&id);
                        return;
                    }
                    ring::sleep(NOTHING_NEW).await;
                }
                forget_inode(&keeper, inode, Some(&LISTING_FORGETTERS)).await;
                obeying.listings.borrow_mut().remove(&inode);
            } else {
                forget_inode(&keeper, inode, None).await;
            }
            obeying.end(id);
        });
    }
    if !names.is_empty() {
        let (keeper, obeying) = (Arc::clone(keeper), Rc::clone(obeying));
        ring::spawn(async move {
            let ids: Vec<u64> = names.iter().map(|recall| recall.id).collect();
            let names = names.into_iter().filter_map(|recall| Some((recall.inode, recall.name?)));
            forget_names(&keeper, names.collect()).await;
            ids.into_iter().for_each(|id| obeying.end(id));
        });
    }
}

/// Where it is not known what that may wait for.
pub(crate) async fn forget_inode_aside(keeper: &Arc<dyn Keeper>, inode: InodeId) {
    forget_inode(keeper, inode, Some(&FORGETTERS)).await;
}

/// By `helpers` where that may have to wait: for what is being read or written of a file, or handed to a program of a listing.
async fn forget_inode(keeper: &Arc<dyn Keeper>, inode: InodeId, helpers: Option<&Helpers>) {
    let begun = Instant::now();
    let forget = async || match helpers {
        Some(helpers) => {
            let keeper = Arc::clone(keeper);
            helpers.run(move || keeper.forget_inode(inode)).await
        }
        None => keeper.forget_inode(inode),
    };
    // What is passed on from now on is not believed.
    while !forget().await && keeper.is_told_of(inode) && begun.elapsed() < LATE_ANSWER {
        ring::sleep(TRY_AGAIN).await;
    }
}

pub(crate) async fn forget_names(keeper: &Arc<dyn Keeper>, names: Vec<(InodeId, Name)>) {
    let blocking = Arc::clone(keeper);
    let forgotten = NAME_FORGETTERS.run(move || {
        for (parent, name) in names {
            blocking.forget_name(parent, &name);
        }
    });
    let mut forgotten = std::pin::pin!(forgotten);
    if ring::timeout(NAME_PATIENCE, forgotten.as_mut()).await.is_err() && !keeper.doubt_all_names() {
        forgotten.await;
    }
}

impl Client {
    /// The keeper of answers forgets what it keeps of listings of those that have changed since, before it is given these
    /// attributes. It waits for programs that are handed a listing just now; and those may wait for ever, for a memory that
    /// nobody gives them.
    pub async fn end_listings(&self, told: impl Iterator<Item = &Attr>) {
        let ended: Vec<InodeId> = told.filter(|attr| self.ends_listing(attr)).map(|attr| attr.inode).collect();
        let Some(keeper) = self.shared.keeper.get().filter(|_| !ended.is_empty()) else { return };
        let keeper = Arc::clone(keeper);
        let forgotten = LISTING_FORGETTERS.run(move || {
            for inode in ended {
                keeper.forget_inode(inode);
            }
        });
        if ring::timeout(LISTING_WAIT, forgotten).await.is_err() {
            tracing::warn!(limit = ?LISTING_WAIT, "a program takes no listing: others of its directory may be old");
        }
    }
}

/// On its own time: what is told from now on is believed under new leases.
pub(crate) fn forget_all(keeper: &Arc<dyn Keeper>) {
    let keeper = Arc::clone(keeper);
    ring::spawn(async move { FORGETTERS.run(move || keeper.forget_all()).await });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Mutex, mpsc};

    use super::*;
    use crate::test_client;

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

        fn forget_attributes(&self, _: InodeId) {}

        fn forget_name(&self, _: InodeId, _: &Name) {}

        fn doubt_all_names(&self) -> bool {
            true
        }

        fn forget_all(&self) {}

        fn is_told_of(&self, _: InodeId) -> bool {
            self.told
        }
    }

    /// How often it is asked, and for how long.
    fn forget(told: bool, learns_after: u32) -> (u32, Duration) {
        let late = Arc::new(Late { told, learns_after, asked: AtomicU32::new(0) });
        let (keeper, begun): (Arc<dyn Keeper>, _) = (Arc::<Late>::clone(&late), Instant::now());
        let mut ring = ring::Ring::new(&ring::Config::default()).expect("a ring");
        ring.run(async { forget_inode(&keeper, InodeId(77), None).await });
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

    /// As the kernel is while a page of the file is being read: until it is told that it has been, or for long.
    struct Slow(Mutex<mpsc::Receiver<()>>);

    impl Keeper for Slow {
        fn forget_inode(&self, _: InodeId) -> bool {
            let _ = self.0.lock().expect("nobody panics with it").recv_timeout(Duration::from_secs(20));
            true
        }

        fn forget_attributes(&self, _: InodeId) {}

        fn forget_name(&self, _: InodeId, _: &Name) {}

        fn doubt_all_names(&self) -> bool {
            true
        }

        fn forget_all(&self) {}

        fn is_told_of(&self, _: InodeId) -> bool {
            true
        }
    }

    #[test]
    fn a_file_that_is_read_just_now_holds_up_no_other_recalls() {
        let file = InodeId(77);
        test_client::run(async |client| {
            client.shared.with_new_file(file, || test_client::file(file), |open| open.add_handle(false));
            let (read, until_read) = mpsc::channel();
            let keeper: Arc<dyn Keeper> = Arc::new(Slow(Mutex::new(until_read)));
            let obeying = Rc::new(Obeying::default());
            obey(&client, &keeper, &obeying, obeying.begin(vec![Recall { id: 1, inode: file, name: None }]));
            ring::sleep(Duration::from_millis(10)).await;
            assert!(obeying.done.borrow().is_empty(), "the loop has waited for it");
            read.send(()).expect("it is waited for");
            obeying.ended.notified().await;
            assert_eq!(*obeying.done.borrow(), BTreeSet::from([1]));
        });
    }
}
