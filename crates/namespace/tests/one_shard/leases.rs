//! Leases and the operations of a shard together: whatever a session was told to believe is true until it is told
//! otherwise or its term is over.

use std::collections::{BTreeMap, BTreeSet};

use kv::{Kv, Syncer};
use namespace::error::{Error, Result};
use namespace::shard::Config;
use namespace::shard::inline::Grown;
use namespace::view::{
    Changed, Create, DirectoryView, Drafted, InodeView, Looked, RENAME_EXCHANGE, Rename, Settle, Standing, Telling,
    WriteInline,
};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use types::attr::{Attr, FileType, SetAttr};
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::name::Name;
use types::time::Timestamp;

use crate::common::{A, B, Bed, CRED, EXPIRY_MS, ROOT, config, creation, held, name};

const TERM_MS: u64 = 3_000;
/// Looks at the truth, and never gets a lease.
const WITNESS: SessionId = SessionId(3);

fn leasing() -> Bed {
    let mut bed = Bed::with(Config { lease_term_ms: TERM_MS, ..config() });
    for session in [A, B] {
        bed.shard.listen(session, true);
    }
    bed.shard.session_open(WITNESS, b"witness").expect("session");
    bed.turn();
    bed
}

type Place = (InodeId, Name);

/// What one session believes, and until when.
#[derive(Default)]
struct Cache {
    names: BTreeMap<Place, (Option<InodeId>, u64)>,
    inodes: BTreeMap<InodeId, (Attr, u64)>,
    /// Names that hold all entries of a directory.
    whole: BTreeMap<InodeId, (BTreeSet<Name>, u64)>,
}

/// What a change tells who made it.
#[derive(Default)]
struct Outcome {
    made: Option<InodeId>,
    directories: Vec<DirectoryView>,
    others: Option<Vec<InodeId>>,
    draft: bool,
}

impl From<InodeView> for Outcome {
    fn from(view: InodeView) -> Self {
        let directories = view.parent.into_iter().map(|parent| *parent).collect();
        Self { made: Some(view.attr.inode), directories, others: Some(Vec::new()), draft: view.draft }
    }
}

impl From<Changed> for Outcome {
    fn from(changed: Changed) -> Self {
        let directories = changed.parent.into_iter().chain(changed.target).map(|directory| *directory).collect();
        Self { directories, others: changed.others, ..Self::default() }
    }
}

