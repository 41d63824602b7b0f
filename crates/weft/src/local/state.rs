//! What the supervisor tells about its processes: one file, replaced at each change.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::dir::{ClusterDir, write_atomically};

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct State {
    /// Process id of the supervisor.
    pub(crate) supervisor: i32,
    /// It was told to end, and so will all of them.
    pub(crate) stopping: bool,
    /// By name, in the order of their start.
    pub(crate) processes: BTreeMap<String, ProcessState>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ProcessState {
    pub(crate) phase: Phase,
    /// 0 while it does not run.
    pub(crate) pid: i32,
    /// How often it was started again.
    pub(crate) restarts: u32,
    /// How it ended last, such as `exit code 1` or `signal 9`; empty before.
    pub(crate) last_exit: String,
    /// Where the lines of its latest start begin in its log.
    pub(crate) log_from: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Phase {
    Running,
    /// Died, and waits to be started again.
    Waiting,
    /// Refused to start, until somebody changes what its log says: not started again.
    Refused,
    /// Ended as it was meant to.
    Stopped,
}

impl State {
    /// `None` where no supervisor has written one.
    pub(crate) fn read(dir: &ClusterDir) -> Result<Option<Self>> {
        let path = dir.run("state.json");
        match fs::read(&path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map(Some).with_context(|| format!("cannot read {}", path.display()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Names of the processes that run, in the order of their start.
    pub(crate) fn running(&self) -> impl Iterator<Item = &str> {
        let running = self.processes.iter().filter(|(_, process)| process.phase == Phase::Running);
        running.map(|(name, _)| name.as_str())
    }

    pub(crate) fn write(&self, dir: &ClusterDir) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).context("cannot write down the processes' state")?;
        write_atomically(&dir.run("state.json"), &text)
    }

    /// What a supervisor has left that does not run any more: read as news it would mislead.
    pub(crate) fn remove(dir: &ClusterDir) {
        // Not there is as good as removed, and each start writes a new one.
        let _ = fs::remove_file(dir.run("state.json"));
    }
}

impl Phase {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::Running => "running",
            Phase::Waiting => "waiting to restart",
            Phase::Refused => "refused to start",
            Phase::Stopped => "stopped",
        }
    }
}
