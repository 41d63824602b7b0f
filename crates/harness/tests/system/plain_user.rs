//! A user without any right but those that everybody has brings up a cluster, works on it, and takes it down.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and says where it cannot run")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use harness::cluster::{Cluster, Shape};
use harness::run::{Ended, run};
use harness::{binary, mounts};

const SOON: Duration = Duration::from_secs(90);
/// The usual limit of memory that a user may lock, in bytes.
const LOCKED_MAX: u64 = 8 << 20;

/// An account that is there for one test.
struct User {
    name: String,
    uid: u32,
    gid: u32,
}

impl User {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("weft-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        run(Command::new("useradd").args(["--no-create-home", "--shell", "/bin/sh", &name]), SOON).expect_ok();
        let id = |flag: &str| -> u32 {
            let ended = run(Command::new("id").args([flag, &name]), SOON).expect_ok();
            ended.stdout.trim().parse().unwrap()
        };
        let (uid, gid) = (id("-u"), id("-g"));
        Self { name, uid, gid }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = Command::new("userdel").arg("--force").arg(&self.name).status();
    }
}

/// The device as every distribution has it: for all. On a machine without udev it may be for root alone.
struct OpenDevice(fs::Permissions);

impl OpenDevice {
    fn new() -> Self {
        let before = fs::metadata("/dev/fuse").unwrap().permissions();
        fs::set_permissions("/dev/fuse", fs::Permissions::from_mode(0o666)).unwrap();
        Self(before)
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        let _ = fs::set_permissions("/dev/fuse", self.0.clone());
    }
}

/// A place of the user's, with the program where they can run it.
struct Place {
    // In this order at the end: what runs is stopped before its user goes.
    cluster: Cluster,
    user: User,
}

impl Place {
    fn new() -> Self {
        let cluster = Cluster::unborn(Shape::default());
        let user = User::new();
        let home = cluster.beside("");
        fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(&home, Some(user.uid), Some(user.gid)).unwrap();
        fs::copy(binary::weft(), cluster.beside("weft")).unwrap();
        Self { cluster, user }
    }

    fn command(&self, program: PathBuf, args: &[&str]) -> Ended {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.cluster.beside("")).uid(self.user.uid).gid(self.user.gid).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("USER", &self.user.name);
        command.env("WEFT_DIR", self.cluster.dir());
        // SAFETY: between fork and exec this makes one system call, with a record that lives through it.
        unsafe {
            command.pre_exec(|| {
                let limit = libc::rlimit { rlim_cur: LOCKED_MAX, rlim_max: LOCKED_MAX };
                match libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        run(&mut command, SOON)
    }

    fn weft(&self, args: &[&str]) -> Ended {
        self.command(self.cluster.beside("weft"), args)
    }

    fn shell(&self, script: &str) -> Ended {
        self.command("/bin/sh".into(), &["-euc", script]).expect_ok()
    }
}

#[test]
fn a_cluster_of_somebody_else_is_not_called_missing() {
    // SAFETY: geteuid cannot fail and touches no memory.
    if unsafe { libc::geteuid() } != 0 {
        println!("only root can add the user that this test needs: not tested");
        return;
    }
    let place = Place::new();
    place.cluster.up().expect_ok();
    for words in [&["status"][..], &["down"], &["up", "--detach"]] {
        let refused = place.weft(words);
        assert!(refused.code != Some(0) && refused.stderr.contains("Permission denied"), "{refused}");
    }
    place.cluster.down().expect_ok();
}

#[test]
fn an_ordinary_user_has_a_cluster_of_their_own() {
    // SAFETY: geteuid cannot fail and touches no memory.
    if unsafe { libc::geteuid() } != 0 {
        println!("only root can add the user that this test needs: not tested");
        return;
    }
    let _device = OpenDevice::new();
    let place = Place::new();
    let mount = place.cluster.mount_point();
    let point = mount.to_str().unwrap();
    place.weft(&["up", "--detach", "--mount", point]).expect_ok();
    place.shell("cd mnt; mkdir d; seq 300000 > d/f; cp d/f g; cmp d/f g; mv g d/g; chmod 600 d/g; ls -l d; sync d/f");
    place.shell("[ \"$(stat -c %U mnt/d/g)\" = \"$USER\" ]");
    for args in [&["status"][..], &["df"], &["fsck"], &["entry", "info", "mnt/d/f"], &["log-level", "mgmtd", "debug"]] {
        place.weft(args).expect_ok();
    }
    let supervisor = place.cluster.supervisor().unwrap();
    let owner = fs::metadata(format!("/proc/{supervisor}")).map(|meta| std::os::unix::fs::MetadataExt::uid(&meta));
    assert_eq!(owner.unwrap(), place.user.uid);
    // Its mount dies, and comes back.
    let old = place.cluster.kill("mount");
    place.cluster.wait_for_another("mount", old);
    // The dead one is in its place until then; the kernel still knows its names, but no data.
    let reads = || place.command("/bin/sh".into(), &["-euc", "cmp mnt/d/f mnt/d/g"]).code == Some(0);
    harness::wait::until("the mount is back", SOON, || reads().then_some(()));
    // A second mount. Letting others in takes root's word in /etc/fuse.conf.
    place.shell("mkdir second");
    let lets_others = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    if !lets_others.lines().any(|line| line.trim() == "user_allow_other") {
        let refused = place.weft(&["mount", "second", "--allow-other"]);
        assert_eq!(refused.code, Some(2), "{refused}");
        assert!(refused.stderr.contains("user_allow_other") && refused.stderr.contains("/etc/fuse.conf"), "{refused}");
    }
    place.weft(&["mount", "second"]).expect_ok();
    place.shell("cmp mnt/d/f second/d/g");
    // By ssh, say, where cron has mounted it.
    place.shell("mkdir -m 700 session; XDG_RUNTIME_DIR=$PWD/session ./weft entry info second/d/f");
    place.weft(&["umount", "second"]).expect_ok();
    place.weft(&["down"]).expect_ok();
    assert!(!mounts::is_mounted(&mount));
    place.weft(&["up", "--detach"]).expect_ok();
    place.shell("cmp mnt/d/f mnt/d/g && rm -r mnt/d");
    place.weft(&["down"]).expect_ok();
    assert_eq!(place.cluster.running(), Vec::<i32>::new(), "something runs on");
}