struct World {
    bed: Bed,
    caches: BTreeMap<SessionId, Cache>,
    dice: StdRng,
    inodes: Vec<InodeId>,
    /// The last that was told.
    order: u64,
    recalls: u64,
    expiries: u64,
    /// How often a directory was looked through that a session knew whole.
    whole: u64,
    /// Made, and told.
    drafts: Vec<(SessionId, InodeId)>,
    published: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let caches = [(A, Cache::default()), (B, Cache::default())].into();
        Self {
            bed: leasing(),
            caches,
            dice: StdRng::seed_from_u64(seed),
            inodes: vec![ROOT],
            order: 0,
            recalls: 0,
            expiries: 0,
            whole: 0,
            drafts: Vec::new(),
            published: 0,
        }
    }

    fn until(&self, lease_ms: u32) -> u64 {
        self.bed.mono_ms + u64::from(lease_ms)
    }

    fn learn(&mut self, session: SessionId, attr: Attr, lease_ms: u32) {
        let until = self.until(lease_ms);
        if lease_ms > 0 {
            self.cache(session).inodes.insert(attr.inode, (attr, until));
        }
    }

    /// The names that a directory has at most are known from when it was empty, for as long as the lease on it is renewed.
    fn learn_whole(&mut self, session: SessionId, directory: InodeId, standing: Standing, lease_ms: u32) {
        assert!(standing.order > self.order, "orders rise");
        self.order = standing.order;
        let (now, until) = (self.bed.mono_ms, self.until(lease_ms));
        let whole = &mut self.cache(session).whole;
        let known = whole.remove(&directory).filter(|(_, until)| *until > now).map(|(names, _)| names);
        let names = if standing.empty { Some(BTreeSet::new()) } else { known };
        whole.extend(names.map(|names| (directory, (names, until))));
    }

    /// What comes of a change of one's own.
    fn learn_outcome(&mut self, session: SessionId, places: [&Place; 2], outcome: Outcome) {
        let whole = &mut self.cache(session).whole;
        match outcome.others {
            Some(others) => whole.retain(|directory, _| !others.contains(directory)),
            None => whole.clear(),
        }
        for (directory, name) in places {
            let told = outcome.directories.iter().any(|view| view.attr.inode == *directory);
            match whole.get_mut(directory) {
                Some((names, _)) if told => drop(names.insert(name.clone())),
                _ => drop(whole.remove(directory)),
            }
        }
        for view in outcome.directories {
            self.learn(session, view.attr, view.lease_ms);
            self.learn_whole(session, view.attr.inode, view.standing, view.lease_ms);
        }
        self.inodes.extend(outcome.made);
        self.drafts.extend(outcome.made.filter(|_| outcome.draft).map(|inode| (session, inode)));
    }

    fn cache(&mut self, session: SessionId) -> &mut Cache {
        self.caches.get_mut(&session).expect("known")
    }

    /// What one session alone writes, others are told when it has given back what it holds.
    fn ask<T>(&mut self, session: SessionId, ask: impl Fn(&mut Bed) -> Result<T>) -> Result<T> {
        loop {
            match ask(&mut self.bed) {
                Err(Error::Recalling) => self.wait(session),
                told => return told,
            }
        }
    }

    fn look(&mut self, session: SessionId) {
        let (parent, name) = (self.inode(), self.name());
        if let Ok(looked) = self.ask(session, |bed| bed.shard.lookup(session, parent, &name)) {
            let (child, lease_ms) = match &looked {
                Looked::Found(view) => (Some(view.attr.inode), view.name_lease_ms),
                Looked::Absent { lease_ms } => (None, *lease_ms),
            };
            let until = self.until(lease_ms);
            if lease_ms > 0 {
                self.cache(session).names.insert((parent, name), (child, until));
            }
            if let Looked::Found(view) = looked {
                self.learn(session, view.attr, view.lease_ms);
            }
        }
        let inode = self.inode();
        if let Ok(view) = self.ask(session, |bed| bed.shard.getattr(session, inode)) {
            self.learn(session, view.attr, view.lease_ms);
            if let Some(standing) = view.standing {
                self.learn_whole(session, inode, standing, view.lease_ms);
            }
        }
        if self.dice.random_ratio(1, 8)
            && let Ok(page) = self.bed.shard.readdir(session, parent, 0, 100, true)
        {
            for entry in page.entries {
                let Some(view) = entry.attributes else { continue };
                let until = self.until(view.name_lease_ms);
                if view.name_lease_ms > 0 {
                    self.cache(session).names.insert((parent, entry.name), (Some(entry.inode), until));
                }
                self.learn(session, view.attr, view.lease_ms);
            }
        }
    }

    fn inode(&mut self) -> InodeId {
        *self.inodes.choose(&mut self.dice).expect("root at least")
    }

    fn name(&mut self) -> Name {
        name(["a", "b", "c", "d"].choose(&mut self.dice).expect("four"))
    }

    /// One change, tried until it is not in anybody's way. What the session changes itself it forgets by itself.
    fn change(&mut self, session: SessionId) {
        let what = self.dice.random_range(0..13);
        let (parent, other, inode) = (self.inode(), self.inode(), self.inode());
        let (session, inode) = if what == 12 { self.drafts.pop() } else { None }.unwrap_or((session, inode));
        let (from, to) = (self.name(), self.name());
        let (mode, size) = (self.dice.random_range(0..0o1000), self.dice.random_range(0..10_000));
        let exactly = self.bed.next(session);
        loop {
            let shard = &mut self.bed.shard;
            let make = |kind| Create {
                parent,
                name: &from,
                kind,
                mode: 0o644,
                rdev: 0,
                cred: CRED,
                open: mode % 2 == 0,
                write_intent: mode % 2 == 0,
                exclusive: mode % 2 == 0,
                draft: true,
            };
            let done: Result<Outcome> = match what {
                0 => shard.create(exactly, &make(FileType::Regular)).map(Outcome::from),
                1 => shard.mkdir(exactly, parent, &from, 0o755, CRED).map(Outcome::from),
                2 => shard.symlink(exactly, parent, &from, b"target", CRED).map(Outcome::from),
                3 => {
                    shard.link(exactly, inode, parent, &from).map(|view| Outcome { made: None, ..Outcome::from(view) })
                }
                4 => shard.unlink(exactly, parent, &from).map(Outcome::from),
                5 => shard.rmdir(exactly, parent, &from).map(Outcome::from),
                6 => {
                    let flags = mode % 3;
                    let (source_name, target_name) = (&from, &to);
                    let rename = Rename {
                        source_parent: parent,
                        source_name,
                        target_parent: other,
                        target_name,
                        flags,
                        cred: CRED,
                    };
                    shard.rename(exactly, &rename).map(Outcome::from)
                }
                7 => shard
                    .set(exactly, inode, &SetAttr { mode: Some(mode), ..SetAttr::default() }, false)
                    .map(|_| Outcome::default()),
                8 => shard.write_intent(exactly, inode, false).map(|_| Outcome::default()),
                9 => {
                    let write = WriteInline { inode, offset: size % 100, append: mode % 2 == 0, bytes: b"some" };
                    shard.write_inline(exactly, &write).map(|_| Outcome::default())
                }
                10 => shard
                    .set(exactly, inode, &SetAttr { size: Some(size % 100), ..SetAttr::default() }, true)
                    .map(|_| Outcome::default()),
                _ => {
                    let settle = Settle {
                        inode,
                        size,
                        blocks: 8,
                        mtime: None,
                        gathered: None,
                        release: true,
                        close: false,
                        untouched: false,
                        read: None,
                    };
                    let contents = Some(vec![7; size as usize % 100]);
                    let (uid, gid, atime, mtime, ctime) = (1, 2, Timestamp(3), Timestamp(4), Timestamp(5));
                    let drafted = Drafted { contents, mode, uid, gid, atime, mtime, ctime };
                    let published = shard.settle(exactly, &settle, Some(drafted).filter(|_| what == 12));
                    self.published += u64::from(what == 12 && published.is_ok());
                    published.map(|_| Outcome::default())
                }
            };
            match done {
                Err(Error::Recalling) => self.wait(session),
                Err(Error::Growing) => {
                    self.bed.turn();
                    for inode in self.bed.shard.take_growing() {
                        self.bed.shard.end_growth(inode, Grown::Done).expect("ends");
                    }
                }
                Ok(outcome) => {
                    // Its own kernel knows what it did itself.
                    let flags = if what == 6 { Some(mode % 3) } else { None };
                    let (from, to) = ((parent, from), (other, to));
                    self.forget(session, &from, &to, flags);
                    if what < 7 {
                        self.learn_outcome(session, [&from, if what == 6 { &to } else { &from }], outcome);
                    }
                    break;
                }
                Err(_) => break,
            }
        }
    }

    /// What a kernel forgets after a change of its own: all of it, but in a rename (with flags), what it had of the name
    /// that was moved it then has of the other, with its term.
    fn forget(&mut self, session: SessionId, from: &Place, to: &Place, rename: Option<u32>) {
        let Cache { names, inodes, .. } = self.cache(session);
        inodes.clear();
        let (moved, other) = (names.remove(from), names.remove(to));
        let Some(flags) = rename else { return };
        names.extend(moved.map(|moved| (to.clone(), moved)));
        names.extend(other.filter(|_| flags == RENAME_EXCHANGE).map(|other| (from.clone(), other)));
    }

    /// Somebody is in the way: it gives back, or says nothing until its term is over.
    fn wait(&mut self, changer: SessionId) {
        let mut alerted = Vec::new();
        while let Some(session) = self.bed.shard.next_alert() {
            assert_ne!(session, changer, "nobody is in its own way");
            alerted.push(session);
        }
        if self.dice.random_ratio(1, 10) {
            self.expiries += 1;
            self.bed.wait_ms(TERM_MS);
            return;
        }
        self.give_back();
    }

    fn give_back(&mut self) {
        for session in [A, B] {
            let recalls = self.bed.shard.recalls(session);
            self.recalls += recalls.len() as u64;
            for recall in &recalls {
                match &recall.name {
                    Some(name) => drop(self.cache(session).names.remove(&(recall.inode, name.clone()))),
                    None => {
                        self.cache(session).inodes.remove(&recall.inode);
                        self.cache(session).whole.remove(&recall.inode);
                    }
                }
            }
            let ids: Vec<_> = recalls.iter().map(|recall| recall.id).collect();
            self.bed.shard.acknowledge_recalls(session, &ids);
        }
    }

    fn check(&mut self) {
        let now = self.bed.mono_ms;
        let mut waits = false;
        for (session, cache) in &self.caches {
            for ((parent, name), (believed, until)) in &cache.names {
                if *until <= now {
                    continue;
                }
                let shard = &mut self.bed.shard;
                let looked = match shard.lookup(WITNESS, *parent, name) {
                    // Of what one session alone writes, others are told only when it has given its lease back.
                    Err(Error::Recalling) => {
                        waits = true;
                        shard.lookup(A, *parent, name).or_else(|_| shard.lookup(B, *parent, name))
                    }
                    told => told,
                };
                let truth = looked.ok().and_then(|looked| looked.found().ok()).map(|view| view.attr.inode);
                assert_eq!(truth, *believed, "{session:?} believes in {parent} {name}");
            }
            for (inode, (believed, until)) in &cache.inodes {
                if *until <= now {
                    continue;
                }
                let shard = &mut self.bed.shard;
                let truth = match shard.getattr(WITNESS, *inode) {
                    Err(Error::Recalling) => {
                        waits = true;
                        shard.getattr(A, *inode).or_else(|_| shard.getattr(B, *inode))
                    }
                    told => told,
                };
                let truth = truth.ok().map(|view| view.attr);
                assert_eq!(truth, Some(*believed), "{session:?} believes in {inode}");
            }
            for (directory, (names, until)) in &cache.whole {
                if *until <= now {
                    continue;
                }
                self.whole += 1;
                let page = self.bed.shard.readdir(WITNESS, *directory, 0, 100, false).map(|page| page.entries);
                for entry in page.unwrap_or_default() {
                    assert!(names.contains(&entry.name), "{session:?} holds {directory} {} for absent", entry.name);
                }
            }
        }
        if waits {
            while self.bed.shard.next_alert().is_some() {}
            self.give_back();
        }
    }
}

