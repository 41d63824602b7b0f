//! One client, and the reference model: the same results and the same tree, whatever happens to the shards and messages.

use std::collections::{BTreeMap, BTreeSet};

use model::{Limits, Model, New};
use namespace::view::RENAME_WHITEOUT;
use rand::RngExt;
use rand::seq::IndexedRandom;
use types::attr::FileType;
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;
use types::time::Timestamp;

use crate::sim::{Answer, CRED, Crash, Op, ROOT, Sim, name};

const CLIENT: u64 = 1;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "ee"];
const SEEDS: u64 = 12;
const OPERATIONS: u64 = 250;

struct World {
    sim: Sim,
    model: Model,
    /// By the model's ids.
    ids: BTreeMap<InodeId, InodeId>,
    /// Directories that were split, by the model's ids.
    split: BTreeSet<InodeId>,
    /// Directories are split by themselves as well.
    grows: bool,
}

impl World {
    /// Ids that the model has, so that nothing depends on how long those that are gone are remembered.
    fn living(&self) -> Vec<InodeId> {
        self.ids.keys().copied().filter(|inode| self.model.getattr(*inode).is_ok()).collect()
    }

    fn draw(&mut self) -> Op {
        let living = self.living();
        let is_dir = |inode: &&InodeId| self.model.getattr(**inode).is_ok_and(|attr| attr.kind == FileType::Directory);
        // A kernel gives no other parents.
        let directories: Vec<InodeId> = living.iter().filter(is_dir).copied().collect();
        let rng = &mut self.sim.rng;
        let one = *living.choose(rng).expect("root is there");
        let mut pick = || *directories.choose(rng).expect("root is there");
        let (parent, other) = (pick(), pick());
        let mut word = || name(NAMES.choose(rng).expect("some"));
        let (text, other_text) = (word(), word());
        match rng.random_range(0..20) {
            0..5 => Op::Mkdir { parent, name: text },
            5..8 => Op::Create { parent, name: text },
            8..10 => Op::Rmdir { parent, name: text },
            10..12 => Op::Unlink { parent, name: text },
            12 => Op::Link { inode: one, parent, name: text },
            13 => Op::Split { inode: parent, count: rng.random_range(2..=3) },
            _ => {
                let flags = *[0, 0, 0, 1, 2, 2, 3, 4, 4, 5, 6].choose(rng).expect("some");
                Op::Rename { from: (parent, text), to: (other, other_text), flags }
            }
        }
    }

    fn model_does(&mut self, op: &Op) -> Result<Option<InodeId>, Errno> {
        let (now, model) = (Timestamp(self.sim.now_ms as i64), &mut self.model);
        let made = |attr: types::attr::Attr| Some(attr.inode);
        match op {
            Op::Mkdir { parent, name } => {
                model.create(*parent, name, &New::Directory { mode: 0o755 }, CRED, now).map(made)
            }
            Op::Create { parent, name } => {
                let new = New::Node { kind: FileType::Regular, mode: 0o644, rdev: 0 };
                model.create(*parent, name, &new, CRED, now).map(made)
            }
            Op::Link { inode, parent, name } => model.link(*inode, *parent, name, now).map(|_| None),
            Op::Unlink { parent, name } => model.unlink(*parent, name, now).map(|()| None),
            Op::Rmdir { parent, name } => model.rmdir(*parent, name, now).map(|()| None),
            Op::Rename { from, to, flags } => {
                model.rename((from.0, &from.1), (to.0, &to.1), *flags, CRED, now).map(|()| None)
            }
            Op::Lookup { .. } | Op::Walk { .. } | Op::Stat { .. } | Op::Renew { .. } | Op::List { .. } => {
                Err(Errno::EINVAL)
            }
            Op::Place { .. } | Op::Chmod { .. } | Op::Flag { .. } => Err(Errno::EINVAL),
            Op::Split { inode, .. } => {
                model.readdir(*inode, 0, 1)?;
                if self.split.insert(*inode) { Ok(None) } else { Err(Errno::EEXIST) }
            }
            Op::Open { .. } | Op::Close { .. } | Op::Fifo { .. } => Err(Errno::EINVAL),
            Op::TmpFile { .. } | Op::SetXattr { .. } | Op::GetXattr { .. } => Err(Errno::EINVAL),
        }
    }

