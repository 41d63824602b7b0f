//! On which CPUs threads run, and from which NUMA zone their memory comes.

use std::io;

/// CPUs that the kernel's interface has numbers for.
const CPUS_MAX: usize = libc::CPU_SETSIZE as usize;
/// `MPOL_PREFERRED` of the kernel's interface: from elsewhere where the zone has none left.
const MPOL_PREFERRED: libc::c_long = 1;
/// Zones that a mask of ours has room for.
const ZONES_MAX: usize = 1024;

/// Binds the calling thread to these CPUs, and with it the threads that it starts afterwards.
///
/// # Errors
/// Where there is no such CPU, or this process may not use any of them.
pub fn bind(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus {
        if cpu >= CPUS_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no CPU {cpu}")));
        }
        // SAFETY: the number is within the set, as was just checked.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    set_affinity(&set)
}

/// Has memory that the calling thread is the first to use come from this NUMA zone while there is some; so do the threads
/// that it starts afterwards.
///
/// # Errors
/// Where there is no such zone.
pub fn prefer_memory(zone: usize) -> io::Result<()> {
    const BITS: usize = usize::BITS as usize;
    let mut mask = [0usize; ZONES_MAX / BITS];
    let word = mask.get_mut(zone / BITS);
    *word.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))? |= 1 << (zone % BITS);
    // SAFETY: the mask is live and as long as is said; the kernel leaves the last bit out.
    let result = unsafe {
        libc::syscall(libc::SYS_set_mempolicy, MPOL_PREFERRED, mask.as_ptr(), ZONES_MAX as libc::c_ulong + 1)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets the calling thread run wherever the main thread of the process may. Where the kernel refuses, it stays as it is.
pub fn as_main_thread() {
    if let Some(set) = of_main_thread() {
        let _ = set_affinity(&set);
    }
}

/// Where the main thread of the process may run.
pub(crate) fn of_main_thread() -> Option<libc::cpu_set_t> {
    let pid = i32::try_from(std::process::id()).ok()?;
    // SAFETY: an all-zero cpu_set_t is valid, and the pointer is to a live one.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        (libc::sched_getaffinity(pid, size_of::<libc::cpu_set_t>(), &raw mut set) == 0).then_some(set)
    }
}

fn set_affinity(set: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: the pointer is to a live set.
    let result = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn allowed() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("there is /proc");
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.expect("Linux says so").trim().to_owned()
    }

    #[test]
    fn a_thread_is_bound_and_set_free_again() {
        let everywhere = allowed();
        thread::spawn(move || {
            bind(&[0]).expect("there is a first CPU");
            assert_eq!(allowed(), "0");
            assert_eq!(thread::spawn(allowed).join().expect("no panic"), "0", "its threads are where it is");
            as_main_thread();
            assert_eq!(allowed(), everywhere);
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        for cpu in [CPUS_MAX - 1, CPUS_MAX, usize::MAX] {
            assert_eq!(bind(&[cpu]).expect_err("no such CPU").kind(), io::ErrorKind::InvalidInput);
        }
        thread::spawn(|| prefer_memory(0).expect("every host has a first zone")).join().expect("no panic");
        assert!(prefer_memory(ZONES_MAX - 1).is_err() && prefer_memory(ZONES_MAX).is_err());
    }
}