#[test]
fn what_a_session_may_believe_is_true() {
    let (mut recalls, mut expiries, mut whole, mut published) = (0, 0, 0, 0);
    for seed in 0..20 {
        let mut world = World::new(seed);
        for _ in 0..2_000 {
            let session = if world.dice.random() { A } else { B };
            if world.dice.random_ratio(1, 3) {
                world.change(session);
            } else {
                world.look(session);
            }
            world.check();
            if world.dice.random_ratio(1, 5) {
                world.bed.turn();
                let pause = world.dice.random_range(0..400);
                world.bed.wait_ms(pause);
                // They live: no session ends here.
                for session in [A, B, WITNESS] {
                    assert!(world.bed.shard.touch(session));
                }
            }
        }
        recalls += world.recalls;
        expiries += world.expiries;
        whole += world.whole;
        published += world.published;
    }
    assert!(recalls > 1_000 && expiries > 100, "{recalls} recalls, {expiries} terms waited for");
    assert!(whole > 1_000, "{whole} looks through directories known whole");
    assert!(published > 20, "{published} drafts told");
}

/// `asked` has to wait for `holder`, which gives back what it holds.
fn give_back(bed: &mut Bed, holder: SessionId, asked: impl FnOnce(&mut Bed) -> Option<Error>) {
    assert_eq!(asked(bed), Some(Error::Recalling));
    let ids: Vec<_> = bed.shard.recalls(holder).iter().map(|recall| recall.id).collect();
    assert_eq!(ids.len(), 1);
    bed.shard.acknowledge_recalls(holder, &ids);
}

