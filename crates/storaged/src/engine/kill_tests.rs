//! Processes that change an object are killed in the midst of it, and file systems lose their power: what was acknowledged
//! is there (after a loss of power, what was synced), and nothing reads as corrupt.
//!
//! `WEFT_TEST_STORAGED_LIVES=1000 cargo test --release -p storaged kill_tests` for a long run: so many lives of a process in
//! each test. A test that fails prints its seed: `WEFT_TEST_STORAGED_SEED=n` makes the same choices, though not to the
//! microsecond.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::ObjectStore;
use super::files::{Files, Options};
use super::kill_work::{
    ALIVE, COPIED, Model, OTHERS, Record, SLOT, SLOTS, SOURCE, Task, engine, filled, go_over, other, work,
};
use super::sums_tests::{Dice, OBJECT, header};
use super::tests::{Mounted, bytes, kill_disk, object, on_ring, open, options, read, target, write};
use crate::object_table::first_version;

/// Lives of each test in continuous integration.
const KILLED: u64 = 36;
const OF_CUTS: u64 = 12;
const OF_A_FULL_DISK: u64 = 12;

/// Bytes of the log, at most, after which a process is killed.
const LOG_MAX: u64 = 40_000;
/// Microseconds after that, at most.
const AFTER_MAX: u64 = 3000;
/// A process ends by itself after that, whatever becomes of us.
const LIFE_MAX: Duration = Duration::from_secs(60);
/// Bytes that are left on a full disk: less than the object may take.
const LEFT: u64 = 600 << 10;

/// Tells a process of this program that it is to work, and at what.
const TASK: &str = "WEFT_TEST_STORAGED_KILLED";

#[test]
fn what_was_acknowledged_is_there_after_any_kill_and_nothing_is_corrupt() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("target")).expect("made");
    Lives::new(dir.path().join("target"), None, false).run(KILLED);
}

#[test]
fn what_was_synced_is_there_after_any_loss_of_power_and_nothing_is_corrupt() {
    let Some(mounted) = Mounted::new(32, "rw") else { return };
    Lives::new(mounted.path(), Some(&mounted), false).run(OF_CUTS);
}

/// With shorter blocks than ours, one that has space for a part of it only may be half written.
#[test]
fn what_a_full_disk_has_taken_is_there_after_any_end_and_nothing_is_corrupt() {
    let Some(mounted) = Mounted::of_whole_blocks(16) else { return };
    Lives::new(mounted.path(), Some(&mounted), true).run(OF_A_FULL_DISK);
}

/// The kernel has the data still, and no process has its file open when the disk refuses it.
#[test]
fn what_only_a_sync_of_all_finds_missing_is_lost_for_who_wrote_it_before_a_kill() {
    let Some(mounted) = Mounted::overcommitted() else { return };
    let options = Options { direct_min: u64::MAX, ..options(true) };
    let start = |incarnation| {
        let target = target(&mounted.path(), 0);
        target.begin(incarnation).expect("begun");
        target.serve().expect("noted");
        (open(&target, &Rc::default(), options), target)
    };
    on_ring(async {
        let (killed, first) = start(7);
        write(&killed, OBJECT, 0, &bytes(16 << 20, 1)).await.expect("acknowledged");
        drop(killed);
        let (store, second) = start(8);
        let versions = [first_version(7) + 1, first_version(8) + 1];
        assert_eq!(versions.map(|version| second.may_have_lost(version)), [false; 2]);
        store.sync_all().await;
        assert!(second.has_failed());
        assert_eq!(versions.map(|version| second.may_have_lost(version)), [true, false]);
        assert!(!first.may_have_lost(versions[0]));
    });
}

/// No test but the process that the others kill.
#[test]
fn killed() {
    let Ok(task) = std::env::var(TASK) else { return };
    let task: Task = serde_json::from_str(&task).expect("a task");
    // SAFETY: no memory is passed.
    unsafe { libc::alarm(LIFE_MAX.as_secs() as u32) };
    on_ring(work(&task));
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}

/// A process that does not outlive whoever holds it.
struct Killed {
    child: Child,
    log: PathBuf,
    /// What it prints.
    words: PathBuf,
}

