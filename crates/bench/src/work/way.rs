//! How work reaches the contents of files.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::Files;
use crate::store::Place;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// System calls, through the page cache.
    Buffered,
    /// System calls with `O_DIRECT`.
    Direct,
    /// A client core of each process, which keeps nothing back; the place of the work is a directory in the root of a mount.
    Core {
        /// `host:port` of mgmtd.
        management: String,
        key_file: PathBuf,
        /// Over TCP, without memory that servers see, also where these are on this host.
        loopback: bool,
    },
}

impl Way {
    pub(crate) fn is_direct(&self) -> bool {
        *self != Way::Buffered
    }

    pub(crate) fn place(&self, files: &Files) -> Result<Place> {
        Ok(match self {
            Way::Buffered | Way::Direct => Place::Directory(files.place.clone()),
            Way::Core { management, key_file, loopback } => {
                let folder = files.place.file_name().and_then(|name| name.to_str()).context("no place in the root")?;
                Place::Core {
                    management: management.clone(),
                    key_file: key_file.clone(),
                    folder: folder.to_owned(),
                    loopback: *loopback,
                }
            }
        })
    }
}
