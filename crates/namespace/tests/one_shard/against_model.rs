//! Random operations on a shard and on the reference model: the same results, the same trees; while the shard's process
//! is killed, its commits fail, and its requests are repeated.
//!
//! `WEFT_NAMESPACE_STEPS=5000000 cargo test --release -p namespace --test one_shard against_model` for a long run.

use std::collections::{BTreeMap, BTreeSet};

use kv::KvError;
use model::{Limits, Model, New};
use namespace::view::{
    Create, Exactly, InodeView, Looked, PolicyChange, RENAME_WHITEOUT, Rename, Telling, WriteInline,
};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use types::attr::{Attr, FileType, SetAttr, SetTime};
use types::cred::{Conditions, Credentials};
use types::error::Errno;
use types::flags::FileFlags;
use types::id::{InodeId, SessionId};
use types::layout::INLINE_MAX;
use types::name::Name;
use types::time::Timestamp;

use crate::common::{Bed, CRED, EXPIRY_MS, ROOT, held};

const SESSIONS: std::ops::RangeInclusive<u64> = 1..=3;
const STEPS: u64 = 30_000;
/// Few names and few inodes, so that operations meet.
const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "ff", "a-name-longer-than-two-words"];
const INODES_MAX: usize = 40;

/// An operation in the model's ids.
#[derive(Clone, Debug)]
enum Op {
    Create {
        parent: InodeId,
        name: Name,
        kind: FileType,
        mode: u32,
        open: bool,
    },
    Mkdir {
        parent: InodeId,
        name: Name,
        mode: u32,
    },
    Symlink {
        parent: InodeId,
        name: Name,
        target: Vec<u8>,
    },
    Link {
        inode: InodeId,
        parent: InodeId,
        name: Name,
    },
    Unlink {
        parent: InodeId,
        name: Name,
    },
    Rmdir {
        parent: InodeId,
        name: Name,
    },
    Rename {
        from: (InodeId, Name),
        to: (InodeId, Name),
        flags: u32,
    },
    Set {
        inode: InodeId,
        change: SetAttr,
    },
    /// Where contents are in the metadata.
    Write {
        inode: InodeId,
        offset: u64,
        bytes: Vec<u8>,
        append: bool,
    },
    SetXattr {
        inode: InodeId,
        name: Vec<u8>,
        value: Vec<u8>,
        flags: u32,
    },
    RemoveXattr {
        inode: InodeId,
        name: Vec<u8>,
    },
    Open {
        inode: InodeId,
    },
    Close {
        inode: InodeId,
    },
    Lookup {
        parent: InodeId,
        name: Name,
    },
}

/// What is compared of an operation's result.
type Outcome = Result<Option<Attr>, Errno>;

#[derive(Clone, Debug)]
struct Request {
    session: SessionId,
    sequence: u64,
    op: Op,
    expected: Outcome,
}

