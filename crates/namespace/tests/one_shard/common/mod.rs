//! A shard over a store in memory, and a client of it.
#![allow(unreachable_pub, reason = "a module of a test")]

pub mod collisions;

use kv::KvError;
use kv::memory::MemoryKv;
use namespace::check::check;
use namespace::error::{Error, Result};
use namespace::locks::{LockAnswer, LockOwner, LockRequest, Ticket, Wait};
use namespace::shard::{Config, Limits, Shard, Ticked};
use namespace::view::{
    Create, Exactly, GroupSpace, HeldOpen, InodeView, PolicyChange, PoolSpace, Rename, Settle, Settled, SpaceClass,
    TimeChange,
};
use types::attr::{FileType, SetAttr};
use types::cred::{Conditions, Credentials};
use types::error::Errno;
use types::id::{GroupId, InodeId, PoolId, SessionId, ShardId};
use types::lock::{Held, LockKind, LockMode, LockRange};
use types::name::Name;
use types::time::Timestamp;

pub const ROOT: InodeId = InodeId::ROOT;
pub const EXPIRY_MS: u64 = 10_000;
pub const CRED: Credentials = Credentials { uid: 1000, gid: 100, umask: 0 };
pub const A: SessionId = SessionId(1);
pub const B: SessionId = SessionId(2);

/// All of a file, as clients hold its end.
pub const WHOLE: Held = Held { range: LockRange::ALL, mode: LockMode::Exclusive, pid: 0 };

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

pub fn refused<T: std::fmt::Debug>(result: Result<T>) -> Errno {
    match result {
        Err(Error::Refused(errno)) => errno,
        other => panic!("not refused: {other:?}"),
    }
}

pub fn config() -> Config {
    Config {
        shard: ShardId(0),
        seed: 7,
        session_expiry_ms: EXPIRY_MS,
        lease_term_ms: 0,
        root_owner: Credentials::default(),
        limits: Limits::default(),
    }
}

pub fn pools() -> Vec<PoolSpace> {
    let space = |id| GroupSpace { group: GroupId(id), class: SpaceClass::Normal, free_bytes: 1 << 40 };
    vec![
        PoolSpace { pool: PoolId(1), groups: (101..=106).map(space).collect() },
        PoolSpace { pool: PoolId(2), groups: (201..=201).map(space).collect() },
    ]
}

/// Where the store, the clock and the sessions' sequences are in one hand.
pub struct Bed {
    pub kv: MemoryKv,
    pub shard: Shard<MemoryKv>,
    pub config: Config,
    pub now: i64,
    pub mono_ms: u64,
    pub sequences: [u64; 8],
}

impl Bed {
    pub fn new() -> Self {
        Self::with(config())
    }

    /// One where no file has its contents in the metadata.
    pub fn in_objects() -> Self {
        let mut bed = Self::new();
        let exactly = bed.next(A);
        let change = PolicyChange { inline_limit: Some(0), ..PolicyChange::default() };
        bed.shard.set_policy(exactly, ROOT, &change).expect("set");
        bed.turn();
        bed
    }

    pub fn with(config: Config) -> Self {
        let kv = MemoryKv::new();
        let shard = Shard::open(kv.clone(), config.clone(), Timestamp(1), 0).expect("opens");
        let mut bed = Self { kv, shard, config, now: 1, mono_ms: 0, sequences: [0; 8] };
        bed.shard.set_pools(pools());
        bed.shard.session_open(A, b"a").expect("session");
        bed.shard.session_open(B, b"b").expect("session");
        bed.turn();
        bed
    }

    /// Commits, checks, and begins the next turn one tick of the clock later.
    pub fn turn(&mut self) {
        self.shard.commit().expect("commits");
        assert!(self.shard.is_clean());
        self.check();
        self.now += 1;
        self.mono_ms += 1;
        self.shard.begin_turn(Timestamp(self.now), self.mono_ms);
    }

    pub fn check(&self) {
        let problems = check(&self.kv, ShardId(0)).expect("readable");
        assert_eq!(problems, []);
    }

    /// A new process over what was committed.
    pub fn restart(&mut self) {
        self.now += 1;
        self.shard =
            Shard::open(self.kv.clone(), self.config.clone(), Timestamp(self.now), self.mono_ms).expect("opens");
        self.shard.set_pools(pools());
        self.shard.begin_turn(Timestamp(self.now), self.mono_ms);
    }

    pub fn wait_ms(&mut self, ms: u64) {
        self.mono_ms += ms;
        self.shard.begin_turn(Timestamp(self.now), self.mono_ms);
    }

    /// As [`Shard::tick`], where the storage services have fenced sessions at once.
    pub fn tick(&mut self) -> Ticked {
        let mut ticked = self.shard.tick();
        let fenced = std::mem::take(&mut ticked.to_fence);
        if !fenced.is_empty() {
            let ended = fenced.into_iter().filter(|&session| self.shard.session_fenced(session).expect("ends"));
            ticked.expired.extend(ended);
            ticked.grace_ended |= self.shard.tick().grace_ended;
        }
        ticked
    }

    pub fn next(&mut self, session: SessionId) -> Exactly {
        let sequence = &mut self.sequences[session.0 as usize];
        *sequence += 1;
        Exactly { session, sequence: *sequence, answered_below: *sequence, given: Conditions::default() }
    }

    pub fn create(&mut self, parent: InodeId, text: &str) -> Result<InodeView> {
        self.make(parent, text, FileType::Regular, false, true)
    }

