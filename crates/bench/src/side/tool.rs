//! Programs that measure by themselves: NetBench, StorageBench and fio. What they print is believed.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::stopwatch::Stopwatch;
use crate::cpu::{Watch, Who};
use crate::job::Measured;

/// `weft bench net` of a cluster: `write` and `read`, over all rails where there are several.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NetBench {
    /// The program to run and its first arguments: `weft`, perhaps on another host.
    pub(crate) weft: Vec<String>,
    /// `host:port` of mgmtd.
    pub(crate) management: String,
    pub(crate) key_file: PathBuf,
    /// Bytes of a request.
    pub(crate) block: u32,
    pub(crate) depth: u32,
    pub(crate) seconds: u32,
    pub(crate) watch: Watch,
}

impl NetBench {
    pub(crate) fn run(&self) -> Result<Vec<Measured>> {
        let Self { weft, management, block, depth, seconds, .. } = self;
        let mut command = program(weft)?;
        command.args(["--json", "bench", "net", "--mgmtd", management]).arg("--key-file").arg(&self.key_file);
        command.args(["--size", &block.to_string(), "--depth", &depth.to_string(), "--seconds", &seconds.to_string()]);
        let stopwatch = Stopwatch::start(Who::Client, &self.watch)?;
        let report = json(&mut command)?;
        let both = stopwatch.stop("", 1)?;
        let row = report["rows"].as_array().and_then(|rows| rows.last()).context("NetBench has measured nothing")?;
        let phases = ["write", "read"].map(|load| {
            let figure = |key: &str| row[load][key].as_f64().ok_or_else(|| anyhow!("NetBench: {row}"));
            let (operations, seconds) = (figure("requests")? as u64, figure("seconds")?);
            let bytes = (figure("bytes_per_second")? * seconds) as u64;
            // CPU time is of all that it did, which is both loads and pings: it stands in neither.
            Ok(Measured { phase: load.to_owned(), operations, bytes, seconds, cpu_us: [].into(), ..both.clone() })
        });
        phases.into_iter().collect()
    }
}

/// What StorageBench and fio do alike, a phase after the other.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Pattern {
    /// Bytes of the file of each thread.
    pub(crate) size: u64,
    /// Of those at random places, which go on for a time.
    pub(crate) seconds: u32,
}

const THREADS: &str = "4";

/// Phase, whether it writes, whether at random places. Reads find what the first one has written.
const PHASES: [(&str, bool, bool); 4] =
    [("write", true, false), ("read", false, false), ("random read", false, true), ("random write", true, true)];

fn block(random: bool) -> &'static str {
    if random { "4096" } else { "524288" }
}

/// `weft bench storage` of a cluster with one target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StorageBench {
    pub(crate) weft: PathBuf,
    /// `host:port` of mgmtd.
    pub(crate) management: String,
    pub(crate) key_file: PathBuf,
    pub(crate) pattern: Pattern,
}

impl StorageBench {
    pub(crate) fn run(&self) -> Result<Vec<Measured>> {
        let phases = PHASES.iter().map(|&(phase, writes, random)| self.phase(phase, writes, random));
        let measured = phases.collect::<Result<_>>();
        json(self.command().arg("--cleanup")).context("cannot remove what StorageBench has written")?;
        measured
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.weft);
        command.args(["--json", "bench", "storage", "--mgmtd", &self.management]).arg("--key-file").arg(&self.key_file);
        command
    }

    fn phase(&self, phase: &str, writes: bool, random: bool) -> Result<Measured> {
        let Pattern { size, seconds } = self.pattern;
        let mut command = self.command();
        command.args(["--wait", "--threads", THREADS, "--size", &size.to_string(), "--block-size", block(random)]);
        command.arg(if writes { "--write" } else { "--read" });
        if random {
            command.args(["--random", "--duration", &format!("{seconds}s")]);
        }
        let report = json(&mut command)?;
        let target = match report["targets"].as_array().map(Vec::as_slice) {
            Some([target]) if target["state"] == "finished" => target,
            _ => bail!("StorageBench: {report}"),
        };
        let bytes = target["bytes"].as_u64().context("StorageBench tells no bytes")?;
        let rate = target["bytes_per_second"].as_f64().context("StorageBench tells no rate")?;
        Ok(measured(phase, bytes, rate, random))
    }
}

/// `fio` in a directory that is made for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fio {
    pub(crate) dir: PathBuf,
    pub(crate) pattern: Pattern,
}

impl Fio {
    pub(crate) fn run(&self) -> Result<Vec<Measured>> {
        fs::create_dir(&self.dir).with_context(|| format!("cannot make {}", self.dir.display()))?;
        let measured = PHASES.iter().map(|&(phase, writes, random)| self.phase(phase, writes, random)).collect();
        fs::remove_dir_all(&self.dir).with_context(|| format!("cannot remove {}", self.dir.display()))?;
        measured
    }

    fn phase(&self, phase: &str, writes: bool, random: bool) -> Result<Measured> {
        let Pattern { size, seconds } = self.pattern;
        let kind = if writes { "write" } else { "read" };
        let mut fio = Command::new("fio");
        fio.args(["--name=x", "--ioengine=psync", "--direct=1", "--fallocate=none", "--end_fsync=1"]);
        fio.args(["--group_reporting", "--output-format=json", &format!("--directory={}", self.dir.display())]);
        fio.args([&format!("--numjobs={THREADS}"), &format!("--bs={}", block(random)), &format!("--size={size}")]);
        fio.arg(format!("--rw={}{kind}", if random { "rand" } else { "" }));
        if random {
            fio.args(["--norandommap", "--time_based", &format!("--runtime={seconds}")]);
        }
        let report = json(&mut fio)?;
        let found = &report["jobs"][0][kind];
        let bytes = found["io_bytes"].as_u64().context("fio tells no bytes")?;
        let rate = found["bw_bytes"].as_f64().context("fio tells no rate")?;
        Ok(measured(phase, bytes, rate, random))
    }
}

fn measured(phase: &str, bytes: u64, rate: f64, random: bool) -> Measured {
    let operations = bytes / block(random).parse().unwrap_or(1);
    let (phase, seconds) = (phase.to_owned(), bytes as f64 / rate);
    Measured { phase, operations, bytes, seconds, cpu_us: [].into(), p99_us: None }
}

fn program(words: &[String]) -> Result<Command> {
    let (first, others) = words.split_first().context("no program")?;
    let mut command = Command::new(Path::new(first));
    command.args(others);
    Ok(command)
}

/// What it prints. An exit code that says that it has found something is no failure.
fn json(command: &mut Command) -> Result<Value> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = match command.stdin(Stdio::null()).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("{name} is not installed"),
        output => output.with_context(|| format!("cannot run {name}"))?,
    };
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(if output.stderr.is_empty() { &output.stdout } else { &output.stderr });
        anyhow!("{name}: {} ({})", said.trim(), output.status)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_fails_is_said() {
        let error = json(&mut Command::new("weft-no-such-program")).expect_err("nobody has this");
        assert_eq!(error.to_string(), "weft-no-such-program is not installed");
        let error = json(Command::new("sh").args(["-c", "echo broken >&2; exit 3"])).expect_err("it fails");
        assert!(error.to_string().starts_with("sh: broken (exit status: 3"), "{error}");
        let found = json(Command::new("sh").args(["-c", "echo '{\"a\": 1}'; exit 1"])).expect("a result");
        assert_eq!(found["a"], 1);
    }
}