struct World {
    rng: StdRng,
    inline: bool,
    model: Model,
    bed: Bed,
    /// Every inode that the model ever made, and the shard's id of it.
    ids: BTreeMap<InodeId, InodeId>,
    known: Vec<InodeId>,
    opens: BTreeSet<(SessionId, InodeId)>,
    opens_committed: BTreeSet<(SessionId, InodeId)>,
    sequences: [u64; 4],
    answered: [u64; 4],
    grace: bool,
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how long a test runs is the caller's choice")]
fn random_operations_agree_with_the_model() {
    let steps = std::env::var("WEFT_NAMESPACE_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(STEPS);
    let mut done = 0;
    let mut seed = 1;
    while done < steps {
        let mut world = World::new(seed);
        for _ in 0..300 {
            done += world.turn();
        }
        world.compare_trees();
        world.cut_power();
        seed += 1;
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut bed = Bed::new();
        bed.shard.session_open(SessionId(3), b"").expect("opens");
        // Half of the worlds have all contents in the metadata, the others none.
        let inline = seed % 2 == 1;
        let limit = PolicyChange { inline_limit: Some(if inline { INLINE_MAX } else { 0 }), ..PolicyChange::default() };
        let administrator = SessionId(7);
        bed.shard.session_open(administrator, b"").expect("opens");
        bed.shard.begin_turn(Timestamp(1), bed.mono_ms);
        let exactly = bed.next(administrator);
        bed.shard.set_policy(exactly, ROOT, &limit).expect("set");
        bed.shard.session_close(administrator).expect("closes");
        bed.turn();
        let model = Model::new(Limits::default(), Credentials::default(), Timestamp(1));
        Self {
            rng: StdRng::seed_from_u64(seed),
            inline,
            model,
            bed,
            ids: BTreeMap::from([(ROOT, ROOT)]),
            known: vec![ROOT],
            opens: BTreeSet::new(),
            opens_committed: BTreeSet::new(),
            sequences: [0; 4],
            answered: [0; 4],
            grace: false,
        }
    }

    /// One turn of the shard, whatever happens to it. Returns the number of operations.
    fn turn(&mut self) -> u64 {
        self.bed.now += 1;
        self.bed.mono_ms += 1;
        self.bed.shard.begin_turn(Timestamp(self.bed.now), self.bed.mono_ms);
        let size = self.rng.random_range(1..20);
        let requests: Vec<_> = (0..size).map(|_| self.request()).collect();
        let fate = self.rng.random_range(0..20);
        match fate {
            0 => {
                self.run(&requests);
                self.bed.kv.fail_commit(1, KvError::Io("test".into()));
                // A turn without changes commits nothing, so it cannot fail.
                if self.bed.shard.commit().is_err() {
                    self.run(&requests);
                }
                self.bed.kv.heal();
            }
            1 => {
                self.run(&requests);
                self.restart();
                self.run(&requests);
            }
            _ => self.run(&requests),
        }
        self.bed.shard.commit().expect("commits");
        self.opens_committed = self.opens.clone();
        if fate == 2 {
            self.restart();
        }
        if fate <= 3 {
            // The answers were lost: all is asked again.
            self.repeat(&requests);
            self.bed.shard.commit().expect("commits");
        }
        self.answered = self.sequences;
        if self.grace && self.rng.random_bool(0.3) {
            self.end_grace();
        }
        self.bed.check();
        if self.rng.random_bool(0.05) {
            self.compare_trees();
        }
        size
    }

    /// Draws an operation and lets the model do it.
    fn request(&mut self) -> Request {
        let session = SessionId(self.rng.random_range(SESSIONS));
        let op = self.draw(session);
        let expected = self.model_does(session, &op);
        self.sequences[session.0 as usize] += 1;
        Request { session, sequence: self.sequences[session.0 as usize], op, expected }
    }

    fn draw(&mut self, session: SessionId) -> Op {
        let (inline, crowded) = (self.inline, self.model.usage().inodes as usize > INODES_MAX);
        let rng = &mut self.rng;
        // Recent inodes, so that most are there.
        let recent = &self.known[self.known.len().saturating_sub(2 * INODES_MAX)..];
        let mut inode = || if rng.random_bool(0.2) { ROOT } else { *recent.choose(rng).expect("root") };
        let (one, other) = (inode(), inode());
        let mut name = || Name::new(NAMES.choose(rng).expect("some").as_bytes()).expect("valid");
        let (name, other_name) = (name(), name());
        let mode = rng.random_range(0..0o10000);
        let parent = one;
        match rng.random_range(if crowded { 8 } else { 0 }..if inline { 36 } else { 32 }) {
            0..3 => {
                let kinds = [FileType::Regular, FileType::Regular, FileType::Fifo, FileType::BlockDevice];
                let kind = *kinds.choose(rng).expect("some");
                Op::Create { parent, name, kind, mode, open: rng.random_bool(0.3) }
            }
            3..6 => Op::Mkdir { parent, name, mode },
            6 => Op::Symlink { parent, name, target: vec![b'x'; rng.random_range(1..4096)] },
            7 => Op::Link { inode: other, parent, name },
            8..12 => Op::Unlink { parent, name },
            12..15 => Op::Rmdir { parent, name },
            15..20 => Op::Rename {
                from: (one, name),
                to: (other, other_name),
                flags: *[0, 0, 1, 2, 2, 3, 4, 4, 5, 6].choose(rng).expect("some"),
            },
            20..22 => Op::Set { inode: one, change: draw_change(rng, self.model.getattr(one).ok()) },
            22 => {
                let flagged: Vec<_> = recent.iter().filter(|inode| is_flagged(&self.model, **inode)).copied().collect();
                let clears = flagged.choose(rng).filter(|_| rng.random_bool(0.6));
                let flags = FileFlags::from_bits(rng.random_range(0..16) * 0x10).filter(|_| clears.is_none());
                let change = SetAttr { flags: flags.or(Some(FileFlags::NONE)), ..SetAttr::default() };
                Op::Set { inode: clears.copied().unwrap_or(one), change }
            }
            23 => {
                let name = format!("user.{name}").into_bytes();
                let value = vec![1; rng.random_range(0..100)];
                Op::SetXattr { inode: one, name, value, flags: rng.random_range(0..3) }
            }
            24 => Op::RemoveXattr { inode: one, name: format!("user.{name}").into_bytes() },
            25..28 => Op::Open { inode: one },
            28..30 => match self.opens.iter().filter(|open| open.0 == session).collect::<Vec<_>>().choose(rng) {
                Some(&&(_, inode)) => Op::Close { inode },
                None => Op::Open { inode: one },
            },
            32.. => {
                let (offset, length) = (rng.random_range(0..3000), rng.random_range(1..500));
                let bytes = vec![rng.random(); length];
                Op::Write { inode: one, offset, bytes, append: rng.random_bool(0.3) }
            }
            _ => Op::Lookup { parent, name },
        }
    }

    fn model_does(&mut self, session: SessionId, op: &Op) -> Outcome {
        let now = Timestamp(self.bed.now);
        let model = &mut self.model;
        let made = |model: &mut Model, parent, name: &Name, new: New<'_>| model.create(parent, name, &new, CRED, now);
        let outcome = match op {
            Op::Create { parent, name, kind, mode, open } => {
                let made = made(model, *parent, name, New::Node { kind: *kind, mode: *mode, rdev: 9 });
                if *open && let Ok(attr) = made {
                    model.open(attr.inode)?;
                    self.opens.insert((session, attr.inode));
                }
                made.map(Some)
            }
            Op::Mkdir { parent, name, mode } => made(model, *parent, name, New::Directory { mode: *mode }).map(Some),
            Op::Symlink { parent, name, target } => made(model, *parent, name, New::Symlink { target }).map(Some),
            Op::Link { inode, parent, name } => model.link(*inode, *parent, name, now).map(Some),
            Op::Unlink { parent, name } => model.unlink(*parent, name, now).map(|()| None),
            Op::Rmdir { parent, name } => model.rmdir(*parent, name, now).map(|()| None),
            Op::Rename { from, to, flags } => {
                let renamed = model.rename((from.0, &from.1), (to.0, &to.1), *flags, CRED, now);
                match is_whiteout(op) {
                    true => renamed.and_then(|()| model.lookup(from.0, &from.1)).map(Some),
                    false => renamed.map(|()| None),
                }
            }
            Op::Set { inode, change } => model.setattr(*inode, change, now).map(Some),
            Op::Write { inode, offset, bytes, append } => model.getattr(*inode).and_then(|attr| {
                let offset = if *append { attr.size } else { *offset };
                model.read(*inode, 0, 0)?;
                model.may_be_written(*inode, *append)?;
                model.write(*inode, offset, bytes, false, now)?;
                model.getattr(*inode).map(Some)
            }),
            Op::SetXattr { inode, name, value, flags } => match model.getattr(*inode).map(|attr| attr.kind) {
                Ok(FileType::Regular | FileType::Directory) | Err(_) => {
                    model.setxattr(*inode, name, value, *flags, now).map(|()| None)
                }
                Ok(_) => Err(Errno::EPERM),
            },
            Op::RemoveXattr { inode, name } => match model.getattr(*inode).map(|attr| attr.kind) {
                Ok(FileType::Regular | FileType::Directory) | Err(_) => {
                    model.removexattr(*inode, name, now).map(|()| None)
                }
                Ok(_) => Err(Errno::EPERM),
            },
            Op::Open { inode } => {
                if self.opens.contains(&(session, *inode)) {
                    model.getattr(*inode).map(Some)
                } else {
                    let opened = model.open(*inode);
                    if opened.is_ok() {
                        self.opens.insert((session, *inode));
                    }
                    opened.map(Some)
                }
            }
            Op::Close { inode } => {
                self.opens.remove(&(session, *inode));
                model.close(*inode).map(|()| None)
            }
            Op::Lookup { parent, name } => model.lookup(*parent, name).map(Some),
        };
        if let Ok(Some(attr)) = &outcome
            && makes(op)
        {
            self.known.push(attr.inode);
        }
        outcome
    }

    fn run(&mut self, requests: &[Request]) {
        for request in requests {
            let outcome = self.shard_does(request);
            self.compare(request, &outcome);
            if self.rng.random_bool(0.1) && outcome.is_ok() && request.expected.is_ok() {
                let again = self.shard_does(request);
                self.compare_repeated(request, &again);
            }
        }
    }

    /// Repeats what succeeded: it says the same again, of the inodes that are still there.
    fn repeat(&mut self, requests: &[Request]) {
        for request in requests {
            // What is found at the source's name may be something else by now.
            let harmless = matches!(request.op, Op::Lookup { .. } | Op::Open { .. } | Op::Close { .. })
                || is_whiteout(&request.op);
            if request.expected.is_ok() && !harmless && !opened_and_closed(requests, &request.op) {
                let again = self.shard_does(request);
                self.compare_repeated(request, &again);
            }
        }
    }

    fn shard_does(&mut self, request: &Request) -> Result<Option<InodeView>, Errno> {
        let Request { session, sequence, op, .. } = request;
        let exactly = Exactly {
            session: *session,
            sequence: *sequence,
            answered_below: self.answered[session.0 as usize] + 1,
            given: Conditions::default(),
        };
        let exactly = Exactly { answered_below: exactly.answered_below.min(*sequence), ..exactly };
        let id = |inode: &InodeId| self.ids.get(inode).copied().unwrap_or(InodeId(0xdead));
        let shard = &mut self.bed.shard;
        let result = match op {
            Op::Create { parent, name, kind, mode, open } => {
                let (parent, kind, mode, open) = (id(parent), *kind, *mode, *open);
                shard
                    .create(
                        exactly,
                        &Create {
                            parent,
                            name,
                            kind,
                            mode,
                            rdev: 9,
                            cred: CRED,
                            open,
                            write_intent: false,
                            exclusive: true,
                            draft: false,
                        },
                    )
                    .map(Some)
            }
            Op::Mkdir { parent, name, mode } => shard.mkdir(exactly, id(parent), name, *mode, CRED).map(Some),
            Op::Symlink { parent, name, target } => shard.symlink(exactly, id(parent), name, target, CRED).map(Some),
            Op::Link { inode, parent, name } => shard.link(exactly, id(inode), id(parent), name).map(Some),
            Op::Unlink { parent, name } => shard.unlink(exactly, id(parent), name).map(|_| None),
            Op::Rmdir { parent, name } => shard.rmdir(exactly, id(parent), name).map(|_| None),
            Op::Rename { from, to, flags } => {
                let (source_parent, target_parent) = (id(&from.0), id(&to.0));
                let (source_name, target_name) = (&from.1, &to.1);
                let rename =
                    Rename { source_parent, source_name, target_parent, target_name, flags: *flags, cred: CRED };
                let renamed = shard.rename(exactly, &rename);
                match is_whiteout(op) {
                    true => renamed.and_then(|_| shard.lookup(*session, source_parent, source_name)?.found()).map(Some),
                    false => renamed.map(|_| None),
                }
            }
            Op::Set { inode, change } => shard.set(exactly, id(inode), change, false).map(Some),
            Op::Write { inode, offset, bytes, append } => {
                let write = WriteInline { inode: id(inode), offset: *offset, append: *append, bytes };
                shard.write_inline(exactly, &write).map(|(view, _)| Some(view))
            }
            Op::SetXattr { inode, name, value, flags } => {
                shard.set_xattr(exactly, id(inode), name, value, *flags).map(|_| None)
            }
            Op::RemoveXattr { inode, name } => shard.remove_xattr(exactly, id(inode), name).map(|()| None),
            Op::Open { inode } => shard.open_inode(*session, id(inode), false).map(Some),
            Op::Close { inode } => shard.close_inode(*session, id(inode), None).map(|()| None),
            Op::Lookup { parent, name } => shard.lookup(*session, id(parent), name).and_then(Looked::found).map(Some),
        };
        result.map_err(|error| error.errno())
    }

    fn compare(&mut self, request: &Request, outcome: &Result<Option<InodeView>, Errno>) {
        match (&request.expected, outcome) {
            (Ok(Some(expected)), Ok(Some(view))) => {
                if makes(&request.op) {
                    self.ids.insert(expected.inode, view.attr.inode);
                }
                assert_eq!(self.comparable(expected), view.attr, "{request:?}");
            }
            (Ok(None), Ok(None)) => {}
            // The model calls a directory that is gone stale, the shard says that nothing is there.
            (Err(Errno::ESTALE), Err(Errno::ENOENT | Errno::ESTALE)) => {}
            // In the grace it is still there, but not what the operation needs.
            (Err(Errno::ESTALE), Err(_)) if self.grace => {}
            (Err(expected), Err(errno)) => assert_eq!(expected, errno, "{request:?}"),
            _ if self.grace && self.kept_by_grace(&request.op) => {
                if let (Op::Open { inode }, Ok(_)) = (&request.op, outcome) {
                    // Or the session would keep what the model has forgotten.
                    self.bed.shard.close_inode(request.session, self.ids[inode], None).expect("closes");
                }
            }
            _ => panic!("{request:?} came to {outcome:?}"),
        }
    }

    /// In the grace an unlinked inode is kept, so what names it by its number still finds it.
    fn kept_by_grace(&self, op: &Op) -> bool {
        let gone = |inode: &InodeId| self.model.getattr(*inode).is_err();
        match op {
            Op::Set { inode, .. }
            | Op::Write { inode, .. }
            | Op::SetXattr { inode, .. }
            | Op::RemoveXattr { inode, .. }
            | Op::Open { inode }
            | Op::Close { inode } => gone(inode),
            _ => false,
        }
    }

    fn compare_repeated(&self, request: &Request, outcome: &Result<Option<InodeView>, Errno>) {
        match (&request.expected, outcome) {
            (Ok(Some(expected)), Ok(Some(view))) => {
                assert_eq!(self.ids[&expected.inode], view.attr.inode, "{request:?}");
            }
            (Ok(None), Ok(None)) => {}
            (Ok(Some(expected)), Err(Errno::ESTALE)) if self.model.getattr(expected.inode).is_err() => {}
            // Reads and closes say what is now.
            _ if matches!(request.op, Op::Lookup { .. } | Op::Open { .. } | Op::Close { .. }) => {}
            _ => panic!("{request:?} again came to {outcome:?}"),
        }
    }

    /// The model's attributes as the shard says them.
    fn comparable(&self, expected: &Attr) -> Attr {
        let size = if expected.kind == FileType::Directory { 0 } else { expected.size };
        let is_inline = self.inline && expected.kind == FileType::Regular;
        let blocks = if is_inline { size.div_ceil(512) } else { 0 };
        Attr { inode: self.ids[&expected.inode], size, blocks, ..*expected }
    }

    fn restart(&mut self) {
        let now = self.bed.now;
        self.bed.restart();
        self.bed.now = now;
        self.bed.shard.begin_turn(Timestamp(now), self.bed.mono_ms);
        for session in SESSIONS.map(SessionId) {
            let opens = self.opens_committed.iter().filter(|open| open.0 == session);
            let opens: Vec<_> = opens.map(|open| held(self.ids[&open.1], false)).collect();
            self.bed.shard.session_tell(session, b"", &Telling::whole(&opens, &[])).expect("opens");
        }
        self.grace = true;
    }

    /// Some of the last commits never reached the disk: what is left is whole, only older.
    fn cut_power(&mut self) {
        let unsynced = self.bed.kv.unsynced();
        self.bed.kv.crash_keeping(self.rng.random_range(0..=unsynced));
        self.bed.check();
        self.bed.restart();
        self.bed.check();
    }

    fn end_grace(&mut self) {
        self.bed.wait_ms(EXPIRY_MS);
        for session in SESSIONS {
            self.bed.shard.touch(SessionId(session));
        }
        assert_eq!(self.bed.tick().expired, []);
        self.bed.shard.commit().expect("commits");
        self.grace = false;
    }

    fn compare_trees(&mut self) {
        if self.grace {
            self.end_grace();
        }
        assert_eq!(self.model.usage().inodes, self.bed.shard.inode_count());
        let mut directories = vec![ROOT];
        while let Some(directory) = directories.pop() {
            let mut listed = self.model.readdir(directory, 0, usize::MAX).expect("lists");
            listed.sort_by(|a, b| a.name.cmp(&b.name));
            let page = self.bed.shard.readdir(SessionId(1), self.ids[&directory], 0, 4096, true).expect("lists");
            let mut entries = page.entries;
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            assert_eq!(entries.len(), listed.len());
            for (entry, expected) in entries.iter().zip(&listed) {
                assert_eq!(*entry.name, *expected.name);
                let view = entry.attributes.as_ref().expect("asked for");
                assert_eq!(view.attr, self.comparable(&expected.attr));
                assert_eq!(view.flags, self.model.flags(expected.attr.inode).expect("there"));
                self.compare_parts(expected.attr.inode, expected.attr.kind);
                if entry.kind == FileType::Directory {
                    directories.push(expected.attr.inode);
                }
            }
            assert_eq!(page.parent, self.ids[&self.model.parent(directory).expect("there")]);
        }
        for (_, inode) in self.opens.clone() {
            let attr = self.bed.shard.getattr(SessionId(1), self.ids[&inode]).expect("open, so there").attr;
            assert_eq!(attr, self.comparable(&self.model.getattr(inode).expect("open, so there")));
        }
    }

    fn compare_parts(&mut self, inode: InodeId, kind: FileType) {
        let id = self.ids[&inode];
        if kind == FileType::Symlink {
            assert_eq!(self.bed.shard.readlink(id).expect("a target"), self.model.readlink(inode).expect("a target"));
        }
        if kind == FileType::Regular && self.inline {
            let (_, bytes) = self.bed.shard.read_inline(SessionId(1), id, 0, u32::MAX).expect("reads");
            assert_eq!(bytes, self.model.read(inode, 0, usize::MAX).expect("reads"));
        }
        let names = self.model.listxattr(inode).expect("lists");
        assert_eq!(self.bed.shard.list_xattr(id).expect("lists"), names);
        for name in names {
            let value = self.bed.shard.get_xattr(id, &name).expect("listed");
            assert_eq!(value, self.model.getxattr(inode, &name).expect("listed"));
        }
    }
}

/// What it answers with is new, or may be.
fn makes(op: &Op) -> bool {
    matches!(op, Op::Create { .. } | Op::Mkdir { .. } | Op::Symlink { .. }) || is_whiteout(op)
}

/// It answers with what is at its source's name after it.
fn is_whiteout(op: &Op) -> bool {
    matches!(op, Op::Rename { flags, .. } if flags & RENAME_WHITEOUT != 0)
}

/// A create that opened and whose open was closed later would be opened again by its repetition: no client does that,
/// for it closes only what it got the answer to.
fn opened_and_closed(requests: &[Request], op: &Op) -> bool {
    matches!(op, Op::Create { open: true, .. }) && requests.iter().any(|other| matches!(other.op, Op::Close { .. }))
}

fn is_flagged(model: &Model, inode: InodeId) -> bool {
    model.flags(inode).is_ok_and(|flags| flags != FileFlags::NONE)
}

fn draw_change(rng: &mut StdRng, attr: Option<Attr>) -> SetAttr {
    let kind = attr.map_or(FileType::Regular, |attr| attr.kind);
    let some = |rng: &mut StdRng| rng.random_bool(0.3);
    let time = |rng: &mut StdRng| match rng.random_range(0..4) {
        0 => Some(SetTime::Now),
        1 => Some(SetTime::At(Timestamp(rng.random_range(-1000..1000)))),
        _ => None,
    };
    SetAttr {
        mode: (some(rng) && kind != FileType::Symlink).then(|| rng.random_range(0..0o10000)),
        uid: some(rng).then(|| rng.random_range(0..3)),
        gid: some(rng).then(|| rng.random_range(0..3)),
        size: (rng.random_bool(0.2)).then(|| rng.random_range(0..5000)),
        atime: time(rng),
        mtime: time(rng),
        kill_suid_sgid: kind != FileType::Directory && some(rng),
        kill_sgid: some(rng),
        flags: None,
    }
}
