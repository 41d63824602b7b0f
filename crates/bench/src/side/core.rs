//! The data plane: one client core on one ring, against a real metadata service.

use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use client::{Client, Looked, Named};
use serde::{Deserialize, Serialize};
use types::attr::FileType;
use types::id::InodeId;
use types::name::Name;

use super::client::{caller, with};
use super::flight::{Tickets, fly};
use super::rocks::{FILES_PER_DIRECTORY, name};
use super::stopwatch::Stopwatch;
use crate::cpu::{Watch, Who};
use crate::job::Measured;

/// Files that are looked at again and again.
const HOT: u64 = 1_000;

/// Creates, then looks at some of what was made; so many in flight.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Core {
    /// `host:port` of mgmtd.
    pub(crate) management: String,
    pub(crate) key_file: PathBuf,
    /// A directory in the root of the cluster, made by this; nobody used this name before.
    pub(crate) dir: String,
    pub(crate) creates: u64,
    pub(crate) stats: u64,
    pub(crate) in_flight: usize,
    pub(crate) watch: Watch,
}

impl Core {
    /// `create` and `stat`.
    pub(crate) fn run(&self) -> Result<Vec<Measured>> {
        with(&self.management, &self.key_file, async |client| self.measure(client).await)
    }

    async fn measure(&self, client: &Rc<Client>) -> Result<Vec<Measured>> {
        let directories = Rc::new(self.make_directories(client).await?);
        let stopwatch = Stopwatch::start(Who::Client, &self.watch)?;
        let make = |tickets: Tickets| {
            let (client, parents) = (Rc::clone(client), Rc::clone(&directories));
            async move {
                while let Some(index) = tickets.next() {
                    let parent = parents[(index / FILES_PER_DIRECTORY) as usize];
                    let name = Name::new(name(index).as_bytes())?;
                    client.mknod(&caller(), parent, name, FileType::Regular, 0o644, 0).await?;
                }
                Ok(())
            }
        };
        fly(self.creates, self.in_flight, make).await.context("create")?;
        let created = stopwatch.stop("create", self.creates)?;
        let hot = (0..HOT).map(|index| Name::new(name(index).as_bytes())).collect::<Result<Rc<[_]>, _>>()?;
        let look = |tickets: Tickets| {
            let (client, parent, hot) = (Rc::clone(client), directories[0], Rc::clone(&hot));
            async move {
                while let Some(index) = tickets.next() {
                    let name = &hot[(index % HOT) as usize];
                    let looked = client.lookup(&caller(), parent, name.clone()).await?;
                    let Looked::Found(Named { attr, .. }) = looked else { bail!("{name} is gone") };
                    ensure!(attr.kind == FileType::Regular && attr.nlink == 1, "{name} is not as it was made");
                }
                Ok(())
            }
        };
        fly(HOT, self.in_flight, look).await.context("warming up")?;
        let stopwatch = Stopwatch::start(Who::Client, &self.watch)?;
        fly(self.stats, self.in_flight, look).await.context("stat")?;
        Ok(vec![created, stopwatch.stop("stat", self.stats)?])
    }

    async fn make_directories(&self, client: &Client) -> Result<Vec<InodeId>> {
        let make = async |parent, name: String| {
            let made = client.mkdir(&caller(), parent, Name::new(name.as_bytes())?, 0o755).await;
            Ok::<_, anyhow::Error>(made.with_context(|| format!("mkdir {name}"))?.attr.inode)
        };
        let top = make(InodeId::ROOT, self.dir.clone()).await?;
        let mut made = Vec::new();
        for index in 0..self.creates.max(HOT).div_ceil(FILES_PER_DIRECTORY) {
            made.push(make(top, format!("directory-{index}")).await?);
        }
        Ok(made)
    }
}
