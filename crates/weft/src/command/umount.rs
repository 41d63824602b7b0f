//! Takes a mount away.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use serde::Serialize;

use super::down::{has_ended, process_handle};
use crate::failure::{Failure, usage};
use crate::local::runstate::RunState;
use crate::local::{mounts, users};
use crate::output::{Output, patiently};

/// A process whose mount is gone has ended after so long.
const PATIENCE: Duration = Duration::from_secs(10);
/// Users who are on their way out are gone after so long.
const LEAVING: Duration = Duration::from_secs(1);

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
        let process = RunState::read(&mount.point).filter(|state| state.mgmtd == mount.mgmtd).map(|state| state.pid);
        take_away(&mount.point, self.force)?;
        if let (Some(pid), false) = (process, self.force) {
            patiently(&format!("waiting for the mount's process {pid} to end"), || wait_for_end(pid));
        }
        output.show(&Unmounted { mount: mount.point }, |unmounted| format!("unmounted {}", unmounted.mount.display()))
    }
}

/// Unmounts as soon as nobody uses it; where somebody does, detaches it by `force` or tells who they are.
///
/// Users who leave at once are waited for: a program that starts others has every file that it closes held for it by
/// the ones on their way to their `exec`, and the kernel has no other word for that than for a shell that sits there.
///
/// # Errors
/// Names the users, where they stay; else what the kernel says.
pub(super) fn take_away(point: &Path, force: bool) -> Result<(), Failure> {
    let begin = Instant::now();
    loop {
        match fuse::unmount(point, false) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() != ErrorKind::ResourceBusy => {
                return Err(anyhow!("cannot unmount {}: {error}", point.display()).into());
            }
            Err(_) if force => break,
            Err(_) if begin.elapsed() > LEAVING => return Err(busy(point)),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
    fuse::unmount(point, true).with_context(|| format!("cannot unmount {}", point.display()))?;
    Ok(())
}

fn busy(point: &Path) -> Failure {
    let users = users::of_mount(point, 5);
    let who = match users.is_empty() {
        true => "what no process here shows (a mount or loop device in it, or another user's program)".to_owned(),
        false => users.join(", "),
    };
    anyhow!("{} is in use by {who}: end that first, or add --force", point.display()).into()
}

/// So that a command after this one finds the session closed. One that has ended and that nobody waits for, as in containers
/// whose first process reaps no others, has ended.
fn wait_for_end(pid: u32) {
    if let Ok(process) = process_handle(pid as i32) {
        // After that, it is nobody's loss but that of who mounts again at once.
        let _ = has_ended(&process, PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn who_has_ended_is_not_waited_for_though_nobody_reaps_them() {
        let mut child = Command::new("true").spawn().expect("it can be started");
        let begin = Instant::now();
        wait_for_end(child.id());
        assert!(begin.elapsed() < PATIENCE / 2);
        child.wait().expect("it was not reaped before");
    }
}
