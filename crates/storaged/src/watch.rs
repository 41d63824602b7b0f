//! Looks at the file systems under the targets, each from a thread of its own: a disk that hangs must hold up neither
//! the lanes nor the heartbeats nor the other targets.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use conf::identity::IDENTITY_FILE;
use telemetry::metrics::{Metrics, level};

use crate::engine::files::holds_objects;
use crate::metrics::TargetMetrics;
use crate::target::Target;
use crate::threads::{self, Start, give};

const EVERY: Duration = Duration::from_millis(500);
/// Between attempts to make a thread.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Searching for objects walks folders where there are none.
const SEARCH_EVERY: Duration = Duration::from_secs(20);

/// The watching threads; dropping it ends them. One that hangs in a dead disk is left behind.
pub(crate) struct Watch {
    metrics: Metrics,
    threads: Vec<(Sender<()>, JoinHandle<()>)>,
    start: Start,
    /// For which no thread could be made yet: what is known of them stays what it was.
    waiting: Vec<Arc<Target>>,
}

impl Watch {
    pub(crate) fn start(targets: &[Arc<Target>], metrics: &Metrics) -> Self {
        let (metrics, start) = (metrics.clone(), threads::start);
        let mut watch = Self { metrics, threads: Vec::new(), start, waiting: Vec::new() };
        watch.extend(targets);
        watch
    }

    /// Watches these as well.
    pub(crate) fn extend(&mut self, targets: &[Arc<Target>]) {
        self.waiting.extend_from_slice(targets);
        self.watch_waiting();
    }

    /// Goes on trying where threads could not be made, and then waits for ever.
    pub(crate) async fn catch_up(&mut self) {
        while !self.waiting.is_empty() {
            tokio::time::sleep(AGAIN_AFTER).await;
            self.watch_waiting();
        }
        std::future::pending().await
    }

    fn watch_waiting(&mut self) {
        while let Some(target) = self.waiting.pop() {
            let metrics = TargetMetrics::new(&self.metrics, target.id());
            let (stop, stopped) = mpsc::channel();
            let started = give(self.start, "watch", target, move |target| {
                let mut searched = None;
                loop {
                    look(&target, &metrics, &mut searched);
                    if stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            });
            match started {
                Ok(thread) => self.threads.push((stop, thread)),
                Err((target, error)) => {
                    tracing::warn!(target = %target.id(), %error, "no thread to watch a target's disk: it is tried again");
                    return self.waiting.push(target);
                }
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for (stop, thread) in self.threads.drain(..) {
            drop(stop);
            let deadline = Instant::now() + EVERY;
            while !thread.is_finished() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// The file whose absence means that the target is gone.
pub(crate) fn identity_file(target: &Target) -> PathBuf {
    target.path.join(IDENTITY_FILE)
}

fn look(target: &Target, metrics: &TargetMetrics, searched: &mut Option<Instant>) {
    target.look(&identity_file(target));
    let is_due = searched.is_none_or(|searched| searched.elapsed() >= SEARCH_EVERY);
    // What has its path while it is away says nothing of what it holds.
    if is_due && target.check_present().is_ok() {
        target.probe_empty(|| holds_objects(&target.path));
        *searched = Some(Instant::now());
    }
    let capacity = target.capacity();
    metrics.total.set(level(capacity.total_bytes));
    metrics.free.set(level(capacity.free_bytes));
    metrics.free_inodes.set(level(capacity.free_inodes));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_not_empty() {
        let root = tempfile::tempdir().expect("a directory");
        let (path, away) = (root.path().join("target"), root.path().join("away"));
        std::fs::create_dir_all(path.join("objects")).expect("made");
        std::fs::write(path.join(IDENTITY_FILE), "").expect("written");
        let metrics = TargetMetrics::new(&Metrics::new("test"), types::id::TargetId(1));
        let look = |target: &Target| look(target, &metrics, &mut None);
        let target = Target::new(path.clone(), 0);
        std::fs::rename(&path, &away).expect("renamed");
        look(&target);
        assert!(!target.is_empty() && holds_objects(&path));
        // Where its disk is to be mounted.
        std::fs::create_dir(&path).expect("made");
        look(&target);
        assert!(!target.is_empty() && holds_objects(&path));
        std::fs::remove_dir(&path).expect("removed");
        std::fs::rename(&away, &path).expect("renamed");
        look(&target);
        assert!(target.is_empty() && !holds_objects(&path));
    }

    #[test]
    fn who_has_no_thread_gets_one_as_soon_as_there_is_room() {
        let dir = tempfile::tempdir().expect("a directory");
        let target = Arc::new(Target::new(dir.path().to_owned(), 0));
        let mut watch = Watch::start(&[], &Metrics::new("test"));
        watch.start = threads::refuse;
        watch.extend(&[Arc::clone(&target)]);
        watch.watch_waiting();
        assert!((watch.waiting.len(), watch.threads.len()) == (1, 0));
        watch.start = threads::start;
        watch.watch_waiting();
        assert!((watch.waiting.len(), watch.threads.len()) == (0, 1));
    }
}
