//! A file system that takes part: started, renewed and stopped, whichever it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::kind::Kind;
use super::mounted::Mounted;
use super::process::{Daemon, end_running_in, running_in};
use super::{glusterfs, juicefs, moosefs, passthrough};
use crate::cpu::{Watch, Who};
use crate::side::cluster::Cluster;

/// What servers get until they answer.
pub(crate) const START: Duration = Duration::from_secs(60);
/// What a command gets that asks them for something.
pub(crate) const COMMAND: Duration = Duration::from_secs(60);

/// Stopped when dropped. Its data stays in its folder.
pub(crate) enum Peer {
    Local(PathBuf),
    Weft(Cluster),
    Fuse(FusePeer),
}

/// Servers, and a mount in the foreground that can be made again and again.
pub(crate) struct FusePeer {
    // In this order: first it is unmounted.
    mounted: Option<Mounted>,
    mount: Box<dyn Fn() -> Command>,
    /// Everything of it lies here.
    folder: PathBuf,
    /// The last one that was started ends first.
    servers: Vec<Daemon>,
    /// Servers that our servers start, and which go on without them.
    strays: Option<&'static str>,
}

impl Peer {
    /// A cluster in `folder`, which is new, with its defaults.
    pub(crate) fn start(kind: Kind, weft: &Path, folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(match kind {
            Kind::Local => Self::Local(folder.into()),
            Kind::Weft => Self::Weft(Cluster::start(weft, folder, &[])?),
            Kind::Passthrough => Self::Fuse(passthrough::start(folder)?),
            Kind::JuiceFs => Self::Fuse(juicefs::start(folder)?),
            Kind::MooseFs => Self::Fuse(moosefs::start(folder)?),
            Kind::GlusterFs => Self::Fuse(glusterfs::start(folder)?),
        })
    }

    /// A mount that has seen nothing yet. Answers its root, and whose CPU time counts as whose.
    pub(crate) fn renew(&mut self) -> Result<(PathBuf, Watch)> {
        let (root, mut watch) = match self {
            Self::Local(folder) => (folder.clone(), Watch::default()),
            Self::Weft(cluster) => cluster.mount_cold()?,
            Self::Fuse(peer) => peer.renew()?,
        };
        watch.0.push(Watch::MACHINE);
        Ok((root, watch))
    }
}

impl FusePeer {
    /// With nothing in `folder` but what the peer made, and `servers` ready. `mount` makes the command that mounts at
    /// [`mount_point`].
    pub(crate) fn new(folder: &Path, servers: Vec<Daemon>, mount: impl Fn() -> Command + 'static) -> Self {
        Self { mounted: None, mount: Box::new(mount), folder: folder.into(), servers, strays: None }
    }

    /// Whose servers start others, called so.
    pub(crate) fn with_strays(mut self, name: &'static str) -> Self {
        self.strays = Some(name);
        self
    }

    fn renew(&mut self) -> Result<(PathBuf, Watch)> {
        drop(self.mounted.take());
        let at = mount_point(&self.folder);
        let mounted = Mounted::start(&mut (self.mount)(), &at, &self.folder.join("mount.log"))?;
        let mut watch: Vec<_> = mounted.daemon.pids().into_iter().map(|pid| (Who::Client, pid)).collect();
        watch.extend(self.servers.iter().flat_map(Daemon::pids).map(|pid| (Who::Server, pid)));
        watch.extend(self.strays.iter().flat_map(|name| running_in(name, &self.folder)).map(|pid| (Who::Server, pid)));
        self.mounted = Some(mounted);
        Ok((at, Watch(watch)))
    }
}

impl Drop for FusePeer {
    fn drop(&mut self) {
        drop(self.mounted.take());
        while let Some(server) = self.servers.pop() {
            drop(server);
        }
        if let Some(name) = self.strays {
            end_running_in(name, &self.folder);
        }
    }
}

/// Where the peer in `folder` is mounted.
pub(crate) fn mount_point(folder: &Path) -> PathBuf {
    folder.join("mnt")
}
