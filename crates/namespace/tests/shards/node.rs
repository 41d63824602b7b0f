//! One shard with its store and what waits there; what it can be asked.

use std::collections::{BTreeMap, VecDeque};

use kv::Kv;
use kv::memory::MemoryKv;
use namespace::error::Result;
use namespace::schema::transaction::{deser_key, deser_round};
use namespace::shard::{Config, Limits, Shard};
use namespace::transaction::part::Part;
use namespace::transaction::{Finished, Message, Outgoing, Reply};
use namespace::view::{
    Awaited, Changed, Create, DirEntry, Exactly, GroupSpace, InodeView, Looked, PolicyChange, PoolSpace, Rename,
    SpaceClass, Telling, Walked,
};
use types::attr::{FileType, SetAttr};
use types::cred::{Conditions, Credentials};
use types::error::Errno;
use types::flags::FileFlags;
use types::id::{GroupId, InodeId, PoolId, SessionId, ShardId, TransactionId};
use types::name::Name;
use types::placement::Placement;
use types::walk::WalkNames;

pub(crate) const CRED: Credentials = Credentials { uid: 1000, gid: 100, umask: 0 };
pub(crate) const EXPIRY_MS: u64 = 60_000;

/// What a client asks for.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Create {
        parent: InodeId,
        name: Name,
    },
    Fifo {
        parent: InodeId,
        name: Name,
    },
    Mkdir {
        parent: InodeId,
        name: Name,
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
    Lookup {
        parent: InodeId,
        name: Name,
    },
    /// Names one after the other, as far as the shard has them.
    Walk {
        start: InodeId,
        names: WalkNames,
        leases: bool,
    },
    Stat {
        inode: InodeId,
    },
    /// The lease on it is to go on.
    Renew {
        inode: InodeId,
    },
    /// What comes after the cookie, two entries at a time or so.
    List {
        inode: InodeId,
        cookie: u64,
    },
    Place {
        inode: InodeId,
        placement: Placement,
    },
    Chmod {
        inode: InodeId,
        mode: u16,
    },
    Flag {
        inode: InodeId,
        flags: FileFlags,
    },
    /// A file without a name.
    TmpFile {
        parent: InodeId,
    },
    SetXattr {
        inode: InodeId,
        name: &'static [u8],
        value: Vec<u8>,
    },
    GetXattr {
        inode: InodeId,
        name: &'static [u8],
    },
    /// Holds it open, until it is closed.
    Open {
        inode: InodeId,
    },
    Close {
        inode: InodeId,
    },
    /// Into so many parts.
    Split {
        inode: InodeId,
        count: u16,
    },
}

impl Op {
    /// The directories of its names, each with the name.
    pub(crate) fn places(&self) -> Vec<(InodeId, Name)> {
        match self.clone() {
            Self::Create { parent, name }
            | Self::Fifo { parent, name }
            | Self::Mkdir { parent, name }
            | Self::Link { parent, name, .. }
            | Self::Unlink { parent, name }
            | Self::Rmdir { parent, name }
            | Self::Lookup { parent, name } => vec![(parent, name)],
            Self::Rename { from, to, .. } => vec![from, to],
            _ => Vec::new(),
        }
    }

    /// The operation with its names in other directories.
    pub(crate) fn in_places(&self, place: impl Fn(InodeId, &Name) -> InodeId) -> Self {
        let mut op = self.clone();
        match &mut op {
            Self::Create { parent, name }
            | Self::Fifo { parent, name }
            | Self::Mkdir { parent, name }
            | Self::Link { parent, name, .. }
            | Self::Unlink { parent, name }
            | Self::Rmdir { parent, name }
            | Self::Lookup { parent, name } => *parent = place(*parent, name),
            Self::Rename { from, to, .. } => {
                from.0 = place(from.0, &from.1);
                to.0 = place(to.0, &to.1);
            }
            _ => {}
        }
        op
    }

    pub(crate) fn is_change(&self) -> bool {
        let looks = matches!(self, Self::Lookup { .. } | Self::Walk { .. } | Self::Stat { .. } | Self::List { .. });
        !looks && !matches!(self, Self::Renew { .. } | Self::GetXattr { .. } | Self::Open { .. } | Self::Close { .. })
    }

