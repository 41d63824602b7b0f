//! What the kernel does not tell with a request, and shows of the process that made it.

use std::time::Duration;

/// How often a thread is looked at that has yet to fall asleep in its call, and how long that may take each time.
pub(crate) const LOOKS_MAX: u32 = 8;
const FALLS_ASLEEP_WITHIN: Duration = Duration::from_micros(50);

/// `truncate` and `ftruncate`, also of programs of 32 bits.
#[cfg(target_arch = "x86_64")]
const TRUNCATES: [i64; 6] = [libc::SYS_truncate, libc::SYS_ftruncate, 92, 93, 193, 194];
#[cfg(not(target_arch = "x86_64"))]
const TRUNCATES: [i64; 2] = [libc::SYS_truncate, libc::SYS_ftruncate];

/// `fcntl`, and that of programs of 32 bits which has the commands of open files: `fcntl64`, 221 of x86 and of ARM. (In the
/// numbers of 64 bits that is a call that takes no locks.)
const FCNTLS: [i64; 2] = [libc::SYS_fcntl, 221];

/// What can be seen of a thread.
enum Seen {
    Runs,
    /// It waits in this call: the number of the system call, then its arguments in hexadecimal; the number is -1 in none.
    In(String),
    /// Not from here, as from another PID namespace.
    Nothing,
}

/// The thread, which has asked for a lock, waits in `fcntl(F_OFD_SETLKW)`. Linux finds deadlocks of processes alone, not of
/// open files; but its FUSE requests for the two are the same. False where it cannot be seen.
pub(crate) async fn waits_for_open_file(thread: u32) -> bool {
    call_of(thread, LOOKS_MAX).await.is_some_and(|call| is_wait_for_open_file(&call))
}

/// What a thread is at that has asked to have a file cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cutter {
    /// In `ftruncate` or `truncate`.
    Truncates,
    /// In `io_submit`, which cuts nothing.
    Submits,
    /// It cannot be seen, or may do either, as by io_uring.
    Unclear,
}

/// `looks`: how often it is looked at where it runs, in case it is about to fall asleep.
pub(crate) async fn cutter(thread: u32, looks: u32) -> Cutter {
    call_of(thread, looks).await.map_or(Cutter::Unclear, |call| Cutter::by(&call))
}

impl Cutter {
    fn by(call: &str) -> Self {
        let number = call.split_ascii_whitespace().next().and_then(|number| number.parse().ok());
        match number {
            Some(number) if TRUNCATES.contains(&number) => Self::Truncates,
            Some(libc::SYS_io_submit) => Self::Submits,
            _ => Self::Unclear,
        }
    }
}

async fn call_of(thread: u32, looks: u32) -> Option<String> {
    for left in (0..looks).rev() {
        match look(thread) {
            Seen::In(call) => return Some(call),
            Seen::Runs if left > 0 => ring::sleep(FALLS_ASLEEP_WITHIN).await,
            Seen::Runs | Seen::Nothing => break,
        }
    }
    None
}

fn look(thread: u32) -> Seen {
    match std::fs::read_to_string(format!("/proc/{thread}/syscall")) {
        Ok(call) if call.trim_end() == "running" => Seen::Runs,
        Ok(call) => Seen::In(call),
        Err(_) => Seen::Nothing,
    }
}

fn is_wait_for_open_file(call: &str) -> bool {
    let mut fields = call.split_ascii_whitespace();
    let is_fcntl = fields.next().and_then(|number| number.parse().ok()).is_some_and(|number| FCNTLS.contains(&number));
    let command = fields.nth(1).and_then(|hex| u64::from_str_radix(hex.trim_start_matches("0x"), 16).ok());
    is_fcntl && command == Some(libc::F_OFD_SETLKW as u64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn tells_the_call_and_its_command() {
        let call = |command: i32| format!("{} 0x3 {command:#x} 0x7ffd1 0x0 0x0 0x0 0x7ffd2 0x7ffd3", libc::SYS_fcntl);
        assert!(is_wait_for_open_file(&call(libc::F_OFD_SETLKW)));
        assert!(!is_wait_for_open_file(&call(libc::F_SETLKW)));
        assert!(is_wait_for_open_file("221 0x3 0x26 0xffd1 0x0 0x0 0x0 0xffd2 0xffd3"), "of a program of 32 bits");
        assert!(!is_wait_for_open_file("221 0x3 0xe 0xffd1 0x0 0x0 0x0 0xffd2 0xffd3"), "F_SETLKW64 of one");
        assert!(!is_wait_for_open_file("running"));
        assert!(!is_wait_for_open_file("0 0x3 0x26 0x7ffd1"));
        let cutter = |call: i64| Cutter::by(&format!("{call} 0x3 0x0 0x0 0x0 0x0 0x0 0x7ffd2 0x7ffd3"));
        assert_eq!((cutter(libc::SYS_ftruncate), cutter(libc::SYS_io_submit)), (Cutter::Truncates, Cutter::Submits));
        assert_eq!(cutter(libc::SYS_io_uring_enter), Cutter::Unclear);
        assert_eq!(Cutter::by("-1 0x0 0x0"), Cutter::Unclear, "a thread of the kernel's for io_uring");
    }

    #[test]
    fn a_thread_is_looked_at_when_it_has_fallen_asleep() {
        let (ready, starts) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let runs = Arc::new(AtomicBool::new(true));
        let thread = std::thread::spawn({
            let runs = Arc::clone(&runs);
            move || {
                // SAFETY: a system call without arguments.
                ready.send(unsafe { libc::gettid() } as u32).expect("the test listens");
                while runs.load(Ordering::Relaxed) {}
                stopped.recv().expect_err("nothing is sent");
            }
        });
        let id = starts.recv().expect("it runs");
        while !matches!(look(id), Seen::Runs) {}
        runs.store(false, Ordering::Relaxed);
        while matches!(look(id), Seen::Runs) {}
        let Seen::In(call) = look(id) else { panic!("it is there") };
        assert!(!is_wait_for_open_file(&call), "it waits in another call");
        assert_eq!(Cutter::by(&call), Cutter::Unclear);
        drop(stop);
        thread.join().expect("it ends");
        assert!(matches!(look(0), Seen::Nothing), "nobody can be seen");
    }
}
