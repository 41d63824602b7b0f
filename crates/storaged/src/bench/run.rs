//! A run on one target, from its preparation to its result: the thread that watches those which work.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use net::bench::histogram::Histogram;
use wire::codec::Bytes;
use wire::v1::bench::{BenchPhase, BenchPlan};

use super::folder::Folder;
use super::series::Series;
use super::worker::{self, Gate, Measured};
use super::{Home, Shared, place};

/// How often it is looked how far the threads have come.
const TICK: Duration = Duration::from_millis(100);
/// XFS goes on to free the space of removed files after it has answered: so long it is waited for.
const FREED_MAX: Duration = Duration::from_secs(5);

/// Why a run ends without a result.
enum Failure {
    NoRoom(String),
    Failed(String),
}

/// What a working thread tells.
enum News {
    Prepared,
    Ended(io::Result<Measured>),
}

pub(super) fn run(shared: &Shared, home: Home<'_>, plan: &BenchPlan) {
    let folder = Folder::of(home.path);
    let outcome = try_run(shared, &folder, home, plan);
    let (phase, message) = match outcome {
        Ok(phase) => (phase, String::new()),
        Err(Failure::NoRoom(text)) => (BenchPhase::NoRoom, text),
        Err(Failure::Failed(text)) => (BenchPhase::Failed, text),
    };
    if !message.is_empty() {
        tracing::warn!(target = %home.path.display(), message, "a benchmark could not be done");
    }
    let files = folder.bytes().unwrap_or_default();
    let mut state = shared.state();
    state.files = files;
    if let Some(run) = &mut state.run {
        (run.phase, run.message) = (phase, Bytes(message.into_bytes()));
    }
}

fn try_run(shared: &Shared, folder: &Folder, home: Home<'_>, plan: &BenchPlan) -> Result<BenchPhase, Failure> {
    let Home { path: target, reserve, sharers, is_present } = home;
    if !is_present {
        return Err(Failure::Failed(format!("{} is not the target any more: mount its disk", target.display())));
    }
    let mut seen = place::look(target, reserve).map_err(|error| failed("cannot be looked at", target, &error))?;
    // What earlier runs have left goes, or is written again: no disk is full because of it.
    let before = folder.bytes().unwrap_or_default();
    seen.free_bytes = seen.free_bytes.saturating_add(before);
    let (read_only, file_system) = (seen.read_only, seen.file_system.0.clone());
    shared.record(|run| run.place = seen);
    if read_only {
        return Err(Failure::Failed(format!("{} is mounted read-only", target.display())));
    }
    // New files for what writes them from the beginning; else only those that nobody wants go.
    let first_unwanted = if plan.read || plan.random { plan.threads } else { 0 };
    folder.remove_from(first_unwanted).map_err(|error| failed("cannot be emptied", folder.path(), &error))?;
    let keep = if plan.use_reserve { 0 } else { reserve };
    let removed = folder.bytes().unwrap_or_default() < before;
    let patience = if removed { FREED_MAX } else { Duration::ZERO };
    let mut together = 1;
    shared.record(|run| together = (run.targets.len() as u64).clamp(1, sharers.max(1)));
    await_room(patience, &shared.stop, || check_room(folder, target, (keep, together), plan))?;
    folder.make().map_err(|error| failed("cannot be made", folder.path(), &error))?;
    let direct = !plan.buffered && folder.is_direct(&file_system);
    shared.record(|run| run.direct = direct);
    let threads = Arc::new(worker::Shared {
        plan: plan.clone(),
        folder: folder.clone(),
        direct,
        stop: AtomicBool::new(false),
        blocks: AtomicU64::new(0),
        in_loop: AtomicU32::new(0),
        gate: Gate::default(),
    });
    let news = start(&threads).map_err(|error| failed("has no threads to work on it", target, &error))?;
    let told = Told { prepared: 0, ended: 0, latencies: Histogram::new(), end: None, error: None };
    let mut watch = Watch { shared, threads: &threads, target, keep, news, told, full: false };
    watch.prepare();
    shared.record(|run| run.phase = BenchPhase::Running);
    let begun = Instant::now();
    threads.gate.open();
    watch.measure(begun);
    watch.conclude(begun)
}

/// Looks again for so long where there is no room: what was removed may not be free at once.
fn await_room(
    patience: Duration,
    stop: &AtomicBool,
    mut look: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let deadline = Instant::now() + patience;
    loop {
        match look() {
            Err(Failure::NoRoom(_)) if Instant::now() < deadline && !stop.load(Ordering::Relaxed) => {
                thread::sleep(TICK);
            }
            outcome => return outcome,
        }
    }
}

