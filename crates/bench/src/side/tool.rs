//! Programs that measure by themselves. What they print is believed.

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
        let stopwatch = Stopwatch::start(Who::Client, &self.watch);
        let report = json(&mut command)?;
        let both = stopwatch.stop("", 1);
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