impl Killed {
    fn begin(task: &Task, dir: &Path) -> Self {
        File::create(&task.log).expect("made");
        let words = dir.join("words");
        let output = File::create(&words).expect("made");
        let here = module_path!().split_once("::").expect("within the crate").1;
        let child = Command::new(std::env::current_exe().expect("known"))
            .args(["--exact", &format!("{here}::killed"), "--nocapture"])
            .env(TASK, serde_json::to_string(task).expect("plain"))
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("cloned"))
            .stderr(output)
            .spawn()
            .expect("started");
        Self { child, log: task.log.clone(), words }
    }

    /// Until its log has so many bytes.
    fn wait(&mut self, bytes: u64) {
        let until = Instant::now() + LIFE_MAX;
        while std::fs::metadata(&self.log).expect("there").len() < bytes {
            assert_eq!(self.child.try_wait().expect("told"), None, "ended by itself: {}", self.words());
            assert!(Instant::now() < until, "does nothing: {}", self.words());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn kill(mut self) {
        self.child.kill().expect("killed");
        let status = self.child.wait().expect("told");
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{status}: {}", self.words());
    }

    fn words(&self) -> String {
        std::fs::read_to_string(&self.words).unwrap_or_default()
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Lives<'a> {
    target: PathBuf,
    /// For what is to lose no power.
    dir: tempfile::TempDir,
    /// Where the power can be cut.
    mounted: Option<&'a Mounted>,
    is_full: bool,
    dice: Dice,
    model: Model,
}

impl<'a> Lives<'a> {
    fn new(target: PathBuf, mounted: Option<&'a Mounted>, is_full: bool) -> Self {
        let seed = number("WEFT_TEST_STORAGED_SEED").unwrap_or_else(|| u64::from(std::process::id()));
        println!("WEFT_TEST_STORAGED_SEED={seed}");
        let dir = tempfile::tempdir().expect("a directory");
        Self { target, dir, mounted, is_full, dice: Dice(seed), model: Model::new() }
    }

    fn run(&mut self, lives: u64) {
        self.prepare();
        for life in 1..=number("WEFT_TEST_STORAGED_LIVES").unwrap_or(lives) {
            self.live(life);
        }
    }

    fn prepare(&self) {
        std::fs::write(self.target.join(ALIVE), b"!").expect("written");
        on_ring(async {
            let store = engine(&self.target, 0);
            write(&store, SOURCE, 0, &filled(0..SLOTS, COPIED)).await.expect("written");
            for inode in OTHERS {
                write(&store, object(inode, 0), 0, &other()).await.expect("written");
            }
            store.sync_all().await;
        });
        if self.is_full {
            let filler = File::create(self.target.join("filler")).expect("made");
            let (mut len, piece) = (0, [7; 64 << 10]);
            while filler.write_all_at(&piece, len).and_then(|()| filler.sync_all()).is_ok() {
                len += piece.len() as u64;
            }
            filler.set_len(len - LEFT).expect("cut");
            filler.sync_all().expect("synced");
        }
    }

    fn live(&mut self, life: u64) {
        let cut = self.mounted.filter(|_| self.dice.below(2) == 0);
        let (seed, log) = (self.dice.below(1 << 31), self.dir.path().join("log"));
        let task = Task { target: self.target.clone(), log, life, seed, is_full: self.is_full };
        let mut killed = Killed::begin(&task, self.dir.path());
        // It has something to say once its engine is there, which has to be found on a disk that lives.
        let bytes = self.dice.below(LOG_MAX).max(u64::from(cut.is_some()));
        killed.wait(if self.dice.below(8) == 0 { bytes.min(1) } else { bytes });
        std::thread::sleep(Duration::from_micros(self.dice.below(AFTER_MAX)));
        if cut.is_some() {
            kill_disk(&self.target);
        }
        killed.kill();
        if let Some(mounted) = cut {
            mounted.again();
        }
        let records = Record::all(&task.log);
        records.iter().for_each(|record| self.model.apply(record));
        self.model.end();
        on_ring(self.check(life, cut.is_some(), &records));
    }

    async fn check(&mut self, life: u64, lost_power: bool, records: &[Record]) {
        let store = engine(&self.target, life + 1);
        let when = format!("life {life}, {}", if lost_power { "power cut" } else { "killed" });
        let mut seen = Vec::new();
        while (seen.len() as u64) < SLOTS * SLOT {
            let offset = seen.len() as u64;
            match store.read(OBJECT, offset, 64 << 10, None).await {
                Ok(found) if found.data.is_empty() => break,
                Ok(found) => seen.extend_from_slice(&found.data),
                Err(errno) => {
                    let slots = offset / SLOT..(offset + (64 << 10)) / SLOT;
                    let (held, history) = (self.held(&store, offset).await, Record::history(records, &slots));
                    panic!("{when}: {errno} in 64 KiB at {offset}: {held}{history}");
                }
            }
        }
        seen.resize((SLOTS * SLOT) as usize, 0);
        if let Some(wrong) = self.model.find_wrong(&seen, lost_power) {
            let history = Record::history(records, &(wrong.slot..wrong.slot + 1));
            panic!("{when}: {wrong:?}{history}");
        }
        if self.dice.below(2) == 0 {
            go_over(&store, &self.target).await;
        }
        assert!(read(&store, SOURCE, 0, (SLOTS * SLOT) as u32).await == filled(0..SLOTS, COPIED), "{when}");
        for inode in OTHERS {
            assert_eq!(read(&store, object(inode, 0), 0, 100).await, other(), "{when}");
        }
    }

    /// What a corrupt piece of the object is, for people.
    async fn held(&self, store: &Files, offset: u64) -> String {
        let checked = store.check(OBJECT, offset, 64 << 10).await;
        format!("{checked:?}, {:?}", header(&self.target, OBJECT))
    }
}
