//! Watches the target's file system: its free space, whether the directory is still there, and whether a store that has
//! failed can go on.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cluster::capacity::Capacity;
use conf::identity::IDENTITY_FILE;
use conf::place::Place;
use kv::KvError;
use tracing::{error, info, warn};

use crate::turn::{Condition, Core};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest pause between two attempts to open a store that has failed, in looks.
const REOPEN_PAUSE_MAX: u32 = 30;

/// Inodes that stay free for the database's next files, at most and as a part of all.
const RESERVED_INODES: u64 = 128;
const RESERVED_INODES_PART: u64 = 16;

/// What one look at the directory finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    There(Capacity),
    Gone,
    /// Another directory has its name, in which the store would find files that it does not know.
    Replaced,
}

/// Looks at the directory. May take long where its disk fails, so not on the shard's thread.
pub(crate) fn look(place: &Place) -> Found {
    match control::disk::capacity(place.path()) {
        Ok(capacity) if place.path().join(IDENTITY_FILE).exists() => match place.is_kept() {
            Ok(true) => Found::There(capacity),
            Ok(false) => Found::Replaced,
            Err(_) => Found::Gone,
        },
        _ => Found::Gone,
    }
}

/// What each of `sharers` targets on one file system has of it: they have equal parts.
pub(crate) fn part(whole: &Capacity, sharers: u64) -> Capacity {
    let sharers = sharers.max(1);
    Capacity {
        total_bytes: whole.total_bytes / sharers,
        free_bytes: whole.free_bytes / sharers,
        total_inodes: whole.total_inodes / sharers,
        free_inodes: whole.free_inodes / sharers,
    }
}

/// `refusing` hears whether the shard takes no changes. `sharers`: how many targets of this service the file system of `place`
/// has, which may come to be more.
pub(crate) async fn watch(
    core: Rc<Core>,
    place: Place,
    reserve_bytes: u64,
    refusing: Arc<AtomicBool>,
    sharers: Arc<AtomicU64>,
) {
    let (condition, is_replaced) = (Condition::Good, false);
    let mut watch = Watch { place, reserve_bytes, refusing, sharers, condition, is_replaced, attempts: 0, pause: 0 };
    loop {
        let place = watch.place.clone();
        let found = ring::op::unblock(move || look(&place)).await;
        watch.judge(&core, found);
        watch.revive(&core).await;
        ring::sleep(LOOK_EVERY).await;
    }
}

struct Watch {
    place: Place,
    reserve_bytes: u64,
    sharers: Arc<AtomicU64>,
    refusing: Arc<AtomicBool>,
    condition: Condition,
    is_replaced: bool,
    /// To open the failed store, so far, and looks until the next.
    attempts: u32,
    pause: u32,
}

impl Watch {
    fn judge(&mut self, core: &Core, found: Found) {
        let (condition, capacity) = match found {
            Found::There(capacity) if is_low(&capacity, self.reserve_bytes) => (Condition::LowSpace, capacity),
            Found::There(capacity) => (Condition::Good, capacity),
            Found::Gone | Found::Replaced => (Condition::Vanished, Capacity::default()),
        };
        let is_replaced = found == Found::Replaced;
        core.set_space(condition, capacity.total_bytes, capacity.free_bytes);
        core.metrics.space(&part(&capacity, self.sharers.load(Ordering::Relaxed)));
        self.refusing.store(!core.takes_changes(), Ordering::Relaxed);
        if (condition, is_replaced) == (self.condition, self.is_replaced) {
            return;
        }
        (self.condition, self.is_replaced) = (condition, is_replaced);
        let (dir, free, reserve) = (self.place.path().display(), capacity.free_bytes, self.reserve_bytes);
        let inodes = capacity.free_inodes;
        match condition {
            Condition::Good => info!(%dir, free, "the target's directory is in order"),
            Condition::LowSpace => {
                warn!(%dir, free, reserve, inodes, "no space or inodes left but the reserve: nothing new can be made");
            }
            Condition::Vanished if is_replaced => error!(
                %dir,
                "the target's directory was replaced: nothing can be changed until it is put back, or the service is started again"
            ),
            Condition::Vanished => error!(%dir, "the target's directory is gone: nothing can be changed"),
        }
    }

