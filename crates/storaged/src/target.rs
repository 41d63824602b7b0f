//! One storage target as all lanes of the node see it: its space and its health.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cluster::capacity::Capacity;
use conf::Fatal;
use conf::file_system::statvfs;
use conf::place::Place;
use ring::Helpers;
use types::error::Errno;
use types::id::TargetId;

use crate::bench::Bench;
use crate::losses::{self, Begun};
use crate::object_table::{first_version, incarnation_of};
use crate::pulse::Pulse;
use crate::silence::{self, Silence};
use crate::syncer::Syncer;

/// How long a target counts as failing after its last input/output error.
const FAILING_FOR: Duration = Duration::from_secs(60);
/// Inodes that stay free, at most and as a part of all: the service needs some for its own files, and so do others on the
/// same file system, such as a metadata service, which keeps fewer.
const RESERVED_INODES: u64 = 256;
const RESERVED_INODES_PART: u64 = 8;
/// What an object takes: its file, and perhaps one for its checksums.
const OBJECT_INODES: u64 = 2;
/// Calls of one target that block, such as listings and the opening of cold files, at once.
const HELPERS_MAX: usize = 8;

/// What the last probe and the last requests say of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Health {
    Good,
    /// Mounted read-only: reads go on, changes are refused with `EROFS`.
    ReadOnly,
    /// The disk answered `EIO` lately: requests are still tried.
    Failing,
    /// The directory or its identity is gone: every request is refused with `EIO`, since "no such object" would be
    /// taken for a hole.
    Vanished,
    /// Another directory has its name: refused as well, since the lanes have the one open that is out of sight, and the
    /// next start would serve the other one.
    Replaced,
}

impl Health {
    fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Good,
            1 => Self::ReadOnly,
            2 => Self::Failing,
            3 => Self::Vanished,
            _ => Self::Replaced,
        }
    }
}

/// Shared by lanes and by the thread that probes it.
pub(crate) struct Target {
    /// Given by mgmtd at the first registration.
    id: OnceLock<TargetId>,
    pub(crate) path: PathBuf,
    /// The directory that the lanes have open. Of one without an identity, in tests, it is not known.
    place: OnceLock<Place>,
    /// Bytes that stay free for others on the same file system.
    reserve_bytes: u64,
    total_bytes: AtomicU64,
    /// Free bytes above the reserve as of the last probe, less what was admitted since.
    available_bytes: AtomicU64,
    /// 0 where the file system makes inodes as it needs them.
    total_inodes: AtomicU64,
    /// Free inodes above the reserve as of the last probe, less what was made since.
    free_inodes: AtomicU64,
    /// How often it was begun: versions of its objects depend on it.
    incarnation: AtomicU64,
    /// Objects made since the start.
    creations: AtomicU64,
    /// Changes with lower versions, acknowledged and not synced, may have been lost.
    lost_before: AtomicU64,
    /// The last incarnations that have served it.
    served: OnceLock<Vec<u64>>,
    /// Until it is served.
    begun: Mutex<Option<Begun>>,
    /// Its directory, where losses are noted.
    root: OnceLock<Arc<File>>,
    /// Syncs of the whole file system that have failed.
    failed_syncs: AtomicU64,
    /// Targets of this node on the same file system, this one counted: each has its part of the capacity.
    sharers: AtomicU64,
    /// No object was there when it was last searched for, and none was made since.
    empty: AtomicBool,
    health: AtomicU8,
    failed_at: Mutex<Option<Instant>>,
    /// The disk has refused something since the start.
    has_failed: AtomicBool,
    pub(crate) bench: Bench,
    pub(crate) pulse: Arc<Pulse>,
    silence: Silence,
    silence_told: AtomicBool,
    /// For calls that block: of this target alone, so that its disk holds up no other.
    pub(crate) helpers: Helpers,
    pub(crate) syncer: Syncer,
}

