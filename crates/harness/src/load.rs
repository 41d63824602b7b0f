//! Load with a log of what was acknowledged: each worker knows what its folder must hold.
//!
//! A worker has a folder of its own, so what is there follows from what was answered to it. Servers may die as they like:
//! it takes no error from that. Only when the mount itself is killed may calls fail; the one that was under way may have
//! happened or not, and the worker looks which it was.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::dice::Dice;
use crate::syscall;

/// Longest file, in bytes: several chunks where the folder's are small.
const LEN_MAX: u64 = 400_000;
/// Bounds of what one call writes, in bytes.
const LENGTHS: [usize; 4] = [100, 3_000, 30_000, 200_000];
/// Names in a folder, so few that operations meet each other.
const NAMES: u64 = 24;
/// Files that are kept open.
const OPEN_MAX: usize = 3;
/// For a killed mount to be back.
const MOUNT_PATIENCE: Duration = Duration::from_secs(90);

/// What all workers share.
#[derive(Debug, Default)]
pub struct Control {
    pub stop: AtomicBool,
    /// How often the mount was killed; counted before the kill.
    mount_deaths: AtomicU64,
    /// The mount is about to be killed, or not back yet.
    mount_is_down: AtomicBool,
    /// Calls that were answered.
    pub acknowledged: AtomicU64,
}

impl Control {
    /// To be called before the mount is killed: from now on calls may fail.
    pub fn mount_goes(&self) {
        self.mount_is_down.store(true, Ordering::SeqCst);
        self.mount_deaths.fetch_add(1, Ordering::SeqCst);
    }

    /// Calls that begin from now on may not fail.
    pub fn mount_is_back(&self) {
        self.mount_is_down.store(false, Ordering::SeqCst);
    }

    fn excuse(&self) -> Excuse {
        let is_down = self.mount_is_down.load(Ordering::SeqCst);
        Excuse { is_down, deaths: self.mount_deaths.load(Ordering::SeqCst) }
    }
}

/// How the mount was when a call began.
struct Excuse {
    is_down: bool,
    deaths: u64,
}

impl Excuse {
    fn holds(&self, control: &Control) -> bool {
        self.is_down || control.mount_deaths.load(Ordering::SeqCst) != self.deaths
    }
}

/// What a name stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Known {
    File(Vec<u8>),
    Folder,
}

/// Writes of a held file before it is synced.
const UNSYNCED_MAX: usize = 8;

/// A file that is held open, perhaps without a name.
struct Held {
    file: File,
    content: Vec<u8>,
    name: Option<String>,
    /// What its content was before each of the writes that end with the mount if this is killed: those after which it was
    /// neither synced nor closed, nor read.
    unsynced: Vec<Vec<u8>>,
}

pub struct Worker {
    folder: PathBuf,
    dice: Dice,
    known: BTreeMap<String, Known>,
    held: Vec<Held>,
    longest: Duration,
}

/// One call, as the log has it.
#[derive(Clone, Debug)]
enum Operation {
    Create(String, Vec<u8>),
    Write(String, u64, Vec<u8>),
    Truncate(String, u64),
    Rename(String, String),
    Unlink(String),
    Mkdir(String),
    Rmdir(String),
    Sync(String),
    Read(String),
}

impl Worker {
    /// # Errors
    /// Where the folder cannot be made.
    pub fn new(folder: PathBuf, seed: u64) -> io::Result<Self> {
        fs::create_dir(&folder)?;
        let (known, held, longest) = (BTreeMap::new(), Vec::new(), Duration::ZERO);
        Ok(Self { folder, dice: Dice::new(seed), known, held, longest })
    }

    /// Works until it is told to stop; answers the longest time that one call took.
    ///
    /// # Errors
    /// The first thing that must not be.
    pub fn run(&mut self, control: &Control) -> Result<Duration, String> {
        while !control.stop.load(Ordering::Relaxed) {
            let excuse = control.excuse();
            let begin = Instant::now();
            let may_fail = || excuse.holds(control);
            let step =
                if self.dice.roll(6) == 0 { self.hold(control, &may_fail) } else { self.step(control, &may_fail) };
            self.longest = self.longest.max(begin.elapsed());
            if let Err(error) = step {
                if !may_fail() {
                    return Err(format!("{}: {error}", self.folder.display()));
                }
                self.remount(None)?;
            }
        }
        self.held.iter_mut().try_for_each(Held::sync)?;
        self.held.clear();
        Ok(self.longest)
    }

