//! Whether a signal ends who got it. The kernel tells of every signal that comes during a request in the same words, be it
//! a timer's, a child's, Ctrl-Z or Ctrl-C.

use std::fs;
use std::sync::LazyLock;

use ring::Helpers;

/// Signals that by default are ignored, or only stop a process or let it go on.
const HARMLESS: [i32; 8] = [
    libc::SIGCHLD,
    libc::SIGCONT,
    libc::SIGURG,
    libc::SIGWINCH,
    libc::SIGSTOP,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// Whether a signal waits for this thread that it does not survive; also where nobody knows the thread any more.
pub(crate) fn is_dying(thread: u32) -> bool {
    fs::read_to_string(format!("/proc/{thread}/status")).map_or(true, |status| has_fatal_signal(&status))
}

/// Beside others that may wait for who is to be looked at.
static LOOKERS: LazyLock<Helpers> = LazyLock::new(|| Helpers::new("look", 4));

/// Whether a signal waits for this thread that it does not survive; false where nobody knows the thread any more. Looks
/// on another thread: to look at a process keeps its memory for that moment, and whoever is the last to do so when it
/// ends takes that down, for which requests of this very thread may have to be answered.
pub(crate) async fn is_killed(thread: u32) -> bool {
    let look = move || fs::read_to_string(format!("/proc/{thread}/status"));
    LOOKERS.run(look).await.is_ok_and(|status| has_fatal_signal(&status))
}

fn has_fatal_signal(status: &str) -> bool {
    let set = |name: &str| {
        let hex = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        hex.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
    };
    let harmless = HARMLESS.iter().fold(0, |set, signal| set | bit(*signal));
    let survived = set("SigBlk") | set("SigIgn") | set("SigCgt") | harmless;
    (set("SigPnd") | set("ShdPnd")) & !survived != 0
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pending: &[i32], shared: &[i32], caught: &[i32]) -> String {
        let set = |signals: &[i32]| signals.iter().fold(0, |set, signal| set | bit(*signal));
        let (pending, shared, caught) = (set(pending), set(shared), set(caught));
        format!(
            "Name:\tcat\nSigPnd:\t{pending:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t{caught:016x}\n"
        )
    }

    #[test]
    fn only_what_nobody_catches_is_fatal() {
        assert!(!has_fatal_signal(&status(&[], &[], &[])));
        assert!(has_fatal_signal(&status(&[libc::SIGKILL], &[], &[])));
        assert!(has_fatal_signal(&status(&[], &[libc::SIGINT], &[libc::SIGALRM])));
        assert!(!has_fatal_signal(&status(&[libc::SIGALRM], &[libc::SIGINT], &[libc::SIGALRM, libc::SIGINT])));
        assert!(!has_fatal_signal(&status(&[libc::SIGSTOP, libc::SIGCHLD], &[libc::SIGTSTP], &[])));
        assert!(has_fatal_signal(&status(&[libc::SIGSTOP, libc::SIGKILL], &[], &[])));
    }

    #[test]
    fn this_thread_lives_and_one_that_is_gone_does_not() {
        // SAFETY: a system call without arguments that cannot fail.
        let thread = unsafe { libc::gettid() };
        assert!(!is_dying(thread.unsigned_abs()));
        assert!(is_dying(u32::MAX));
    }
}
