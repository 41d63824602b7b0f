//! StorageBench: the storage targets by themselves.

use std::thread;
use std::time::{Duration, Instant};

use admin::Admin;
use admin::storagebench::{
    BenchPlan, BenchSync, Choice, Extreme, Latency, Reached, Report, Silent, Started, Suspicion, TargetResult,
};
use clap::{ArgGroup, ValueEnum};
use conf::units::{Period, Size};
use types::id::TargetId;

use crate::command::scrub::pause;
use crate::command::{connect, word};
use crate::failure::Failure;
use crate::locate::Selection;
use crate::output::{Output, Progress, Table, bytes};

/// Measure the storage targets inside their services, without network and mount, and name those that stand out
#[derive(Debug, clap::Args)]
#[command(
    group(ArgGroup::new("verb").required(true).args(["write", "read", "status", "stop", "cleanup"])),
    after_help = "\
A run has its own files on each target, one per thread, and goes on by itself once it has begun. Clients are served
meanwhile, and feel it. At its end the targets are compared: exit code 1 where one is suspect.

Example: 16 threads on each target, each writes 200 GiB; then how it went, target by target; then the space is given back
  weft bench storage --all-targets --write --block-size 512KiB --size 200GiB --threads 16
  weft bench storage --status --verbose
  weft bench storage --cleanup

Example: random reads for half a minute on the targets of one node
  weft bench storage --node storaged-1 --read --random --block-size 4KiB --duration 30s --wait"
)]
pub(crate) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Begin a run that writes
    #[arg(long)]
    write: bool,
    /// Begin a run that reads; files that an earlier run has not left are made first, unmeasured
    #[arg(long)]
    read: bool,
    /// Show how the latest run goes, and at its end what is wrong with which target
    #[arg(long, conflicts_with_all = ["target", "node", "pool"])]
    status: bool,
    /// End all runs that are under way
    #[arg(long, conflicts_with_all = ["target", "node", "pool"])]
    stop: bool,
    /// Remove the files of earlier runs
    #[arg(long)]
    cleanup: bool,
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    choice: ChoiceArgs,
    /// After the begin of a run: wait for its end, and show what `--status` shows
    #[arg(long, conflicts_with_all = ["status", "stop", "cleanup"])]
    wait: bool,
    /// Also a line for each target
    #[arg(long, short)]
    verbose: bool,
}

#[derive(Debug, clap::Args)]
struct PlanArgs {
    /// Blocks at random places of the files, rather than one after the other
    #[arg(long)]
    random: bool,
    /// Bytes of one read or write
    #[arg(long, alias = "blocksize", value_name = "SIZE", default_value = "512KiB")]
    block_size: Size,
    /// Bytes of each file, rounded down to whole blocks
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    size: Size,
    /// Threads on each target, each with a file: at most 256, and 512MiB of blocks in all
    #[arg(long, value_name = "N", default_value_t = 4)]
    threads: u32,
    /// Go on so long, over and over, at most a week [default: until each file was gone through once]
    #[arg(long, value_name = "TIME")]
    duration: Option<Period>,
    /// When what is written is forced to the disk
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Fsync::End)]
    fsync: Fsync,
    /// Go through the page cache; otherwise it is gone round where the file system can
    #[arg(long)]
    buffered: bool,
    /// Also use the space that the targets keep free (`reserve` of storaged)
    #[arg(long)]
    use_reserve: bool,
}

