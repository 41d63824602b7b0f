//! Which loop serves which of the kernel's queues.
//!
//! The kernel has a queue for each CPU that the machine may ever have, and puts a request into that of the CPU its caller
//! runs on. It begins to use them when each has an entry.

use std::fs;
use std::io;

const POSSIBLE_FILE: &str = "/sys/devices/system/cpu/possible";

/// How many queues the kernel has.
///
/// # Errors
/// Where the kernel does not tell.
pub(crate) fn count() -> io::Result<u16> {
    let text = fs::read_to_string(POSSIBLE_FILE)?;
    count_of(&text).ok_or_else(|| io::Error::other(format!("{POSSIBLE_FILE} has {text:?}")))
}

/// CPUs in a list such as `0-3,8`.
fn count_of(list: &str) -> Option<u16> {
    list.trim().split(',').try_fold(0_u16, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// The queues of each loop, where `cpus` are those that the loops are bound to: that of its own CPU, and its share of the
/// others'.
pub(crate) fn assign(count: u16, cpus: &[Option<usize>]) -> Vec<Vec<u16>> {
    let mut loops = vec![Vec::new(); cpus.len()];
    for queue in 0..count {
        let own = cpus.iter().position(|&cpu| cpu == Some(usize::from(queue)));
        loops[own.unwrap_or(usize::from(queue) % cpus.len())].push(queue);
    }
    loops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!(count_of("0-1\n"), Some(2));
        assert_eq!(count_of("0"), Some(1));
        assert_eq!(count_of("0-3,8,10-11"), Some(7));
        assert_eq!(count_of("3-1"), None);
        assert_eq!(count_of(""), None);
        assert_eq!(count_of("0-65535"), None, "more than a queue's number can say");
    }

    #[test]
    fn each_queue_has_one_loop() {
        assert_eq!(assign(2, &[Some(0), Some(1)]), [[0], [1]]);
        assert_eq!(assign(4, &[Some(2), Some(3)]), [vec![0, 2], vec![1, 3]]);
        assert_eq!(assign(2, &[Some(1), Some(0), Some(1)]), [vec![1], vec![0], vec![]], "more loops than CPUs");
        assert_eq!(assign(3, &[None, None]), [vec![0, 2], vec![1]]);
    }
}
