//! Makes the log durable, on a thread of its own: within the interval after a change, and sooner for those who wait.
//!
//! Commits are counted. The shard tells the count after each commit, and asks for it to be durable when somebody waits;
//! the answer comes back as "durable up to". While one sync runs, all requests that come meanwhile are served by the
//! next one, so a disk that does 500 syncs a second still serves any number of waiting clients.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kv::KvError;
use namespace::transaction::Haste;
use ring::mailbox::Sender;
use telemetry::metrics::Histogram;

/// Between the syncs that other shards wait for and nobody else. Each sync costs more than what it carries, and makes those
/// of the other shards of the same disk slower; but whoever does one thing after the other will soon wait for this one.
const SOON: Duration = Duration::from_millis(5);

/// A sync has ended: all commits up to `upto` are on disk, or why not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Synced {
    pub(crate) upto: u64,
    pub(crate) result: Result<(), KvError>,
}

/// The shard's handle. Dropping it syncs once more and ends the thread.
pub(crate) struct Syncer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Commits so far.
    committed: u64,
    /// Somebody waits for these.
    wanted: u64,
    /// These are to be durable soon.
    soon: u64,
    /// Covered by a sync that has ended, well or not.
    done: u64,
    stop: bool,
}

impl Syncer {
    /// # Errors
    /// Where the kernel gives no thread.
    pub(crate) fn start<S: kv::Syncer>(
        store: S,
        interval: Duration,
        seconds: Histogram,
        results: Sender<Synced>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = {
            let shared = Arc::clone(&shared);
            thread::Builder::new()
                .name("log-sync".into())
                .spawn(move || shared.run(&store, interval, &seconds, &results))?
        };
        Ok(Self { shared, thread: Some(thread) })
    }