#[derive(Debug, clap::Args)]
struct ChoiceArgs {
    /// All storage targets; so it is where none are chosen
    #[arg(long, alias = "alltargets", conflicts_with_all = ["target", "node", "pool"])]
    all_targets: bool,
    /// Only this target; several times: these
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    target: Vec<TargetId>,
    /// Only targets of this node, by name or id
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    node: Vec<String>,
    /// Only targets of this pool
    #[arg(long, value_name = "POOL", value_delimiter = ',')]
    pool: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Fsync {
    Never,
    /// At the end of each file, which counts
    End,
    /// After each block
    Each,
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let admin = connect(&self.selection, None)?;
        if self.stop {
            return output.show(&admin.stop_storagebench()?, stopped);
        }
        let choice = Choice { targets: self.choice.target, nodes: self.choice.node, pools: self.choice.pool };
        if self.cleanup {
            let reached = admin.clean_storagebench(&choice)?;
            output.show(&reached, cleaned)?;
            let is_clean = reached.failed.is_empty() && reached.silent.is_empty();
            return if is_clean { Ok(()) } else { Err(Failure::Found) };
        }
        let report = if self.status {
            admin.storagebench()?
        } else {
            let plan = self.plan.plan(self.read);
            let started = admin.start_storagebench(&plan, &choice)?;
            if !self.wait {
                return output.show(&started, begun);
            }
            wait(&admin, &started, &plan)?
        };
        output.show(&report, |report| text(report, self.verbose))?;
        if report.suspects.is_empty() { Ok(()) } else { Err(Failure::Found) }
    }
}

impl PlanArgs {
    fn plan(&self, read: bool) -> BenchPlan {
        // What is too large for the message is too large for the service too.
        let block = u32::try_from(self.block_size.0).unwrap_or(u32::MAX);
        let rest = self.size.0.checked_rem(u64::from(block)).unwrap_or(0);
        BenchPlan {
            read,
            random: self.random,
            block,
            size: self.size.0 - rest,
            threads: self.threads,
            // Less than a millisecond is not none.
            duration_ms: self.duration.map_or(0, |duration| duration.as_ms().max(1)),
            sync: match self.fsync {
                Fsync::Never => BenchSync::Never,
                Fsync::End => BenchSync::End,
                Fsync::Each => BenchSync::Each,
            },
            buffered: self.buffered,
            use_reserve: self.use_reserve,
        }
    }
}

