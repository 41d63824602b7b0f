//! Several shards of one metadata service, driven by client cores without FUSE.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Barrier};

use anyhow::{Context, Result, anyhow, ensure};
use client::{Client, Looked};
use serde::{Deserialize, Serialize};
use types::attr::FileType;
use types::id::InodeId;
use types::name::Name;

use super::client::{caller, connect};
use super::cluster::Cluster;
use super::flight::{Tickets, fly};
use super::rocks::{FILES_PER_DIRECTORY, name};
use super::stopwatch::Stopwatch;
use crate::cpu::{Watch, Who};
use crate::job::Measured;

/// That directories are made in, or files moved between: the requests in flight do not all change the same two.
const PARENTS: u64 = 16;

/// Client threads that work at once, each with a ring of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Crowd {
    /// `host:port` of mgmtd.
    pub(crate) management: String,
    pub(crate) key_file: PathBuf,
    /// Begins the names that are made; nobody used it before.
    pub(crate) run: String,
    /// Operations in all.
    pub(crate) count: u64,
    /// Of each thread.
    pub(crate) in_flight: usize,
    /// One for each thread.
    pub(crate) tasks: Vec<Placed>,
    pub(crate) watch: Watch,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Placed {
    pub(crate) task: Task,
    /// That its thread is bound to.
    pub(crate) cpu: Option<usize>,
}

/// Numbers are of shards, and where things have to be at home; a task that finds them elsewhere fails.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Task {
    /// Files in new directories.
    Create { shard: u16 },
    /// Directories of shard `of`, in directories of shard 0.
    Mkdir { of: u16 },
    /// Files of shard 0, from directories there to directories of shard `to`.
    Rename { to: u16 },
}

/// Makes what tasks need in the root of a cluster of two shards: `home-S` at home in shard S, as will be what is made in
/// it, and `mkdir-S-N` in shard 0, where directories that are made in it will be in shard S.
pub(crate) fn furnish(cluster: &Cluster) -> Result<()> {
    let make = |name: &str| {
        let path = cluster.mount.join(name);
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        anyhow::Ok(path)
    };
    let root: &Path = &cluster.mount;
    cluster.place_new(root, 1)?;
    make(&home(1))?;
    cluster.place_new(root, 0)?;
    make(&home(0))?;
    for index in 0..PARENTS {
        make(&parent(0, index))?;
        cluster.place_new(&make(&parent(1, index))?, 1)?;
    }
    Ok(())
}

fn home(shard: u16) -> String {
    format!("home-{shard}")
}

fn parent(of: u16, index: u64) -> String {
    format!("mkdir-{of}-{index}")
}

impl Crowd {
    /// `work`.
    pub(crate) fn run(&self) -> Result<Vec<Measured>> {
        let connected = connect(&self.management, &self.key_file)?;
        let (begun, ended) = (Barrier::new(self.tasks.len() + 1), Barrier::new(self.tasks.len() + 1));
        std::thread::scope(|scope| {
            let work = |number: usize| {
                let shared = Arc::clone(&connected.shared);
                let (begun, ended) = (&begun, &ended);
                let config = ring::Config { cpu: self.tasks[number].cpu, ..ring::Config::default() };
                move || -> Result<()> {
                    let mut ring = ring::Ring::new(&config);
                    let mut prepared = Err(anyhow!("no ring"));
                    if let Ok(ring) = &mut ring {
                        prepared = ring.run(self.prepare(number, Client::new(shared)));
                    }
                    begun.wait();
                    // Whoever failed goes to the end too, where the others wait.
                    let done = match (&mut ring, &prepared) {
                        (Ok(ring), Ok(prepared)) => ring.run(prepared.work()),
                        _ => Ok(()),
                    };
                    ended.wait();
                    let prepared = prepared?;
                    ring?.run(prepared.client.shutdown());
                    done
                }
            };
            let threads: Vec<_> = (0..self.tasks.len()).map(|number| scope.spawn(work(number))).collect();
            begun.wait();
            let stopwatch = Stopwatch::start(Who::Client, &self.watch)?;
            ended.wait();
            let measured = stopwatch.stop("work", self.count / self.tasks.len() as u64 * self.tasks.len() as u64)?;
            for thread in threads {
                thread.join().map_err(|_| anyhow!("a client thread has panicked"))??;
            }
            Ok(vec![measured])
        })
    }

