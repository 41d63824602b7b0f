//! Beginnings, ends and accidents of a mount.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use fuse::model_fs::{Caching, ModelFs};
use fuse::{MountError, Options};
use types::id::InodeId;

use crate::common::odd::{HANG, HANG_ON, MANY_PARTS, Odd, PANIC, PANIC_BESIDE, SLEEP, TOO_MUCH};
use crate::common::{Mounted, is_mounted};

const LONG: Duration = Duration::from_secs(20);
/// Names the mount point to the process that serves it, or the file to the one that maps it.
const CHILD_VARIABLE: &str = "FUSE_TEST_MOUNTPOINT";

fn odd(options: Options) -> (Mounted, Odd) {
    let fs = Odd::new(ModelFs::new(model::Limits::default(), Caching::Direct));
    let given = fs.clone();
    let mounted = Mounted::with(options, move |_| given.clone());
    fs::write(mounted.path("f"), "content").unwrap();
    (mounted, fs)
}

fn plain() -> Options {
    Options { channel: crate::common::channel(), ..Options::default() }
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < end, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn read_at(path: &Path, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let count = File::open(path)?.read_at(&mut bytes, offset)?;
    bytes.truncate(count);
    Ok(bytes)
}

fn dd(path: &Path, offset: u64) -> Child {
    let mut command = Command::new("dd");
    command.arg(format!("if={}", path.display())).arg("of=/dev/null").arg("bs=4096").arg("count=1");
    command.arg(format!("skip={}", offset / 4096)).stdout(Stdio::null()).stderr(Stdio::null());
    // Where the tests run in the background of a script, SIGINT is ignored, and children inherit that.
    // SAFETY: between fork and exec this makes one system call, which may be made there.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    command.spawn().unwrap()
}

fn kill(child: &Child, signal: i32) {
    // SAFETY: a plain system call on our own child.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

#[test]
fn a_signal_ends_an_operation_that_waits() {
    let (mounted, fs) = odd(Options::default());
    // Several times: the kernel tells any loop of the interrupt.
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL, libc::SIGINT, libc::SIGTERM] {
        let mut child = dd(&mounted.path("f"), HANG);
        wait_until("the read hangs", || fs.hanging.load(Ordering::SeqCst) == 1);
        kill(&child, signal);
        let mut status = None;
        wait_until("dd ends", || {
            status = child.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.and_then(|status| status.signal()), Some(signal));
        wait_until("the operation ends", || fs.hanging.load(Ordering::SeqCst) == 0);
    }
}

#[test]
fn a_signal_that_comes_at_once_is_not_lost() {
    // Over io_uring one in some hundreds is (docs/operating/configuration.md says so).
    if crate::common::channel() != fuse::Channel::Dev {
        return;
    }
    let (mounted, fs) = odd(Options::default());
    for turn in 0..150 {
        let mut child = dd(&mounted.path("f"), HANG);
        // Around the time at which the kernel hands the read over: the signal may overtake it on another way.
        std::thread::sleep(Duration::from_micros(500 + 10 * turn));
        // SIGINT has a handler in dd, which the next read would not notice.
        kill(&child, libc::SIGKILL);
        wait_until("dd ends", || child.try_wait().unwrap().is_some());
    }
    wait_until("all reads end", || fs.hanging.load(Ordering::SeqCst) == 0);
}

#[test]
fn those_who_wait_for_a_lock_do_not_keep_out_who_gives_it_back() {
    const WAITERS: usize = 40;
    let (mounted, fs) = odd(Options { requests_max: Some(16), locks: true, ..Options::default() });
    let path = mounted.path("f");
    fs.locked.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        // One after the other: io_uring's queues take up who found no place only with the next answer.
        for count in 1..=WAITERS {
            scope.spawn(|| File::open(&path).unwrap().lock().unwrap());
            wait_until("it waits", || fs.waiting.load(Ordering::SeqCst) == count);
        }
        assert_eq!(fs::read(&path).unwrap(), b"content");
        File::open(&path).unwrap().unlock().unwrap();
    });
    assert_eq!(fs::read(&path).unwrap(), b"content");
}

