//! Directories that are made at once in another shard, until it is certain that they stay.

use kv::memory::MemoryKv;
use namespace::acl::DEFAULT;
use namespace::check::check;
use namespace::error::{Error, Result};
use namespace::schema::transaction::{deser_parts, ser_parts};
use namespace::shard::Shard;
use namespace::transaction::part::{NewDirectory, Part, Vote};
use namespace::transaction::{Finished, Message, Outcome, Reply};
use namespace::view::{Create, Exactly, Rename};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use types::attr::FileType;
use types::cred::Conditions;
use types::error::Errno;
use types::flags::FileFlags;
use types::id::{InodeId, SessionId, ShardId, TransactionId};
use types::layout::LayoutPolicy;
use types::placement::Placement;
use types::time::Timestamp;

use crate::node::{Answer, CRED, Op, Splits, config};
use crate::seeds::seeds;
use crate::sim::{Crash, ROOT, Sim, name};

const CLIENT: u64 = 1;
const ASKER: SessionId = SessionId(CLIENT);
const TRANSACTION: TransactionId = TransactionId((1 << 48) + 77);

/// One shard of two, asked by hand.
struct Alone {
    kv: MemoryKv,
    shard: Shard<MemoryKv>,
    sequence: u64,
}

impl Alone {
    fn new() -> Self {
        let kv = MemoryKv::new();
        let mut alone = Self { shard: open(&kv), kv, sequence: 0 };
        alone.shard.session_open(ASKER, b"").expect("opens");
        alone
    }

    fn again(&mut self) {
        self.shard = open(&self.kv);
    }

    fn next(&mut self) -> Exactly {
        self.sequence += 1;
        Exactly { session: ASKER, sequence: self.sequence, answered_below: self.sequence, given: Conditions::default() }
    }

    fn create(&mut self, parent: InodeId, text: &str) -> Result<InodeId> {
        self.create_and(parent, text, false)
    }

    fn create_and(&mut self, parent: InodeId, text: &str, open: bool) -> Result<InodeId> {
        let (exactly, name, cred) = (self.next(), name(text), CRED);
        let (kind, mode, rdev, write_intent, exclusive, draft) = (FileType::Fifo, 0o644, 0, false, true, false);
        let create = Create { parent, name: &name, kind, mode, rdev, cred, open, write_intent, exclusive, draft };
        self.shard.create(exactly, &create).map(|view| view.attr.inode)
    }

    fn rename(&mut self, from: (InodeId, &str), to: (InodeId, &str)) -> Result<()> {
        let (exactly, source_name, target_name) = (self.next(), name(from.1), name(to.1));
        let (source_parent, target_parent, cred) = (from.0, to.0, CRED);
        let rename = Rename {
            source_parent,
            source_name: &source_name,
            target_parent,
            target_name: &target_name,
            flags: 0,
            cred,
        };
        self.shard.rename(exactly, &rename).map(drop)
    }

    fn promise(&mut self) -> InodeId {
        let votes = self.shard.prepare(ASKER, TRANSACTION, 0, vec![make(InodeId(0))]).expect("promised");
        let [Vote::Made(directory)] = votes[..] else { panic!("{votes:?}") };
        self.commit();
        directory
    }

    fn commit(&mut self) {
        self.shard.commit().expect("commits");
    }

    /// Asks the coordinator as often as the shard wants to, which knows of nothing. How often that was.
    fn forget(&mut self) -> usize {
        self.shard.finish(TRANSACTION, false, None).expect("removed");
        for asked in 0.. {
            self.commit();
            let asks = self.shard.take_outgoing();
            let Some(ask) = asks.into_iter().find(|it| matches!(it.message, Message::AskOutcome { .. })) else {
                return asked;
            };
            self.shard.replied(ShardId(1), &ask.message, Reply::Outcome(Outcome::Abort)).expect("removed");
        }
        0
    }
}

fn open(kv: &MemoryKv) -> Shard<MemoryKv> {
    let mut shard = Shard::open(kv.clone(), config(0, 0, Splits::default()), Timestamp(1), 1).expect("opens");
    shard.set_shards(vec![ShardId(0), ShardId(1)], vec![ShardId(0), ShardId(1)]);
    shard
}

