//! Programs on a terminal: what they show there is more than what they write to a file.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::run::wait;

/// What a program has shown, with all control characters.
#[derive(Clone, Debug)]
pub struct Shown {
    /// `None` after a signal.
    pub code: Option<i32>,
    pub text: String,
}

/// Runs a program whose standard output and error are a terminal of its own.
///
/// # Panics
/// Where there is no terminal, the program cannot be started, or it runs for longer than `limit`: it is killed then.
#[track_caller]
pub fn run(command: &mut Command, limit: Duration) -> Shown {
    let (mut outside, inside) = open().unwrap_or_else(|error| panic!("no terminal: {error}"));
    let other = inside.try_clone().expect("a descriptor more");
    command.stdin(Stdio::null()).stdout(Stdio::from(inside)).stderr(Stdio::from(other));
    let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    // The command has its end still: the terminal is over when nobody has one.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let reader = thread::spawn(move || {
        let (mut shown, mut piece) = (Vec::new(), [0; 4096]);
        // At its end a terminal fails with EIO.
        while let Ok(count @ 1..) = outside.read(&mut piece) {
            shown.extend_from_slice(&piece[..count]);
        }
        String::from_utf8_lossy(&shown).into_owned()
    });
    let Some(code) = wait(&mut child, limit) else {
        let _ = child.kill();
        panic!("{command:?} did not end in {limit:?}");
    };
    Shown { code: code.0, text: reader.join().expect("readers do not panic") }
}

/// Both ends: ours, and the program's. No process that is started meanwhile gets either by chance.
fn open() -> io::Result<(File, File)> {
    let end = |path: &Path| File::options().read(true).write(true).custom_flags(libc::O_NOCTTY).open(path);
    let outside = end(Path::new("/dev/ptmx"))?;
    let mut name = [0; 64];
    // SAFETY: plain calls about a live descriptor; the buffer is as long as is said.
    let failed = unsafe {
        libc::grantpt(outside.as_raw_fd()) != 0
            || libc::unlockpt(outside.as_raw_fd()) != 0
            || libc::ptsname_r(outside.as_raw_fd(), name.as_mut_ptr(), name.len()) != 0
    };
    if failed {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has put a terminated string there.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    let inside = end(Path::new(OsStr::from_bytes(name.to_bytes())))?;
    Ok((outside, inside))
}
