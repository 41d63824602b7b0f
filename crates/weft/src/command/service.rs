//! Runs one service in this process: `weft mgmtd`, `weft metad`, `weft storaged`.

use std::path::PathBuf;

use conf::{Flags, Knobs, Reread};

use crate::command::{allow_many_descriptors, keep_files_private};
use crate::failure::Failure;

/// Run this service in the foreground
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: a configuration to start from, and a service run with it and one key changed
  weft config default storaged > storaged.toml
  weft storaged --config storaged.toml --log-level debug
Example: more shards and more space for a running cluster, from a second host, without any configuration
  weft metad --join host1:9400 --key-file cluster.key --shards 2
  weft storaged --join host1:9400 --key-file cluster.key --target /disk1 --target /disk2")]
pub(crate) struct Args<C: Knobs> {
    /// Configuration file (`weft config default` prints one)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags<C>,
}

impl<C: Knobs + 'static> Args<C> {
    /// Exit code 2 where the configuration cannot be used.
    pub(crate) fn run(self, service: impl FnOnce(C, Reread<C>) -> anyhow::Result<()>) -> Result<(), Failure> {
        keep_files_private();
        allow_many_descriptors();
        let Self { config, flags } = self;
        let read: Reread<C> = Box::new(move || conf::load(config.as_deref(), &flags));
        let config = read().map_err(anyhow::Error::new)?;
        Ok(service(config, read)?)
    }
}