    pub fn make(
        &mut self,
        parent: InodeId,
        text: &str,
        kind: FileType,
        open: bool,
        exclusive: bool,
    ) -> Result<InodeView> {
        let exactly = self.next(A);
        let name = name(text);
        self.shard.create(exactly, &Create { parent, kind, rdev: 9, open, exclusive, ..creation(&name) })
    }

    pub fn file(&mut self, parent: InodeId, text: &str) -> InodeId {
        self.create(parent, text).expect("created").attr.inode
    }

    pub fn mkdir(&mut self, parent: InodeId, text: &str) -> Result<InodeView> {
        let exactly = self.next(A);
        self.shard.mkdir(exactly, parent, &name(text), 0o755, CRED)
    }

    pub fn dir(&mut self, parent: InodeId, text: &str) -> InodeId {
        self.mkdir(parent, text).expect("made").attr.inode
    }

    pub fn symlink(&mut self, parent: InodeId, text: &str, target: &[u8]) -> Result<InodeView> {
        let exactly = self.next(A);
        self.shard.symlink(exactly, parent, &name(text), target, CRED)
    }

    pub fn link(&mut self, inode: InodeId, parent: InodeId, text: &str) -> Result<InodeView> {
        let exactly = self.next(A);
        self.shard.link(exactly, inode, parent, &name(text))
    }

    pub fn unlink(&mut self, parent: InodeId, text: &str) -> Result<()> {
        let exactly = self.next(A);
        self.shard.unlink(exactly, parent, &name(text)).map(drop)
    }

    pub fn rmdir(&mut self, parent: InodeId, text: &str) -> Result<()> {
        let exactly = self.next(A);
        self.shard.rmdir(exactly, parent, &name(text)).map(drop)
    }

    pub fn rename(&mut self, from: (InodeId, &str), to: (InodeId, &str), flags: u32) -> Result<()> {
        let exactly = self.next(A);
        let (source_name, target_name) = (name(from.1), name(to.1));
        let rename = Rename {
            source_parent: from.0,
            source_name: &source_name,
            target_parent: to.0,
            target_name: &target_name,
            flags,
            cred: CRED,
        };
        self.shard.rename(exactly, &rename).map(drop)
    }

    pub fn set(&mut self, inode: InodeId, change: SetAttr) -> Result<InodeView> {
        let exactly = self.next(A);
        self.shard.set(exactly, inode, &change, false)
    }

    pub fn stat(&mut self, inode: InodeId) -> Result<InodeView> {
        self.shard.getattr(A, inode)
    }

    pub fn lookup(&mut self, parent: InodeId, text: &str) -> Result<InodeId> {
        self.shard.lookup(A, parent, &name(text))?.found().map(|view| view.attr.inode)
    }

    pub fn set_xattr(&mut self, inode: InodeId, text: &[u8], value: &[u8], flags: u32) -> Result<()> {
        let exactly = self.next(A);
        self.shard.set_xattr(exactly, inode, text, value, flags)
    }

    pub fn remove_xattr(&mut self, inode: InodeId, text: &[u8]) -> Result<()> {
        let exactly = self.next(A);
        self.shard.remove_xattr(exactly, inode, text)
    }

    pub fn write_intent(&mut self, session: SessionId, inode: InodeId) -> Result<InodeView> {
        let exactly = self.next(session);
        self.shard.write_intent(exactly, inode, false)
    }

    pub fn ask_for_end(&mut self, session: SessionId, inode: InodeId, number: u64) -> Result<Option<LockAnswer>> {
        let owner = LockOwner { session, kind: LockKind::End, id: 0 };
        let request = LockRequest { inode, owner, wanted: WHOLE, wait: Wait::Yes };
        self.shard.lock(Ticket { session, number }, request)
    }

    pub fn settle(
        &mut self,
        session: SessionId,
        inode: InodeId,
        size: u64,
        gathered: Option<u64>,
        release: bool,
    ) -> Settled {
        let exactly = self.next(session);
        let before = self.stat(inode).map_or(Timestamp(0), |view| view.attr.mtime);
        let settle = Settle {
            inode,
            size,
            blocks: size.div_ceil(512),
            mtime: Some(TimeChange { at: Timestamp(500), before }),
            gathered,
            release,
            close: false,
            untouched: false,
            read: None,
        };
        self.shard.settle(exactly, &settle, None).expect("settles or says no")
    }

    pub fn names(&mut self, directory: InodeId) -> Vec<String> {
        let mut names = Vec::new();
        let mut cookie = 0;
        loop {
            let page = self.shard.readdir(A, directory, cookie, 3, false).expect("lists");
            names.extend(page.entries.iter().map(|entry| entry.name.to_string()));
            let Some(last) = page.entries.last() else { break };
            cookie = last.cookie;
            if page.end {
                break;
            }
        }
        names.sort();
        names
    }
}

/// An exclusive making of a regular file in the root, which is open then.
pub fn creation(name: &Name) -> Create<'_> {
    Create {
        parent: ROOT,
        name,
        kind: FileType::Regular,
        mode: 0o644,
        rdev: 0,
        cred: CRED,
        open: true,
        write_intent: false,
        exclusive: true,
        draft: false,
    }
}

pub fn held(inode: InodeId, write_intent: bool) -> HeldOpen {
    HeldOpen { inode, write_intent, draft: false }
}

/// What a store says whose disk is full.
pub fn full() -> KvError {
    KvError::NoSpace("test".into())
}
