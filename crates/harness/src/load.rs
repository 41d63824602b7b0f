//! Load with a log of what was acknowledged: each worker knows what its folder must hold.
//!
//! A worker has a folder of its own, so what is there follows from what was answered to it. Servers may die as they like:
//! it takes no error from that. Only when the mount itself is killed may calls fail; the one that was under way may have
//! happened or not, and the worker looks which it was.

mod held;
mod operation;
mod picture;
mod seen;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::dice::Dice;

use held::Held;
use operation::{FOLDERS, Operation};
use picture::{FileId, Picture};
use seen::{Seen, is_mixture, is_of};

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

pub struct Worker {
    folder: PathBuf,
    dice: Dice,
    picture: Picture,
    held: Vec<Held>,
    longest: Duration,
}

impl Worker {
    /// # Errors
    /// Where the folder cannot be made.
    pub fn new(folder: PathBuf, seed: u64) -> io::Result<Self> {
        fs::create_dir(&folder)?;
        FOLDERS.iter().try_for_each(|name| fs::create_dir(folder.join(name)))?;
        let (picture, held, longest) = (Picture::default(), Vec::new(), Duration::ZERO);
        Ok(Self { folder, dice: Dice::new(seed), picture, held, longest })
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
        let operation = Operation::choose(&self.picture, &mut self.dice);
        self.sync_concerned(&operation)?;
        match operation.perform(&self.folder, &self.picture) {
            Ok(()) => {
                self.picture.apply(&operation);
                self.picture.forget_nameless(|id| self.held.iter().any(|held| held.id == id));
                control.acknowledged.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                let text = format!("{} failed: {error}", operation.describe());
                self.settle_uncertain(&operation, may_fail).map_err(|why| format!("{text}; {why}"))?;
                Err(text)
            }
        }
    }

    /// Held files that it concerns are synced, so that what becomes of them otherwise is all that may be uncertain.
    fn sync_concerned(&mut self, operation: &Operation) -> Result<(), String> {
        let concerned: Vec<FileId> = operation.names().iter().filter_map(|name| self.picture.id(name)).collect();
        self.held.iter_mut().filter(|held| concerned.contains(&held.id)).try_for_each(Held::sync)
    }

