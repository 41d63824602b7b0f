//! A whole cluster of real processes, gone when dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::guard::Guard;
use crate::run::{Ended, run};
use crate::{binary, metrics, mounts, preload, process, wait};

/// For a cluster to come up or go down, on a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// Lines of each log that are shown where a test fails.
const TAIL: usize = 40;

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct Shape {
    pub metadata: u32,
    /// Of each metadata service.
    pub shards: u32,
    pub storage: u32,
    /// Of each storage service.
    pub targets: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self { metadata: 1, shards: 1, storage: 1, targets: 4 }
    }
}

pub struct Cluster {
    shape: Shape,
    seconds: Vec<SecondMount>,
    // In this order at the end: the guard goes when all is cleaned up, the directory last.
    guard: Guard,
    all: TempDir,
}

/// A further mount of the same cluster.
#[derive(Clone, Debug)]
pub struct SecondMount {
    pub point: PathBuf,
    pub pid: i32,
    pub log: PathBuf,
}

impl Cluster {
    /// One metadata service, one storage service of four targets, mounted.
    #[must_use]
    pub fn start() -> Self {
        Self::of(Shape::default())
    }

    #[must_use]
    pub fn of(shape: Shape) -> Self {
        let cluster = Self::unborn(shape);
        cluster.up().expect_ok();
        cluster
    }

    /// Before its first `up`: an empty directory.
    #[must_use]
    pub fn unborn(shape: Shape) -> Self {
        let all = tempfile::Builder::new().prefix("weft-test-").tempdir().expect("a temporary directory");
        let guard = Guard::new(binary::weft(), &all.path().join("cluster"), all.path());
        Self { shape, seconds: Vec::new(), guard, all }
    }

    /// One whose first metadata service ends sessions that it has not heard of for `seconds`.
    #[must_use]
    pub fn expiring_after(seconds: u32) -> Self {
        let cluster = Self::start();
        cluster.down().expect_ok();
        let config = cluster.dir().join("metad-1.toml");
        let text = fs::read_to_string(&config).expect("a configuration");
        fs::write(&config, text + &format!("session_expiry = \"{seconds}s\"\n")).expect("it can be changed");
        cluster.up().expect_ok();
        cluster
    }

    /// `weft up` with this cluster's shape.
    pub fn up(&self) -> Ended {
        // Two at once might find the same port free.
        static FINDING_PORTS: Mutex<()> = Mutex::new(());
        let _turn = FINDING_PORTS.lock().unwrap_or_else(PoisonError::into_inner);
        let number = |n: u32| n.to_string();
        let mut command = Command::new(binary::weft());
        command.arg("up").arg("--dir").arg(self.dir()).arg("--mount").arg(self.mount_point()).arg("--detach");
        command.args(["--metadata", &number(self.shape.metadata), "--storage", &number(self.shape.storage)]);
        command.args(["--shards", &number(self.shape.shards)]);
        command.args(["--targets", &number(self.shape.targets), "--timeout", "60"]);
        self.run(&mut command)
    }

    pub fn down(&self) -> Ended {
        self.weft(&["down"])
    }

    /// A command about this cluster.
    pub fn weft(&self, args: &[&str]) -> Ended {
        self.run(Command::new(binary::weft()).args(args).arg("--dir").arg(self.dir()))
    }

    /// A command that finds its cluster without being told.
    pub fn weft_alone(&self, args: &[&str]) -> Ended {
        self.run(Command::new(binary::weft()).args(args))
    }

    /// A command's `--json`.
    ///
    /// # Panics
    /// Where it fails.
    pub fn json(&self, args: &[&str]) -> Value {
        let ended = self.run(Command::new(binary::weft()).args(args).arg("--json").arg("--dir").arg(self.dir()));
        let ended = ended.expect_ok();
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"))
    }

    fn run(&self, command: &mut Command) -> Ended {
        for variable in ["WEFT_DIR", "WEFT_MGMTD", "WEFT_KEY_FILE"] {
            command.env_remove(variable);
        }
        run(command.current_dir(self.all.path()), PATIENCE)
    }

    /// Asserts that `weft fsck` finds nothing. Removals that are under way are given time.
    pub fn assert_sound(&self) {
        let report = self.weft(&["fsck"]);
        assert_eq!(report.code, Some(0), "{report}");
    }

