//! How fast, beside what this machine can do; and how fast each storage target is by itself.

use clap::Subcommand;

use crate::command::{io500, netbench, storagebench};
use crate::failure::Failure;
use crate::output::Output;

/// Measure, and print the table: our figure, its yardstick of the same run, and the goal
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Exit code 1 where a row could not be measured: the table says why. A goal that is missed is no failure.

Example: a short look at what concerns stat; then the same work on whatever other file systems are installed, or on
JuiceFS alone; then all storage targets of a cluster; then IO500's phases on a mount
  weft bench --quick --only stat
  weft bench --peers --quick
  weft bench --peers=weft,juicefs --only 'read 1M'
  weft bench storage --write --all-targets
  weft bench io500 --path /mnt/weft"
)]
pub(crate) struct Args {
    #[command(flatten)]
    options: ::bench::Options,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Io500(io500::Args),
    Net(netbench::Args),
    Storage(storagebench::Args),
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        match self.verb {
            Some(Verb::Io500(args)) => args.run(output),
            Some(Verb::Net(args)) => args.run(output),
            Some(Verb::Storage(args)) => args.run(output),
            None if self.options.peers.is_some() && self.options.job.is_none() => {
                let report = ::bench::peers::run(&self.options)?;
                output.show(&report, ToString::to_string)?;
                if report.has_failed() { Err(Failure::Found) } else { Ok(()) }
            }
            None => {
                let report = ::bench::run(&self.options)?;
                output.show(&report, ToString::to_string)?;
                let failed = !self.options.list && report.has_failed();
                if failed { Err(Failure::Found) } else { Ok(()) }
            }
        }
    }
}
