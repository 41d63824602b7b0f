//! The process that keeps a local cluster running; started by `weft up`.

use std::path::PathBuf;

use anyhow::Context;

use crate::command::keep_files_private;
use crate::failure::Failure;
use crate::local::dir::ClusterDir;
use crate::local::supervisor;

/// Keep the services of a local cluster running (started by `weft up`)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the cluster
    #[arg(long)]
    dir: PathBuf,
}

impl Args {
    pub(crate) fn run(self) -> Result<(), Failure> {
        keep_files_private();
        telemetry::log::init(telemetry::log::LogFormat::Text, "info").context("cannot set up logging")?;
        supervisor::run(&ClusterDir::at(&self.dir)?)
    }
}