#[test]
fn a_file_that_is_being_written_gives_a_lease_on_its_attributes_to_its_only_writer() {
    let mut bed = leasing();
    let file = bed.create(ROOT, "f").expect("made").attr.inode;
    assert!(bed.shard.getattr(B, file).expect("there").lease_ms > 0);
    let exactly = bed.next(A);
    assert_eq!(bed.shard.write_intent(exactly, file, false), Err(Error::Recalling));
    let recalls = bed.shard.recalls(B);
    assert_eq!((recalls.len(), recalls[0].inode, recalls[0].name.as_ref()), (1, file, None));
    bed.shard.acknowledge_recalls(B, &[recalls[0].id]);
    assert!(!bed.shard.take_ended_recalls().is_empty());
    bed.shard.write_intent(exactly, file, false).expect("nobody is in the way");
    assert!(bed.shard.getattr(A, file).expect("there").alone);
    bed.wait_ms(2_000);
    give_back(&mut bed, A, |bed| bed.shard.getattr(B, file).err());
    assert_eq!(bed.shard.getattr(B, file).expect("there").lease_ms, 0);
    let Looked::Found(view) = bed.shard.lookup(B, ROOT, &name("f")).expect("there") else { panic!("it is there") };
    assert!(view.name_lease_ms > 0 && view.lease_ms == 0);
    bed.wait_ms(2_000);
    let alone = bed.shard.getattr(A, file).expect("there");
    assert!(alone.lease_ms > 0 && alone.alone);
    // What it has kept back it writes before others look, or read without asking again.
    let page = bed.shard.readdir(B, ROOT, 0, 10, true).expect("listed");
    assert!(page.entries.iter().any(|entry| entry.inode == file && entry.attributes.is_none()));
    give_back(&mut bed, A, |bed| bed.shard.lookup(B, ROOT, &name("f")).err());
    bed.wait_ms(2_000);
    assert!(bed.shard.getattr(A, file).expect("there").alone);
    give_back(&mut bed, A, |bed| bed.shard.open_inode(B, file, false).err());
    bed.shard.open_inode(B, file, false).expect("nobody is in the way");
    bed.wait_ms(2_000);
    let watched = bed.shard.getattr(A, file).expect("there");
    assert!(watched.lease_ms > 0 && watched.exclusive && !watched.alone, "B has it open");
    let exactly = bed.next(B);
    give_back(&mut bed, A, |bed| bed.shard.write_intent(exactly, file, false).err());
    bed.shard.write_intent(exactly, file, false).expect("nobody is in the way");
    bed.wait_ms(2_000);
    for session in [A, B] {
        assert_eq!(bed.shard.getattr(session, file).expect("there").lease_ms, 0, "two writers");
    }
}

