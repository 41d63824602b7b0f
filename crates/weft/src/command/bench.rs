//! How fast, beside what this machine can do.

use crate::failure::Failure;
use crate::output::Output;

/// Measure, and print the table: our figure, its yardstick of the same run, and the goal
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: a short look at what concerns stat
  weft bench --quick --only stat")]
pub(crate) struct Args {
    #[command(flatten)]
    options: ::bench::Options,
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let report = ::bench::run(&self.options)?;
        output.show(&report, ToString::to_string)
    }
}