impl Target {
    #[must_use]
    pub(crate) fn new(path: PathBuf, reserve_bytes: u64) -> Self {
        Self {
            id: OnceLock::new(),
            path,
            place: OnceLock::new(),
            reserve_bytes,
            total_bytes: AtomicU64::new(0),
            available_bytes: AtomicU64::new(0),
            total_inodes: AtomicU64::new(0),
            free_inodes: AtomicU64::new(0),
            incarnation: AtomicU64::new(0),
            creations: AtomicU64::new(0),
            lost_before: AtomicU64::new(0),
            served: OnceLock::new(),
            begun: Mutex::new(None),
            root: OnceLock::new(),
            failed_syncs: AtomicU64::new(0),
            sharers: AtomicU64::new(1),
            empty: AtomicBool::new(false),
            health: AtomicU8::new(Health::Good as u8),
            failed_at: Mutex::new(None),
            has_failed: AtomicBool::new(false),
            bench: Bench::default(),
            pulse: Arc::new(Pulse::new(Instant::now())),
            silence: Silence::default(),
            silence_told: AtomicBool::new(false),
            helpers: Helpers::new("helper", HELPERS_MAX),
            syncer: Syncer::new(),
        }
    }

    /// 0 before the first registration.
    #[must_use]
    pub(crate) fn id(&self) -> TargetId {
        self.id.get().copied().unwrap_or_default()
    }

    /// The first call counts: an id is for ever.
    pub(crate) fn set_id(&self, id: TargetId) {
        let _ = self.id.set(id);
    }

    /// It is this directory from here on, and no other one that has its path.
    pub(crate) fn set_place(&self, place: Place) {
        let _ = self.place.set(place);
    }

    /// # Errors
    /// Where another directory is in its place, or none.
    pub(crate) fn check_place(&self) -> io::Result<()> {
        self.place.get().map_or(Ok(()), Place::check)
    }

    /// Bytes that stay free for others.
    pub(crate) fn reserve(&self) -> u64 {
        self.reserve_bytes
    }

    /// Looks what may have been lost before its `incarnation`th time.
    ///
    /// # Errors
    /// As [`losses::begin`].
    pub(crate) fn begin(&self, incarnation: u64) -> Result<(), Fatal> {
        let begun = losses::begin(&self.path, incarnation)?;
        self.lost_before.store(first_version(begun.lost_before()), Ordering::Relaxed);
        self.incarnation.store(incarnation, Ordering::Relaxed);
        let _ = self.served.set(begun.served().to_vec());
        let _ = self.root.set(Arc::clone(begun.root()));
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = Some(begun);
        Ok(())
    }

