//! The flags.

use std::path::PathBuf;

use crate::peers::Kind;

/// What to measure, and where.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Measure in a new folder of this directory: the local file system there is the yardstick
    // Not called `dir`: a command below this one may have a flag of that name, which would take this default over.
    #[arg(id = "bench_dir", long = "dir", value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Short runs: for a look, not for a record
    #[arg(long)]
    pub quick: bool,
    /// Only rows whose name has this in it; several times: any of them
    #[arg(long, value_name = "PATTERN")]
    pub only: Vec<String>,
    /// The same mixed work on Weft, the local file system and the peers that are installed, or on those named
    // The value only after `=`: what follows a blank may be a subcommand.
    #[arg(long, value_name = "PEER,...", value_enum, num_args = 0.., require_equals = true, value_delimiter = ',')]
    pub peers: Option<Vec<Kind>>,
    /// How often each row is measured, in turns with its yardstick; the medians count [default: 3, of --peers 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rounds: Option<u32>,
    /// Also write everything that was measured to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Print the names of all rows with their goals, and measure nothing
    #[arg(long)]
    pub list: bool,
    /// The program that starts the cluster [default: this one]
    #[arg(long, value_name = "FILE", hide = true)]
    pub weft: Option<PathBuf>,
    /// One measurement, described in JSON: how the bench calls itself
    #[arg(long, value_name = "JSON", hide = true)]
    pub job: Option<String>,
}

impl Options {
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.peers.is_some() { 1 } else { 3 })
    }
}
