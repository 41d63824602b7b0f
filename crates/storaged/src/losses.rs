//! Which acknowledged changes of a target may have been lost: those that were in the page cache only when the host lost its
//! power, or the file system went away. Whoever wants them on disk then has to hear that they are not there.
//!
//! A change is known by its version, whose upper part is the incarnation of the service that made it. At a start it is known
//! whether the page cache is the one of before ([`conf::page_cache`]), and whether the service had written everything out
//! at its end. If neither, then what earlier incarnations have acknowledged, and nobody has synced, may be gone. So it may
//! where a disk has refused something: the kernel tells that once, and who was told may be killed. Then the record loses its
//! name at once, and nothing is known. What a killed service had acknowledged may be refused in the time of the next, which
//! has no open file to hear of it by: where a sync of the whole file system fails, all of before may be gone, too.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use conf::Fatal;
use conf::atomic::{beside, sync_dir};
use conf::page_cache;
use serde::{Deserialize, Serialize};

use crate::record;
use crate::threads::{self, Start, give};

/// Name of the file with [`Record`] in a target's directory.
const FILE: &str = "written.toml";
/// What it is called once it is in doubt: kept as room for the next one.
const DOUBTED: &str = "written.toml.doubted";
/// Incarnations that are remembered.
const SERVED_MAX: usize = 64;
/// Longest wait for the disks at the end.
pub(crate) const END_MAX: Duration = Duration::from_secs(3);

/// What is known from one start to the next.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    /// Within which the page cache has not been lost.
    epoch: String,
    /// The service has ended with everything on disk.
    complete: bool,
    /// What earlier incarnations have acknowledged may be gone.
    lost_before: u64,
    /// The last incarnations that have served it. Any other since the first of them has served what became of it after this
    /// copy was made, which was put back.
    #[serde(default)]
    served: Vec<u64>,
}

impl Record {
    /// For the time of this `incarnation`. Where nothing is known of what was before, it may be gone.
    fn next(before: Option<&Record>, epoch: String, incarnation: u64) -> Self {
        let kept = before.filter(|before| before.complete || before.epoch == epoch);
        let mut served = before.map_or_else(Vec::new, |before| before.served.clone());
        served.push(incarnation);
        served.drain(..served.len().saturating_sub(SERVED_MAX));
        Self { epoch, complete: false, lost_before: kept.map_or(incarnation, |before| before.lost_before), served }
    }
}

/// What was found at a start. Who dies before it serves has acknowledged nothing: until then the record stays as it was.
pub(crate) struct Begun(Record, Arc<File>);

impl Begun {
    /// The incarnation before which changes may have been lost.
    pub(crate) fn lost_before(&self) -> u64 {
        self.0.lost_before
    }

    /// The last incarnations that have served it, with this one.
    pub(crate) fn served(&self) -> &[u64] {
        &self.0.served
    }

    /// The directory itself, whatever has its name later.
    pub(crate) fn root(&self) -> &Arc<File> {
        &self.1
    }

    /// Notes that from here on the target in `dir` is served, on disk before this returns.
    ///
    /// # Errors
    /// Where the directory cannot be written.
    pub(crate) fn serve(&self, dir: &Path) -> Result<(), Fatal> {
        write(dir, &self.0)?;
        // Where it is missing, the record needed no other room.
        let _ = std::fs::rename(dir.join(DOUBTED), beside(&dir.join(FILE)));
        Ok(())
    }
}