    /// The directories that it moves something between.
    pub(crate) fn moves_between(&self) -> Option<[InodeId; 2]> {
        match self {
            Self::Rename { from, to, .. } => Some([from.0, to.0]),
            _ => None,
        }
    }

    pub(crate) fn home(&self) -> ShardId {
        match self {
            Self::Create { parent, .. }
            | Self::Fifo { parent, .. }
            | Self::Mkdir { parent, .. }
            | Self::TmpFile { parent }
            | Self::Link { parent, .. }
            | Self::Unlink { parent, .. }
            | Self::Rmdir { parent, .. }
            | Self::Lookup { parent, .. } => parent.home(),
            Self::Rename { from, .. } => from.0.home(),
            Self::Walk { start, .. } => start.home(),
            Self::Stat { inode }
            | Self::Renew { inode }
            | Self::Open { inode }
            | Self::Close { inode }
            | Self::List { inode, .. }
            | Self::Place { inode, .. }
            | Self::Chmod { inode, .. }
            | Self::Flag { inode, .. }
            | Self::SetXattr { inode, .. }
            | Self::GetXattr { inode, .. }
            | Self::Split { inode, .. } => inode.home(),
        }
    }
}

/// What it came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Done,
    /// It is done, and this is told of the directories that it concerns.
    Changed(Box<Changed>),
    Inode(InodeView),
    Walked(Walked),
    /// With a lease, in ms.
    Absent(u32),
    /// The lease goes on, in ms.
    Renewed(u32),
    /// And whether nothing comes after these.
    Names(Vec<DirEntry>, bool),
    Value(Vec<u8>),
    Parts(Vec<InodeId>),
    Refused(Errno),
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// `attempt` stands for the connection: what came on an earlier one is not executed any more.
    Client {
        client: u64,
        attempt: u64,
        sequence: u64,
        op: Op,
    },
    Shard {
        from: usize,
        message: Message,
    },
}

pub(crate) struct Node {
    pub(crate) kv: MemoryKv,
    pub(crate) shard: Shard<MemoryKv>,
    pub(crate) incarnation: u64,
    pub(crate) queue: Vec<Body>,
    pub(crate) replies: Vec<(usize, Message, Reply)>,
    pub(crate) parked: BTreeMap<TransactionId, Vec<Body>>,
    /// Wait for leases.
    pub(crate) recalling: BTreeMap<Awaited, Vec<Body>>,
    pub(crate) commits: u64,
    pub(crate) synced: u64,
    /// Wait for the disk.
    pub(crate) held: VecDeque<(u64, Held)>,
    pub(crate) last_tick_ms: u64,
}

pub(crate) enum Held {
    Outgoing(Outgoing),
    Reply(usize, Message, Reply),
}

/// When directories are split by themselves; zeros: never.
#[derive(Clone, Copy, Default)]
pub(crate) struct Splits {
    pub(crate) above: u64,
    /// Changes per second.
    pub(crate) rate: u64,
}

pub(crate) fn config(shard: usize, lease_term_ms: u64, splits: Splits) -> Config {
    let (session_expiry_ms, root_owner) = (EXPIRY_MS, Credentials::default());
    let limits = Limits {
        cached_inodes: 64,
        cached_edges: 64,
        split_above: splits.above,
        split_rate: splits.rate,
        split_batch: 2,
        ..Limits::default()
    };
    let (shard, seed) = (ShardId(shard as u16), 7 + shard as u64);
    Config { shard, seed, session_expiry_ms, lease_term_ms, root_owner, limits }
}

impl Body {
    /// Which shard waits for an answer.
    pub(crate) fn caller(&self) -> Option<(usize, Message)> {
        match self {
            Self::Shard { from, message } => Some((*from, message.clone())),
            Self::Client { .. } => None,
        }
    }
}

pub(crate) enum Told {
    Client(Answer),
    Shard(Reply),
}

