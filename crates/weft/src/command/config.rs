//! Configuration files.

use std::collections::BTreeMap;

use clap::{Subcommand, ValueEnum};
use conf::template;

use crate::failure::Failure;
use crate::output::Output;

/// Print configuration files to start from
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  weft config default storaged > /etc/weft/storaged.toml")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Print the file of a service with every key, what it means, and its default
    #[command(after_help = "Example:\n  weft config default metad")]
    Default { service: Service },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Service {
    Mgmtd,
    Metad,
    Storaged,
    Mount,
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let Verb::Default { service } = self.verb;
        let text = match service {
            Service::Mgmtd => template::<mgmtd::config::Config>(&[]),
            Service::Metad => template::<metad::config::Config>(&[]),
            Service::Storaged => template::<storaged::config::Config>(&[]),
            Service::Mount => template::<mount::config::Config>(&[]),
        };
        output.show(&BTreeMap::from([("toml", &text)]), |_| text.clone())
    }
}