#[test]
fn a_session_that_moves_a_name_keeps_what_it_believes_of_it() {
    for flags in [0, RENAME_EXCHANGE] {
        let mut bed = leasing();
        bed.shard.listen(A, false);
        bed.create(ROOT, "f").expect("made");
        bed.create(ROOT, "g").expect("made");
        bed.shard.listen(A, true);
        let Looked::Found(view) = bed.shard.lookup(A, ROOT, &name("f")).expect("there") else { panic!("it is there") };
        assert!(view.name_lease_ms > 0);
        let (exactly, source_name, target_name) = (bed.next(A), &name("f"), &name("g"));
        let rename = Rename { source_parent: ROOT, source_name, target_parent: ROOT, target_name, flags, cred: CRED };
        bed.shard.rename(exactly, &rename).expect("moved");
        let exactly = bed.next(B);
        assert_eq!(bed.shard.unlink(exactly, ROOT, &name("g")), Err(Error::Recalling));
        let recalls = bed.shard.recalls(A);
        assert!(recalls.iter().any(|recall| recall.inode == ROOT && recall.name.as_ref() == Some(target_name)));
        let ids: Vec<_> = recalls.iter().map(|recall| recall.id).collect();
        bed.shard.acknowledge_recalls(A, &ids);
        bed.shard.unlink(exactly, ROOT, &name("g")).expect("nobody is in the way");
    }
}

#[test]
fn after_a_restart_earlier_leases_are_still_honoured() {
    let mut bed = leasing();
    let file = bed.create(ROOT, "f").expect("made").attr.inode;
    assert!(bed.shard.getattr(B, file).expect("there").lease_ms > 0);
    bed.turn();
    bed.restart();
    bed.shard.session_open(A, b"a").expect("back");
    let exactly = bed.next(A);
    let chmod = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    assert_eq!(bed.shard.set(exactly, file, &chmod, false), Err(Error::Recalling), "B may believe in the old mode");
    bed.wait_ms(TERM_MS);
    assert!(bed.shard.set(exactly, file, &chmod, false).is_ok());
}

#[test]
fn a_shorter_term_does_not_shorten_what_was_told_before() {
    let mut bed = leasing();
    let file = bed.create(ROOT, "f").expect("made").attr.inode;
    assert!(bed.shard.getattr(B, file).expect("there").lease_ms > 0);
    bed.turn();
    let waits = |bed: &mut Bed, mode| {
        bed.shard.session_open(A, b"a").expect("back");
        let exactly = bed.next(A);
        let chmod = SetAttr { mode: Some(mode), ..SetAttr::default() };
        let result = bed.shard.set(exactly, file, &chmod, false);
        bed.turn();
        result.map(drop) == Err(Error::Recalling)
    };
    for term_ms in [1000, 0] {
        // The second start follows at once, and is told of the lease by the store alone.
        bed.config.lease_term_ms = term_ms;
        bed.restart();
        bed.wait_ms(TERM_MS - 10);
        assert!(waits(&mut bed, 0o600), "{term_ms}: B may believe in the old mode");
    }
    bed.wait_ms(TERM_MS);
    assert!(!waits(&mut bed, 0o600));
    // When all is over that was told before, the next start knows only of the present term.
    bed.wait_ms(EXPIRY_MS);
    bed.shard.touch(B);
    bed.tick();
    bed.turn();
    bed.restart();
    assert!(!waits(&mut bed, 0o640));
}

