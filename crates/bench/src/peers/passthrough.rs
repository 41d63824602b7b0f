//! What FUSE alone costs with the usual library: libfuse's example that hands everything on to a local directory.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::peer::{FusePeer, mount_point};
use super::process::find_program;

pub(crate) fn start(folder: &Path) -> Result<FusePeer> {
    let program = find_program("passthrough_ll").context("no passthrough_ll")?;
    let (source, at) = (folder.join("source"), mount_point(folder));
    fs::create_dir(&source)?;
    Ok(FusePeer::new(folder, Vec::new(), move || {
        let mut mount = Command::new(&program);
        // A comma would end the option; our folder's name has none, its parents may.
        mount.arg("-f").arg("-o").arg(format!("source={}", escape(&source.to_string_lossy()))).arg(&at);
        mount
    }))
}

/// As libfuse takes it in an option.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_stay_in_their_option() {
        assert_eq!(escape("/a,b\\c"), "/a\\,b\\\\c");
    }
}
