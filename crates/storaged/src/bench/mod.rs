//! StorageBench: a benchmark of one target inside its service, without network and mount.
//!
//! A run has threads of its own, one file each, and leaves the lanes alone: these only pass on what is asked and what is
//! answered. What was measured stays until the next run; files stay until the next run that does not want them, until
//! `BenchCleanup`, or until the service is started again.

mod folder;
mod pattern;
mod place;
mod run;
mod series;
mod worker;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use types::error::Errno;
use wire::codec::Bytes;
use wire::v1::bench::{BenchPhase, BenchPlace, BenchRun, BenchStart, BenchStarted, BenchStatusReply};

use self::folder::Folder;

/// Runs that have to end with their service are waited for so long, all together: a disk may hang.
pub(crate) const END_MAX: Duration = Duration::from_secs(1);

/// Ends all runs, and waits for that unless a disk hangs.
pub(crate) fn end_all<'a>(benches: impl Iterator<Item = &'a Bench> + Clone) {
    benches.clone().for_each(|bench| bench.stop(0));
    let deadline = Instant::now() + END_MAX;
    benches.for_each(|bench| bench.wait_until(deadline));
}

/// A target's directory.
#[derive(Clone, Copy)]
pub(crate) struct Home<'a> {
    pub(crate) path: &'a Path,
    /// Bytes that stay free for others.
    pub(crate) reserve: u64,
    /// Targets of this node on the same file system, this one among them: each may be measured at the same time.
    pub(crate) sharers: u64,
    /// What is there is the target: where its disk is not mounted, something else has its path.
    pub(crate) is_present: bool,
}

/// The benchmark of one target. All lanes of the node have it.
#[derive(Default)]
pub(crate) struct Bench {
    shared: Arc<Shared>,
}

/// Between the lanes and the run.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    stop: AtomicBool,
}

#[derive(Default)]
struct State {
    /// A run or a cleaning is under way: its thread has not ended.
    busy: bool,
    cleaning: bool,
    /// Bytes of the files.
    files: u64,
    run: Option<BenchRun>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the record of the run under way.
    fn record(&self, change: impl FnOnce(&mut BenchRun)) {
        if let Some(run) = &mut self.state().run {
            change(run);
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Bench {
    /// Begins a run on a target, and does not wait for anything of it.
    pub(crate) fn start(&self, home: Home<'_>, request: BenchStart) -> BenchStarted {
        let refused = match self.try_start(home, request) {
            Ok(()) => String::new(),
            Err(text) => text,
        };
        BenchStarted { refused: Bytes(refused.into_bytes()) }
    }

    fn try_start(&self, home: Home<'_>, request: BenchStart) -> Result<(), String> {
        request.plan.check()?;
        {
            let mut state = self.shared.state();
            if state.busy {
                return Err(busy_with(&state));
            }
            state.busy = true;
            state.run = Some(record(&request));
            self.shared.stop.store(false, Ordering::Relaxed);
        }
        let Home { path, reserve, sharers, is_present } = home;
        let path = path.to_path_buf();
        let work =
            move |shared: &Shared| run::run(shared, Home { path: &path, reserve, sharers, is_present }, &request.plan);
        let spawned = self.spawn(work);
        spawned.map_err(|error| {
            self.shared.record(|run| run.phase = BenchPhase::Failed);
            format!("the service cannot start a thread for it: {error}")
        })
    }

    pub(crate) fn status(&self) -> BenchStatusReply {
        let state = self.shared.state();
        BenchStatusReply { cleaning: state.cleaning, files: state.files, run: state.run.clone() }
    }

    /// Ends this run soon; 0: whichever it is. Nothing happens where there is none.
    pub(crate) fn stop(&self, number: u64) {
        let state = self.shared.state();
        if number == 0 || state.run.as_ref().is_some_and(|run| run.run == number) {
            self.shared.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Begins to remove the files of the target at `path`.
    ///
    /// # Errors
    /// `EBUSY` while a run is under way; what the system says where it gives no thread.
    pub(crate) fn clean(&self, path: &Path) -> Result<(), Errno> {
        {
            let mut state = self.shared.state();
            if state.cleaning {
                return Ok(());
            }
            if state.busy {
                return Err(Errno::EBUSY);
            }
            (state.busy, state.cleaning) = (true, true);
        }
        let folder = Folder::of(path);
        let path = path.to_path_buf();
        let clean = move |shared: &Shared| {
            let files = folder.remove_from(0).and_then(|()| folder.bytes()).unwrap_or_else(|error| {
                let target = path.display();
                tracing::warn!(%target, %error, "files of a benchmark cannot be removed");
                // That none are left nobody can say.
                folder.bytes().unwrap_or_default().max(1)
            });
            shared.state().files = files;
        };
        Ok(self.spawn(clean)?)
    }

    /// What a run of an earlier process has left behind goes.
    pub(crate) fn clean_leftovers(&self, path: &Path) {
        if Folder::of(path).path().exists() {
            tracing::info!(target = %path.display(), "removes the files of an earlier benchmark");
            // It can only be refused where somebody is faster, and then it is done.
            let _ = self.clean(path);
        }
    }

    fn wait_until(&self, deadline: Instant) {
        while self.shared.state().busy && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Does `work` on a thread of its own; the target is busy until its end.
    fn spawn(&self, work: impl FnOnce(&Shared) + Send + 'static) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let body = move || {
            // The lane that it comes from may be bound to one CPU.
            ring::place::as_main_thread();
            let idle = Idle(&shared);
            work(idle.0);
        };
        let spawned = thread::Builder::new().name("bench".into()).spawn(body).map(drop);
        spawned.inspect_err(|_| drop(Idle(&self.shared)))
    }
}

/// Whatever becomes of the work, the target is free again after it.
struct Idle<'a>(&'a Shared);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.busy, state.cleaning) = (false, false);
    }
}

fn busy_with(state: &State) -> String {
    match &state.run {
        Some(run) if !state.cleaning => {
            let what = if run.plan.read { "read" } else { "write" };
            let seconds = run.elapsed_us / 1_000_000;
            format!("a {what} run has been under way there for {seconds} s: wait for it, or stop it with --stop")
        }
        Some(_) | None => "the files of earlier runs are being removed there: try again in a moment".to_owned(),
    }
}

/// Of a run that has done nothing yet.
fn record(request: &BenchStart) -> BenchRun {
    let nothing = || Bytes(Vec::new());
    BenchRun {
        run: request.run,
        plan: request.plan.clone(),
        targets: request.targets.clone(),
        phase: BenchPhase::Preparing,
        message: nothing(),
        direct: false,
        elapsed_us: 0,
        blocks: 0,
        latencies: Vec::new(),
        interval_ms: 0,
        samples: Vec::new(),
        place: BenchPlace {
            path: nothing(),
            file_system: nothing(),
            mount_point: nothing(),
            source: nothing(),
            device: 0,
            on_root: false,
            read_only: false,
            total_bytes: 0,
            free_bytes: 0,
            reserve_bytes: 0,
            total_inodes: 0,
            free_inodes: 0,
        },
    }
}

#[cfg(test)]
mod tests;