#[test]
fn what_was_recalled_before_a_restart_is_not_taken_for_another_recall() {
    let mut bed = leasing();
    let (file, other) =
        (bed.create(ROOT, "f").expect("made").attr.inode, bed.create(ROOT, "g").expect("made").attr.inode);
    let chmod = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    assert!(bed.shard.getattr(B, file).expect("there").lease_ms > 0);
    let exactly = bed.next(A);
    assert_eq!(bed.shard.set(exactly, file, &chmod, false), Err(Error::Recalling));
    let recalls = bed.shard.recalls(B);
    bed.turn();
    bed.restart();
    bed.shard.session_open(A, b"a").expect("back");
    let exactly = bed.next(A);
    assert_eq!(bed.shard.set(exactly, other, &chmod, false), Err(Error::Recalling), "B may believe in the old mode");
    // It does not know of the restart yet.
    bed.shard.acknowledge_recalls(B, &[recalls[0].id]);
    assert_eq!(bed.shard.set(exactly, other, &chmod, false), Err(Error::Recalling), "B has not heard of this");
}

/// A kernel that is told to forget a name detaches what is mounted below it.
#[test]
fn nobody_is_told_to_forget_a_directory_that_cannot_be_removed() {
    let mut bed = leasing();
    let directory = bed.mkdir(ROOT, "d").expect("made").attr.inode;
    bed.create(directory, "f").expect("made");
    assert!(bed.shard.getattr(B, directory).expect("there").lease_ms > 0);
    let exactly = bed.next(A);
    assert_eq!(bed.shard.rmdir(exactly, ROOT, &name("d")).map(drop), Err(Error::Refused(Errno::ENOTEMPTY)));
    assert!(bed.shard.recalls(B).is_empty());
    let exactly = bed.next(A);
    assert_eq!(bed.shard.unlink(exactly, directory, &name("f")).map(drop), Err(Error::Recalling), "B knows it");
}

/// After a restart, with `sessions` back, which have nothing open.
fn restart_with(bed: &mut Bed, sessions: &[SessionId]) {
    bed.restart();
    for &session in sessions {
        bed.shard.session_tell(session, b"", &Telling::whole(&[], &[])).expect("told");
        bed.shard.listen(session, true);
    }
    // No lease from before is presumed any more.
    bed.wait_ms(TERM_MS);
}

#[test]
fn a_create_that_is_repeated_takes_back_what_others_got_after_a_restart() {
    let mut bed = leasing();
    let (exactly, f) = (bed.next(A), name("f"));
    let create = creation(&f);
    let file = bed.shard.create(exactly, &create).expect("made").attr.inode;
    bed.turn();
    restart_with(&mut bed, &[A, B, WITNESS]);
    assert!(bed.tick().grace_ended);
    bed.write_intent(B, file).expect("given");
    assert!(bed.shard.getattr(B, file).expect("there").alone, "it keeps back what it writes");
    give_back(&mut bed, B, |bed| bed.shard.create(exactly, &create).err());
    assert_eq!(bed.shard.create(exactly, &create).expect("repeated").attr.inode, file);
    assert!(!bed.shard.getattr(B, file).expect("there").alone);
}

#[test]
fn who_tells_that_it_writes_takes_back_what_others_believe_since_a_restart() {
    let mut bed = leasing();
    let file = bed.create(ROOT, "f").expect("made").attr.inode;
    bed.turn();
    bed.kv.syncer().sync().expect("synced");
    bed.write_intent(A, file).expect("given");
    bed.turn();
    bed.kv.crash();
    restart_with(&mut bed, &[B, WITNESS]);
    assert!(bed.shard.getattr(B, file).expect("there").lease_ms > 0, "nobody seems to write it");
    bed.shard.session_tell(A, b"", &Telling::whole(&[held(file, true)], &[])).expect("told");
    let recalls = bed.shard.recalls(B);
    assert!(recalls.iter().any(|recall| recall.inode == file), "{recalls:?}");
    assert_eq!(bed.shard.renew(B, &[file]), Ok(vec![0]));
}
