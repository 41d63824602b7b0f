//! Takes a mount away.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use serde::Serialize;

use crate::failure::{Failure, usage};
use crate::local::mounts;
use crate::local::runstate::RunState;
use crate::output::Output;

/// A process whose mount is gone has ended after so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Unmount a file system; its cluster goes on
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  weft umount /mnt/weft")]
pub(crate) struct Args {
    /// Where it is mounted
    mount: PathBuf,
    /// Take it from sight even while programs use it; what they have open works until they close it
    #[arg(long)]
    force: bool,
}

#[derive(Serialize)]
struct Unmounted {
    mount: PathBuf,
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        let Some(mount) = mounts::at(&self.mount)? else {
            return Err(usage!("{} is not a mount of Weft", self.mount.display()));
        };
        let process = RunState::read(&mount.point).map(|state| state.pid);
        match mounts::unmount(&mount.point, self.force) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::ResourceBusy => return Err(super::down::busy(&mount.point)),
            Err(error) => return Err(anyhow!("cannot unmount {}: {error}", mount.point.display()).into()),
        }
        if let (Some(pid), false) = (process, self.force) {
            wait_for_end(pid);
        }
        output.show(&Unmounted { mount: mount.point }, |unmounted| format!("unmounted {}", unmounted.mount.display()))
    }
}

/// So that a command after this one finds the session closed.
fn wait_for_end(pid: u32) {
    let begin = Instant::now();
    let process = PathBuf::from(format!("/proc/{pid}"));
    while process.exists() && begin.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(10));
    }
}