    fn step(&mut self, control: &Control, may_fail: &dyn Fn() -> bool) -> Result<(), String> {
        let operation = self.choose();
        self.sync_held(&operation.names())?;
        match self.perform(&operation) {
            Ok(()) => {
                self.apply(&operation);
                control.acknowledged.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                let text = format!("{} failed: {error}", operation.name());
                self.settle_uncertain(&operation, may_fail).map_err(|why| format!("{text}; {why}"))?;
                Err(text)
            }
        }
    }

    fn choose(&mut self) -> Operation {
        let name = format!("name-{}", self.dice.roll(NAMES));
        let other = format!("name-{}", self.dice.roll(NAMES));
        let longest = *self.dice.pick(&LENGTHS);
        let len = self.dice.index(longest);
        match (self.known.get(&name).cloned(), self.dice.roll(10)) {
            (None, 0..=1) => Operation::Mkdir(name),
            (None, _) => Operation::Create(name, self.dice.bytes(len)),
            (Some(Known::Folder), _) => Operation::Rmdir(name),
            (Some(Known::File(content)), 0..=3) => {
                let offset = self.dice.roll(content.len() as u64 + 5000);
                Operation::Write(name, offset, self.dice.bytes(len + 1))
            }
            (Some(Known::File(_)), 4) => Operation::Truncate(name, self.dice.roll(LEN_MAX)),
            (Some(Known::File(_)), 5) => Operation::Sync(name),
            (Some(Known::File(_)), 6) => Operation::Read(name),
            (Some(Known::File(_)), 7) => Operation::Unlink(name),
            (Some(Known::File(_)), _) => match self.known.get(&other) {
                Some(Known::Folder) => Operation::Read(name),
                Some(Known::File(_)) | None => Operation::Rename(name, other),
            },
        }
    }

    fn perform(&self, operation: &Operation) -> io::Result<()> {
        let path = |name: &String| self.folder.join(name);
        let open = |name: &String| File::options().read(true).write(true).open(path(name));
        match operation {
            Operation::Create(name, data) => {
                let file = File::options().write(true).create_new(true).open(path(name))?;
                file.write_all_at(data, 0)?;
                syscall::close(file)
            }
            Operation::Write(name, offset, data) => {
                let file = open(name)?;
                file.write_all_at(data, *offset)?;
                syscall::close(file)
            }
            Operation::Truncate(name, len) => open(name)?.set_len(*len),
            Operation::Rename(from, to) => fs::rename(path(from), path(to)),
            Operation::Unlink(name) => fs::remove_file(path(name)),
            Operation::Mkdir(name) => fs::create_dir(path(name)),
            Operation::Rmdir(name) => fs::remove_dir(path(name)),
            Operation::Sync(name) => open(name)?.sync_all(),
            Operation::Read(name) => self.compare(name),
        }
    }

    /// What the call has changed.
    fn apply(&mut self, operation: &Operation) {
        // Those that are held open follow the file that they have.
        match operation {
            Operation::Write(name, offset, data) => self.each_held(name, |content| write(content, *offset, data)),
            Operation::Truncate(name, len) => self.each_held(name, |content| content.resize(*len as usize, 0)),
            Operation::Unlink(name) => self.rename_held(name, None),
            Operation::Rename(from, to) if from != to => {
                self.rename_held(to, None);
                self.rename_held(from, Some(to.clone()));
            }
            _ => {}
        }
        apply(&mut self.known, operation);
    }

    fn each_held(&mut self, name: &str, mut change: impl FnMut(&mut Vec<u8>)) {
        for held in self.held.iter_mut().filter(|held| held.name.as_deref() == Some(name)) {
            change(&mut held.content);
        }
    }

    fn rename_held(&mut self, from: &str, to: Option<String>) {
        for held in self.held.iter_mut().filter(|held| held.name.as_deref() == Some(from)) {
            held.name.clone_from(&to);
        }
    }

