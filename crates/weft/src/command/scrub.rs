//! The check of all objects against their checksums.

use std::thread;
use std::time::{Duration, Instant};

use admin::Admin;
use admin::runs::{Reached, Silent, Started};
use admin::scrub::{CorruptBlock, ScrubReport, ScrubState, ScrubTarget, Unaware};
use admin::targets::Choice;
use clap::ArgGroup;
use conf::units::Size;
use types::id::TargetId;

use crate::command::{connect, word};
use crate::failure::Failure;
use crate::locate::Selection;
use crate::output::{Output, Progress, Table, bytes};

/// How often `--wait` asks: at first, and at last of a run that takes long.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Until it is asked again how a run goes that began then.
pub(super) fn pause(begin: Instant) -> Duration {
    (begin.elapsed() / 10).clamp(PAUSE, PAUSE_MAX)
}

/// Read all objects of storage targets and verify their checksums, while the cluster works; changes no data
#[derive(Debug, clap::Args)]
#[command(
    group(ArgGroup::new("verb").required(true).multiple(true).args(["all", "target", "node", "pool", "status", "stop"])),
    after_help = "\
A run goes on by itself once it has begun, at its rate and beside the requests of clients. What has no checksum yet, or one
that is in doubt after a crash, gets one. Exit code 1 where a corrupt block was found, or not all was gone over.

Example: all targets, at most 100 MiB each second on each of them; then how it goes
  weft scrub --all --rate 100MiB
  weft scrub --status

Example: one target as fast as it can, and wait for the end
  weft scrub --target 3 --rate 0 --wait"
)]
pub(crate) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Begin a run on all storage targets
    #[arg(long, conflicts_with_all = ["target", "node", "pool"])]
    all: bool,
    /// Begin a run on this target; several times: on these
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    target: Vec<TargetId>,
    /// Begin a run on the targets of this node, by name or id
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    node: Vec<String>,
    /// Begin a run on the targets of this pool
    #[arg(long, value_name = "POOL", value_delimiter = ',')]
    pool: Vec<String>,
    /// Most bytes that are read in a second on each target; 0: as many as it can
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    rate: Size,
    /// Show how the latest run goes, and what it has found
    #[arg(long, conflicts_with_all = ["all", "target", "node", "pool", "stop"])]
    status: bool,
    /// End the run that is under way
    #[arg(long, conflicts_with_all = ["all", "target", "node", "pool"])]
    stop: bool,
    /// After the begin of a run: wait for its end, and show what `--status` shows
    #[arg(long, conflicts_with_all = ["status", "stop"])]
    wait: bool,
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let admin = connect(&self.selection, None)?;
        if self.stop {
            return output.show(&admin.stop_scrub()?, stopped);
        }
        if self.status {
            return show(&admin.scrub(None, true)?, output);
        }
        let choice = Choice { targets: self.target, nodes: self.node, pools: self.pool };
        let started = admin.start_scrub(self.rate.0, &choice)?;
        if self.wait { show(&wait(&admin, &started)?, output) } else { output.show(&started, begun) }
    }
}

fn show(report: &ScrubReport, output: Output) -> Result<(), Failure> {
    output.show(report, text)?;
    if report.is_well() { Ok(()) } else { Err(Failure::Found) }
}

/// For the end of what was started, on each of its targets.
fn wait(admin: &Admin, started: &Started) -> Result<ScrubReport, Failure> {
    let (mut progress, begin) = (Progress::new(), Instant::now());
    loop {
        let report = admin.scrub(Some(started), false)?;
        if !report.is_running() {
            return Ok(admin.scrub(Some(started), true)?);
        }
        let sum = |of: fn(&ScrubTarget) -> u64| report.targets.iter().map(of).sum::<u64>();
        let (done, total) = (sum(|target| target.bytes), sum(|target| target.bytes_total));
        progress.update(&format!("{} of {}, {} corrupt blocks", bytes(done), bytes(total), report.corrupt));
        thread::sleep(pause(begin));
    }
}

fn silence(text: &mut String, silent: &[Silent]) {
    for Silent { target, node, reason } in silent {
        *text += &format!("target {target} (node {node}) does not answer: {reason}\n");
    }
}

fn begun(started: &Started) -> String {
    let mut text = String::new();
    silence(&mut text, &started.silent);
    let count = started.targets.len();
    text + &format!("a scrub has begun on {count} targets: `weft scrub --status` tells how it goes")
}

