//! What a running service logs.

use admin::log_level;
use serde::Serialize;

use crate::command::endpoint;
use crate::failure::Failure;
use crate::locate::Selection;
use crate::output::Output;

/// Show or change what a running service logs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: all of metad at debug, connections at trace; then back
  weft log-level metad-1 metad=debug,net=trace
  weft log-level metad-1 info")]
pub(crate) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Name of a node (`weft node list`), mgmtd, a mount point, or HOST:PORT of a metrics endpoint
    service: String,
    /// off, error, warn, info, debug, trace, or CRATE=LEVEL,...; without it the level is shown
    level: Option<String>,
}

#[derive(Serialize)]
struct Level {
    service: String,
    endpoint: String,
    level: String,
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let endpoint = endpoint::find(&self.selection, &self.service)?;
        let level = match &self.level {
            Some(level) => log_level::set(&endpoint, level)?,
            None => log_level::get(&endpoint)?,
        };
        let level = Level { service: self.service, endpoint, level };
        output.show(&level, |level| format!("{} logs {}", level.service, level.level))
    }
}