    /// Opens a file, or works with one that is held: writes and reads through it, or closes it.
    fn hold(&mut self, control: &Control, may_fail: &dyn Fn() -> bool) -> Result<(), String> {
        if self.held.len() < OPEN_MAX {
            // Each file once: a second handle would not follow what is written through the first when the name is gone.
            let is_held = |name: &str| self.held.iter().any(|held| held.name.as_deref() == Some(name));
            let files: Vec<String> = self.files().map(|(name, _)| name.clone()).filter(|name| !is_held(name)).collect();
            if files.is_empty() {
                return Ok(());
            }
            let name = self.dice.pick(&files).clone();
            let file = File::options().read(true).write(true).open(self.folder.join(&name));
            let file = file.map_err(|error| format!("cannot open {name}: {error}"))?;
            let content = self.content(&name).to_vec();
            self.held.push(Held { file, content, name: Some(name), unsynced: Vec::new() });
            return Ok(());
        }
        let index = self.dice.index(self.held.len());
        match self.dice.roll(4) {
            0 => {
                self.held[index].sync()?;
                drop(self.held.swap_remove(index));
            }
            1 => {
                let held = &mut self.held[index];
                let read = read_all(&held.file).map_err(|error| format!("reading an open file: {error}"))?;
                let what = held.name.clone().unwrap_or_else(|| "an open file without a name".to_owned());
                same(&what, &read, &held.content)?;
                held.unsynced.clear();
            }
            _ => self.write_held(index, may_fail)?,
        }
        control.acknowledged.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn write_held(&mut self, index: usize, may_fail: &dyn Fn() -> bool) -> Result<(), String> {
        let len = self.dice.index(20_000) + 1;
        let data = self.dice.bytes(len);
        let offset = self.dice.roll(self.held[index].content.len() as u64 + 1);
        let held = &mut self.held[index];
        if held.unsynced.len() == UNSYNCED_MAX {
            held.sync()?;
        }
        let written = held.file.write_all_at(&data, offset);
        held.unsynced.push(held.content.clone());
        let name = held.name.clone();
        match (written, name) {
            (Ok(()), Some(name)) => self.apply(&Operation::Write(name, offset, data)),
            (Ok(()), None) => write(&mut self.held[index].content, offset, &data),
            (Err(error), Some(name)) => {
                let text = format!("writing to {name}, open: {error}");
                let write = Operation::Write(name, offset, data);
                self.settle_uncertain(&write, may_fail).map_err(|why| format!("{text}; {why}"))?;
                return Err(text);
            }
            (Err(error), None) => return Err(format!("writing to an open file without a name: {error}")),
        }
        Ok(())
    }

    /// The call failed with the mount: it happened, or it did not, or a long one did in part.
    fn settle_uncertain(&mut self, operation: &Operation, may_fail: &dyn Fn() -> bool) -> Result<(), String> {
        if !may_fail() {
            return Err("and no mount was killed".to_owned());
        }
        self.remount(Some(operation))?;
        self.accept(operation)
    }

    /// Held files of these names are synced, so that what becomes of them otherwise is all that may be uncertain.
    fn sync_held(&mut self, names: &[String]) -> Result<(), String> {
        let concerned = |held: &&mut Held| held.name.as_ref().is_some_and(|name| names.contains(name));
        self.held.iter_mut().filter(concerned).try_for_each(Held::sync)
    }

    /// The mount was killed, perhaps in the midst of an operation. Waits for the next one. Of what held files were written
    /// since they were synced, any part may be there.
    fn remount(&mut self, under_way: Option<&Operation>) -> Result<(), String> {
        let held = std::mem::take(&mut self.held).into_iter().filter(|held| !held.unsynced.is_empty());
        let uncertain: Vec<_> = held.filter_map(|held| Some((held.name?, held.unsynced, held.content))).collect();
        self.wait_for_mount()?;
        for (name, mut states, content) in uncertain {
            states.push(content);
            if let Some(operation) = under_way {
                let mut after = self.known.clone();
                apply(&mut after, operation);
                states.extend(
                    after.remove(&name).and_then(|known| if let Known::File(file) = known { Some(file) } else { None }),
                );
            }
            let seen = self.look(&name).map_err(|error| format!("looking at {name}, which was held: {error}"))?;
            let Some(Known::File(seen)) = seen else { return Err(format!("{name} was held, and is no file any more")) };
            if !is_of(&seen, &states) {
                return Err(format!("{name}, which was held, has something that was never written"));
            }
            self.known.insert(name, Known::File(seen));
        }
        Ok(())
    }

    fn accept(&mut self, operation: &Operation) -> Result<(), String> {
        let mut after = self.known.clone();
        apply(&mut after, operation);
        for name in operation.names() {
            let seen = self.look(&name).map_err(|error| format!("then looking at {name}: {error}"))?;
            let (old, new) = (self.known.get(&name).cloned(), after.get(&name).cloned());
            let partly = match (&seen, &old, &new) {
                (Some(Known::File(seen)), _, Some(Known::File(new))) => {
                    let old = if let Some(Known::File(old)) = &old { old.as_slice() } else { &[] };
                    is_mixture(seen, old, new)
                }
                _ => false,
            };
            if seen != old && seen != new && !partly {
                return Err(format!("then {name} is neither as before nor as after"));
            }
            match seen {
                Some(seen) => self.known.insert(name, seen),
                None => self.known.remove(&name),
            };
        }
        Ok(())
    }

    /// Also where the mount is killed once more: what the one before was leased is waited for.
    fn look(&self, name: &str) -> io::Result<Option<Known>> {
        let (path, begin) = (self.folder.join(name), Instant::now());
        let read = || match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => Ok(Some(Known::Folder)),
            Ok(_) => fs::read(&path).map(|content| Some(Known::File(content))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        loop {
            match read() {
                Err(error) if is_of_a_dead_mount(&error) && begin.elapsed() < MOUNT_PATIENCE => {
                    self.wait_for_mount().map_err(io::Error::other)?;
                }
                seen => return seen,
            }
        }
    }

    fn wait_for_mount(&self) -> Result<(), String> {
        let begin = Instant::now();
        // Without the mount the folder is not there: what lies under the mount point is empty.
        while let Err(error) = fs::read_dir(&self.folder) {
            if begin.elapsed() > MOUNT_PATIENCE {
                return Err(format!("the mount does not come back: {error}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn compare(&self, name: &str) -> io::Result<()> {
        let read = fs::read(self.folder.join(name))?;
        same(name, &read, self.content(name)).map_err(io::Error::other)
    }

    /// Whether the folder holds exactly what was acknowledged.
    ///
    /// # Errors
    /// What differs.
    pub fn verify(&self) -> Result<(), String> {
        let place = |error: &dyn std::fmt::Display| format!("{}: {error}", self.folder.display());
        let mut listed = BTreeMap::new();
        for entry in fs::read_dir(&self.folder).map_err(|error| place(&error))? {
            let name = entry.map_err(|error| place(&error))?.file_name().to_string_lossy().into_owned();
            if listed.insert(name.clone(), ()).is_some() {
                return Err(place(&format!("{name} is listed twice")));
            }
        }
        let (listed, known): (Vec<_>, Vec<_>) = (listed.keys().collect(), self.known.keys().collect());
        if listed != known {
            return Err(place(&format!("holds {listed:?}, and should {known:?}")));
        }
        for (name, content) in self.files() {
            let read = fs::read(self.folder.join(name)).map_err(|error| place(&format!("{name}: {error}")))?;
            same(name, &read, content).map_err(|error| place(&error))?;
        }
        Ok(())
    }

    fn files(&self) -> impl Iterator<Item = (&String, &[u8])> {
        self.known.iter().filter_map(|(name, known)| match known {
            Known::File(content) => Some((name, content.as_slice())),
            Known::Folder => None,
        })
    }

    fn content(&self, name: &str) -> &[u8] {
        match self.known.get(name) {
            Some(Known::File(content)) => content,
            Some(Known::Folder) | None => &[],
        }
    }
}

impl Operation {
    fn name(&self) -> String {
        match self {
            Self::Create(name, data) => format!("making {name} of {} bytes", data.len()),
            Self::Write(name, offset, data) => format!("writing {} bytes at {offset} of {name}", data.len()),
            Self::Truncate(name, len) => format!("truncating {name} to {len}"),
            Self::Rename(from, to) => format!("renaming {from} to {to}"),
            Self::Unlink(name) => format!("removing {name}"),
            Self::Mkdir(name) => format!("making the folder {name}"),
            Self::Rmdir(name) => format!("removing the folder {name}"),
            Self::Sync(name) => format!("syncing {name}"),
            Self::Read(name) => format!("reading {name}"),
        }
    }

    fn names(&self) -> Vec<String> {
        match self {
            Self::Rename(from, to) => vec![from.clone(), to.clone()],
            Self::Create(name, _)
            | Self::Write(name, ..)
            | Self::Truncate(name, _)
            | Self::Unlink(name)
            | Self::Mkdir(name)
            | Self::Rmdir(name)
            | Self::Sync(name)
            | Self::Read(name) => vec![name.clone()],
        }
    }
}

fn apply(known: &mut BTreeMap<String, Known>, operation: &Operation) {
    match operation {
        Operation::Create(name, data) => {
            known.insert(name.clone(), Known::File(data.clone()));
        }
        Operation::Write(name, offset, data) => {
            if let Some(Known::File(content)) = known.get_mut(name) {
                write(content, *offset, data);
            }
        }
        Operation::Truncate(name, len) => {
            if let Some(Known::File(content)) = known.get_mut(name) {
                content.resize(*len as usize, 0);
            }
        }
        Operation::Rename(from, to) => {
            if let Some(moved) = known.remove(from) {
                known.insert(to.clone(), moved);
            }
        }
        Operation::Unlink(name) | Operation::Rmdir(name) => {
            known.remove(name);
        }
        Operation::Mkdir(name) => {
            known.insert(name.clone(), Known::Folder);
        }
        Operation::Sync(_) | Operation::Read(_) => {}
    }
}

impl Held {
    fn sync(&mut self) -> Result<(), String> {
        if !self.unsynced.is_empty() {
            self.file.sync_data().map_err(|error| format!("syncing an open file: {error}"))?;
            self.unsynced.clear();
        }
        Ok(())
    }
}

fn write(content: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + data.len());
    if content.len() < end {
        content.resize(end, 0);
    }
    content[start..end].copy_from_slice(data);
}

fn is_of_a_dead_mount(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ECONNABORTED | libc::ENOTCONN))
}

fn read_all(file: &File) -> io::Result<Vec<u8>> {
    let mut content = vec![0; file.metadata()?.len() as usize];
    file.read_exact_at(&mut content, 0)?;
    Ok(content)
}

/// Each byte as before or as after, or a zero where the file grew or shrank in part; as long as one of both, or between.
fn is_mixture(seen: &[u8], old: &[u8], new: &[u8]) -> bool {
    let (shortest, longest) = (old.len().min(new.len()), old.len().max(new.len()));
    let fits = |(at, byte): (usize, &u8)| *byte == 0 || old.get(at) == Some(byte) || new.get(at) == Some(byte);
    let constant = |at: usize| old[at] != new[at] || seen[at] == old[at];
    (shortest..=longest).contains(&seen.len()) && seen.iter().enumerate().all(fits) && (0..shortest).all(constant)
}

/// Each byte as in one of the states, or a zero where it was not there in all; as long as one of them, or between.
fn is_of(seen: &[u8], states: &[Vec<u8>]) -> bool {
    let lengths = || states.iter().map(Vec::len);
    let fits = |(at, byte): (usize, &u8)| states.iter().any(|state| state.get(at).copied().unwrap_or(0) == *byte);
    let is_between = lengths().min() <= Some(seen.len()) && Some(seen.len()) <= lengths().max();
    is_between && seen.iter().enumerate().all(fits)
}

fn same(name: &str, seen: &[u8], expected: &[u8]) -> Result<(), String> {
    if seen == expected {
        return Ok(());
    }
    let at = seen.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(seen.len().min(expected.len()));
    Err(format!("{name} has {} bytes and should have {}; they differ from {at} on", seen.len(), expected.len()))
}

/// A folder below `root` for each of `count` workers.
///
/// # Errors
/// Where one cannot be made.
pub fn workers(root: &Path, count: u64, seed: u64) -> io::Result<Vec<Worker>> {
    (0..count).map(|number| Worker::new(root.join(format!("worker-{number}")), seed.wrapping_add(number))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_folder_keeps_what_it_acknowledged() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut worker = Worker::new(folder.path().join("w"), 1).expect("a folder can be made");
        let control = Control::default();
        for _ in 0..2000 {
            let never = || false;
            let hold = worker.dice.roll(6) == 0;
            let step = if hold { worker.hold(&control, &never) } else { worker.step(&control, &never) };
            step.expect("nothing fails here");
        }
        worker.verify().expect("all is there");
        let (name, content) = worker.files().find(|(_, content)| !content.is_empty()).expect("some file");
        let mut other = content.to_vec();
        other[0] ^= 1;
        fs::write(folder.path().join("w").join(name), other).expect("writable");
        worker.verify().expect_err("one byte differs");
    }

    #[test]
    fn mixtures_are_of_both_and_nothing_else() {
        assert!(is_mixture(b"abXd", b"abcd", b"aXXd"));
        assert!(is_mixture(b"ab\0", b"ab", b"abcd"));
        assert!(!is_mixture(b"abYd", b"abcd", b"aXXd"));
        assert!(!is_mixture(b"a\0cd", b"abcd", b"abXd"), "what neither wrote is as it was");
        assert!(!is_mixture(b"a", b"ab", b"abcd"));
    }

    #[test]
    fn what_was_written_in_part_is_of_its_states() {
        let states = [b"ab".to_vec(), b"aXc".to_vec(), b"aYcd".to_vec()];
        for seen in [b"ab".as_slice(), b"aXc", b"aY", b"aY\0d", b"abcd"] {
            assert!(is_of(seen, &states), "{seen:?}");
        }
        for never in [b"a".as_slice(), b"aZ", b"ab\0dd", b"b\0c"] {
            assert!(!is_of(never, &states), "{never:?}");
        }
    }
}