/// Looks what may have been lost of the target in `dir` before the start of `incarnation`.
///
/// # Errors
/// Where the directory cannot be read, or the file is damaged.
pub(crate) fn begin(dir: &Path, incarnation: u64) -> Result<Begun, Fatal> {
    let path = dir.join(FILE);
    let before = match std::fs::read_to_string(&path) {
        Ok(text) => Some(toml::from_str::<Record>(&text).map_err(|error| {
            let (path, error) = (path.display(), error.message());
            Fatal::usage(format!(
                "{path} is damaged: {error}; remove it: then all that was not synced is taken for lost, and who syncs it is told"
            ))
        })?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(Fatal::unusable(format!("{}: {error}", path.display()), &error)),
    };
    let root = File::open(dir).map_err(|error| Fatal::unusable(format!("{}: {error}", dir.display()), &error))?;
    let epoch = format!("{:016x}", page_cache::epoch(root.as_raw_fd()));
    Ok(Begun(Record::next(before.as_ref(), epoch, incarnation), Arc::new(root)))
}

/// Writes all of the target's file system to its disk and notes that, or that the disk has refused something: now, or as
/// `has_failed` knows, since the kernel tells it once and may have told somebody else. Waits for the disk.
///
/// # Errors
/// Where that could not be done. Where all is on the disk and only that cannot be noted, it is as if the service had been
/// killed.
fn end(dir: &Path, has_failed: impl Fn() -> bool) -> io::Result<()> {
    let root = File::open(dir)?;
    if has_failed() {
        doubt(&root, dir);
        return Ok(());
    }
    // SAFETY: a live descriptor.
    if unsafe { libc::syncfs(root.as_raw_fd()) } != 0 {
        let refusal = io::Error::last_os_error();
        doubt(&root, dir);
        return Err(refusal);
    }
    if !has_failed() {
        let text = std::fs::read_to_string(dir.join(FILE))?;
        let record: Record = toml::from_str(&text).map_err(io::Error::other)?;
        write(dir, &Record { complete: true, ..record }).map_err(|fatal| io::Error::other(fatal.to_string()))?;
    }
    // Also what was heard while that was written: it holds for whoever starts in another epoch, too.
    if has_failed() {
        doubt(&root, dir);
        sync_dir(dir)?;
    }
    Ok(())
}

/// The disk has refused something of the target's whose directory this is: for the next start it is as if the page cache had
/// been lost. That takes no space, and holds at once for who starts in the same epoch; for others it does not matter. May
/// block.
/// `dir` is how it is called where that fails.
pub(crate) fn doubt(root: &File, dir: &Path) {
    match set_aside(root) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::error!(dir = %dir.display(), %error, "after a restart nobody is told what the disk has refused");
        }
        _ => {}
    }
}

fn set_aside(root: &File) -> io::Result<()> {
    let (root, file, doubted) = (root.as_raw_fd(), CString::new(FILE)?, CString::new(DOUBTED)?);
    // SAFETY: a live descriptor, and names that end in zero and live through the call.
    let done = unsafe { libc::renameat(root, file.as_ptr(), root, doubted.as_ptr()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What is asked of a target at its end.
pub(crate) trait Ending: Send + 'static {
    fn dir(&self) -> &Path;
    /// What [`Begun::serve`] writes is on the disk. Until then the record is of a time before, and stays.
    fn is_served(&self) -> bool;
    /// Whether what is at `dir` is still what was served.
    ///
    /// # Errors
    /// Where nothing is there, or something else.
    fn check_place(&self) -> io::Result<()>;
    /// The disk has refused something since the start.
    fn has_failed(&self) -> bool;
}

/// [`end`] for all targets at once, which have to be done with everything else but what waits for their disks. One whose disk
/// takes too long is left as if the service had been killed.
pub(crate) fn end_all(targets: impl Iterator<Item = impl Ending>) {
    end_all_by(threads::start, targets);
}

fn end_all_by(start: Start, targets: impl Iterator<Item = impl Ending>) {
    let (done, outcomes) = mpsc::channel();
    let mut left = Vec::new();
    for target in targets {
        let done = done.clone();
        // It goes on by itself where nobody waits for it any more.
        let ended = give(start, "end", target, move |target| {
            note_end(&target);
            let _ = done.send(());
        });
        left.extend(ended.err().map(|(target, _)| target));
    }
    // Here rather than not at all, for as long as their disks take: only who has no room for a thread waits for one that hangs.
    left.iter().for_each(note_end);
    drop(done);
    let deadline = Instant::now() + END_MAX;
    loop {
        match outcomes.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!("stopped before everything was on the disks: the kernel goes on with it");
                return;
            }
        }
    }
}

fn note_end(target: &impl Ending) {
    let dir = target.dir();
    // Another directory there has its own record, and nothing of what was written here.
    if target.is_served()
        && let Err(error) = target.check_place().and_then(|()| end(dir, || target.has_failed()))
    {
        tracing::warn!(dir = %dir.display(), %error, "it is not noted that everything is on the disk");
    }
}

