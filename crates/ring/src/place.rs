//! On which CPUs threads run, and from which NUMA zone their memory comes.

use std::path::Path;
use std::{fs, io};

/// Where the kernel tells of NUMA zones.
const NODES: &str = "/sys/devices/system/node";
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
fn prefer_memory(zone: usize) -> io::Result<()> {
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

/// The CPUs that the calling thread may run on, in order.
#[must_use]
pub fn allowed() -> Vec<usize> {
    // SAFETY: an all-zero cpu_set_t is valid, and the pointer is to a live one; the numbers are within the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        (0..CPUS_MAX).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// Why a process cannot have the place that it was given, in words for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Misplaced {
    Zone(String),
    Cpus(String),
}

/// Moves the calling thread into a NUMA zone of the host, if one is given, with its memory and with the threads that it
/// starts afterwards; and sees that each of `cpus` can be bound to later.
///
/// # Errors
/// Where there is no such zone or no such CPU, this process may not use it, or a CPU is not in the zone. Nothing has changed
/// then.
pub fn move_to(zone: Option<usize>, cpus: &[usize]) -> Result<(), Misplaced> {
    let allowed = allowed();
    let within = match zone {
        Some(zone) => {
            let of_zone = zone_cpus(Path::new(NODES), zone).map_err(Misplaced::Zone)?;
            let usable: Vec<usize> = of_zone.iter().filter(|cpu| allowed.contains(cpu)).copied().collect();
            if usable.is_empty() {
                let (zone_has, may) = (show(&of_zone), show(&allowed));
                let text =
                    format!("this process may use none of the CPUs of NUMA zone {zone} ({zone_has}), only {may}");
                return Err(Misplaced::Zone(text));
            }
            if let Some(foreign) = cpus.iter().find(|cpu| allowed.contains(cpu) && !of_zone.contains(cpu)) {
                let text = format!("CPU {foreign} is not in NUMA zone {zone}, which has {}", show(&of_zone));
                return Err(Misplaced::Cpus(text));
            }
            usable
        }
        None => allowed.clone(),
    };
    if let Some(missing) = cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        let text = format!("there is no CPU {missing} that this process may use (it may use {})", show(&allowed));
        return Err(Misplaced::Cpus(text));
    }
    let Some(zone) = zone else { return Ok(()) };
    let moved = prefer_memory(zone).and_then(|()| bind(&within));
    moved.map_err(|error| Misplaced::Zone(format!("cannot move to NUMA zone {zone}: {error}")))
}

/// All CPUs of a zone, in order; none where it has memory alone.
fn zone_cpus(nodes: &Path, zone: usize) -> Result<Vec<usize>, String> {
    let list = |path: &Path| fs::read_to_string(path).ok().and_then(|text| parse(text.trim()));
    list(&nodes.join(format!("node{zone}/cpulist"))).ok_or_else(|| match list(&nodes.join("online")) {
        Some(zones) => format!("this host has no NUMA zone {zone} (it has {})", show(&zones)),
        None => format!("this host has no NUMA zone {zone}: its kernel knows of none"),
    })
}

/// Numbers as the kernel lists them: `0-3,8`.
fn parse(list: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

fn show(numbers: &[usize]) -> String {
    if numbers.is_empty() {
        return "none".to_owned();
    }
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let runs = runs.map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run[0].to_string(),
    });
    runs.collect::<Vec<_>>().join(",")
}

/// Lets the calling thread run wherever the main thread of the process may. Where the kernel refuses, it stays as it is.
pub fn as_main_thread() {
    if let Some(set) = of_main_thread() {
        let _ = set_affinity(&set);
    }
}

/// Where the main thread of the process may run.
fn of_main_thread() -> Option<libc::cpu_set_t> {
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

    fn allowed_list() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("there is /proc");
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.expect("Linux says so").trim().to_owned()
    }

    #[test]
    fn a_thread_is_bound_and_set_free_again() {
        let everywhere = allowed_list();
        thread::spawn(move || {
            bind(&[0]).expect("there is a first CPU");
            assert_eq!(allowed_list(), "0");
            assert_eq!(thread::spawn(allowed_list).join().expect("no panic"), "0", "its threads are where it is");
            as_main_thread();
            assert_eq!(allowed_list(), everywhere);
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn lists_of_the_kernel_are_read_and_shown() {
        for (list, numbers) in [("0-3,8", &[0, 1, 2, 3, 8][..]), ("5", &[5]), ("0,2-3", &[0, 2, 3])] {
            assert_eq!(parse(list).as_deref(), Some(numbers));
            assert_eq!(show(numbers), list);
        }
        assert_eq!((parse(""), show(&[])), (Some(Vec::new()), "none".to_owned()));
        assert_eq!(parse("0-x"), None);
    }

    #[test]
    fn zones_are_found_and_those_that_are_not_there_named() {
        let nodes = tempfile::tempdir().expect("a directory");
        let refused = zone_cpus(nodes.path(), 0).expect_err("no zones at all");
        assert!(refused.contains("knows of none"), "{refused}");
        fs::write(nodes.path().join("online"), "0-1\n").expect("written");
        for (zone, list) in [(0, "0-1,4-5\n"), (1, "\n")] {
            let node = nodes.path().join(format!("node{zone}"));
            fs::create_dir(&node).expect("made");
            fs::write(node.join("cpulist"), list).expect("written");
        }
        assert_eq!(zone_cpus(nodes.path(), 0), Ok(vec![0, 1, 4, 5]));
        assert_eq!(zone_cpus(nodes.path(), 1), Ok(Vec::new()));
        assert_eq!(zone_cpus(nodes.path(), 2), Err("this host has no NUMA zone 2 (it has 0-1)".to_owned()));
    }

    #[test]
    fn a_process_moves_only_where_it_can_be() {
        thread::spawn(|| {
            let before = allowed();
            for cpu in [CPUS_MAX - 1, CPUS_MAX, usize::MAX] {
                let Err(Misplaced::Cpus(text)) = move_to(None, &[0, cpu]) else { panic!("there is no CPU {cpu}") };
                assert!(text.contains(&format!("no CPU {cpu} ")), "{text}");
            }
            assert!(matches!(move_to(Some(999), &[]), Err(Misplaced::Zone(_))));
            assert_eq!(allowed(), before, "nothing has changed");
            assert_eq!(move_to(None, &before), Ok(()));
            if Path::new(NODES).join("node0/cpulist").exists() {
                assert_eq!(move_to(Some(0), &[0]), Ok(()));
                let zone = zone_cpus(Path::new(NODES), 0).expect("it is there");
                assert!(allowed().iter().all(|cpu| zone.contains(cpu)));
                let maps = fs::read_to_string("/proc/thread-self/numa_maps").expect("a kernel with zones");
                assert!(maps.contains(" prefer:0 "), "{maps}");
            }
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