#[test]
fn many_waiting_operations_do_not_stop_the_others() {
    const MANY: usize = 40;
    let (mounted, fs) = odd(Options::default());
    let mut children: Vec<Child> = (0..MANY).map(|_| dd(&mounted.path("f"), HANG)).collect();
    wait_until("all reads hang", || fs.hanging.load(Ordering::SeqCst) == MANY);
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"content");
    for child in &children {
        kill(child, libc::SIGINT);
    }
    for child in &mut children {
        child.wait().unwrap();
    }
    assert_eq!(fs.hanging.load(Ordering::SeqCst), 0);
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"content");
}

#[test]
fn operations_run_side_by_side_in_one_loop() {
    let (mounted, fs) = odd(Options { loops: 1, ..Options::default() });
    let turn = || {
        std::thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| assert_eq!(read_at(&mounted.path("f"), SLEEP, 10).unwrap(), [2; 10]));
            }
        });
        fs.sleeping_most.load(Ordering::SeqCst)
    };
    // Who asks late, for want of a CPU, finds the first ones gone.
    wait_until("all are under way at once", || turn() == 10);
}

#[test]
fn the_bound_on_requests_in_flight_delays_and_loses_nothing() {
    // With two loops a full one hands the waiting for requests over to the other.
    for (loops, requests_max) in [(1, 2), (2, 1), (3, 2)] {
        let (mounted, fs) = odd(Options { loops, requests_max: Some(requests_max), ..Options::default() });
        let turn = || {
            std::thread::scope(|scope| {
                for _ in 0..6 {
                    scope.spawn(|| assert_eq!(read_at(&mounted.path("f"), SLEEP, 10).unwrap(), [2; 10]));
                }
            });
            let most = fs.sleeping_most.load(Ordering::SeqCst);
            assert!(most <= loops * requests_max, "{most} in {loops} loops of {requests_max}");
            most
        };
        // The queues of io_uring are those of CPUs: it is the kernel that chooses which of them are used.
        let is_chosen = crate::common::channel() != fuse::Channel::Dev;
        wait_until("all loops are full", || turn() == loops * requests_max || is_chosen);
        assert_eq!(fs::read(mounted.path("f")).unwrap(), b"content");
    }
}

#[test]
fn a_panic_ends_one_operation_only() {
    let (mounted, _) = odd(Options::default());
    for offset in [PANIC, TOO_MUCH] {
        let error = read_at(&mounted.path("f"), offset, 10).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        assert_eq!(fs::read(mounted.path("f")).unwrap(), b"content");
    }
}

#[test]
fn a_loop_that_panics_ends_the_mount_and_no_program_hangs() {
    let place = tempfile::tempdir().unwrap();
    let fs = Odd::new(ModelFs::new(model::Limits::default(), Caching::Direct));
    let (given, again) = (fs.clone(), fs.clone());
    let options = Options { loops: 2, drain_wait: Duration::from_millis(100), ..plain() };
    let handle = fuse::mount(place.path(), options, move |_| given.clone()).unwrap();
    let path = place.path().join("f");
    fs::write(&path, "content").unwrap();
    let mut children: Vec<Child> = (0..4).map(|_| dd(&path, HANG)).collect();
    wait_until("all reads hang", || fs.hanging.load(Ordering::SeqCst) == children.len());
    children.push(dd(&path, PANIC_BESIDE));
    assert!(ends(|| assert!(matches!(handle.join(), Err(MountError::Panicked)))));
    for child in &mut children {
        assert!(!child.wait().unwrap().success());
    }
    let error = fs::metadata(&path).expect_err("the connection has ended");
    assert!(matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED)), "{error}");
    // That also takes off what is left of it.
    let handle = fuse::mount(place.path(), plain(), move |_| again.clone()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"content");
    handle.unmount();
}