/// What the files still need must be free above what is to be kept, also where each of those that share the disk and may take
/// part, so many `together`, takes as much.
fn check_room(folder: &Folder, target: &Path, (keep, together): (u64, u64), plan: &BenchPlan) -> Result<(), Failure> {
    let missing = |thread| plan.size.saturating_sub(folder.allocated(thread));
    let need: u64 = (0..plan.threads).map(missing).sum();
    let free = place::free_bytes(target).map_err(|error| failed("cannot be looked at", target, &error))?;
    if need == 0 || free.checked_sub(keep).is_some_and(|room| room / together >= need) {
        return Ok(());
    }
    let (need, free, keep) = (need >> 20, free >> 20, keep >> 20);
    let mut text = format!("its files need {need} MiB more; {free} MiB are free, and {keep} MiB are to stay so");
    if together > 1 {
        text += &format!("; {together} targets share the rest");
    }
    Err(Failure::NoRoom(text))
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::Failed(format!("{} {what}: {error}", path.display()))
}

/// Where not all threads can be had, those that were are sent home.
fn start(threads: &Arc<worker::Shared>) -> io::Result<Receiver<News>> {
    let (sender, news) = mpsc::channel();
    for thread in 0..threads.plan.threads {
        let (shared, sender) = (Arc::clone(threads), sender.clone());
        let body = move || work(&shared, thread, &sender);
        if let Err(error) = thread::Builder::new().name(format!("bench-{thread}")).spawn(body) {
            threads.stop.store(true, Ordering::Relaxed);
            threads.gate.open();
            return Err(error);
        }
    }
    Ok(news)
}

fn work(shared: &worker::Shared, thread: u32, news: &Sender<News>) {
    let tell = |what| {
        // Who does not listen any more has given the run up.
        let _ = news.send(what);
    };
    let work = || worker::work(shared, thread, || tell(News::Prepared));
    let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
    tell(News::Ended(outcome));
}

/// What the threads have told so far.
struct Told {
    prepared: u32,
    /// Before the gate is opened: of those that failed, and so were never prepared.
    ended: u32,
    latencies: Histogram,
    /// When the last one ended its work.
    end: Option<Instant>,
    error: Option<io::Error>,
}

/// Who looks after the threads of a run.
struct Watch<'a> {
    shared: &'a Shared,
    threads: &'a worker::Shared,
    target: &'a Path,
    /// Bytes that must stay free.
    keep: u64,
    news: Receiver<News>,
    told: Told,
    /// Others have taken the space.
    full: bool,
}

