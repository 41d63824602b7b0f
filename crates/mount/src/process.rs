//! What the kernel does not tell with a request, and shows of the process that made it.

use std::time::Duration;

/// How often a thread is looked at that has yet to fall asleep in its call, and how long that may take each time.
const LOOKS_MAX: u32 = 8;
const FALLS_ASLEEP_WITHIN: Duration = Duration::from_micros(50);

/// The thread, which has asked for a lock, waits in `fcntl(F_OFD_SETLKW)`. Linux finds deadlocks of processes alone, not of
/// open files; but its FUSE requests for the two are the same. False where it cannot be seen, as from another PID namespace.
pub(crate) async fn waits_for_open_file(thread: u32) -> bool {
    for _ in 0..LOOKS_MAX {
        match sees_wait_for_open_file(thread) {
            Some(is) => return is,
            None => ring::sleep(FALLS_ASLEEP_WITHIN).await,
        }
    }
    false
}

/// `None` while the thread runs.
fn sees_wait_for_open_file(thread: u32) -> Option<bool> {
    match std::fs::read_to_string(format!("/proc/{thread}/syscall")) {
        Ok(call) if call.trim_end() == "running" => None,
        Ok(call) => Some(is_wait_for_open_file(&call)),
        Err(_) => Some(false),
    }
}

/// `call`: the number of the system call, then its arguments in hexadecimal.
fn is_wait_for_open_file(call: &str) -> bool {
    let mut fields = call.split_ascii_whitespace();
    let number = fields.next().and_then(|number| number.parse().ok());
    let command = fields.nth(1).and_then(|hex| u64::from_str_radix(hex.trim_start_matches("0x"), 16).ok());
    number == Some(libc::SYS_fcntl) && command == Some(libc::F_OFD_SETLKW as u64)
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
        assert!(!is_wait_for_open_file("running"));
        assert!(!is_wait_for_open_file("0 0x3 0x26 0x7ffd1"));
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
        while sees_wait_for_open_file(id).is_some() {}
        runs.store(false, Ordering::Relaxed);
        while sees_wait_for_open_file(id).is_none() {}
        assert_eq!(sees_wait_for_open_file(id), Some(false), "it waits in another call");
        drop(stop);
        thread.join().expect("it ends");
        assert_eq!(sees_wait_for_open_file(0), Some(false), "nobody can be seen");
    }
}