    /// The operation in the shards' ids.
    fn translated(&self, op: &Op) -> Op {
        let id = |inode: &InodeId| self.ids[inode];
        match op.clone() {
            Op::Mkdir { parent, name } => Op::Mkdir { parent: id(&parent), name },
            Op::Create { parent, name } => Op::Create { parent: id(&parent), name },
            Op::Link { inode, parent, name } => Op::Link { inode: id(&inode), parent: id(&parent), name },
            Op::Unlink { parent, name } => Op::Unlink { parent: id(&parent), name },
            Op::Rmdir { parent, name } => Op::Rmdir { parent: id(&parent), name },
            Op::Rename { from, to, flags } => Op::Rename { from: (id(&from.0), from.1), to: (id(&to.0), to.1), flags },
            Op::Split { inode, count } => Op::Split { inode: id(&inode), count },
            other => other,
        }
    }

    fn operation(&mut self, crashes: bool) {
        let op = self.draw();
        let asked = self.translated(&op);
        self.sim.ask(CLIENT, asked);
        while !self.sim.answers.contains_key(&CLIENT) {
            self.sim.step();
            if crashes && self.sim.rng.random_range(0..150) == 0 {
                let node = self.sim.rng.random_range(0..3);
                self.sim.crash(node, Crash::Kill);
            }
        }
        let answer = self.sim.wait(CLIENT);
        let moved = matches!(answer, Answer::Done);
        match (self.model_does(&op), answer) {
            (Ok(Some(made)), Answer::Inode(view)) => drop(self.ids.insert(made, view.attr.inode)),
            (Ok(None), Answer::Done | Answer::Inode(_) | Answer::Parts(_)) => {}
            // It may have split by itself before.
            (Ok(None), Answer::Refused(Errno::EEXIST)) if matches!(op, Op::Split { .. }) && self.grows => {}
            (Err(expected), Answer::Refused(errno)) => assert_eq!(expected, errno, "{op:?}"),
            (expected, answer) => panic!("{op:?}: {expected:?}, but {answer:?}"),
        }
        if let Op::Rename { from: (parent, name), flags, .. } = op
            && flags & RENAME_WHITEOUT != 0
            && moved
        {
            self.meet(parent, name);
        }
    }

    /// A whiteout was left at this name.
    fn meet(&mut self, parent: InodeId, name: Name) {
        let expected = self.model.lookup(parent, &name).expect("it is there").inode;
        self.sim.ask(CLIENT, Op::Lookup { parent: self.ids[&parent], name });
        let Answer::Inode(view) = self.sim.wait(CLIENT) else { panic!("no whiteout") };
        self.ids.insert(expected, view.attr.inode);
    }

    fn compare(&mut self) {
        self.sim.quiesce();
        assert_eq!(self.model.usage().inodes, self.sim.inodes());
        let orderly = std::mem::replace(&mut self.sim.orderly, true);
        let tree = self.sim.tree(CLIENT);
        let mut expected = BTreeMap::new();
        let mut directories = vec![(String::new(), ROOT)];
        while let Some((path, directory)) = directories.pop() {
            for listed in self.model.readdir(directory, 0, usize::MAX).expect("lists") {
                let path = format!("{path}/{}", String::from_utf8_lossy(&listed.name));
                if listed.attr.kind == FileType::Directory {
                    directories.push((path.clone(), listed.attr.inode));
                }
                expected.insert(path, listed.attr.inode);
            }
        }
        let translated: BTreeMap<String, InodeId> =
            expected.iter().map(|(path, inode)| (path.clone(), self.ids[inode])).collect();
        assert_eq!(tree, translated);
        for inode in expected.into_values() {
            let attr = self.model.getattr(inode).expect("listed");
            let answer = self.sim.stat(CLIENT, self.ids[&inode]);
            let Answer::Inode(view) = answer else { panic!("{answer:?}") };
            assert_eq!((view.attr.kind, view.attr.nlink), (attr.kind, attr.nlink), "{inode}");
        }
        self.sim.orderly = orderly;
    }
}

fn agree(seed: u64, crashes: bool) {
    let model = Model::new(Limits::default(), Credentials::default(), Timestamp(1));
    let grows = seed % 4 == 2;
    let sim = if grows { Sim::growing(seed, 3, 2) } else { Sim::new(seed, 3) };
    let mut world = World { sim, model, ids: BTreeMap::from([(ROOT, ROOT)]), split: BTreeSet::new(), grows };
    if seed % 2 == 1 {
        world.sim.run(CLIENT, Op::Split { inode: ROOT, count: 3 });
        world.split.insert(ROOT);
    }
    for operation in 0..OPERATIONS {
        world.operation(crashes);
        if operation % 100 == 99 {
            world.compare();
        }
    }
    world.compare();
}

#[test]
fn several_shards_are_one_file_system() {
    for seed in 0..SEEDS {
        agree(seed, false);
    }
}

#[test]
fn several_shards_are_one_file_system_though_processes_are_killed() {
    for seed in 100..100 + SEEDS {
        agree(seed, true);
    }
}
