//! What the kernel does not tell with a request, and shows of the process that made it.

/// The thread waits in `fcntl(F_OFD_SETLKW)`. Linux finds deadlocks of processes alone, not of open files; but its FUSE
/// requests for the two are the same. False where it cannot be seen, as from another PID namespace.
pub(crate) fn waits_for_open_file(thread: u32) -> bool {
    let call = std::fs::read_to_string(format!("/proc/{thread}/syscall"));
    call.is_ok_and(|call| is_wait_for_open_file(&call))
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
    use super::*;

    #[test]
    fn tells_the_call_and_its_command() {
        let call = |command: i32| format!("{} 0x3 {command:#x} 0x7ffd1 0x0 0x0 0x0 0x7ffd2 0x7ffd3", libc::SYS_fcntl);
        assert!(is_wait_for_open_file(&call(libc::F_OFD_SETLKW)));
        assert!(!is_wait_for_open_file(&call(libc::F_SETLKW)));
        assert!(!is_wait_for_open_file("running"));
        assert!(!is_wait_for_open_file("0 0x3 0x26 0x7ffd1"));
        assert!(!waits_for_open_file(std::process::id()));
    }
}