#[test]
fn creating_what_another_client_just_made_opens_it() {
    let (mounted, fs) = odd(Options::default());
    fs.too_early.store(1, Ordering::SeqCst);
    let file = File::options().read(true).write(true).create(true).truncate(false).open(mounted.path("f")).unwrap();
    assert_eq!(fs.too_early.load(Ordering::SeqCst), 0, "the kernel asked, and was told that there is none");
    assert_eq!(file.metadata().unwrap().len(), 7);
    fs.too_early.store(1, Ordering::SeqCst);
    assert_eq!(File::create_new(mounted.path("f")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    fs.too_early.store(1, Ordering::SeqCst);
    assert_eq!(File::create(mounted.path("f")).unwrap().metadata().unwrap().len(), 0, "truncated");
    assert_eq!(fs.too_early.load(Ordering::SeqCst), 0);
}

#[test]
fn a_reply_in_many_parts_arrives_whole() {
    let (mounted, _) = odd(Options::default());
    let expected: Vec<u8> = (0..5000u32).map(|i| i as u8).collect();
    assert_eq!(read_at(&mounted.path("f"), MANY_PARTS, 5000).unwrap(), expected);
    assert_eq!(read_at(&mounted.path("f"), MANY_PARTS, 30).unwrap(), &expected[..30]);
}

/// By `io_submit`: the kernel sends all parts of a long one at once.
fn write_unawaited(file: &File, bytes: &[u8]) {
    const PWRITE: u64 = 1;
    let mut context = 0u64;
    // `struct iocb` and `struct io_event` of `<linux/aio_abi.h>`, of which the rest is zeros.
    let (fd, buffer) = (u64::try_from(file.as_raw_fd()).unwrap(), bytes.as_ptr() as u64);
    let (mut request, mut event) = ([0, 0, PWRITE | fd << 32, buffer, bytes.len() as u64, 0, 0, 0], [0u64; 4]);
    let (mut list, no_timeout) = ([&raw mut request], std::ptr::null::<libc::timespec>());
    // SAFETY: one request, whose bytes live until it is waited for, and room for what is said of it.
    let counts = unsafe {
        [
            libc::syscall(libc::SYS_io_setup, 1, &raw mut context),
            libc::syscall(libc::SYS_io_submit, context, 1, list.as_mut_ptr()),
            libc::syscall(libc::SYS_io_getevents, context, 1, 1, &raw mut event, no_timeout),
            libc::syscall(libc::SYS_io_destroy, context),
        ]
    };
    assert_eq!((counts, event[2]), ([0, 1, 1, 0], bytes.len() as u64));
}

#[test]
fn parts_of_a_write_that_other_loops_are_reading_are_waited_for() {
    // Over io_uring they come in order as long as the caller stays on its CPU.
    if crate::common::channel() != fuse::Channel::Dev {
        return;
    }
    let fs = Odd::new(ModelFs::new(model::Limits::default(), Caching::Direct));
    let given = fs.clone();
    let options = Options { loops: 3, ..Options::default() };
    let mounted = Mounted::with(options, move |loop_index| Odd { loop_index, ..given.clone() });
    let file = File::create(mounted.path("f")).unwrap();
    assert!(fs.arrivals.set(mounted.arrivals()).is_ok());
    let bytes = vec![7; (3 << 20) + 4096];
    for _ in 0..40 {
        fs.highest.store(0, Ordering::SeqCst);
        file.set_len(0).unwrap();
        write_unawaited(&file, &bytes);
    }
    assert!(fs.highest.load(Ordering::SeqCst) > 2 << 20);
    assert_eq!(fs.overtaken.load(Ordering::SeqCst), 0);
}

#[test]
fn unmounting_ends_every_loop() {
    let (mounted, fs) = odd(Options { loops: 3, ..Options::default() });
    let path = mounted.root().to_owned();
    assert!(is_mounted(&path));
    let place = mounted.unmount();
    assert_eq!(place.path(), path);
    assert!(!is_mounted(&path));
    assert_eq!(fs.shutdowns.load(Ordering::SeqCst), 3);
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}

#[test]
fn mapped_files_are_read_ahead_a_little() {
    let (mounted, _fs) = odd(Options::default());
    let device = fs::metadata(mounted.root()).unwrap().dev();
    let file = format!("/sys/class/bdi/{}:{}/read_ahead_kb", libc::major(device), libc::minor(device));
    if File::options().write(true).open(&file).is_err_and(|error| error.kind() == io::ErrorKind::ReadOnlyFilesystem) {
        eprintln!("skipped: /sys is read-only, so that nobody can tell the kernel");
        return;
    }
    // Nobody but root can tell the kernel.
    // SAFETY: a system call without arguments.
    let kib = if unsafe { libc::geteuid() } == 0 { "256" } else { "128" };
    assert_eq!(fs::read_to_string(file).unwrap().trim(), kib);
}

#[test]
fn a_mount_with_open_files_is_detached_after_a_while() {
    let wait = Duration::from_millis(200);
    let (mounted, fs) = odd(Options { busy_wait: wait, drain_wait: wait, ..Options::default() });
    let file = File::open(mounted.path("f")).unwrap();
    let mut child = dd(&mounted.path("f"), HANG);
    wait_until("the read hangs", || fs.hanging.load(Ordering::SeqCst) == 1);
    let begin = Instant::now();
    let place = mounted.unmount();
    assert!(begin.elapsed() < LONG, "unmounting took {:?}", begin.elapsed());
    assert!(!is_mounted(place.path()));
    assert!(!child.wait().unwrap().success());
    assert!(file.read_at(&mut [0; 8], 0).is_err());
}

#[test]
fn what_is_in_flight_at_the_end_of_a_detached_mount_is_answered() {
    let busy_wait = Duration::from_millis(50);
    let (mounted, fs) = odd(Options { loops: 1, busy_wait, ..Options::default() });
    let path = mounted.path("f");
    let file = File::open(&path).unwrap();
    let reads = std::thread::spawn(move || {
        let mut bytes = [0; 10];
        file.read_at(&mut bytes, SLEEP).map(|_| bytes)
    });
    wait_until("the read is in flight", || fs.sleeping.load(Ordering::SeqCst) == 1);
    mounted.unmount();
    assert_eq!(reads.join().unwrap().unwrap(), [2; 10]);
}

#[test]
fn a_mount_that_a_container_has_as_well_is_detached_after_a_while() {
    let wait = Duration::from_millis(200);
    let (mounted, _) = odd(Options { busy_wait: wait, drain_wait: wait, ..Options::default() });
    let mut container = Command::new("unshare");
    container.args(["--mount", "--propagation", "private", "sh", "-c", "echo; exec sleep 120"]);
    let mut container = container.stdout(Stdio::piped()).spawn().unwrap();
    container.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    let inside = format!("/proc/{}/root{}", container.id(), mounted.path("f").display());
    assert_eq!(fs::read(&inside).unwrap(), b"content");
    let (ended, ends) = mpsc::channel();
    std::thread::spawn(move || ended.send(mounted.unmount()));
    let place = ends.recv_timeout(LONG);
    container.kill().unwrap();
    container.wait().unwrap();
    assert!(!is_mounted(place.expect("it ends").path()));
}

#[test]
fn what_was_mounted_in_its_place_since_stays() {
    let wait = Duration::from_millis(200);
    let (mounted, _) = odd(Options { busy_wait: wait, drain_wait: wait, ..Options::default() });
    let file = File::open(mounted.path("f")).unwrap();
    assert!(Command::new("umount").arg("--lazy").arg(mounted.root()).status().unwrap().success());
    assert_eq!(file.read_at(&mut [0; 8], 0).unwrap(), 7, "who has it open goes on");
    let fs = ModelFs::new(model::Limits::default(), Caching::Direct);
    let next = fuse::mount(mounted.root(), plain(), move |_| fs.clone()).unwrap();
    fs::write(mounted.path("g"), "next").unwrap();
    let place = mounted.unmount();
    assert_eq!(fs::read(place.path().join("g")).unwrap(), b"next");
    assert!(file.read_at(&mut [0; 8], 0).is_err());
    next.unmount();
    assert!(!is_mounted(place.path()));
}

#[test]
fn unmounted_from_outside_it_ends_by_itself() {
    let place = tempfile::tempdir().unwrap();
    let fs = ModelFs::new(model::Limits::default(), Caching::Direct);
    let handle = fuse::mount(place.path(), plain(), move |_| fs.clone()).unwrap();
    assert!(Command::new("umount").arg(place.path()).status().unwrap().success());
    handle.join().unwrap();
    assert!(!is_mounted(place.path()));
}

/// As `umount -f`: the kernel ends all requests with an error, and tells the mount of none.
fn abort(root: &Path) {
    // Lazily as well: who has an error just now may not have closed its file yet.
    assert!(Command::new("umount").args(["--force", "--lazy"]).arg(root).status().unwrap().success());
}

/// False where it does not end.
fn ends(ending: impl FnOnce() + Send + 'static) -> bool {
    let (ended, ends) = mpsc::channel();
    std::thread::spawn(move || {
        ending();
        let _ = ended.send(());
    });
    ends.recv_timeout(LONG).is_ok()
}

#[test]
fn an_aborted_mount_ends_though_its_programs_waited_for_locks() {
    let place = tempfile::tempdir().unwrap();
    let fs = Odd::new(ModelFs::new(model::Limits::default(), Caching::Direct));
    let given = fs.clone();
    let options = Options { locks: true, ..plain() };
    let handle = fuse::mount(place.path(), options, move |_| given.clone()).unwrap();
    let path = place.path().join("f");
    fs::write(&path, "content").unwrap();
    fs.locked.store(true, Ordering::SeqCst);
    let waiter = std::thread::spawn(move || File::open(&path).unwrap().lock());
    wait_until("it waits", || fs.waiting.load(Ordering::SeqCst) == 1);
    abort(place.path());
    assert!(waiter.join().unwrap().is_err());
    let ended = ends(|| handle.join().unwrap());
    fs.locked.store(false, Ordering::SeqCst);
    assert!(ended);
    assert_eq!(fs.waiting.load(Ordering::SeqCst), 0);
}

#[test]
fn an_aborted_mount_gives_up_what_does_not_end() {
    let place = tempfile::tempdir().unwrap();
    let fs = Odd::new(ModelFs::new(model::Limits::default(), Caching::Direct));
    let given = fs.clone();
    let options = Options { orphans_wait: Duration::from_millis(200), ..plain() };
    let handle = fuse::mount(place.path(), options, move |_| given.clone()).unwrap();
    fs::write(place.path().join("f"), "content").unwrap();
    let mut child = dd(&place.path().join("f"), HANG_ON);
    wait_until("the read hangs", || fs.hanging.load(Ordering::SeqCst) == 1);
    abort(place.path());
    assert!(!child.wait().unwrap().success());
    assert!(ends(|| handle.join().unwrap()));
}

#[test]
fn who_asks_an_aborted_mount_to_end_does_not_wait_for_what_nobody_waits_for() {
    let (mounted, fs) = odd(Options { drain_wait: Duration::from_millis(200), ..Options::default() });
    let mut child = dd(&mounted.path("f"), HANG_ON);
    wait_until("the read hangs", || fs.hanging.load(Ordering::SeqCst) == 1);
    abort(mounted.root());
    assert!(!child.wait().unwrap().success());
    assert!(ends(|| drop(mounted.unmount())));
}

/// Ends the connection of the mount with this number, so that what hangs for it does not keep this process from its end.
fn abort_connection(number: u32) {
    let place = tempfile::tempdir().unwrap();
    assert!(Command::new("mount").args(["-t", "fusectl", "none"]).arg(place.path()).status().unwrap().success());
    let aborted = fs::write(place.path().join(format!("{number}/abort")), "1");
    assert!(Command::new("umount").arg(place.path()).status().unwrap().success());
    aborted.unwrap();
}

#[test]
fn a_mount_ends_while_the_kernel_is_told_to_forget_a_page_that_is_being_read() {
    let wait = Duration::from_millis(200);
    let (mounted, fs) = odd(Options { busy_wait: wait, drain_wait: wait, ..Options::default() });
    let attributes = fs::metadata(mounted.path("f")).unwrap();
    let (inode, number) = (InodeId(attributes.ino()), libc::minor(attributes.dev()));
    fs.stuck.store(true, Ordering::SeqCst);
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", &name_of("touch_a_mapped_page"), "--ignored"]).env(CHILD_VARIABLE, mounted.path("f"));
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the page is being read", || fs.hanging.load(Ordering::SeqCst) > 0);
    let notifier = mounted.notifier();
    let (told, tells) = mpsc::channel();
    std::thread::spawn(move || told.send(notifier.forget_inode(inode)));
    assert!(tells.recv_timeout(wait).is_err(), "it waits for the page");
    let ended = ends(|| drop(mounted.unmount()));
    let told = tells.recv_timeout(LONG);
    if told.is_err() {
        abort_connection(number);
    }
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGBUS));
    assert!(ended);
    told.expect("who tells does not wait for ever");
}

