//! Targets that cannot be opened: a disk that is dead or not mounted takes none of the others away. Each is tried again from a
//! thread of its own, since its disk may hang whoever asks it, until it can be opened or the service ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use conf::Fatal;
use conf::identity::Home;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::target::Target;
use crate::threads::{self, Start, give};

/// Between the first tries: a disk may only be mounted late.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// It doubles up to this.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Opens the target in a directory, or says why that cannot be. May block.
pub(crate) type Open = Arc<dyn Fn(&Path) -> Result<(Home, Arc<Target>), Fatal> + Send + Sync>;

/// A target that this node has, and cannot open.
#[derive(Debug)]
pub(crate) struct Absent {
    pub(crate) dir: PathBuf,
    /// The last that was told.
    pub(crate) reason: Fatal,
    pause: Duration,
}

impl Absent {
    pub(crate) fn new(dir: PathBuf, reason: Fatal) -> Self {
        Self { dir, reason, pause: PAUSE_MIN }
    }

    /// Another reason than the one before is logged.
    pub(crate) fn note(&mut self, reason: Fatal) {
        if self.reason != reason {
            self.reason = reason;
            self.tell();
        }
    }

    fn tell(&self) {
        let (path, reason) = (self.dir.display(), &self.reason);
        tracing::error!(%path, %reason, "target cannot be opened: it is not served, and tried again, at least every 30 s");
    }
}

/// One that was absent, and is open.
pub(crate) struct Found {
    pub(crate) home: Home,
    pub(crate) target: Arc<Target>,
    pub(crate) was: Absent,
}

/// Those that are looked for; dropping it ends that.
pub(crate) struct Search {
    open: Open,
    dirs: Vec<PathBuf>,
    start: Start,
    /// For which no thread could be made yet.
    waiting: Vec<Absent>,
    finder: UnboundedSender<Found>,
    found: UnboundedReceiver<Found>,
}

impl Search {
    pub(crate) fn start(absent: Vec<Absent>, open: Open) -> Self {
        Self::start_by(threads::start, absent, open)
    }

    fn start_by(start: Start, absent: Vec<Absent>, open: Open) -> Self {
        let (finder, found) = unbounded_channel();
        let mut search = Self { open, dirs: Vec::new(), start, waiting: Vec::new(), finder, found };
        for one in absent {
            one.tell();
            search.go_on(one);
        }
        search
    }

    /// Looks for it, also where it was found and could not be served.
    pub(crate) fn go_on(&mut self, absent: Absent) {
        self.dirs.push(absent.dir.clone());
        self.waiting.push(absent);
        self.look_for_waiting();
    }

    fn look_for_waiting(&mut self) {
        while let Some(absent) = self.waiting.pop() {
            let (open, finder) = (Arc::clone(&self.open), self.finder.clone());
            let looked = give(self.start, "absent", absent, move |absent| look(absent, &open, &finder));
            if let Err((absent, error)) = looked {
                let path = absent.dir.display();
                tracing::debug!(%path, %error, "no thread to look for a target: it is tried again");
                return self.waiting.push(absent);
            }
        }
    }

    /// The next one, as soon as it can be opened.
    pub(crate) async fn next(&mut self) -> Found {
        while !self.waiting.is_empty() {
            // It may be that one of the others has been found.
            if let Ok(Some(found)) = timeout(PAUSE_MIN, self.found.recv()).await {
                return self.found(found);
            }
            self.look_for_waiting();
        }
        match self.found.recv().await {
            Some(found) => self.found(found),
            // Our own end keeps it open.
            None => std::future::pending().await,
        }
    }

    fn found(&mut self, found: Found) -> Found {
        self.dirs.retain(|dir| *dir != found.was.dir);
        found
    }

    pub(crate) fn has(&self, dir: &Path) -> bool {
        self.dirs.iter().any(|known| known == dir)
    }
}

fn look(mut absent: Absent, open: &Open, finder: &UnboundedSender<Found>) {
    loop {
        thread::sleep(absent.pause);
        absent.pause = (absent.pause * 2).min(PAUSE_MAX);
        if finder.is_closed() {
            return;
        }
        match open(&absent.dir) {
            Ok((home, target)) => {
                // Where nobody listens any more, its lock goes with it.
                let _ = finder.send(Found { home, target, was: absent });
                return;
            }
            Err(reason) => absent.note(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use conf::identity::{Expect, Service};

    use super::*;

    #[test]
    fn it_is_tried_until_it_can_be_opened() {
        let dir = tempfile::tempdir().expect("a directory");
        let tries = Arc::new(AtomicU32::new(0));
        let tried = Arc::clone(&tries);
        let open = move |dir: &Path| {
            if tried.fetch_add(1, Ordering::Relaxed) == 0 {
                return Err(Fatal::failed("not yet"));
            }
            let (service, init) = (Service::Storage, true);
            let home = Home::open(&Expect { dir, service, cluster: None, node_uuid: None, target: true, init })?;
            Ok((home, Arc::new(Target::new(dir.to_owned(), 0))))
        };
        let absent = Absent::new(dir.path().to_owned(), Fatal::failed("at the start"));
        let mut search = Search::start_by(threads::refuse, vec![absent], Arc::new(open));
        assert!(search.has(dir.path()), "also while there is no thread to look for it");
        search.look_for_waiting();
        assert_eq!(search.waiting.len(), 1);
        search.start = threads::start;
        let found = telemetry::runtime::current_thread().expect("a runtime").block_on(search.next());
        assert_eq!((found.home.dir(), found.was.reason.message.as_str()), (dir.path(), "not yet"));
        assert!(tries.load(Ordering::Relaxed) == 2 && !search.has(dir.path()));
    }
}
