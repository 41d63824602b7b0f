//! NetBench: the ways between hosts by themselves.

use std::time::Duration;

use admin::netbench::{Figure, NetChoice, NetPlan, Report, Row};
use conf::units::{Period, Size};
use net::pairs::Selector;

use crate::command::connect;
use crate::command::interrupts::catch_ends;
use crate::failure::Failure;
use crate::locate::Selection;
use crate::output::{Output, Progress, Table, bytes};

/// Measure the network between this host and the storage nodes, or among these, rail by rail and without any disk
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Storage nodes answer these requests from memory, and forget what they receive. Requests of programs are other ones and are
served meanwhile as ever; they feel the load. Exit code 1 where something could not be measured.

Example: from this host to all storage nodes, and then of these among each other
  weft bench net
  weft bench net --servers --seconds 5

Example: small requests, one at a time, to one node, over one interface
  weft bench net --nodes storaged-1 --size 4KiB --depth 1 --interfaces ib0")]
pub(crate) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Seconds of each measurement
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Bytes of one request, at most 8MiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    size: Size,
    /// Requests in flight: at most 256, and 1GiB in all
    #[arg(long, value_name = "N", default_value_t = 16)]
    depth: u32,
    /// Threads that drive them, where one CPU is not enough; at most 64
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,
    /// Only these storage nodes, by name or id
    #[arg(long, alias = "node", value_name = "NODE", value_delimiter = ',')]
    nodes: Vec<String>,
    /// Let the storage nodes measure each other
    #[arg(long)]
    servers: bool,
    /// Interfaces of this host to go out by: names, addresses or networks [default: all]
    #[arg(long, value_name = "WORD", value_delimiter = ',', conflicts_with = "servers")]
    interfaces: Vec<Selector>,
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let (plan, mut choice) = (self.plan(), self.choice());
        let admin = connect(&self.selection, None)?;
        // A node would go on with what it was told to measure.
        choice.stop = Some(catch_ends()?);
        let mut progress = Progress::new();
        let report = admin.netbench(&plan, &choice, &mut |text| progress.update(text))?;
        drop(progress);
        output.show(&report, text)?;
        if report.has_failed() { Err(Failure::Found) } else { Ok(()) }
    }

    fn plan(&self) -> NetPlan {
        // What is too large for the message is too large for the service too.
        let block = u32::try_from(self.size.0).unwrap_or(u32::MAX);
        NetPlan { block, depth: self.depth, threads: self.threads, duration_ms: u64::from(self.seconds) * 1000 }
    }

    fn choice(&self) -> NetChoice {
        let (nodes, interfaces) = (self.nodes.clone(), self.interfaces.clone());
        NetChoice { nodes, servers: self.servers, interfaces, stop: None }
    }
}

fn text(report: &Report) -> String {
    let (block, depth, threads) = (bytes(u64::from(report.block_bytes)), report.depth, report.threads);
    let time = Period(Duration::from_millis(report.duration_ms));
    let mut text = format!("requests of {block}, {depth} in flight, threads: {threads}, {time} each; times in us\n");
    let head = [
        "FROM",
        "TO",
        "OVER",
        "RTT P50",
        "P99",
        "WRITE MB/S",
        "P50",
        "P99",
        "P99.9",
        "READ MB/S",
        "P50",
        "P99",
        "P99.9",
    ];
    let mut table = Table::new(head);
    for row in &report.rows {
        table.row(cells(row));
    }
    text += &table.render();
    for Row { from, to, way, failure, .. } in &report.rows {
        if let Some(failure) = failure {
            text += &format!("{from} to {to} ({way}): {failure}\n");
        }
    }
    text
}

fn cells(row: &Row) -> [String; 13] {
    let dash = || "-".to_owned();
    let us = |us: f64| format!("{us:.0}");
    let [write, read] = [&row.write, &row.read].map(|figure| match figure {
        None => [dash(), dash(), dash(), dash()],
        Some(Figure { bytes_per_second, latency, .. }) => {
            [format!("{:.1}", bytes_per_second / 1e6), us(latency.p50_us), us(latency.p99_us), us(latency.p999_us)]
        }
    });
    let [write, write_p50, write_p99, write_p999] = write;
    let [read, read_p50, read_p99, read_p999] = read;
    let (p50, p99) = row.round_trip.map_or_else(|| (dash(), dash()), |rtt| (us(rtt.p50_us), us(rtt.p99_us)));
    let (from, to, way) = (row.from.clone(), row.to.clone(), row.way.clone());
    [from, to, way, p50, p99, write, write_p50, write_p99, write_p999, read, read_p50, read_p99, read_p999]
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

    fn line(words: &str) -> Result<Args, clap::Error> {
        let words = words.split(' ').filter(|word| !word.is_empty());
        Line::try_parse_from(std::iter::once("x").chain(words)).map(|line| line.args)
    }

    #[test]
    fn flags_make_a_plan_that_can_be() {
        let usual = line("").expect("well formed");
        assert_eq!(usual.plan().check(), Ok(()));
        assert_eq!(usual.plan(), NetPlan { block: 1 << 20, depth: 16, threads: 1, duration_ms: 3_000 });
        let other = line("--seconds 1 --size 4KiB --depth 4 --threads 2 --nodes a,b --interfaces ib0,10.1.0.0/16");
        let other = other.expect("well formed");
        assert_eq!(other.plan(), NetPlan { block: 4096, depth: 4, threads: 2, duration_ms: 1_000 });
        assert_eq!((other.choice().nodes.len(), other.choice().interfaces.len()), (2, 2));
        assert!(line("--size 5GiB").expect("well formed").plan().check().is_err());
    }

    #[test]
    fn contradictions_are_refused() {
        for words in ["--seconds 0", "--servers --interfaces ib0", "--interfaces 10.1.0.0/99", "--depth x"] {
            assert!(line(words).is_err(), "{words}");
        }
    }
}