fn make(id: InodeId) -> Part {
    let parent = InodeId::new(ShardId(1), 16);
    let (mode, uid, gid, flags, time, policy) = (0o755, 1, 2, FileFlags::NONE, Timestamp(3), LayoutPolicy::default());
    let (access, default, part, fills, at_once) = (None, None, None, false, true);
    Part::Make(NewDirectory { id, parent, mode, uid, gid, flags, time, policy, access, default, part, fills, at_once })
}

/// With what is done only when it is decided.
fn make_later(id: InodeId) -> Part {
    match make(id) {
        Part::Make(new) => Part::Make(NewDirectory { at_once: false, ..new }),
        other => other,
    }
}

fn is_blocked<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Blocked(TRANSACTION)))
}

#[test]
fn only_files_are_made_in_it_and_none_of_them_is_called_durable() {
    let mut alone = Alone::new();
    let directory = alone.promise();
    for _ in 0..2 {
        let text = if alone.sequence == 0 { "first" } else { "second" };
        let file = alone.create(directory, text).expect("made");
        alone.create(ROOT, &format!("{text} outside")).expect("made");
        alone.rename((directory, text), (directory, "moved")).expect("it stays inside");
        assert!(alone.shard.getattr(ASKER, directory).is_ok_and(|view| view.attr.nlink == 2));
        let exactly = alone.next();
        let subdirectory = alone.shard.mkdir(exactly, directory, &name("sub"), 0o755, CRED);
        assert!(is_blocked(&subdirectory), "{subdirectory:?}");
        let exactly = alone.next();
        let link = alone.shard.link(exactly, file, directory, &name("link"));
        assert!(is_blocked(&link), "{link:?}");
        let into = alone.rename((ROOT, &format!("{text} outside")), (directory, "from outside"));
        assert!(is_blocked(&into), "{into:?}");
        assert!(is_blocked(&alone.shard.may_sync(directory)) && is_blocked(&alone.shard.may_sync(file)));
        assert_eq!(alone.shard.may_sync(ROOT), Ok(()));
        let other = TransactionId(TRANSACTION.0 + 1);
        let from_elsewhere = Part::Entry { parent: directory, name: name("x"), becomes: None };
        for part in [Part::Rmdir(directory), Part::Move { inode: directory, parent: ROOT }, from_elsewhere] {
            assert_eq!(alone.shard.prepare(ASKER, other, 0, vec![part]), Err(Error::Blocked(TRANSACTION)));
        }
        alone.commit();
        // A restart knows of it.
        alone.again();
        alone.shard.session_open(ASKER, b"").expect("opens");
    }
    assert_eq!(alone.shard.finish(TRANSACTION, true, Some(directory)), Ok(Finished::Done));
    alone.commit();
    let file = alone.create(directory, "third").expect("made");
    assert_eq!((alone.shard.may_sync(directory), alone.shard.may_sync(file)), (Ok(()), Ok(())));
    assert_eq!(alone.shard.finish(TRANSACTION, true, Some(directory)), Ok(Finished::Done), "harmless twice");
}

#[test]
fn a_file_in_it_gets_no_name_elsewhere_that_would_hide_where_it_lies() {
    let mut alone = Alone::new();
    let directory = alone.promise();
    let file = alone.create(directory, "file").expect("made");
    let exactly = alone.next();
    let link = alone.shard.link(exactly, file, ROOT, &name("link"));
    assert!(is_blocked(&link), "{link:?}");
    let part = Part::Link { inode: file, parent: InodeId::new(ShardId(1), 16) };
    let other = TransactionId(TRANSACTION.0 + 1);
    assert_eq!(alone.shard.prepare(ASKER, other, 0, vec![part.clone()]), Err(Error::Blocked(TRANSACTION)));
    assert_eq!(alone.shard.finish(TRANSACTION, true, Some(directory)), Ok(Finished::Done));
    alone.commit();
    assert!(alone.shard.prepare(ASKER, other, 0, vec![part]).is_ok());
    let exactly = alone.next();
    assert!(alone.shard.link(exactly, file, ROOT, &name("link")).is_err(), "it is promised");
}

