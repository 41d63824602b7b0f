//! A metadata service that a test runs itself in the place of the supervisor's, so that it can end at a fail point
//! (`crates/metad/src/fail_points.rs`), or meet a slow disk, and comes back when the test wants it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::cluster::Cluster;
use crate::{binary, preload, process, wait};

/// For a service that was killed to be gone.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct OwnMetad {
    config: PathBuf,
    log: PathBuf,
    /// Says which point is armed.
    points: PathBuf,
    /// Takes the place of functions of the C library.
    preload: Option<PathBuf>,
    child: Child,
}

impl OwnMetad {
    /// Takes the place of the service `name`, such as `metad-1`. The cluster's supervisor has to be frozen, and this be
    /// dropped before the cluster.
    ///
    /// # Panics
    /// Where that cannot be killed, or this not be started.
    #[must_use]
    pub fn replace(cluster: &Cluster, name: &str) -> Self {
        Self::replace_with(cluster, name, None)
    }

    /// The same, with a library that takes the place of functions of the C library.
    ///
    /// # Panics
    /// As [`OwnMetad::replace`].
    #[must_use]
    pub fn replace_with(cluster: &Cluster, name: &str, preload: Option<PathBuf>) -> Self {
        process::kill(cluster.pid(name).unwrap_or_else(|| panic!("{name} does not run")));
        let config = cluster.dir().join(format!("{name}.toml"));
        let log = cluster.dir().join("log").join(format!("{name}.log"));
        let points = cluster.beside(&format!("{name}-fail-point"));
        let child = Self::command(&config, &log, &points, preload.as_deref()).spawn().expect("a service");
        Self { config, log, points, preload, child }
    }

    fn command(config: &Path, log: &Path, points: &Path, preload: Option<&Path>) -> Command {
        let log = File::options().append(true).create(true).open(log).expect("a log");
        let mut command = Command::new(binary::weft());
        command.arg("metad").arg("--config").arg(config).env("WEFT_TEST_FAIL_POINTS", points);
        command.envs(preload.map(|library| (preload::VARIABLE, library)));
        // A step is over soon.
        command.env("WEFT_METAD_SYNC_INTERVAL", "10ms");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        command
    }

    /// The service ends when it passes the point; `NAME:N`: for the N-th time.
    pub fn arm(&self, point: &str) {
        let new = self.points.with_extension("new");
        fs::write(&new, point).expect("a file");
        fs::rename(&new, &self.points).expect("the file in its place");
    }

    /// The point that it still has to pass.
    #[must_use]
    pub fn armed(&self) -> Option<String> {
        fs::read_to_string(&self.points).ok()
    }

    /// # Panics
    /// Where its process cannot be asked.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    /// Tells it to stop in order.
    pub fn terminate(&self) {
        process::signal(self.child.id() as i32, libc::SIGTERM);
    }

    /// Starts it again after its end.
    ///
    /// # Panics
    /// Where it cannot be started.
    pub fn start_again(&mut self) {
        let preload = self.preload.as_deref();
        self.child = Self::command(&self.config, &self.log, &self.points, preload).spawn().expect("a service");
    }
}

impl Drop for OwnMetad {
    fn drop(&mut self) {
        let _ = self.child.kill();
        wait::until("the end of a service", PATIENCE, || {
            self.child.try_wait().is_ok_and(|it| it.is_some()).then_some(())
        });
    }
}