    /// Notes on its disk, before this returns, that it is served from here on. Waits for the disk, the first time.
    ///
    /// # Errors
    /// As [`Begun::serve`], and where another directory is in its place by now.
    pub(crate) fn serve(&self) -> io::Result<()> {
        self.check_place()?;
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(begun) = &*begun {
            begun.serve(&self.path).map_err(|fatal| io::Error::other(fatal.message))?;
        }
        *begun = None;
        Ok(())
    }

    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation.load(Ordering::Relaxed)
    }

    /// Whether an acknowledged change of this version may be gone though nothing has failed; 0 is no version.
    pub(crate) fn may_have_lost(&self, version: u64) -> bool {
        version != 0 && (version < self.lost_before.load(Ordering::Relaxed) || self.is_of_a_later_time(version))
    }

    /// Whether this is a version of what became of the target after the copy of it was made that is here now.
    fn is_of_a_later_time(&self, version: u64) -> bool {
        let (incarnation, served) = (incarnation_of(version), self.served.get().map_or(&[][..], Vec::as_slice));
        // Those that were served before are not remembered.
        let is_remembered = served.first().is_some_and(|&first| first < incarnation);
        is_remembered && incarnation < self.incarnation() && !served.contains(&incarnation)
    }

    /// The first version that cannot have been lost with the memory of the host, or to a disk that refused it unheard.
    pub(crate) fn lost_before(&self) -> u64 {
        self.lost_before.load(Ordering::Relaxed)
    }

    /// Syncs of the whole file system that have failed: the kernel tells each lane's descriptor, and one lane may sync for all.
    pub(crate) fn failed_syncs(&self) -> u64 {
        self.failed_syncs.load(Ordering::SeqCst)
    }

    pub(crate) fn note_created(&self) {
        self.creations.fetch_add(1, Ordering::SeqCst);
        self.empty.store(false, Ordering::SeqCst);
        let left = |free: u64| Some(free.saturating_sub(OBJECT_INODES));
        let _ = self.free_inodes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    }

    /// Nothing may be made but what is needed to go on.
    pub(crate) fn is_short_of_inodes(&self) -> bool {
        self.total_inodes.load(Ordering::Relaxed) != 0 && self.free_inodes.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.empty.load(Ordering::SeqCst)
    }

    /// Searches for an object with `search`, which may take long where there were many.
    pub(crate) fn probe_empty(&self, search: impl FnOnce() -> bool) {
        let before = self.creations.load(Ordering::SeqCst);
        let is_unchanged = || self.creations.load(Ordering::SeqCst) == before;
        self.empty.store(!search() && is_unchanged(), Ordering::SeqCst);
        // Who makes an object counts it, and then clears this: one that was counted since may have cleared it too early.
        if !is_unchanged() {
            self.empty.store(false, Ordering::SeqCst);
        }
    }

    #[must_use]
    pub(crate) fn health(&self) -> Health {
        Health::from_u8(self.health.load(Ordering::Relaxed))
    }

    /// This target's part of its file system, so that the sum over the targets of a node counts each file system once.
    /// The reserve is taken off what is free. One that is away has none.
    #[must_use]
    pub(crate) fn capacity(&self) -> Capacity {
        if self.check_present().is_err() {
            return Capacity::default();
        }
        let part = |whole: &AtomicU64| whole.load(Ordering::Relaxed) / self.sharers();
        Capacity {
            total_bytes: part(&self.total_bytes),
            free_bytes: part(&self.available_bytes),
            total_inodes: part(&self.total_inodes),
            free_inodes: part(&self.free_inodes),
        }
    }

    /// How many targets of this node lie on its file system, itself among them.
    #[must_use]
    pub(crate) fn sharers(&self) -> u64 {
        self.sharers.load(Ordering::Relaxed)
    }

    /// Whether any request can be served at all.
    ///
    /// # Errors
    /// `EIO` where the directory vanished, or another one is in its place.
    pub(crate) fn check_present(&self) -> Result<(), Errno> {
        if matches!(self.health(), Health::Vanished | Health::Replaced) { Err(Errno::EIO) } else { Ok(()) }
    }

    /// Takes `bytes` of new data from the free space above the reserve.
    ///
    /// # Errors
    /// `ENOSPC` where they are not there.
    pub(crate) fn admit(&self, bytes: u64) -> Result<(), Errno> {
        self.available_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |available| available.checked_sub(bytes))
            .map(drop)
            .map_err(|_| Errno::ENOSPC)
    }

    /// So many bytes are not there: what goes where nothing is yet has to be refused.
    pub(crate) fn is_short_of(&self, bytes: u64) -> bool {
        self.available_bytes.load(Ordering::Relaxed) < bytes
    }

    #[cfg(test)]
    pub(crate) fn set_available(&self, bytes: u64) {
        self.available_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The disk has refused something since the start: what it was given before may not be there, whoever asks it now.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Told of what was acknowledged and could not be written: this process may be killed before all have heard of it.
    pub(crate) fn note_loss(&self) {
        if self.has_failed.swap(true, Ordering::Relaxed) {
            return;
        }
        // Wherever it is by now.
        let (Some(root), dir) = (self.root.get().cloned(), self.path.clone()) else { return };
        if let Err(error) = thread::Builder::new().name("doubt".into()).spawn(move || losses::doubt(&root, &dir)) {
            tracing::error!(target = %self.id(), %error, "if this process is killed, nobody is told what the disk has refused");
        }
    }

    /// Told of what a sync of the whole file system has found, which does not say whose data it was. What this process has
    /// acknowledged it hears of by the object's file too, which it had open; of what earlier ones have, it hears here alone.
    pub(crate) fn note_loss_of_some(&self) {
        self.failed_syncs.fetch_add(1, Ordering::SeqCst);
        self.lost_before.fetch_max(first_version(self.incarnation()), Ordering::Relaxed);
        self.note_loss();
    }

    /// Told of every error of a file call that was to change something: what was acknowledged before may be refused with it.
    pub(crate) fn note_refusal(&self, errno: Errno, what: &str) {
        self.note_error(errno, what);
        if errno == Errno::EIO {
            self.note_loss();
        }
    }

    /// Told of every error of a file call: some of them say that the disk is ill.
    pub(crate) fn note_error(&self, errno: Errno, what: &str) {
        let health = match errno {
            Errno::EIO => Health::Failing,
            Errno::EROFS => Health::ReadOnly,
            _ => return,
        };
        if health == Health::Failing {
            *self.failed_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        if self.health() == Health::Good {
            self.set_health(health, what);
        }
    }

    pub(crate) fn note_vanished(&self, what: &str) {
        self.set_health(Health::Vanished, what);
    }

    fn set_health(&self, health: Health, what: &str) {
        let before = Health::from_u8(self.health.swap(health as u8, Ordering::Relaxed));
        if before == health {
            return;
        }
        let (target, path) = (self.id(), self.path.display());
        match health {
            Health::Good => tracing::info!(%target, %path, "target is good again"),
            Health::ReadOnly => tracing::error!(%target, %path, what, "target is read-only: changes are refused"),
            Health::Failing => tracing::error!(%target, %path, what, "target answers with input/output errors"),
            Health::Vanished => tracing::error!(%target, %path, what, "target's directory vanished: it is not served"),
            Health::Replaced => tracing::error!(
                %target, %path, what, "target's directory was replaced: put it back, or start the service again to serve this one"
            ),
        }
    }

    /// Probes it, and asks the disk itself where this ends nothing of what it has to do: most of what a probe asks for the
    /// kernel has in its memory. May block for as long as the disk does, which others hear of by [`Self::hangs`].
    pub(crate) fn look(&self, identity_file: &Path) {
        self.silence.during(|| {
            self.probe(identity_file);
            if self.pulse.is_still(Instant::now()) && self.check_present().is_ok() {
                // An error is an answer, which who needs the disk gets as well.
                let _ = silence::read_past_cache(identity_file);
            }
        });
        if self.silence_told.swap(false, Ordering::Relaxed) {
            tracing::info!(target = %self.id(), path = %self.path.display(), "target's disk answers again");
        }
    }

    /// Whether the disk says neither yes nor no; the first time it is logged. Waits for nobody.
    pub(crate) fn hangs(&self, now: Instant) -> bool {
        let hangs = self.silence.is_long(now);
        if hangs && !self.silence_told.swap(true, Ordering::Relaxed) {
            let (target, path) = (self.id(), self.path.display());
            tracing::error!(%target, %path, "target's disk hangs, see the kernel's log: what is asked of it has to wait");
        }
        hangs
    }

    /// Looks at the file system under the target. May block for as long as the disk does.
    pub(crate) fn probe(&self, identity_file: &Path) {
        let statvfs = match statvfs(&self.path) {
            Ok(statvfs) => statvfs,
            Err(error) => return self.set_health(Health::Vanished, &error.to_string()),
        };
        if let Err(error) = std::fs::symlink_metadata(identity_file) {
            return self.set_health(Health::Vanished, &format!("{}: {error}", identity_file.display()));
        }
        match self.place.get().map_or(Ok(true), Place::is_kept) {
            Ok(true) => {}
            Ok(false) => return self.set_health(Health::Replaced, "another directory is in its place"),
            Err(error) => return self.set_health(Health::Vanished, &error.to_string()),
        }
        let block = statvfs.f_frsize;
        self.total_bytes.store(statvfs.f_blocks * block, Ordering::Relaxed);
        self.available_bytes.store((statvfs.f_bavail * block).saturating_sub(self.reserve_bytes), Ordering::Relaxed);
        self.total_inodes.store(statvfs.f_files, Ordering::Relaxed);
        let reserved = RESERVED_INODES.min(statvfs.f_files / RESERVED_INODES_PART);
        self.free_inodes.store(statvfs.f_favail.saturating_sub(reserved), Ordering::Relaxed);
        let failing = self
            .failed_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some_and(|failed_at| failed_at.elapsed() < FAILING_FOR);
        if statvfs.f_flag & libc::ST_RDONLY != 0 {
            self.set_health(Health::ReadOnly, "mounted read-only");
        } else if refuses_changes(identity_file) {
            self.set_health(Health::ReadOnly, "turned read-only after an error");
        } else if failing {
            self.set_health(Health::Failing, "failed within the last minute");
        } else {
            self.set_health(Health::Good, "");
        }
    }
}

/// An ext4 that turned read-only by itself says so in its flags before Linux 6.14, and from then on only by what it refuses.
/// Nothing is written.
fn refuses_changes(file: &Path) -> bool {
    let opened = std::fs::OpenOptions::new().write(true).open(file);
    opened.is_err_and(|error| error.raw_os_error() == Some(libc::EROFS))
}

/// Finds out which of a node's targets lie on the same file system.
pub(crate) fn count_sharers(targets: &[Arc<Target>]) {
    let device = |target: &Arc<Target>| std::fs::metadata(&target.path).map(|metadata| metadata.dev()).ok();
    let devices: Vec<Option<u64>> = targets.iter().map(device).collect();
    for (target, device) in targets.iter().zip(&devices) {
        let same = devices.iter().filter(|other| device.is_some() && *other == device).count();
        target.sharers.store(same.max(1) as u64, Ordering::Relaxed);
    }
}

/// The last thing that is done with them, see [`losses::end_all`].
pub(crate) fn end_all(targets: Vec<Arc<Target>>) {
    losses::end_all(targets.into_iter());
}

impl losses::Ending for Arc<Target> {
    fn dir(&self) -> &Path {
        &self.path
    }

    fn is_served(&self) -> bool {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn check_place(&self) -> io::Result<()> {
        Target::check_place(self)
    }

    fn has_failed(&self) -> bool {
        Target::has_failed(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &Path, reserve: u64) -> Target {
        let target = Target::new(path.to_path_buf(), reserve);
        target.probe(path);
        target
    }

    #[test]
    fn the_reserve_is_kept_free() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let free = target(dir.path(), 0).capacity().free_bytes;
        assert!(free > 1 << 20);
        assert_eq!(target(dir.path(), u64::MAX).admit(1), Err(Errno::ENOSPC));
        let small = target(dir.path(), free.saturating_sub(512 << 20));
        assert_eq!(small.admit(1 << 30), Err(Errno::ENOSPC));
        assert_eq!(small.admit(4096), Ok(()));
    }

    #[test]
    fn inodes_have_a_reserve_too() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let target = target(dir.path(), 0);
        assert!(!target.is_short_of_inodes());
        target.total_inodes.store(1000, Ordering::Relaxed);
        target.free_inodes.store(3, Ordering::Relaxed);
        target.note_created();
        assert!(!target.is_short_of_inodes());
        target.note_created();
        assert!(target.is_short_of_inodes());
        target.total_inodes.store(0, Ordering::Relaxed);
        assert!(!target.is_short_of_inodes(), "this file system makes as many as it needs");
    }

    #[test]
    fn targets_on_one_file_system_share_its_capacity() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let targets = [Arc::new(target(dir.path(), 0)), Arc::new(target(dir.path(), 0))];
        let alone = targets[0].capacity();
        count_sharers(&targets);
        let shared = targets[0].capacity();
        assert_eq!((shared.total_bytes, shared.total_inodes), (alone.total_bytes / 2, alone.total_inodes / 2));
        assert_eq!(targets[0].admit(alone.free_bytes / 2 + 1), Ok(()), "each may still fill all of it");
    }

    #[test]
    fn emptiness_is_claimed_only_when_nothing_was_made_meanwhile() {
        let dir = tempfile::tempdir().expect("a directory");
        let target = target(dir.path(), 0);
        assert!(!target.is_empty(), "unknown is not empty");
        target.probe_empty(|| false);
        assert!(target.is_empty());
        target.note_created();
        assert!(!target.is_empty());
        target.probe_empty(|| {
            target.note_created();
            false
        });
        assert!(!target.is_empty());
        target.probe_empty(|| true);
        assert!(!target.is_empty());
    }

    #[test]
    fn a_missing_directory_is_noticed_and_found_again() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("target");
        std::fs::create_dir(&path).expect("made");
        let target = target(&path, 0);
        assert_eq!(target.health(), Health::Good);
        std::fs::rename(&path, dir.path().join("away")).expect("renamed");
        target.probe(&path);
        assert_eq!((target.health(), target.check_present()), (Health::Vanished, Err(Errno::EIO)));
        assert_eq!(target.capacity(), Capacity::default(), "nobody can use it");
        std::fs::rename(dir.path().join("away"), &path).expect("renamed");
        target.probe(&path);
        assert_eq!(target.health(), Health::Good);
        assert!(target.capacity().free_bytes > 0);
    }

    #[test]
    fn another_directory_in_its_place_is_neither_served_nor_written() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (path, away) = (dir.path().join("target"), dir.path().join("away"));
        let make = |text: &str| {
            std::fs::create_dir(&path).expect("made");
            std::fs::write(path.join("identity.toml"), "").expect("written");
            std::fs::write(path.join("written.toml"), text).expect("written");
        };
        make("epoch = 'x'\ncomplete = true\nlost_before = 1\n");
        let target = Arc::new(target(&path, 0));
        target.set_place(Place::of(&path).expect("there"));
        target.begin(7).expect("begun");
        let probe = || {
            target.probe(&path.join("identity.toml"));
            (target.health(), target.check_present())
        };
        std::fs::rename(&path, &away).expect("renamed");
        make("of a copy");
        assert_eq!(probe(), (Health::Replaced, Err(Errno::EIO)));
        assert!(target.serve().is_err(), "it was replaced before it was served");
        target.note_refusal(Errno::EIO, "write");
        for _ in 0..1000 {
            if away.join("written.toml.doubted").exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!away.join("written.toml").exists(), "it is noted what was refused");
        assert!(path.join("written.toml").exists(), "nothing of the copy's was");
        std::fs::rename(&path, dir.path().join("copy")).expect("renamed");
        assert_eq!(probe(), (Health::Vanished, Err(Errno::EIO)));
        std::fs::rename(&away, &path).expect("renamed");
        assert_eq!(probe(), (Health::Failing, Ok(())));
        target.serve().expect("noted");
        let is_complete = |path: &Path| {
            std::fs::read_to_string(path.join("written.toml")).expect("there").contains("complete = true")
        };
        assert!(!is_complete(&path));
        std::fs::rename(&path, &away).expect("renamed");
        make("complete = false");
        end_all(vec![target]);
        assert_eq!(std::fs::read_to_string(path.join("written.toml")).expect("there"), "complete = false");
        assert!(!is_complete(&away));
    }

    #[test]
    fn the_end_of_what_was_never_served_leaves_what_was_lost_before() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let begin = |incarnation| {
            let target = target(dir.path(), 0);
            target.begin(incarnation).expect("begun");
            Arc::new(target)
        };
        begin(7).serve().expect("noted");
        // In another epoch of the page cache, as after a boot.
        let record = dir.path().join("written.toml");
        let text = std::fs::read_to_string(&record).expect("there").replace("epoch = \"", "epoch = \"x");
        std::fs::write(&record, text).expect("written");
        let version = first_version(7) + 1;
        let early = begin(8);
        assert!(early.may_have_lost(version));
        end_all(vec![early]);
        assert!(begin(9).may_have_lost(version), "nobody was told of it yet");
        let served = begin(10);
        served.serve().expect("noted");
        end_all(vec![served]);
        assert!(begin(11).may_have_lost(version));
    }

    #[test]
    fn what_the_disk_has_refused_is_in_doubt_after_a_kill() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let start = |incarnation| {
            let target = target(dir.path(), 0);
            target.begin(incarnation).expect("begun");
            target.serve().expect("noted");
            target
        };
        let first = start(1);
        let version = first_version(1) + 1;
        assert!(!first.may_have_lost(version) && !start(2).may_have_lost(version));
        first.note_loss();
        let is_noted = || !dir.path().join("written.toml").exists();
        for _ in 0..5000 {
            if is_noted() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        assert!(is_noted());
        assert!(!first.may_have_lost(version), "who was there can be told one by one");
        assert!(start(3).may_have_lost(version));
    }

    #[test]
    fn what_was_acknowledged_before_an_older_copy_was_put_back_is_lost() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let serve = |incarnation| {
            let target = Arc::new(target(dir.path(), 0));
            target.begin(incarnation).expect("begun");
            target.serve().expect("noted");
            target
        };
        let lost = |target: &Target| [100, 200, 300].map(|by| target.may_have_lost(first_version(by) + 1));
        serve(100);
        end_all(vec![serve(200)]);
        let record = dir.path().join("written.toml");
        let copy = std::fs::read(&record).expect("there");
        assert_eq!(lost(&serve(300)), [false; 3]);
        std::fs::write(&record, copy).expect("put back");
        for incarnation in [400, 500] {
            assert_eq!(lost(&serve(incarnation)), [false, false, true], "in {incarnation}");
        }
    }

    #[test]
    fn input_output_errors_make_it_failing() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let target = target(dir.path(), 0);
        target.note_refusal(Errno::ENOSPC, "write");
        assert_eq!((target.health(), target.has_failed()), (Health::Good, false));
        target.note_error(Errno::EIO, "read");
        assert_eq!((target.health(), target.has_failed()), (Health::Failing, false));
        target.note_refusal(Errno::EIO, "write");
        assert!(target.has_failed());
        target.probe(dir.path());
        assert_eq!((target.health(), target.check_present()), (Health::Failing, Ok(())));
    }
}