/// For the end of this run: others may begin and end meanwhile, on other targets.
fn wait(admin: &Admin, started: &Started, plan: &BenchPlan) -> Result<Report, Failure> {
    let (mut progress, begin) = (Progress::new(), Instant::now());
    loop {
        let report = admin.storagebench_of(started, plan)?;
        if !report.is_running() {
            return Ok(report);
        }
        progress.update(&format!("Running: {} Finished: {}", report.running, report.finished));
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
    text + &format!("a run has begun on {count} targets: `weft bench storage --status` tells how it goes")
}

fn stopped(reached: &Reached) -> String {
    let mut text = String::new();
    silence(&mut text, &reached.silent);
    match reached.targets.len() {
        0 => text + "nothing was under way",
        count => text + &format!("the run ends on {count} targets"),
    }
}

fn cleaned(reached: &Reached) -> String {
    let mut text = String::new();
    silence(&mut text, &reached.silent);
    for Silent { target, node, reason } in &reached.failed {
        text += &format!("target {target} (node {node}): {reason}\n");
    }
    text + &format!("no files of runs are on {} targets any more", reached.targets.len())
}

fn text(report: &Report, verbose: bool) -> String {
    let asked = &report.asked;
    let order = if asked.random { "random" } else { "sequential" };
    let (block, size) = (bytes(u64::from(asked.block_bytes)), bytes(asked.size_bytes));
    let mut text =
        format!("{order} {}, blocks of {block}, {} files of {size} on each target", asked.work, asked.threads);
    if asked.duration_ms > 0 {
        text += &format!(", for {}", Period(Duration::from_millis(asked.duration_ms)));
    }
    text += "\n";
    if verbose {
        text += &table(&report.targets);
    }
    text += &format!("Running:   {}\nFinished:  {}\n", report.running, report.finished);
    if let Some(summary) = &report.summary {
        text += &format!("Minimum:   {}\n", extreme(&summary.minimum));
        text += &format!("Maximum:   {}\n", extreme(&summary.maximum));
        text += &format!("Average:   {}\n", rate(summary.average_bytes_per_second));
        let iops = summary.aggregate_iops;
        text += &format!("Aggregate: {}, {iops:.0} IOPS\n", rate(summary.aggregate_bytes_per_second));
        if let Some(Latency { p50_us, p99_us, p999_us, max_us }) = summary.latency {
            let (p50, p99, p999, max) = (millis(p50_us), millis(p99_us), millis(p999_us), millis(max_us));
            text += &format!("Latency:   half of the blocks {p50} ms, 99 % {p99} ms, 99.9 % {p999} ms, all {max} ms\n");
        }
    }
    for note in &report.notes {
        text += &format!("note: {note}\n");
    }
    for suspect in &report.suspects {
        let (target, node, what) = (suspect.target, &suspect.node, name(suspect.suspicion));
        text += &format!("suspect: target {target} (node {node}): {what}: {}\n", suspect.reason);
    }
    match (report.is_running(), report.suspects.len()) {
        (true, _) => text,
        (false, 0) => text + "no target stands out",
        (false, count) => text + &format!("{count} reasons to look at a target"),
    }
}

fn name(suspicion: Suspicion) -> String {
    word(&suspicion)
}

/// In KiB/s, which scripts know from other file systems, and in what people read.
fn rate(bytes_per_second: f64) -> String {
    format!("{:.0} KiB/s ({}/s)", bytes_per_second / 1024.0, bytes(bytes_per_second as u64))
}

fn extreme(extreme: &Extreme) -> String {
    let Extreme { bytes_per_second, target, node_alias } = extreme;
    format!("{}, target {target} (node {node_alias})", rate(*bytes_per_second))
}

fn millis(us: f64) -> String {
    format!("{:.2}", us / 1000.0)
}

fn table(targets: &[TargetResult]) -> String {
    let head =
        ["TARGET", "NODE", "POOL", "STATE", "KIB/S", "IOPS", "P50 MS", "P99 MS", "P99.9 MS", "MAX MS", "DIRECT", "ON"];
    let mut table = Table::new(head);
    for target in targets {
        let number = |number: Option<f64>| number.map_or("-".to_owned(), |number| format!("{number:.0}"));
        let time =
            |of: fn(&Latency) -> f64| target.latency.as_ref().map_or("-".to_owned(), |latency| millis(of(latency)));
        let place = match target.message.as_str() {
            "" => format!("{} {} ({})", target.file_system, target.mount_point, target.source),
            message => message.to_owned(),
        };
        table.row([
            target.target.to_string(),
            target.node_alias.clone(),
            target.pool.clone(),
            word(&target.state),
            number(target.bytes_per_second.map(|rate| rate / 1024.0)),
            number(target.iops),
            time(|latency| latency.p50_us),
            time(|latency| latency.p99_us),
            time(|latency| latency.p999_us),
            time(|latency| latency.max_us),
            if target.direct { "yes" } else { "no" }.to_owned(),
            place,
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

    fn plan(words: &str) -> BenchPlan {
        let line = Line::try_parse_from(std::iter::once("x").chain(words.split(' '))).expect("well formed");
        line.args.plan.plan(line.args.read)
    }

    #[test]
    fn flags_make_a_plan_that_can_be() {
        let usual = plan("--write");
        assert_eq!(usual.check(), Ok(()));
        assert_eq!((usual.read, usual.block, usual.size, usual.threads), (false, 512 << 10, 1 << 30, 4));
        let all = plan("--alltargets --read --random --blocksize=12K --size=1MiB --duration 30s --fsync each");
        assert_eq!(all.check(), Ok(()));
        assert_eq!((all.read, all.random, all.block, all.size), (true, true, 12 << 10, 85 * (12 << 10)));
        assert_eq!((all.duration_ms, all.sync), (30_000, BenchSync::Each));
        assert!(plan("--write --block-size 0").check().is_err());
        assert!(plan("--write --block-size 5GiB --size 10GiB").check().is_err());
    }

    #[test]
    fn contradictions_are_refused() {
        let runs = ["", "--write --read", "--write --all-targets --target 1", "--write --threads x"];
        let others = ["--status --wait", "--stop --target 2", "--status --node a", "--stop --pool fast"];
        for words in runs.into_iter().chain(others) {
            let words = words.split(' ').filter(|word| !word.is_empty());
            assert!(Line::try_parse_from(std::iter::once("x").chain(words)).is_err());
        }
    }
}