impl Node {
    pub(crate) fn new(kv: MemoryKv, shard: Shard<MemoryKv>, incarnation: u64) -> Self {
        Self {
            kv,
            shard,
            incarnation,
            queue: Vec::new(),
            replies: Vec::new(),
            parked: BTreeMap::new(),
            recalling: BTreeMap::new(),
            commits: 1,
            synced: 1,
            held: VecDeque::new(),
            last_tick_ms: 0,
        }
    }

    pub(crate) fn introduce(&mut self, shards: usize) {
        let all: Vec<ShardId> = (0..shards as u16).map(ShardId).collect();
        self.shard.set_shards(all.clone(), all);
        let space = |id| GroupSpace { group: GroupId(id), class: SpaceClass::Normal, free_bytes: 1 << 40 };
        self.shard.set_pools(vec![PoolSpace { pool: PoolId(1), groups: (101..=106).map(space).collect() }]);
    }

    /// Storage services fence sessions at once.
    pub(crate) fn tick(&mut self) {
        let ticked = self.shard.tick();
        assert_eq!(ticked.failed, [], "the store is whole");
        let to_fence = ticked.to_fence;
        for &session in &to_fence {
            self.shard.session_fenced(session).expect("the store is whole");
        }
        if !to_fence.is_empty() {
            // The grace after a restart may have waited for that.
            self.shard.tick();
        }
    }

    /// What waited for leases that are given back now.
    pub(crate) fn go_on(&mut self) {
        for ended in self.shard.take_ended_recalls() {
            self.queue.extend(self.recalling.remove(&ended).unwrap_or_default());
        }
    }

    /// A client's connection is gone, and with it its requests that wait for transactions.
    pub(crate) fn disconnected(&mut self, client: u64) {
        let is_its = |body: &mut Body| matches!(body, Body::Client { client: of, .. } if *of == client);
        for (transaction, waiting) in &mut self.parked {
            for _ in waiting.extract_if(.., is_its) {
                self.shard.abandon(*transaction, SessionId(client));
            }
        }
        self.parked.retain(|_, waiting| !waiting.is_empty());
    }

    /// What was promised to transactions that other shards decide, and for whom.
    pub(crate) fn doubtful(&self) -> Vec<(SessionId, Part)> {
        let mut parts = Vec::new();
        let visit = |key: &[u8], value: &[u8]| {
            if let (_, Some(_)) = deser_key(key).expect("a key") {
                let (session, promised) = deser_round(key, value).expect("parts");
                parts.extend(promised.into_iter().map(|part| (session, part)));
            }
            std::ops::ControlFlow::Continue(())
        };
        self.kv.scan(b"T", b"U", visit).expect("readable");
        parts
    }

    pub(crate) fn has_work(&self, now_ms: u64) -> bool {
        let due = now_ms >= self.last_tick_ms + 500 || self.shard.is_splitting();
        !self.queue.is_empty() || !self.replies.is_empty() || due
    }

    pub(crate) fn is_busy(&self) -> bool {
        let waiting = !self.parked.is_empty() || !self.recalling.is_empty() || !self.held.is_empty();
        waiting || !self.queue.is_empty() || !self.replies.is_empty() || self.shard.is_splitting()
    }

    pub(crate) fn execute(&mut self, body: &Body) -> Result<Told> {
        match body {
            Body::Client { client, sequence, op, .. } => {
                let session = SessionId(*client);
                if !self.shard.touch(session) {
                    self.shard.session_open(session, b"")?;
                    self.shard.session_tell(session, b"", &Telling::whole(&[], &[]))?;
                    self.shard.listen(session, true);
                }
                // Half of the names are taken away for the user who owns all.
                let remover = (*sequence % 2 == 0).then_some(CRED.uid);
                let given = Conditions { remover, ..Conditions::default() };
                let exactly = Exactly { session, sequence: *sequence, answered_below: *sequence, given };
                self.perform(exactly, op).map(Told::Client)
            }
            Body::Shard { message, .. } => self.serve(message).map(Told::Shard),
        }
    }