impl Watch<'_> {
    /// Returns when every thread is ready, or has failed.
    fn prepare(&mut self) {
        let threads = self.threads.plan.threads;
        self.until(Instant::now(), |told| told.prepared + told.ended >= threads, |_| {});
    }

    /// Returns when every thread has ended.
    fn measure(&mut self, begun: Instant) {
        let (shared, threads) = (self.shared, self.threads);
        let mut series = Series::new(TICK.as_millis() as u64);
        let mut before = 0;
        let tick = |now: Instant| {
            // At the end they sync, and do no blocks meanwhile: that is no stall.
            let is_working = threads.in_loop.load(Ordering::Relaxed) > 0;
            let blocks = threads.blocks.load(Ordering::Relaxed);
            if is_working {
                series.add(blocks - before);
                before = blocks;
            }
            shared.record(|run| {
                (run.blocks, run.elapsed_us) = (blocks, micros(now.duration_since(begun)));
                run.interval_ms = series.interval_ms();
                run.samples = series.entries().to_vec();
            });
        };
        self.until(begun, |told| told.ended >= threads.plan.threads, tick);
    }

    fn until(&mut self, begun: Instant, is_done: impl Fn(&Told) -> bool, mut tick: impl FnMut(Instant)) {
        let mut next = begun + TICK;
        while !is_done(&self.told) {
            match self.news.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(News::Prepared) => self.told.prepared += 1,
                Ok(News::Ended(outcome)) => self.hear(outcome),
                Err(RecvTimeoutError::Timeout) => {
                    tick(Instant::now());
                    self.look();
                    next += TICK;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn hear(&mut self, outcome: io::Result<Measured>) {
        let told = &mut self.told;
        told.ended += 1;
        match outcome {
            Ok(measured) => {
                told.latencies.add(&measured.latencies);
                told.end = told.end.max(Some(measured.ended));
            }
            Err(error) => {
                told.error.get_or_insert(error);
                self.stop();
            }
        }
    }

    /// Ends the run where it was asked to, or where others would find no space any more.
    fn look(&mut self) {
        if self.shared.is_stopped() {
            self.stop();
        }
        let is_preparing = self.told.prepared + self.told.ended < self.threads.plan.threads;
        let writes = is_preparing || !self.threads.plan.read;
        if writes && place::free_bytes(self.target).is_ok_and(|free| free < self.keep) {
            self.full = true;
            self.stop();
        }
    }

    fn stop(&self) {
        self.threads.stop.store(true, Ordering::Relaxed);
    }

    /// Removes the files: there is no figure of them, and clients find no space because of them. Answers words that say so.
    fn give_back(&self) -> String {
        match self.threads.folder.remove_from(0) {
            Ok(()) => "; its files were removed".to_owned(),
            Err(error) => format!("; its files cannot be removed: {error}"),
        }
    }

    fn conclude(mut self, begun: Instant) -> Result<BenchPhase, Failure> {
        let (latencies, end) = (std::mem::take(&mut self.told.latencies), self.told.end);
        let error = self.told.error.take();
        let end = end.unwrap_or(begun);
        self.shared.record(|run| {
            run.blocks = self.threads.blocks.load(Ordering::Relaxed);
            run.elapsed_us = micros(end.saturating_duration_since(begun));
            run.latencies = latencies.latencies();
        });
        match error {
            Some(error) if error.kind() == io::ErrorKind::StorageFull => {
                Err(Failure::NoRoom(error.to_string() + &self.give_back()))
            }
            Some(error) => Err(failed("does not do its work", self.threads.folder.path(), &error)),
            None if self.full => {
                let kept = self.keep >> 20;
                let given_back = self.give_back();
                Err(Failure::NoRoom(format!(
                    "others filled it meanwhile: less than the {kept} MiB kept for them were free{given_back}"
                )))
            }
            None if self.shared.is_stopped() => Ok(BenchPhase::Stopped),
            None => Ok(BenchPhase::Finished),
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use wire::v1::bench::{BenchStart, BenchSync};

    use super::*;

    /// A run of one thread that has been prepared, and what it is looked after with.
    fn begun(target: &Path, in_loop: u32) -> (Shared, worker::Shared) {
        let (read, random, buffered, use_reserve) = (false, false, true, false);
        let (block, size, threads, sync) = (4096, 4096, 1, BenchSync::End);
        let plan = BenchPlan { read, random, block, size, threads, duration_ms: 0, sync, buffered, use_reserve };
        let shared = Shared::default();
        shared.state().run =
            Some(super::super::record(&BenchStart { run: 1, plan: plan.clone(), targets: Vec::new() }));
        let threads = worker::Shared {
            plan,
            folder: Folder::of(target),
            direct: false,
            stop: AtomicBool::new(false),
            blocks: AtomicU64::new(0),
            in_loop: AtomicU32::new(in_loop),
            gate: Gate::default(),
        };
        (shared, threads)
    }

    /// How many there are, up to three, of some ticks in which so many threads did blocks.
    fn samples(in_loop: u32) -> usize {
        let target = tempfile::tempdir().expect("a directory");
        let (shared, threads) = begun(target.path(), in_loop);
        let (sender, news) = mpsc::channel();
        let told = Told { prepared: 1, ended: 0, latencies: Histogram::new(), end: None, error: None };
        let (shared, target) = (&shared, target.path());
        let mut watch = Watch { shared, threads: &threads, target, keep: 0, news, told, full: false };
        thread::scope(|scope| {
            scope.spawn(move || {
                let taken = || shared.state().run.as_ref().expect("there is one").samples.len();
                // What is never taken has no end but that of some time.
                let (begun, limit) = (Instant::now(), TICK * if in_loop == 0 { 7 } else { 600 } / 2);
                while taken() < 3 && begun.elapsed() < limit {
                    thread::sleep(TICK / 10);
                }
                sender.send(News::Ended(Err(io::Error::other("done")))).expect("somebody listens");
            });
            watch.measure(Instant::now());
        });
        shared.state().run.as_ref().expect("there is one").samples.len()
    }

    #[test]
    fn the_last_sync_is_no_stall() {
        assert!(samples(1) >= 3);
        assert_eq!(samples(0), 0);
    }
    #[test]
    fn files_of_a_run_that_finds_the_disk_full_are_removed() {
        let full = || Some(io::Error::from(io::ErrorKind::StorageFull));
        for (error, full) in [(full(), false), (None, true)] {
            let target = tempfile::tempdir().expect("a directory");
            let (shared, threads) = begun(target.path(), 0);
            threads.folder.make().expect("made");
            threads.folder.open(0, false).expect("made");
            let told = Told { prepared: 1, ended: 1, latencies: Histogram::new(), end: None, error };
            let (_, news) = mpsc::channel();
            let (shared, target) = (&shared, target.path());
            let watch = Watch { shared, threads: &threads, target, keep: 0, news, told, full };
            let Err(Failure::NoRoom(text)) = watch.conclude(Instant::now()) else { panic!("the disk is full") };
            assert!(text.ends_with("; its files were removed"), "{text}");
            assert!(!threads.folder.path().exists());
        }
    }

    #[test]
    fn space_that_is_freed_in_the_background_is_waited_for() {
        let stop = AtomicBool::new(false);
        let looks = |patience, until| {
            let mut looks = 0;
            let outcome = await_room(patience, &stop, || {
                looks += 1;
                if looks < until { Err(Failure::NoRoom(String::new())) } else { Ok(()) }
            });
            (looks, outcome.is_ok())
        };
        assert_eq!(looks(Duration::from_secs(60), 3), (3, true));
        assert_eq!(looks(Duration::ZERO, 3), (1, false), "nothing was removed");
        stop.store(true, Ordering::Relaxed);
        assert_eq!(looks(Duration::from_secs(60), 3), (1, false));
    }
}