#[test]
fn where_its_making_is_forgotten_all_that_is_in_it_goes_in_several_turns() {
    let mut alone = Alone::new();
    let directory = alone.promise();
    for number in 0..300 {
        alone.create(directory, &format!("file {number}")).expect("made");
    }
    alone.commit();
    alone.shard.finish(TRANSACTION, false, None).expect("removed");
    let late = alone.create(directory, "late");
    assert!(is_blocked(&late), "{late:?}");
    assert_eq!(alone.forget(), 1);
    assert!(alone.shard.getattr(ASKER, directory).is_err());
    assert_eq!(alone.shard.inode_count(), 1);
    alone.commit();
    assert_eq!(check(&alone.kv, ShardId(0)), Ok(Vec::new()));
}

#[test]
fn who_has_a_file_open_that_goes_so_is_not_told_that_it_is_durable() {
    let mut alone = Alone::new();
    let directory = alone.promise();
    let file = alone.create_and(directory, "file", true).expect("made");
    alone.commit();
    assert!(is_blocked(&alone.shard.may_sync(file)));
    assert_eq!(alone.forget(), 0);
    for gone in [file, directory] {
        assert_eq!(alone.shard.may_sync(gone), Err(Error::Refused(Errno::ESTALE)));
    }
    assert_eq!((alone.shard.inode_count(), alone.shard.held_count()), (1, 0));
    alone.shard.close_inode(ASKER, file, None).expect("closed");
    alone.commit();
    assert_eq!(check(&alone.kv, ShardId(0)), Ok(Vec::new()));
    // What is open and was removed by its users has nothing to lose.
    let removed = alone.create_and(ROOT, "removed", true).expect("made");
    let exactly = alone.next();
    alone.shard.unlink(exactly, ROOT, &name("removed")).expect("removed");
    alone.commit();
    assert_eq!(alone.shard.may_sync(removed), Ok(()));
}

#[test]
fn one_that_is_not_there_is_lost_and_made_again_with_its_id() {
    let mut alone = Alone::new();
    let directory = alone.promise();
    alone.kv.crash_keeping(0);
    alone.again();
    alone.shard.session_open(ASKER, b"").expect("opens");
    assert_eq!(alone.shard.finish(TRANSACTION, true, Some(directory)), Ok(Finished::Lost));
    let again = TransactionId(TRANSACTION.0 + 1);
    let promise = |alone: &mut Alone, of| alone.shard.prepare(ASKER, of, 0, vec![make_later(directory)]);
    assert_eq!(promise(&mut alone, again), Ok(vec![Vote::Made(directory)]));
    alone.commit();
    // It may yet be forgotten: nothing can be said of the first one, nor is anything made in it.
    assert_eq!(alone.shard.finish(TRANSACTION, true, Some(directory)), Err(Error::Again));
    assert_eq!(promise(&mut alone, TransactionId(TRANSACTION.0 + 2)), Err(Error::Again));
    assert!(matches!(alone.create(directory, "early"), Err(Error::Blocked(of)) if of == again));
    assert_eq!(alone.shard.finish(again, true, None), Ok(Finished::Done));
    alone.commit();
    assert_eq!(alone.shard.finish(TRANSACTION, true, Some(directory)), Ok(Finished::Done));
    let third = TransactionId(TRANSACTION.0 + 2);
    assert!(alone.shard.prepare(ASKER, third, 0, vec![make(directory)]).is_err(), "it is there");
    let elsewhere = InodeId::new(ShardId(1), 99);
    assert!(alone.shard.prepare(ASKER, third, 0, vec![make(elsewhere)]).is_err(), "no id of this shard");
}

#[test]
fn records_of_it_are_told_from_others() {
    let at_once = make(InodeId(5));
    let value = ser_parts(std::slice::from_ref(&at_once));
    assert_eq!(deser_parts(b"T", &value), Ok(vec![at_once]));
    let later = make_later(InodeId(5));
    assert_eq!(deser_parts(b"T", &ser_parts(std::slice::from_ref(&later))), Ok(vec![later]));
}

/// A directory in shard 0 whose subdirectories come to shard 1, with an ACL that they inherit.
fn prepare() -> (Sim, InodeId) {
    prepare_in(Sim::new(1, 2))
}