    pub(crate) fn serve(&mut self, message: &Message) -> Result<Reply> {
        Ok(match message {
            Message::Prepare { session, transaction, round, parts } => {
                Reply::Prepared(self.shard.prepare(*session, *transaction, *round, parts.clone())?)
            }
            Message::Finish { transaction, commit, made } => match self.shard.finish(*transaction, *commit, *made)? {
                Finished::Done => Reply::Done,
                Finished::Lost => Reply::Lost,
            },
            Message::AskOutcome { transaction } => Reply::Outcome(self.shard.outcome(*transaction)),
            Message::Climb { inode, until, .. } => Reply::Climbed(self.shard.climb(*inode, *until)?),
        })
    }

    pub(crate) fn perform(&mut self, exactly: Exactly, op: &Op) -> Result<Answer> {
        let shard = &mut self.shard;
        Ok(match op {
            Op::Create { parent, name } | Op::Fifo { parent, name } => {
                let kind = if matches!(op, Op::Fifo { .. }) { FileType::Fifo } else { FileType::Regular };
                let (parent, mode, cred) = (*parent, 0o644, CRED);
                let (open, write_intent, exclusive, rdev) = (false, false, true, 0);
                let create =
                    Create { parent, name, kind, mode, rdev, cred, open, write_intent, exclusive, draft: false };
                Answer::Inode(shard.create(exactly, &create)?)
            }
            Op::Mkdir { parent, name } => Answer::Inode(shard.mkdir(exactly, *parent, name, 0o755, CRED)?),
            Op::Link { inode, parent, name } => Answer::Inode(shard.link(exactly, *inode, *parent, name)?),
            Op::Unlink { parent, name } => Answer::Changed(Box::new(shard.unlink(exactly, *parent, name)?)),
            Op::Rmdir { parent, name } => Answer::Changed(Box::new(shard.rmdir(exactly, *parent, name)?)),
            Op::Rename { from, to, flags } => {
                let (source_parent, target_parent) = (from.0, to.0);
                let (source_name, target_name) = (&from.1, &to.1);
                let rename =
                    Rename { source_parent, source_name, target_parent, target_name, flags: *flags, cred: CRED };
                Answer::Changed(Box::new(shard.rename(exactly, &rename)?))
            }
            Op::Lookup { parent, name } => match shard.lookup(exactly.session, *parent, name)? {
                Looked::Found(view) => Answer::Inode(view),
                Looked::Absent { lease_ms } => Answer::Absent(lease_ms),
            },
            Op::Walk { start, names, leases } => Answer::Walked(shard.walk(exactly.session, *start, names, *leases)?),
            Op::Chmod { inode, mode } => {
                let change = SetAttr { mode: Some(u32::from(*mode)), ..SetAttr::default() };
                Answer::Inode(shard.set(exactly, *inode, &change, false)?)
            }
            Op::Flag { inode, flags } => {
                let change = SetAttr { flags: Some(*flags), ..SetAttr::default() };
                Answer::Inode(shard.set(exactly, *inode, &change, false)?)
            }
            Op::TmpFile { parent } => Answer::Inode(shard.tmpfile(exactly, *parent, 0o600, CRED, false)?),
            Op::SetXattr { inode, name, value } => {
                shard.set_xattr(exactly, *inode, name, value, 0).map(|()| Answer::Done)?
            }
            Op::GetXattr { inode, name } => Answer::Value(shard.get_xattr(*inode, name)?),
            Op::Stat { inode } => Answer::Inode(shard.getattr(exactly.session, *inode)?),
            Op::Renew { inode } => Answer::Renewed(shard.renew(exactly.session, &[*inode])?[0]),
            Op::Open { inode } => Answer::Inode(shard.open_inode(exactly.session, *inode, false)?),
            Op::Close { inode } => shard.close_inode(exactly.session, *inode, None).map(|()| Answer::Done)?,
            Op::List { inode, cookie } => {
                let page = shard.readdir(exactly.session, *inode, *cookie, 3, true)?;
                Answer::Names(page.entries, page.end)
            }
            Op::Split { inode, count } => Answer::Parts(shard.split(exactly, *inode, *count)?.parts),
            Op::Place { inode, placement } => {
                let change = PolicyChange { directories: Some(*placement), ..PolicyChange::default() };
                Answer::Inode(shard.set_policy(exactly, *inode, &change)?.inode)
            }
        })
    }
}