    /// A directory of its own on the main mount, and so of one test among others on the same cluster.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
        path
    }

    #[must_use]
    pub fn dir(&self) -> PathBuf {
        self.all.path().join("cluster")
    }

    #[must_use]
    pub fn mount_point(&self) -> PathBuf {
        self.all.path().join("mnt")
    }

    /// On the main mount.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.mount_point().join(name)
    }

    /// On the local file system, beside the cluster.
    #[must_use]
    pub fn beside(&self, name: &str) -> PathBuf {
        self.all.path().join(name)
    }

    /// Mounts it once more.
    pub fn mount_again(&mut self, flags: &[&str]) -> SecondMount {
        self.mount_again_with(flags, None)
    }

    /// The same with a library that takes the place of functions of the C library.
    ///
    /// # Panics
    /// As [`Cluster::mount_again`].
    #[must_use]
    pub fn mount_again_with(&mut self, flags: &[&str], preload: Option<&Path>) -> SecondMount {
        let point = self.beside(&format!("mnt-{}", self.seconds.len() + 2));
        fs::create_dir_all(&point).expect("a mount point");
        let mut command = Command::new(binary::weft());
        command.arg("mount").arg(&point).arg("--dir").arg(self.dir()).arg("--json").args(flags);
        command.envs(preload.map(|library| (preload::VARIABLE, library)));
        let ended = self.run(&mut command).expect_ok();
        let said: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"));
        let pid = said["pid"].as_i64().unwrap_or_else(|| panic!("no pid: {ended}")) as i32;
        let log = said["log"].as_str().map(PathBuf::from).unwrap_or_default();
        let second = SecondMount { point, pid, log };
        self.seconds.push(second.clone());
        second
    }

    /// Names of the supervised processes, such as `metad-1`.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let state = self.state();
        let processes = state["processes"].as_object();
        processes.map(|processes| processes.keys().cloned().collect()).unwrap_or_default()
    }

    /// `None` while it does not run.
    #[must_use]
    pub fn pid(&self, name: &str) -> Option<i32> {
        let pid = self.state()["processes"][name]["pid"].as_i64()? as i32;
        (pid > 0 && process::is_alive(pid)).then_some(pid)
    }

    /// The service that keeps this shard.
    ///
    /// # Panics
    /// Where none does.
    #[must_use]
    pub fn keeper(&self, shard: u64) -> String {
        let targets = self.json(&["target", "list"]);
        let keeps = |target: &&Value| target["shards"].as_array().is_some_and(|shards| shards.contains(&shard.into()));
        let keeper = targets.as_array().and_then(|targets| targets.iter().find(keeps));
        keeper.and_then(|target| target["node_alias"].as_str()).expect("a service that keeps the shard").to_owned()
    }

    /// All processes with a path of this cluster in their command line.
    #[must_use]
    pub fn running(&self) -> Vec<i32> {
        let pids = process::mentioning(self.all.path());
        pids.into_iter().filter(|pid| *pid != self.guard.pid()).collect()
    }

    /// Of the supervisor and all that it keeps running.
    #[must_use]
    pub fn pids(&self) -> Vec<(String, i32)> {
        let mut pids: Vec<(String, i32)> =
            self.names().into_iter().filter_map(|name| self.pid(&name).map(|pid| (name, pid))).collect();
        pids.extend(self.supervisor().map(|pid| ("supervisor".to_owned(), pid)));
        pids
    }

    #[must_use]
    pub fn supervisor(&self) -> Option<i32> {
        let pid = self.state()["supervisor"].as_i64()? as i32;
        (pid > 1 && process::is_alive(pid)).then_some(pid)
    }

    /// kill -9; the supervisor starts it again. Answers the process that was killed.
    pub fn kill(&self, name: &str) -> i32 {
        let pid = wait::until(&format!("{name} runs"), PATIENCE, || self.pid(name));
        process::kill(pid);
        pid
    }

    /// Waits until the supervisor has started it again.
    pub fn wait_for_another(&self, name: &str, than: i32) -> i32 {
        wait::until(&format!("{name} is started again"), PATIENCE, || self.pid(name).filter(|pid| *pid != than))
    }

    /// Nothing that dies is started again until [`Self::resume`].
    pub fn freeze_supervisor(&self) {
        process::stop(self.supervisor().expect("a supervisor"));
    }

    pub fn resume(&self) {
        for (_, pid) in self.pids() {
            process::signal(pid, libc::SIGCONT);
        }
    }

    /// Waits until the main mount answers.
    pub fn wait_for_mount(&self) {
        let point = self.mount_point();
        let begin = Instant::now();
        // In this order: between a dead mount and the next one, the bare directory answers.
        while fs::read_dir(&point).is_err() || !mounts::is_mounted(&point) {
            assert!(begin.elapsed() < PATIENCE, "{} does not answer", point.display());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts the cluster again with another `lease_term` of its metadata services.
    pub fn set_lease_term(&self, term: &str) {
        self.set_metadata(&[("#lease_term = \"10s\"", &format!("lease_term = \"{term}\""))]);
    }

    /// Starts the cluster again with other lines in the configurations of its metadata services.
    pub fn set_metadata(&self, lines: &[(&str, &str)]) {
        self.down().expect_ok();
        for number in 1..=self.shape.metadata {
            let file = self.dir().join(format!("metad-{number}.toml"));
            let mut text = fs::read_to_string(&file).expect("there is a metadata service");
            for (default, line) in lines {
                assert!(text.contains(default), "it is not the default that changes:\n{text}");
                text = text.replace(default, line);
            }
            fs::write(&file, text).expect("its configuration can be written");
        }
        self.up().expect_ok();
        self.wait_for_mount();
    }

    /// Until looking at `path` asks no server: a mount is given leases from when it listens for their recall, a moment after
    /// it answers.
    pub fn wait_for_leases(&self, path: &Path) {
        let look = || fs::metadata(path).expect("it is there");
        let asked = || {
            ["op=\"Lookup\"", "op=\"GetAttr\""]
                .map(|label| metrics::sum(self, "metadata", "weft_request_seconds_count", &[label]))
        };
        wait::until("a look that asks nothing", PATIENCE, || {
            look();
            let before = asked();
            look();
            (asked() == before).then_some(())
        });
    }

    /// Until the shard knows that nobody writes any more to the file at `path`, which begins at the root of the file system:
    /// nobody waits for that who closes it.
    pub fn wait_until_settled(&self, path: &str) {
        wait::until("the file is settled", PATIENCE, || {
            (self.json(&["entry", "info", path])["unsettled"] == false).then_some(())
        });
    }

    #[must_use]
    pub fn log(&self, name: &str) -> String {
        fs::read_to_string(self.dir().join("log").join(format!("{name}.log"))).unwrap_or_default()
    }

    fn state(&self) -> Value {
        let bytes = fs::read(self.dir().join("run/state.json")).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// The ends of all logs, for whoever has to find out why.
    #[must_use]
    pub fn logs(&self) -> String {
        let mut text = String::new();
        let files = fs::read_dir(self.dir().join("log")).into_iter().flatten().filter_map(Result::ok);
        let files = files.map(|file| file.path()).chain(self.seconds.iter().map(|second| second.log.clone()));
        for file in files {
            let log = fs::read(&file).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let lines: Vec<&str> = log.lines().collect();
            text += &format!("--- {}\n", file.display());
            for line in &lines[lines.len().saturating_sub(TAIL)..] {
                text += &format!("{line}\n");
            }
        }
        text
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "shown with the test that failed")]
            {
                eprintln!("{}", self.logs());
            }
        }
        self.resume();
        for second in &self.seconds {
            let _ = mounts::unmount(&second.point, true);
        }
        if self.dir().join("cluster.toml").exists() {
            let mut down = Command::new(binary::weft());
            down.args(["down", "--force", "--timeout", "20", "--dir"]).arg(self.dir());
            // What it leaves is taken away below.
            let _ = down.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).status();
        }
        for second in &self.seconds {
            if process::is_alive(second.pid) {
                process::signal(second.pid, libc::SIGKILL);
            }
            let _ = fs::remove_file(&second.log);
        }
        for pid in self.running() {
            process::signal(pid, libc::SIGKILL);
        }
        for point in mounts::below(&self.dir()).into_iter().chain(mounts::below(&self.mount_point())) {
            let _ = mounts::unmount(&point, true);
        }
    }
}
