//! Whole paths through the data plane: one client core on one ring, against a real metadata service of one shard.

use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use client::{Client, Looked};
use serde::{Deserialize, Serialize};
use types::attr::FileType;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;

use super::client::{caller, with};
use super::flight::{Tickets, fly};
use super::rocks::name;
use super::stopwatch::Stopwatch;
use crate::cpu::{Watch, Who};
use crate::job::Measured;

/// Names of each path.
pub(crate) const DEPTH: usize = 8;
/// Files at the end of the paths, which are looked up again and again.
const FILES: u64 = 1_000;

/// Resolves paths; so many in flight.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Paths {
    /// `host:port` of mgmtd.
    pub(crate) management: String,
    pub(crate) key_file: PathBuf,
    /// A directory in the root of the cluster, made by this; nobody used this name before.
    pub(crate) dir: String,
    pub(crate) count: u64,
    pub(crate) in_flight: usize,
    /// Each name by a request of its own.
    pub(crate) one_by_one: bool,
    pub(crate) watch: Watch,
}

/// A file, and the path to it.
struct Target {
    path: String,
    names: Vec<Name>,
    inode: InodeId,
}

impl Paths {
    /// `resolve`.
    pub(crate) fn run(&self) -> Result<Vec<Measured>> {
        with(&self.management, &self.key_file, async |client| self.measure(client).await)
    }

    async fn measure(&self, client: &Rc<Client>) -> Result<Vec<Measured>> {
        let targets = Rc::new(self.make(client).await?);
        let one_by_one = self.one_by_one;
        let resolve = |tickets: Tickets| {
            let (client, targets) = (Rc::clone(client), Rc::clone(&targets));
            async move {
                while let Some(index) = tickets.next() {
                    let Target { path, names, inode } = &targets[(index % FILES) as usize];
                    let found = match one_by_one {
                        true => look_up(&client, names).await?,
                        false => client.lookup_path(&caller(), InodeId::ROOT, path.as_bytes(), false).await?.attr.inode,
                    };
                    ensure!(found == *inode, "{path} leads to {found}, and not to {inode}");
                }
                Ok(())
            }
        };
        fly(FILES, self.in_flight, resolve).await.context("warming up")?;
        let stopwatch = Stopwatch::start(Who::Client, &self.watch)?;
        fly(self.count, self.in_flight, resolve).await.context("resolve")?;
        Ok(vec![stopwatch.stop("resolve", self.count)?])
    }

    /// Directories in each other, and the files in the last one.
    async fn make(&self, client: &Client) -> Result<Vec<Target>> {
        let (mut at, mut texts) = (InodeId::ROOT, Vec::new());
        for level in 1..DEPTH {
            let text = if level == 1 { self.dir.clone() } else { format!("directory-{level}") };
            let made = client.mkdir(&caller(), at, Name::new(text.as_bytes())?, 0o755).await;
            at = made.with_context(|| format!("mkdir {text}"))?.attr.inode;
            texts.push(text);
        }
        let mut targets = Vec::new();
        for index in 0..FILES {
            let texts = [&texts[..], &[name(index)]].concat();
            let names = texts.iter().map(|text| Name::new(text.as_bytes())).collect::<Result<Vec<Name>, Errno>>()?;
            let file = names[DEPTH - 1].clone();
            let made = client.mknod(&caller(), at, file, FileType::Regular, 0o644, 0).await.context("create")?;
            targets.push(Target { path: texts.join("/"), names, inode: made.attr.inode });
        }
        Ok(targets)
    }
}

async fn look_up(client: &Client, names: &[Name]) -> Result<InodeId> {
    let mut at = InodeId::ROOT;
    for name in names {
        let Looked::Found(found) = client.lookup(&caller(), at, name.clone()).await? else { bail!("{name} is gone") };
        at = found.attr.inode;
    }
    Ok(at)
}