fn stopped(reached: &Reached) -> String {
    let mut text = String::new();
    silence(&mut text, &reached.silent);
    match reached.targets.len() {
        0 => text + "nothing was under way",
        count => text + &format!("the scrub ends on {count} targets"),
    }
}

fn text(report: &ScrubReport) -> String {
    let mut text = table(&report.targets);
    silence(&mut text, &report.silent);
    let why = match report.lost() {
        0 => "it takes no part",
        lost if lost >= report.unaware.len() => "its service was started again, and it was not gone over to the end",
        _ => "it takes no part, or its service was started again",
    };
    for Unaware { target, node } in &report.unaware {
        text += &format!("target {target} (node {node}) knows nothing of this run: {why}\n");
    }
    let tells = |target: &&ScrubTarget| target.state == ScrubState::Running || target.corrupt > 0;
    let earlier: Vec<ScrubTarget> = report.earlier.iter().filter(tells).cloned().collect();
    if !earlier.is_empty() {
        text += "of an earlier run:\n";
        text += &table(&earlier);
    }
    for target in report.targets.iter().chain(&earlier).filter(|target| !target.message.is_empty()) {
        text += &format!("target {} (node {}): {}\n", target.target, target.node, target.message);
    }
    for block in &report.named {
        text += &line(block);
    }
    let unnamed = report.corrupt.saturating_sub(report.named.len() as u64);
    if unnamed > 0 {
        text += &format!("and {unnamed} further blocks\n");
    }
    match report.corrupt {
        0 if report.is_running() => text,
        0 if report.is_complete() && report.unaware.is_empty() => {
            text + "sound: every block that was verified matches its checksum"
        }
        0 if report.is_complete() => {
            text + "the targets in the table are sound: every block that was verified matches its checksum"
        }
        0 => text + "nothing corrupt was found, but not all was gone over: begin another scrub",
        count => text + &format!("{count} corrupt blocks: docs/operating/checksums.md says what to do"),
    }
}

fn line(block: &CorruptBlock) -> String {
    let CorruptBlock { file, inode, stripe, offset, target, node, path, unreadable } = block;
    let what = if *unreadable { "cannot be read" } else { "is corrupt" };
    let file = file.as_deref().unwrap_or("a file without a name");
    format!("{file}: object {inode}.{stripe} at byte {offset} {what}: target {target} (node {node}), {path}\n")
}

fn table(targets: &[ScrubTarget]) -> String {
    let mut table =
        Table::new(["TARGET", "NODE", "STATE", "OBJECTS", "READ", "OF", "NEW CHECKSUMS", "CORRUPT", "SECONDS"]);
    for target in targets {
        table.row([
            target.target.to_string(),
            target.node.clone(),
            word(&target.state),
            format!("{} of {}", target.objects, target.objects_total),
            bytes(target.bytes),
            bytes(target.bytes_total),
            target.adopted.to_string(),
            target.corrupt.to_string(),
            format!("{:.1}", target.elapsed_ms as f64 / 1000.0),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &str) -> Result<Args, clap::Error> {
        let words = words.split(' ').filter(|word| !word.is_empty());
        Line::try_parse_from(std::iter::once("x").chain(words)).map(|line| line.args)
    }

    #[test]
    fn one_thing_is_asked_for() {
        assert_eq!(parse("--all --rate 0").expect("well formed").rate.0, 0);
        assert_eq!(parse("--target 3,4 --wait").expect("well formed").target, [TargetId(3), TargetId(4)]);
        assert!(parse("--node a --pool b").is_ok() && parse("--status").is_ok() && parse("--stop").is_ok());
        for words in ["", "--rate 5", "--all --target 3", "--status --stop", "--status --all", "--stop --wait"] {
            assert!(parse(words).is_err(), "{words}");
        }
    }

    #[test]
    fn a_corrupt_block_is_named_with_file_target_and_offset() {
        let block = CorruptBlock {
            file: Some("/a/b".into()),
            inode: "0x10".into(),
            stripe: 3,
            offset: 8192,
            target: TargetId(7),
            node: "s1".into(),
            path: "/data/objects/00/11/x.3".into(),
            unreadable: false,
        };
        let line = line(&block);
        assert_eq!(line, "/a/b: object 0x10.3 at byte 8192 is corrupt: target 7 (node s1), /data/objects/00/11/x.3\n");
    }
}