fn write(dir: &Path, record: &Record) -> Result<(), Fatal> {
    record::write(dir, FILE, "Written by Weft at each start and end.", record)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::PathBuf;

    use super::*;

    struct Served(PathBuf);

    impl Ending for Served {
        fn dir(&self) -> &Path {
            &self.0
        }

        fn is_served(&self) -> bool {
            true
        }

        fn check_place(&self) -> io::Result<()> {
            Ok(())
        }

        fn has_failed(&self) -> bool {
            false
        }
    }

    /// A start that comes to serve: what may have been lost before it.
    fn served(dir: &Path, incarnation: u64) -> u64 {
        let begun = begin(dir, incarnation).expect("read");
        begun.serve(dir).expect("noted");
        begun.lost_before()
    }

    #[test]
    fn only_a_lost_cache_loses_what_was_acknowledged() {
        let next = |before: Option<&Record>, epoch: &str, incarnation| Record::next(before, epoch.into(), incarnation);
        let first = next(None, "a", 1);
        assert_eq!((first.lost_before, first.complete), (1, false));
        let killed = next(Some(&first), "a", 2);
        assert_eq!(killed.lost_before, 1, "the page cache is the same");
        let stopped = Record { complete: true, ..killed };
        let booted = next(Some(&stopped), "b", 3);
        assert_eq!((booted.lost_before, booted.complete), (1, false), "all was on disk");
        let lost = next(Some(&booted), "c", 4);
        assert_eq!(lost.lost_before, 4);
        assert_eq!(next(Some(&lost), "c", 5).lost_before, 4, "what was lost is not found again");
    }

    #[test]
    fn the_last_incarnations_are_remembered() {
        let next = |before: Option<&Record>, incarnation| Record::next(before, "a".into(), incarnation);
        let mut record = next(None, 1);
        for incarnation in 2..100 {
            record = next(Some(&record), 10 * incarnation);
        }
        assert_eq!((record.served.len(), record.served.last()), (SERVED_MAX, Some(&990)));
    }

    #[test]
    fn it_is_kept_in_the_target() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(served(dir.path(), 7), 7);
        assert_eq!(served(dir.path(), 8), 7, "the same boot and mount");
        end(dir.path(), || false).expect("written");
        let text = std::fs::read_to_string(dir.path().join(FILE)).expect("there");
        assert!(text.contains("complete = true"), "{text}");
        let root = File::open(dir.path()).expect("there");
        doubt(&root, dir.path());
        doubt(&root, dir.path());
        assert_eq!(served(dir.path(), 9), 9, "a disk has refused something");
        let mut names: Vec<_> =
            std::fs::read_dir(dir.path()).expect("there").map(|file| file.expect("read").file_name()).collect();
        names.sort();
        assert_eq!(names, [FILE, "written.toml.new"], "there is room for the next");
        std::fs::write(dir.path().join(FILE), "complete = 7").expect("written");
        assert!(begin(dir.path(), 10).err().expect("damaged").to_string().contains("written.toml is damaged"));
    }

    #[test]
    fn a_start_that_never_served_leaves_the_end_before_it_as_it_was() {
        let dir = tempfile::tempdir().expect("a directory");
        served(dir.path(), 7);
        end(dir.path(), || false).expect("written");
        let boot = |name: &str| {
            let text = std::fs::read_to_string(dir.path().join(FILE)).expect("there");
            let record: Record = toml::from_str(&text).expect("a record");
            write(dir.path(), &Record { epoch: name.into(), ..record }).expect("written");
        };
        boot("a");
        assert_eq!(begin(dir.path(), 8).expect("read").lost_before(), 7);
        boot("b");
        assert_eq!(served(dir.path(), 9), 7, "all was on the disk, and nothing came after it");
        boot("c");
        assert_eq!(served(dir.path(), 10), 10, "what the ninth had acknowledged is lost");
    }

    #[test]
    fn a_refusal_that_is_heard_of_during_the_end_counts() {
        // Before anything, while the disk is waited for, and while the end is noted.
        for heard_at in 0..3 {
            let dir = tempfile::tempdir().expect("a directory");
            served(dir.path(), 7);
            let asked = Cell::new(0);
            let has_failed = || asked.replace(asked.get() + 1) >= heard_at;
            end(dir.path(), has_failed).expect("ended");
            assert_eq!(served(dir.path(), 8), 8, "heard of at {heard_at}");
        }
    }

    #[test]
    fn an_end_that_cannot_be_noted_puts_nothing_in_doubt() {
        let dir = tempfile::tempdir().expect("a directory");
        served(dir.path(), 7);
        // As where there is no space for it.
        let in_the_way = beside(&dir.path().join(FILE));
        std::fs::remove_file(&in_the_way).expect("removed");
        std::fs::create_dir(&in_the_way).expect("made");
        assert!(end(dir.path(), || false).is_err());
        end_all([Served(dir.path().to_path_buf())].into_iter());
        std::fs::remove_dir(&in_the_way).expect("removed");
        assert_eq!(served(dir.path(), 8), 7, "the page cache is the same, and the disk refused nothing");
    }

    #[test]
    fn the_end_is_noted_where_no_thread_can_be_made() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        dirs.iter().for_each(|dir| assert_eq!(served(dir.path(), 7), 7));
        end_all_by(threads::refuse, dirs.iter().map(|dir| Served(dir.path().to_path_buf())));
        for dir in dirs {
            let text = std::fs::read_to_string(dir.path().join(FILE)).expect("there");
            assert!(text.contains("complete = true"), "{text}");
        }
    }
}
