//! How fast, beside what this machine can do; and how fast each storage target is by itself.

use clap::Subcommand;

use crate::command::storagebench;
use crate::failure::Failure;
use crate::output::Output;

/// Measure, and print the table: our figure, its yardstick of the same run, and the goal
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Example: a short look at what concerns stat; then all storage targets of a cluster
  weft bench --quick --only stat
  weft bench storage --write --all-targets"
)]
pub(crate) struct Args {
    #[command(flatten)]
    options: ::bench::Options,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Storage(storagebench::Args),
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        if let Some(Verb::Storage(args)) = self.verb {
            return args.run(output);
        }
        let report = ::bench::run(&self.options)?;
        output.show(&report, ToString::to_string)
    }
}
