//! Looks at the file systems under the targets, each from a thread of its own: a disk that hangs must hold up neither
//! the lanes nor the heartbeats nor the other targets.

use std::io;
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

const EVERY: Duration = Duration::from_millis(500);
/// Searching for objects walks folders where there are none.
const SEARCH_EVERY: Duration = Duration::from_secs(20);

/// The watching threads; dropping it ends them. One that hangs in a dead disk is left behind.
pub(crate) struct Watch {
    threads: Vec<(Sender<()>, JoinHandle<()>)>,
}

impl Watch {
    /// # Errors
    /// Where a thread cannot be made.
    pub(crate) fn start(targets: &[Arc<Target>], metrics: &Metrics) -> io::Result<Self> {
        let mut watch = Self { threads: Vec::new() };
        watch.extend(targets, metrics)?;
        Ok(watch)
    }

    /// Watches these as well.
    ///
    /// # Errors
    /// Where a thread cannot be made.
    pub(crate) fn extend(&mut self, targets: &[Arc<Target>], metrics: &Metrics) -> io::Result<()> {
        for target in targets {
            let (target, metrics) = (Arc::clone(target), TargetMetrics::new(metrics, target.id()));
            let (stop, stopped) = mpsc::channel();
            let thread = thread::Builder::new().name("watch".into()).spawn(move || {
                let mut searched = None;
                loop {
                    look(&target, &metrics, &mut searched);
                    if stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            })?;
            self.threads.push((stop, thread));
        }
        Ok(())
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
    target.probe(&identity_file(target));
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
}