    /// Opens a file, or works with one that is held: writes and reads through it, or closes it.
    fn hold(&mut self, control: &Control, may_fail: &dyn Fn() -> bool) -> Result<(), String> {
        if self.held.len() < OPEN_MAX {
            return self.open();
        }
        let index = self.dice.index(self.held.len());
        match self.dice.roll(4) {
            0 => {
                self.held[index].sync()?;
                drop(self.held.swap_remove(index));
            }
            1 => {
                let held = &mut self.held[index];
                let read = held.read().map_err(|error| format!("reading an open file: {error}"))?;
                if read != self.picture.content(held.id) {
                    let name = self.picture.name_of(held.id);
                    return Err(format!("an open file has not what was written to it; its name is {name:?}"));
                }
            }
            _ => self.write_held(index, may_fail)?,
        }
        control.acknowledged.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Each file once: what its handle has written and not synced is known of one handle.
    fn open(&mut self) -> Result<(), String> {
        let is_held = |id: FileId| self.held.iter().any(|held| held.id == id);
        let free = self.picture.file_names().filter(|(_, id)| !is_held(*id));
        let files: Vec<(String, FileId)> = free.map(|(name, id)| (name.clone(), id)).collect();
        if files.is_empty() {
            return Ok(());
        }
        let (name, id) = self.dice.pick(&files);
        let file = File::options().read(true).write(true).open(self.folder.join(name));
        self.held.push(Held::new(file.map_err(|error| format!("cannot open {name}: {error}"))?, *id));
        Ok(())
    }

    fn write_held(&mut self, index: usize, may_fail: &dyn Fn() -> bool) -> Result<(), String> {
        let len = self.dice.index(20_000) + 1;
        let data = self.dice.bytes(len);
        let held = &mut self.held[index];
        if held.is_due() {
            held.sync()?;
        }
        let before = self.picture.content(held.id).to_vec();
        let offset = self.dice.roll(before.len() as u64 + 1);
        let written = held.write(offset, &data, before);
        let id = held.id;
        let Err(error) = written else {
            self.picture.write(id, offset, &data);
            return Ok(());
        };
        let Some(name) = self.picture.name_of(id).cloned() else {
            return Err(format!("writing to an open file without a name: {error}"));
        };
        let text = format!("writing to {name}, open: {error}");
        let write = Operation::Write(name, offset, data);
        self.settle_uncertain(&write, may_fail).map_err(|why| format!("{text}; {why}"))?;
        Err(text)
    }

    /// The call failed with the mount: it happened, or it did not, or a long one did in part.
    fn settle_uncertain(&mut self, operation: &Operation, may_fail: &dyn Fn() -> bool) -> Result<(), String> {
        if !may_fail() {
            return Err("and no mount was killed".to_owned());
        }
        self.remount(Some(operation))?;
        self.accept(operation)
    }

    /// The mount was killed, perhaps in the midst of an operation. Waits for the next one. Of what held files were written
    /// since they were synced, any part may be there.
    fn remount(&mut self, under_way: Option<&Operation>) -> Result<(), String> {
        let uncertain: Vec<Held> =
            std::mem::take(&mut self.held).into_iter().filter(|held| !held.unsynced.is_empty()).collect();
        self.wait_for_mount()?;
        let after = under_way.map(|operation| {
            let mut after = self.picture.clone();
            after.apply(operation);
            after
        });
        for Held { id, unsynced: mut states, .. } in uncertain {
            let Some(name) = self.picture.name_of(id).cloned() else { continue };
            states.push(self.picture.content(id).to_vec());
            states.extend(after.as_ref().map(|after| after.content(id).to_vec()));
            let seen = self.look(&name).map_err(|error| format!("looking at {name}, which was held: {error}"))?;
            let Some(Seen::File(seen)) = seen else { return Err(format!("{name} was held, and is no file any more")) };
            if !is_of(&seen.content, &states) {
                return Err(format!("{name}, which was held, has something that was never written"));
            }
            self.picture.set_content(id, seen.content);
        }
        self.picture.forget_nameless(|_| false);
        Ok(())
    }

    /// Finds out which it was, and takes that for the truth. What changes several names does so at once.
    fn accept(&mut self, operation: &Operation) -> Result<(), String> {
        let mut seen = Vec::new();
        for name in operation.names() {
            seen.push((name, self.look(name).map_err(|error| format!("then looking at {name}: {error}"))?));
        }
        let (mut before, mut after) = (self.picture.clone(), self.picture.clone());
        after.apply(operation);
        if let (Some(name), Some(Seen::File(file))) = (operation.changes_content_of(), &seen[0].1) {
            if !is_mixture(&file.content, before.content_of(name), after.content_of(name)) {
                return Err(format!("then {name} has something that was never written"));
            }
            // Also what was done in part has changed its time.
            for picture in [&mut before, &mut after] {
                if let Some(id) = picture.id(name) {
                    picture.set_content(id, file.content.clone());
                }
            }
        }
        let compare = |picture: &Picture| -> Result<(), String> {
            seen.iter().try_for_each(|(name, seen)| picture.compare(name, seen.as_ref()))
        };
        let neither = match (compare(&after), compare(&before)) {
            (Ok(()), _) => {
                self.picture = after;
                return Ok(());
            }
            (_, Ok(())) => {
                self.picture = before;
                return Ok(());
            }
            (Err(why), Err(other)) => format!("{why}; {other}"),
        };
        Err(format!("then it is neither as after nor as before: {neither}"))
    }

    /// Also where the mount is killed once more: what the one before was leased is waited for.
    fn look(&self, name: &str) -> io::Result<Option<Seen>> {
        let (path, begin) = (self.folder.join(name), Instant::now());
        loop {
            match Seen::look(&path) {
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

    /// Whether the folder holds exactly what was acknowledged.
    ///
    /// # Errors
    /// What differs.
    pub fn verify(&self) -> Result<(), String> {
        let place = |error: &dyn std::fmt::Display| format!("{}: {error}", self.folder.display());
        let mut listed = BTreeSet::new();
        for folder in FOLDERS {
            for entry in fs::read_dir(self.folder.join(folder)).map_err(|error| place(&error))? {
                let name = entry.map_err(|error| place(&error))?.file_name();
                let name = format!("{folder}/{}", name.to_string_lossy());
                if !listed.insert(name.clone()) {
                    return Err(place(&format!("{name} is listed twice")));
                }
            }
        }
        let known: BTreeSet<String> = self.picture.names().cloned().collect();
        if listed != known {
            return Err(place(&format!("holds {listed:?}, and should {known:?}")));
        }
        for name in &known {
            let seen = Seen::look(&self.folder.join(name)).map_err(|error| place(&format!("{name}: {error}")))?;
            self.picture.compare(name, seen.as_ref()).map_err(|error| place(&error))?;
        }
        Ok(())
    }
}

/// What the kernel tells who asked a mount whose process was killed. `ECANCELED` it is where the process died while it was
/// being given the request over io_uring.
#[must_use]
pub fn is_of_a_dead_mount(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ECONNABORTED | libc::ENOTCONN | libc::ECANCELED))
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

    const NEVER: fn() -> bool = || false;
    const ALWAYS: fn() -> bool = || true;

    /// After so many calls on the local file system, which never fails.
    fn worker(folder: &Path, steps: usize) -> Worker {
        let mut worker = Worker::new(folder.join("w"), 1).expect("a folder can be made");
        let control = Control::default();
        for _ in 0..steps {
            let hold = worker.dice.roll(6) == 0;
            let step = if hold { worker.hold(&control, &NEVER) } else { worker.step(&control, &NEVER) };
            step.expect("nothing fails here");
        }
        worker
    }

    #[test]
    fn a_local_folder_keeps_what_it_acknowledged() {
        let folder = tempfile::tempdir().expect("a folder");
        let worker = worker(folder.path(), 3000);
        worker.verify().expect("all is there");
        let (name, id) =
            worker.picture.file_names().find(|(_, id)| !worker.picture.content(*id).is_empty()).expect("one");
        let mut other = worker.picture.content(id).to_vec();
        other[0] ^= 1;
        let path = worker.folder.join(name);
        fs::write(&path, other).expect("writable");
        worker.verify().expect_err("one byte differs");
        fs::write(&path, worker.picture.content(id)).expect("writable");
        fs::hard_link(&path, folder.path().join("another")).expect("room for a name");
        worker.verify().expect_err("a name too many");
    }

    /// Of each kind of call: where it failed and the mount was killed, both outcomes are taken, and nothing else.
    #[test]
    fn what_was_under_way_has_happened_or_has_not() {
        for happens in [false, true] {
            let folder = tempfile::tempdir().expect("a folder");
            let mut worker = worker(folder.path(), 300);
            for _ in 0..700 {
                let operation = Operation::choose(&worker.picture, &mut worker.dice);
                worker.sync_concerned(&operation).expect("synced");
                if happens {
                    operation.perform(&worker.folder, &worker.picture).expect("nothing fails here");
                }
                worker.settle_uncertain(&operation, &ALWAYS).expect("one of both");
            }
            worker.verify().expect("it knows which");
        }
    }

    #[test]
    fn half_of_what_happens_at_once_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut worker = worker(folder.path(), 0);
        let (one, other) = ("left/one".to_owned(), "right/other".to_owned());
        for name in [&one, &other] {
            let create = Operation::Create(name.clone(), name.clone().into_bytes());
            create.perform(&worker.folder, &worker.picture).expect("made");
            worker.picture.apply(&create);
        }
        fs::copy(worker.folder.join(&one), worker.folder.join(&other)).expect("copied");
        for operation in [Operation::Rename(one.clone(), other.clone()), Operation::Exchange(one, other)] {
            worker.settle_uncertain(&operation, &ALWAYS).expect_err("half of it");
        }
    }
}
