//! A real cluster on this machine, as `weft up` makes it.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;

use crate::cpu::{Watch, Who};
use crate::interrupt;

/// Stopped when dropped; its data stays.
pub(crate) struct Cluster {
    weft: PathBuf,
    dir: PathBuf,
    pub(crate) mount: PathBuf,
    pub(crate) management: String,
    pub(crate) key_file: PathBuf,
    /// The mount counts as client, all else as server.
    pub(crate) watch: Watch,
    /// Mounts beside the usual one by their names, each with its process.
    others: BTreeMap<&'static str, (PathBuf, i32)>,
}

/// What `weft up --json` prints, as far as it matters here.
#[derive(Deserialize)]
struct Running {
    mount: PathBuf,
    mgmtd: String,
    key_file: PathBuf,
    state: State,
}

#[derive(Deserialize)]
struct State {
    supervisor: i32,
    processes: BTreeMap<String, Process>,
}

#[derive(Deserialize)]
struct Process {
    pid: i32,
}

impl Cluster {
    /// In `dir/cluster`, mounted at `dir/mnt`, with the defaults of `weft up` but for `flags`.
    pub(crate) fn start(weft: &Path, dir: &Path, flags: &[&str]) -> Result<Self> {
        Self::start_with(weft, dir, flags, &[])
    }

    /// As `start`, with environment variables, which are settings of its services.
    pub(crate) fn start_with(weft: &Path, dir: &Path, flags: &[&str], environment: &[(&str, &str)]) -> Result<Self> {
        let (root, mount) = (dir.join("cluster"), dir.join("mnt"));
        let mut up = Command::new(weft);
        up.args(["--json", "up", "--detach", "--dir"]).arg(&root).arg("--mount").arg(&mount).args(flags);
        up.envs(environment.iter().copied());
        let output = run(&mut up)?;
        let running: Running =
            serde_json::from_slice(&output.stdout).context("`weft up --json` printed something else")?;
        let kind = |name: &str| if name.starts_with("mount") { Who::Client } else { Who::Server };
        let mut watch: Vec<_> =
            running.state.processes.iter().map(|(name, process)| (kind(name), process.pid)).collect();
        watch.push((Who::Server, running.state.supervisor));
        let (management, key_file) = (running.mgmtd, running.key_file);
        let cluster = Self {
            weft: weft.into(),
            dir: root,
            mount: running.mount,
            management,
            key_file,
            watch: Watch(watch),
            others: BTreeMap::new(),
        };
        let clients = cluster.watch.0.iter().filter(|(who, _)| *who == Who::Client).count();
        ensure!(clients == 1, "{clients} mounts among the processes of the cluster");
        Ok(cluster)
    }
}

impl Cluster {
    /// Another mount with these flags, made when it is first asked for, and whom to watch: it alone is the client.
    pub(crate) fn mount_with(&mut self, name: &'static str, flags: &[&str]) -> Result<(PathBuf, Watch)> {
        if !self.others.contains_key(name) {
            let made = self.mount_another(name, flags)?;
            self.others.insert(name, made);
        }
        let (at, pid) = self.others.get(name).cloned().context("no mount")?;
        let mut watch: Vec<_> = self.watch.0.iter().filter(|(who, _)| *who == Who::Server).copied().collect();
        watch.push((Who::Client, pid));
        Ok((at, Watch(watch)))
    }

    /// A mount that has seen nothing yet, and whom to watch: the usual one too, from which leases may be recalled.
    pub(crate) fn mount_cold(&mut self) -> Result<(PathBuf, Watch)> {
        let name = "mnt-cold";
        if let Some((at, _)) = self.others.remove(name) {
            self.umount(&at)?;
        }
        let (at, cold) = self.mount_with(name, &[])?;
        let usual = self.watch.0.iter().filter(|(who, _)| *who == Who::Client);
        Ok((at, Watch(cold.0.into_iter().chain(usual.copied()).collect())))
    }

    /// Only the usual mount stays; the others are made again when they are asked for.
    pub(crate) fn umount_others(&mut self) -> Result<()> {
        while let Some((_, (at, _))) = self.others.pop_first() {
            self.umount(&at)?;
        }
        Ok(())
    }

    /// All its processes, those of the other mounts too.
    pub(crate) fn everyone(&self) -> Watch {
        let others = self.others.values().map(|&(_, pid)| (Who::Client, pid));
        Watch(self.watch.0.iter().copied().chain(others).collect())
    }

    /// Directories that are made in `at` from now on go to this shard.
    pub(crate) fn place_new(&self, at: &Path, shard: u16) -> Result<()> {
        let mut set = Command::new(&self.weft);
        set.args(["entry", "set"]).arg(at).args(["--placement", &format!("shard:{shard}")]);
        run(&mut set).map(drop)
    }

    fn mount_another(&self, name: &str, flags: &[&str]) -> Result<(PathBuf, i32)> {
        let at = self.mount.with_file_name(name);
        std::fs::create_dir_all(&at)?;
        let mut mount = Command::new(&self.weft);
        mount.args(["--json", "mount"]).args(flags).arg("--dir").arg(&self.dir).arg(&at);
        let process: Process =
            serde_json::from_slice(&run(&mut mount)?.stdout).context("`weft mount --json` printed something else")?;
        Ok((at, process.pid))
    }

    fn umount(&self, at: &Path) -> Result<()> {
        run(Command::new(&self.weft).arg("umount").arg(at)).map(drop)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (at, _) in self.others.values() {
            // `down` says so where it is still in the way.
            let _ = self.umount(at);
        }
        let mut down = Command::new(&self.weft);
        down.arg("down").arg("--dir").arg(&self.dir);
        if interrupt::check().is_err() {
            // Programs of the measurement that was ended may go on for a moment.
            down.arg("--force");
        }
        if let Err(error) = run(&mut down) {
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "the cluster in {} was not stopped: {error:#}", self.dir.display());
        }
    }
}

fn run(command: &mut Command) -> Result<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    // Ctrl-C at a terminal, however often, is for the bench: what starts or stops a cluster does so to its end.
    command.process_group(0);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {program}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {} ({})", text.trim(), output.status);
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_of_the_terminal_do_not_reach_what_stops_a_cluster() {
        let stat = run(Command::new("cat").arg("/proc/self/stat")).expect("it is there").stdout;
        let stat = String::from_utf8(stat).expect("words");
        let fields: Vec<&str> = stat.split(' ').collect();
        assert_eq!(fields[0], fields[4], "it leads a process group of its own");
    }
}
