//! The FUSE ceiling: our own front-end over a file system in memory. What is slower than this is ours to mend.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use fuse::model_fs::{Caching, ModelFs};
use serde::{Deserialize, Serialize};

use crate::job::{say, wait_for_end};

/// A mount of the model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mount {
    pub(crate) at: PathBuf,
}

impl Mount {
    /// Serves until this process's input ends; says `mounted` when it does. With the options of `weft mount`, and so over
    /// io_uring where the kernel offers that, but that its loops sleep at once where there is nothing to do: what a kernel
    /// round trip costs is the yardstick, and waiting awake for the next one is among the means against it.
    pub(crate) fn serve(&self) -> Result<()> {
        let fs = ModelFs::new(model::Limits::default(), Caching::Direct);
        let options = fuse::Options { source: "ceiling".into(), spin: Duration::ZERO, ..fuse::Options::default() };
        let handle = fuse::mount(&self.at, options, move |_| fs.clone()).context("cannot mount the FUSE ceiling")?;
        say("mounted")?;
        wait_for_end();
        handle.unmount();
        Ok(())
    }
}