    /// A store that has failed takes no writes until it is opened again. Its disk may take any time for that, or hang for
    /// good, so a thread of its own waits for it: the shard says meanwhile that it is busy, and can be stopped.
    async fn revive(&mut self, core: &Core) {
        if !core.store().is_failed() {
            (self.attempts, self.pause) = (0, 0);
            return;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        // Without the reserve it would fail at the first table file.
        if self.condition != Condition::Good {
            return;
        }
        // Nor where a quota is used up, or all descriptors are: then it would be closed for nothing, and nobody could read.
        if let Some(room) = core.store().room_to_reopen()
            && let Err(error) = ring::op::unblock(move || room.try_out()).await
        {
            error!(%error, "the store takes no writes, and there is no room to open it again: reads go on");
            return self.try_later();
        }
        core.store_closed();
        let reopening = core.store().begin_reopening();
        let (done, mut reopened) = ring::mailbox::mailbox();
        let thread = std::thread::Builder::new().name("reopen".into());
        let started = thread.spawn(move || done.send(reopening.run()));
        let result = match (started, reopened.recv().await) {
            (Ok(_), Some(reopened)) => core.store().end_reopening(reopened),
            (Ok(_), None) => Err(KvError::Io("the thread that opens the store has ended".into())),
            (Err(error), _) => Err(KvError::Io(format!("no thread to open the store: {error}"))),
        };
        match result {
            Ok(()) => {
                core.store_reopened();
                info!("the store has been opened again and takes writes");
            }
            // What is in memory here is more than the store has: another start begins with that.
            Err(error @ KvError::Lost(_)) => core.give_up(error),
            Err(error) => error!(%error, "the store cannot be opened again yet"),
        }
        self.try_later();
    }

    fn try_later(&mut self) {
        self.attempts += 1;
        self.pause = self.attempts.min(REOPEN_PAUSE_MAX);
    }
}

fn is_low(capacity: &Capacity, reserve_bytes: u64) -> bool {
    let reserved = RESERVED_INODES.min(capacity.total_inodes / RESERVED_INODES_PART);
    capacity.free_bytes < reserve_bytes || capacity.free_inodes < reserved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_run_out_like_bytes() {
        let plenty = Capacity { total_bytes: 100, free_bytes: 50, total_inodes: 1000, free_inodes: 62 };
        assert!(!is_low(&plenty, 50) && is_low(&plenty, 51));
        assert!(is_low(&Capacity { free_inodes: 61, ..plenty }, 0));
        let unlimited = Capacity { total_inodes: 0, free_inodes: 0, ..plenty };
        assert!(!is_low(&unlimited, 50), "this file system makes as many as it needs");
    }

    #[test]
    fn a_directory_without_its_identity_is_gone() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, aside) = (dir.path().join("target"), dir.path().join("aside"));
        let make = || std::fs::create_dir(&path).expect("made");
        let identify = || std::fs::write(path.join(IDENTITY_FILE), "").expect("writes");
        make();
        let place = Place::of(&path).expect("there");
        assert_eq!(look(&place), Found::Gone);
        identify();
        assert!(matches!(look(&place), Found::There(capacity) if capacity.total_bytes > 0));
        std::fs::rename(&path, &aside).expect("moved");
        assert_eq!(look(&place), Found::Gone);
        // As a backup is put in its place.
        make();
        assert_eq!(look(&place), Found::Gone);
        identify();
        assert_eq!(look(&place), Found::Replaced);
        std::fs::rename(&path, dir.path().join("backup")).expect("moved");
        std::fs::rename(&aside, &path).expect("moved back");
        assert!(matches!(look(&place), Found::There(_)));
    }
}