    /// Directories and files that the task of this thread needs.
    async fn prepare(&self, number: usize, client: Rc<Client>) -> Result<Prepared> {
        let Placed { task, .. } = self.tasks[number];
        let run = format!("{}-{number}", self.run);
        let count = self.count / self.tasks.len() as u64;
        let hand = Hand { client: Rc::clone(&client) };
        let (mut sources, mut targets) = (Vec::new(), Vec::new());
        match task {
            Task::Create { shard } => {
                let top = hand.make(hand.find(&home(shard), shard).await?, &run, shard).await?;
                for index in 0..count.div_ceil(FILES_PER_DIRECTORY) {
                    targets.push(hand.make(top, &format!("directory-{index}"), shard).await?);
                }
            }
            Task::Mkdir { of } => {
                for index in 0..PARENTS {
                    targets.push(hand.find(&parent(of, index), 0).await?);
                }
            }
            Task::Rename { to } => {
                let from = hand.make(hand.find(&home(0), 0).await?, &format!("{run}-from"), 0).await?;
                let into = hand.make(hand.find(&home(to), to).await?, &format!("{run}-to"), to).await?;
                for index in 0..PARENTS {
                    sources.push(hand.make(from, &format!("directory-{index}"), 0).await?);
                    targets.push(hand.make(into, &format!("directory-{index}"), to).await?);
                }
            }
        }
        let prepared = Prepared {
            client,
            task,
            run,
            count,
            in_flight: self.in_flight,
            sources: sources.into(),
            targets: targets.into(),
        };
        if let Task::Rename { .. } = task {
            // The files that will be moved.
            prepared.create(&prepared.sources).await?;
        }
        Ok(prepared)
    }
}

/// What one thread has to do, and where.
struct Prepared {
    client: Rc<Client>,
    task: Task,
    run: String,
    count: u64,
    in_flight: usize,
    /// Of renames.
    sources: Rc<[InodeId]>,
    targets: Rc<[InodeId]>,
}

impl Prepared {
    async fn work(&self) -> Result<()> {
        match self.task {
            Task::Create { .. } => self.create(&self.targets).await.context("create"),
            Task::Mkdir { of } => self.mkdir(of).await.context("mkdir"),
            Task::Rename { .. } => self.rename().await.context("rename"),
        }
    }

    /// One directory after the other where there are as many as creates need, otherwise in turns.
    async fn create(&self, parents: &Rc<[InodeId]>) -> Result<()> {
        let turns = matches!(self.task, Task::Rename { .. });
        let pilot = |tickets: Tickets| {
            let (client, parents) = (Rc::clone(&self.client), Rc::clone(parents));
            async move {
                while let Some(index) = tickets.next() {
                    let place = if turns { index % PARENTS } else { index / FILES_PER_DIRECTORY };
                    let name = Name::new(name(index).as_bytes())?;
                    client.mknod(&caller(), parents[place as usize], name, FileType::Regular, 0o644, 0).await?;
                }
                Ok(())
            }
        };
        fly(self.count, self.in_flight, pilot).await
    }

    async fn mkdir(&self, of: u16) -> Result<()> {
        let pilot = |tickets: Tickets| {
            let (hand, parents) = (Hand { client: Rc::clone(&self.client) }, Rc::clone(&self.targets));
            let run = self.run.clone();
            async move {
                while let Some(index) = tickets.next() {
                    hand.make(parents[(index % PARENTS) as usize], &format!("{run}-{index}"), of).await?;
                }
                Ok(())
            }
        };
        fly(self.count, self.in_flight, pilot).await
    }

    async fn rename(&self) -> Result<()> {
        let pilot = |tickets: Tickets| {
            let client = Rc::clone(&self.client);
            let (sources, targets) = (Rc::clone(&self.sources), Rc::clone(&self.targets));
            async move {
                while let Some(index) = tickets.next() {
                    let (place, name) = ((index % PARENTS) as usize, Name::new(name(index).as_bytes())?);
                    client.rename(&caller(), (sources[place], name.clone()), (targets[place], name), 0).await?;
                }
                Ok(())
            }
        };
        fly(self.count, self.in_flight, pilot).await
    }
}

/// Directories, and a look at where they are at home.
struct Hand {
    client: Rc<Client>,
}

impl Hand {
    async fn find(&self, name: &str, shard: u16) -> Result<InodeId> {
        match self.client.lookup(&caller(), InodeId::ROOT, Name::new(name.as_bytes())?).await? {
            Looked::Found(named) => at_home(name, named.attr.inode, shard),
            Looked::Absent(_) => Err(anyhow!("{name} is not there")),
        }
    }

    async fn make(&self, parent: InodeId, name: &str, shard: u16) -> Result<InodeId> {
        let made = self.client.mkdir(&caller(), parent, Name::new(name.as_bytes())?, 0o755).await;
        at_home(name, made.with_context(|| format!("mkdir {name}"))?.attr.inode, shard)
    }
}

fn at_home(name: &str, inode: InodeId, shard: u16) -> Result<InodeId> {
    ensure!(inode.home().0 == shard, "{name} is at home in shard {}, where {shard} was asked for", inode.home());
    Ok(inode)
}