#[test]
#[ignore = "the other half of a_mount_ends_while_the_kernel_is_told_to_forget_a_page_that_is_being_read"]
fn touch_a_mapped_page() {
    let file = File::open(std::env::var_os(CHILD_VARIABLE).expect("run by that test")).unwrap();
    let (fd, share) = (file.as_raw_fd(), libc::MAP_SHARED);
    // SAFETY: a new mapping, wherever there is room.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, share, fd, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    // SAFETY: it was mapped just now, and a page that cannot be read ends this process, as the test wants.
    unsafe { page.cast::<u8>().read_volatile() };
}

#[test]
fn the_helper_of_unprivileged_users_works_as_well() {
    let (mounted, _) = odd(Options { use_helper: true, ..Options::default() });
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"content");
    let place = mounted.unmount();
    assert!(!is_mounted(place.path()));
}

#[test]
fn a_dead_mount_is_recovered_by_the_next() {
    let place = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let mut server = Command::new(std::env::current_exe().unwrap());
        server.args(["--exact", &name_of("serve_until_killed"), "--ignored"]).env(CHILD_VARIABLE, place.path());
        let mut server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("the child mounts", || place.path().join("alive").exists());
        kill(&server, libc::SIGKILL);
        server.wait().unwrap();
        // The kernel takes a killed ring's descriptors back in its own time: ECONNABORTED until then.
        wait_until("the mount is dead", || {
            fs::metadata(place.path()).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
        });
    }
    let fs = ModelFs::new(model::Limits::default(), Caching::Direct);
    let handle = fuse::mount(place.path(), plain(), move |_| fs.clone()).unwrap();
    fs::write(place.path().join("f"), "again").unwrap();
    assert_eq!(fs::read(place.path().join("f")).unwrap(), b"again");
    handle.unmount();
    assert!(!is_mounted(place.path()));
}

/// What the test program calls a test of this file.
fn name_of(test: &str) -> String {
    let modules = module_path!().split_once("::").map_or(String::new(), |(_, inner)| format!("{inner}::"));
    format!("{modules}{test}")
}

#[test]
#[ignore = "the other half of a_dead_mount_is_recovered_by_the_next"]
fn serve_until_killed() {
    let place = std::env::var_os(CHILD_VARIABLE).expect("run by the test that kills it");
    let fs = ModelFs::new(model::Limits::default(), Caching::Direct);
    let handle = fuse::mount(Path::new(&place), plain(), move |_| fs.clone()).unwrap();
    File::create(Path::new(&place).join("alive")).unwrap();
    handle.join().unwrap();
}
