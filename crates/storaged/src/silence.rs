//! Disks that hang: they say neither yes nor no, and whoever asks them waits with them.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use conf::Fatal;
use conf::identity::IDENTITY_FILE;

/// A disk that stood still needs so long to spin up.
const LIMIT: Duration = Duration::from_secs(15);

#[repr(align(4096))]
struct Page([u8; 4096]);

/// The directories of targets whose disks hang. Each is asked by a thread of its own, which is left behind there.
///
/// # Errors
/// Where a thread cannot be made.
pub(crate) fn silent(dirs: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    silent_for(dirs, LIMIT)
}

pub(crate) fn does_not_answer(dir: &Path) -> Fatal {
    let (dir, limit) = (dir.display(), LIMIT.as_secs());
    Fatal::failed(format!("{dir} did not answer within {limit} s: its disk hangs, see the kernel's log"))
}

fn silent_for(dirs: &[PathBuf], limit: Duration) -> io::Result<Vec<PathBuf>> {
    let (sender, answers) = mpsc::channel();
    for (index, dir) in dirs.iter().enumerate() {
        let (path, sender) = (dir.join(IDENTITY_FILE), sender.clone());
        thread::Builder::new().name("silence".into()).spawn(move || {
            // Errors are answers, which whoever opens it will see.
            let _ = read_past_cache(&path);
            let _ = sender.send(index);
        })?;
    }
    drop(sender);
    let until = Instant::now() + limit;
    let mut waiting: Vec<Option<&PathBuf>> = dirs.iter().map(Some).collect();
    while let Ok(index) = answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
        waiting[index] = None;
    }
    Ok(waiting.into_iter().flatten().cloned().collect())
}

/// Of a disk that is looked at now and then. Who looks waits with it; others see here that it does.
#[derive(Default)]
pub(crate) struct Silence {
    since: Mutex<Option<Instant>>,
}

impl Silence {
    /// Makes a look, which may take as long as the disk does.
    pub(crate) fn during(&self, look: impl FnOnce()) {
        self.set(Some(Instant::now()));
        look();
        self.set(None);
    }

    fn set(&self, since: Option<Instant>) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Whether the disk has not answered for so long that it hangs.
    pub(crate) fn is_long(&self, now: Instant) -> bool {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| now.saturating_duration_since(since) >= LIMIT)
    }
}

/// What is cached says nothing of the disk.
pub(crate) fn read_past_cache(path: &Path) -> io::Result<usize> {
    let mut page = Box::new(Page([0; 4096]));
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?.read(&mut page.0)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    pub(crate) const LONG: Duration = LIMIT;

    /// Who opens it waits for who opens its other end.
    pub(crate) fn make_pipe(path: &Path) {
        let path = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("plain");
        // SAFETY: it is a string that ends with zero.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    }

    #[test]
    fn who_answers_is_not_waited_for_and_who_does_not_is_named() {
        let root = tempfile::tempdir().expect("a directory");
        let dirs = ["good", "hangs", "missing"].map(|name| root.path().join(name));
        let [good, hangs, _] = &dirs;
        fs::create_dir(good).expect("made");
        fs::write(good.join(IDENTITY_FILE), "a").expect("written");
        let others = [good.clone(), dirs[2].clone()];
        assert_eq!(silent_for(&others, Duration::from_secs(60)).expect("asked"), [] as [PathBuf; 0]);
        fs::create_dir(hangs).expect("made");
        make_pipe(&hangs.join(IDENTITY_FILE));
        assert_eq!(silent_for(&dirs, Duration::from_millis(300)).expect("asked"), std::slice::from_ref(hangs));
    }
}