    /// `committed` commits have been made so far; the last of them is to be durable with this haste.
    pub(crate) fn committed(&self, committed: u64, haste: Haste) {
        let mut state = self.shared.lock();
        let was_clean = state.committed == state.done;
        let was_soon = state.soon > state.done;
        state.committed = committed;
        match haste {
            Haste::WithNextSync => {}
            Haste::Soon => state.soon = committed,
            Haste::Now => state.wanted = committed,
        }
        drop(state);
        // While changes wait for their time, the thread wakes up by itself.
        if was_clean || haste == Haste::Now || haste == Haste::Soon && !was_soon {
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    // Every critical section is a few assignments, so a panic elsewhere leaves the state whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run<S: kv::Syncer>(&self, store: &S, interval: Duration, seconds: &Histogram, results: &Sender<Synced>) {
        let (mut failing, mut ended) = (false, None);
        while let Some(upto) = self.next(interval, ended) {
            let begun = Instant::now();
            let result = store.sync();
            seconds.observe(begun.elapsed());
            match &result {
                Ok(()) if failing => tracing::info!("the log can be synced again"),
                Err(error) if !failing => tracing::error!(%error, "the log cannot be made durable"),
                _ => {}
            }
            failing = result.is_err();
            ended = Some(Instant::now());
            self.lock().done = upto;
            results.send(Synced { upto, result });
        }
    }

    /// Waits until there is something to sync; `None` when stopped and nothing is left. `ended`: the sync before.
    fn next(&self, interval: Duration, ended: Option<Instant>) -> Option<u64> {
        let mut state = self.lock();
        let mut due = None;
        loop {
            let dirty = state.committed > state.done;
            if dirty && (state.stop || state.wanted > state.done) {
                return Some(state.committed);
            }
            if state.stop {
                return None;
            }
            if !dirty {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let now = Instant::now();
            let mut deadline = *due.get_or_insert(now + interval);
            if state.soon > state.done {
                deadline = deadline.min(ended.map_or(now, |ended| ended + SOON));
            }
            if now >= deadline {
                return Some(state.committed);
            }
            state = self.changed.wait_timeout(state, deadline - now).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Less than the interval of those tests in which none is to come by it.
    const LONG: Duration = Duration::from_secs(30);

    struct Counting {
        counts: Arc<Counts>,
        fails: bool,
    }

    #[derive(Default)]
    struct Counts {
        begun: AtomicU64,
        ended: AtomicU64,
        /// While it is locked no sync comes to its end.
        gate: Mutex<()>,
    }

    impl Counts {
        fn ended(&self) -> u64 {
            self.ended.load(Ordering::SeqCst)
        }

        fn wait_until_one_has_begun(&self) {
            let deadline = Instant::now() + LONG;
            while self.begun.load(Ordering::SeqCst) == 0 {
                assert!(Instant::now() < deadline, "no sync in time");
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    impl kv::Syncer for Counting {
        fn sync(&self) -> Result<(), KvError> {
            self.counts.begun.fetch_add(1, Ordering::SeqCst);
            drop(self.counts.gate.lock());
            self.counts.ended.fetch_add(1, Ordering::SeqCst);
            if self.fails { Err(KvError::Io("test".into())) } else { Ok(()) }
        }
    }

    fn start(interval_ms: u64, fails: bool) -> (Syncer, Arc<Counts>, ring::mailbox::Receiver<Synced>) {
        let counts = Arc::new(Counts::default());
        let store = Counting { counts: Arc::clone(&counts), fails };
        let (sender, receiver) = ring::mailbox::mailbox();
        let syncer = Syncer::start(store, Duration::from_millis(interval_ms), Histogram::seconds(), sender);
        (syncer.expect("a thread"), counts, receiver)
    }

    fn wait(results: &mut ring::mailbox::Receiver<Synced>) -> Synced {
        let deadline = Instant::now() + LONG;
        loop {
            if let Some(synced) = results.try_recv() {
                return synced;
            }
            assert!(Instant::now() < deadline, "no sync in time");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_change_is_synced_after_the_interval_and_nothing_without_one() {
        let (syncer, counts, mut results) = start(50, false);
        thread::sleep(Duration::from_millis(120));
        assert_eq!(counts.ended(), 0);
        let begun = Instant::now();
        for count in 1..=10 {
            syncer.committed(count, Haste::WithNextSync);
        }
        while wait(&mut results) != (Synced { upto: 10, result: Ok(()) }) {}
        // One for all of them, unless this thread was slow to make them.
        let (syncs, took) = (counts.ended(), begun.elapsed());
        assert!(took >= Duration::from_millis(50) * syncs as u32, "{syncs} syncs in {took:?}");
        thread::sleep(Duration::from_millis(120));
        assert_eq!(counts.ended(), syncs);
    }

    #[test]
    fn those_who_wait_are_served_at_once_and_together() {
        let (syncer, counts, mut results) = start(60_000, false);
        let gate = counts.gate.lock().expect("a gate");
        syncer.committed(1, Haste::Now);
        counts.wait_until_one_has_begun();
        // These come while the first sync runs: one more serves them all.
        for count in 2..=20 {
            syncer.committed(count, Haste::Now);
        }
        drop(gate);
        assert_eq!(wait(&mut results).upto, 1);
        assert_eq!(wait(&mut results).upto, 20);
        assert_eq!(counts.ended(), 2);
    }

    #[test]
    fn what_is_wanted_soon_is_synced_at_once_and_then_together() {
        let (syncer, counts, mut results) = start(60_000, false);
        let gate = counts.gate.lock().expect("a gate");
        syncer.committed(1, Haste::Soon);
        counts.wait_until_one_has_begun();
        for count in 2..=9 {
            syncer.committed(count, Haste::Soon);
        }
        let first = Instant::now();
        drop(gate);
        assert_eq!(wait(&mut results).upto, 1);
        assert_eq!(wait(&mut results).upto, 9);
        assert!(first.elapsed() >= SOON);
        assert_eq!(counts.ended(), 2);
        // Who waits takes the others along.
        syncer.committed(10, Haste::Soon);
        syncer.committed(11, Haste::Now);
        while wait(&mut results).upto < 11 {}
    }

    #[test]
    fn the_end_syncs_what_is_left() {
        let (syncer, counts, _results) = start(60_000, false);
        syncer.committed(3, Haste::WithNextSync);
        drop(syncer);
        assert_eq!(counts.ended(), 1);
    }

    #[test]
    fn a_failure_is_told_and_not_repeated_for_ever() {
        let (syncer, counts, mut results) = start(1, true);
        syncer.committed(1, Haste::Now);
        assert!(wait(&mut results).result.is_err());
        thread::sleep(Duration::from_millis(30));
        assert_eq!(counts.ended(), 1);
        drop(syncer);
    }
}
