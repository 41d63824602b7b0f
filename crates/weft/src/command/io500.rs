//! IO500's phases on a directory, or through the client core.

use std::path::PathBuf;

use ::bench::io500::{self, Options, Subject};
use clap::ArgGroup;

use crate::failure::Failure;
use crate::locate::Selection;
use crate::output::Output;

/// Measure the phases of IO500 on any directory, or through the client core alone, and print its score
#[derive(Debug, clap::Args)]
#[command(
    group(ArgGroup::new("subject").required(true).args(["path", "core"])),
    after_help = "\
Works in a new folder, which it removes at the end, also after Ctrl-C. Contents are checked as they are read. As root it
drops this host's page cache before each phase.

Example: 8 processes on a mount, and the same on a local disk to compare it with
  weft bench io500 --path /mnt/weft --processes 8
  weft bench io500 --path /var/tmp --processes 8 --json

Example: 4 client cores, without kernel and mount
  weft bench io500 --core --processes 4"
)]
pub(crate) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Measure the file system that this directory is in
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// Measure the cluster through client cores: what it does without FUSE
    #[arg(long)]
    core: bool,
    #[command(flatten)]
    options: Options,
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let subject = match self.path {
            Some(path) => Subject::Directory(path),
            None => {
                debug_assert!(self.core, "one of the two is asked for");
                let cluster = self.selection.find(None)?;
                Subject::Core { management: cluster.mgmtd, key_file: cluster.key_file }
            }
        };
        output.show(&io500::run(&self.options, &subject)?, ToString::to_string)
    }
}
