//! Runs one service in this process: `weft mgmtd`, `weft metad`, `weft storaged`.

use std::path::PathBuf;

use conf::{Flags, Knobs};

use crate::failure::Failure;

/// Run this service in the foreground
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: a configuration to start from, and a service run with it and one key changed
  weft config default storaged > storaged.toml
  weft storaged --config storaged.toml --log-level debug")]
pub(crate) struct Args<C: Knobs> {
    /// Configuration file (`weft config default` prints one)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags<C>,
}

impl<C: Knobs> Args<C> {
    /// Exit code 2 where the configuration cannot be used.
    pub(crate) fn run(self, service: impl FnOnce(C) -> anyhow::Result<()>) -> Result<(), Failure> {
        let config = conf::load(self.config.as_deref(), &self.flags).map_err(anyhow::Error::new)?;
        Ok(service(config)?)
    }
}