fn prepare_in(mut sim: Sim) -> (Sim, InodeId) {
    sim.orderly = true;
    let place = |inode, shard| Op::Place { inode, placement: Placement::Shard(ShardId(shard)) };
    sim.run(CLIENT, place(ROOT, 0));
    let Answer::Inode(parent) = sim.run(CLIENT, Op::Mkdir { parent: ROOT, name: name("p") }) else { panic!("made") };
    let parent = parent.attr.inode;
    sim.run(CLIENT, place(parent, 1));
    sim.run(CLIENT, Op::SetXattr { inode: parent, name: DEFAULT, value: acl() });
    sim.quiesce();
    (sim, parent)
}

fn acl() -> Vec<u8> {
    let entries = [(1u16, 7u16, u32::MAX), (2, 6, 7), (4, 5, u32::MAX), (0x10, 7, u32::MAX), (0x20, 0, u32::MAX)];
    let entry = |(tag, permissions, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    [2u32.to_le_bytes().to_vec(), entries.map(entry).concat()].concat()
}

fn made(sim: &mut Sim, op: Op) -> InodeId {
    match sim.run(CLIENT, op) {
        Answer::Inode(view) => view.attr.inode,
        other => panic!("{other:?}"),
    }
}

/// What a power cut of these shards leaves, so many events after a directory and a file in it were made.
fn after_power_cut(of: &[usize], events: u64, seed: u64, durable: bool) -> Vec<String> {
    let (mut sim, parent) = prepare();
    // Disks are late.
    (sim.orderly, sim.rng) = (false, StdRng::seed_from_u64(seed));
    let directory = made(&mut sim, Op::Mkdir { parent, name: name("d") });
    let file = made(&mut sim, Op::Create { parent: directory, name: name("f") });
    assert_eq!((directory.home(), file.home()), (ShardId(1), ShardId(1)));
    if durable {
        sim.fsync(file);
    }
    for _ in 0..events {
        sim.step();
    }
    of.iter().for_each(|node| sim.crash(*node, Crash::PowerCut));
    sim.quiesce();
    let paths: Vec<String> = sim.tree(CLIENT).into_keys().filter(|path| path.starts_with("/p/")).collect();
    if paths.contains(&"/p/d".to_owned()) {
        let default = sim.run(CLIENT, Op::GetXattr { inode: directory, name: DEFAULT });
        assert_eq!(default, Answer::Value(acl()), "also where it was made again");
    }
    paths
}

#[test]
fn a_power_cut_takes_it_whole_or_what_was_in_it() {
    let mut seen = std::collections::BTreeSet::new();
    for of in [&[0][..], &[1], &[0, 1], &[1, 0]] {
        for events in 0..12 {
            for seed in 0..30 {
                let paths = after_power_cut(of, events, seed, false);
                let expected = [&[][..], &["/p/d"], &["/p/d", "/p/d/f"]];
                assert!(expected.contains(&&paths.iter().map(String::as_str).collect::<Vec<_>>()[..]), "{paths:?}");
                seen.insert(paths);
            }
        }
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
}

#[test]
fn what_is_durable_in_it_outlives_a_power_cut() {
    for of in [&[0][..], &[1], &[0, 1]] {
        for events in 0..12 {
            for seed in 0..20 {
                assert_eq!(after_power_cut(of, events, seed, true), ["/p/d", "/p/d/f"]);
            }
        }
    }
}

/// Loses a directory of which the decision is on disk, unless it came to be on its own disk before.
fn lose(sim: &mut Sim, parent: InodeId, seed: u64) -> Option<InodeId> {
    (sim.orderly, sim.rng) = (false, StdRng::seed_from_u64(seed));
    let directory = made(sim, Op::Mkdir { parent, name: name("d") });
    sim.sync(0);
    sim.cut(1);
    (!sim.has(directory)).then_some(directory)
}

#[test]
fn one_that_was_lost_is_made_again_though_names_of_its_parent_are_to_stay() {
    for flags in [FileFlags::IMMUTABLE, FileFlags::APPEND] {
        let mut lost = 0;
        for seed in 0..100 {
            let (mut sim, parent) = prepare();
            (sim.orderly, sim.rng) = (false, StdRng::seed_from_u64(seed));
            let directory = made(&mut sim, Op::Mkdir { parent, name: name("d") });
            sim.run(CLIENT, Op::Flag { inode: parent, flags });
            sim.sync(0);
            sim.cut(1);
            lost += u64::from(!sim.has(directory));
            sim.quiesce();
            assert!(sim.has(directory), "seed {seed}");
        }
        assert!(lost > 3, "{lost}");
    }
}

#[test]
fn what_is_made_in_one_that_is_made_again_stays() {
    let mut tried = 0;
    for seed in seeds(0, 2000) {
        let (mut sim, parent) = prepare();
        let Some(directory) = lose(&mut sim, parent, seed) else { continue };
        let mut is_made = false;
        for _ in 0..600 {
            match sim.answers.remove(&CLIENT) {
                Some(Answer::Inode(_)) => {
                    is_made = true;
                    break;
                }
                _ if sim.is_idle(CLIENT) => sim.ask(CLIENT, Op::Create { parent: directory, name: name("f") }),
                _ => {}
            }
            sim.step();
            if sim.rng.random_range(0..60) == 0 {
                sim.crash(0, Crash::Kill);
            }
        }
        sim.quiesce();
        is_made |= matches!(sim.answers.remove(&CLIENT), Some(Answer::Inode(_)));
        assert!(!is_made || sim.look(CLIENT, directory, &name("f")).is_some(), "seed {seed}: it is gone");
        tried += u64::from(is_made);
    }
    assert!(tried > 0);
}

#[test]
fn nobody_is_told_that_the_name_of_one_that_is_yet_to_be_made_again_is_damaged() {
    let mut tried = 0;
    for seed in seeds(0, 300) {
        for op in [
            |parent| Op::Rmdir { parent, name: name("d") },
            |parent| Op::Rename { from: (parent, name("d")), to: (ROOT, name("moved")), flags: 0 },
            |parent| Op::Rename { from: (parent, name("d")), to: (parent, name("moved")), flags: 0 },
        ] {
            let (mut sim, parent) = prepare();
            let Some(_) = lose(&mut sim, parent, seed) else { continue };
            assert_eq!(sim.run(CLIENT, op(parent)), Answer::Done, "seed {seed}");
            sim.quiesce();
            tried += 1;
        }
    }
    assert!(tried > 0);
}

/// Clients look at these all the time, and yet it comes to be so within a few terms of leases.
fn look_until(sim: &mut Sim, looks: &[Op], is_so: impl Fn(&mut Sim) -> bool) {
    let begun_ms = sim.now_ms;
    while !is_so(sim) {
        for client in CLIENT..=3 {
            sim.answers.remove(&client);
            if sim.is_idle(client) {
                let look = looks.choose(&mut sim.rng).expect("some").clone();
                sim.ask(client, look);
            }
        }
        sim.step();
        assert!(sim.now_ms < begun_ms + 10_000, "it never comes to be so");
    }
}

#[test]
fn one_that_is_forgotten_goes_however_often_others_look_at_it() {
    let mut tried = 0;
    for seed in seeds(0, 3000) {
        let (mut sim, parent) = prepare_in(Sim::leasing(1, 2));
        (sim.orderly, sim.rng) = (false, StdRng::seed_from_u64(seed));
        let directory = made(&mut sim, Op::Mkdir { parent, name: name("d") });
        let file = made(&mut sim, Op::Create { parent: directory, name: name("f") });
        sim.cut(0);
        if sim.look(CLIENT, parent, &name("d")).is_some() {
            continue;
        }
        let looks = [
            Op::Lookup { parent: directory, name: name("f") },
            Op::Stat { inode: file },
            Op::Stat { inode: directory },
        ];
        look_until(&mut sim, &looks, |sim| !sim.has(directory));
        tried += 1;
    }
    assert!(tried > 0);
}

#[test]
fn one_is_made_again_however_often_others_look_at_its_name() {
    let mut tried = 0;
    for seed in seeds(0, 1000) {
        let (mut sim, parent) = prepare_in(Sim::leasing(1, 2));
        let Some(directory) = lose(&mut sim, parent, seed) else { continue };
        let looks = [Op::Lookup { parent, name: name("d") }, Op::Stat { inode: parent }];
        look_until(&mut sim, &looks, |sim| sim.has(directory));
        tried += 1;
    }
    assert!(tried > 0);
}
