//! What an operation over several shards asks of whom, and in which order: a script for each, without locks or messages.
//!
//! A plan is asked for its next step with the votes on the step before. It checks what a single shard checks for the same
//! operation, in the same order, and answers with the same errors.

use types::attr::{Attr, FileType, SetAttr};
use types::cred::Credentials;
use types::error::Errno;
use types::id::{InodeId, ShardId, TransactionId};
use types::name::Name;

use crate::schema::edge::Edge;
use crate::schema::transaction::Making;
use crate::transaction::part::{Conformed, Moved, NewDirectory, Part, Vote};
use crate::view::PolicyChange;

/// What is to be done.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Mkdir {
        parent: InodeId,
        name: Name,
        new: NewDirectory,
        home: ShardId,
    },
    /// Of a directory that its shard has lost, where its name still leads to it. This transaction takes the place of the
    /// one that made it first.
    MakeAgain {
        first: TransactionId,
        making: Making,
    },
    /// Only of what belongs to `owner`, if that is said.
    Rmdir {
        parent: InodeId,
        name: Name,
        owner: Option<u32>,
    },
    /// As that.
    Unlink {
        parent: InodeId,
        name: Name,
        owner: Option<u32>,
    },
    Link {
        inode: InodeId,
        parent: InodeId,
        name: Name,
    },
    Rename(Renaming),
    /// Of a directory into these, in their order. What entries it has they get after that.
    Split {
        inode: InodeId,
        parts: Vec<(ShardId, NewDirectory)>,
    },
    /// A split directory changes, and its parts follow.
    Reform {
        inode: InodeId,
        change: DirectoryChange,
        parts: Vec<Conformed>,
    },
    /// Names of a directory that is being split go to one of its parts.
    Shift {
        directory: InodeId,
        part: InodeId,
        moved: Moved,
    },
}

impl Operation {
    /// The directories in which clients want it to change names.
    pub(crate) fn directories(&self) -> Vec<InodeId> {
        match self {
            Self::Mkdir { parent, .. }
            | Self::Rmdir { parent, .. }
            | Self::Unlink { parent, .. }
            | Self::Link { parent, .. } => vec![*parent],
            Self::Rename(renaming) => vec![renaming.source.0, renaming.target.0],
            Self::MakeAgain { .. } | Self::Split { .. } | Self::Reform { .. } | Self::Shift { .. } => Vec::new(),
        }
    }
}

/// What of a directory matters for what is made in it, or of its times.
#[derive(Clone, Debug)]
pub(crate) enum DirectoryChange {
    Set(SetAttr),
    Policy(PolicyChange),
    SetXattr { name: Vec<u8>, value: Vec<u8>, flags: u32 },
    RemoveXattr(Vec<u8>),
}

#[derive(Clone, Debug)]
pub(crate) struct Renaming {
    pub(crate) source: (InodeId, Name),
    pub(crate) target: (InodeId, Name),
    pub(crate) exchanges: bool,
    pub(crate) replaces: bool,
    /// Whose the whiteout is that is left behind.
    pub(crate) whiteout: Option<Credentials>,
    /// What is moved, and what is at the target, has to belong to these, where that is said.
    pub(crate) owners: [Option<u32>; 2],
    /// Who wants to take the target's name away, where its shard has to look whether that may be.
    pub(crate) remover: Option<u32>,
    /// What is moved seems to be a directory, and to another one: no other such move may be under way.
    pub(crate) needs_token: bool,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Prepare these, all of them, and bring the votes in this order.
    Ask(Vec<(ShardId, Part)>),
    /// Find out whether directory `from` is `ancestor` or lies below it.
    Climb {
        from: InodeId,
        ancestor: InodeId,
    },
    /// All have promised: do it. The entry of the first part becomes this.
    Decide(Option<Edge>),
    /// All parts of a directory have been promised: lock it as soon as it is free.
    Divide,
    /// There is nothing to do, and that is a success.
    Nothing,
    Refuse(Errno),
    /// Something has changed meanwhile.
    Again,
}

/// An operation on its way.
#[derive(Debug)]
pub(crate) struct Plan {
    operation: Operation,
    stage: Stage,
    /// What the source's name leads to, and the target's.
    moved: Option<Edge>,
    other: Option<Edge>,
    /// The directories that users see the source in, and the target.
    source_in: InodeId,
    target_in: InodeId,
    /// Both are names of one inode: nothing is renamed.
    stays: bool,
    /// The new parts of a directory, in their order.
    parts_made: Vec<InodeId>,
    /// What loses its last name, as it is before.
    removed: Option<Box<Attr>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Begin,
    Token,
    First,
    Second,
    /// Whether the target lies within what is moved, and the other way round.
    TargetWithin,
    SourceWithin,
    Last,
    /// The parts of a directory that is removed.
    Parts,
}

/// What comes of a decision beside the parts that were asked for.
pub(crate) struct Consequences {
    /// The directory that another shard has made, and the name that leads to it.
    pub(crate) making: Option<Making>,
    /// The transaction that this one takes the place of.
    pub(crate) first: Option<TransactionId>,
    /// The inode that the client is told of, where there was one before.
    pub(crate) told: Option<InodeId>,
    /// What the client is told of, since nobody can ask for it any more.
    pub(crate) removed: Option<Box<Attr>>,
    /// What the coordinator changes of a directory.
    pub(crate) change: Option<(InodeId, DirectoryChange)>,
    /// Who asked takes what it knows of a name to another one.
    pub(crate) moves: bool,
    /// The next step of the same work begins when this one has ended everywhere.
    pub(crate) is_upkeep: bool,
}

impl Plan {
    pub(crate) fn new(operation: Operation) -> Self {
        let nowhere = InodeId(0);
        let (moved, other, source_in, target_in) = (None, None, nowhere, nowhere);
        let (stage, stays, parts_made, removed) = (Stage::Begin, false, Vec::new(), None);
        Self { operation, stage, moved, other, source_in, target_in, stays, parts_made, removed }
    }

    /// `votes` on what was asked for last.
    pub(crate) fn consequences(&self, votes: &[Vote]) -> Consequences {
        Consequences {
            making: self.made(votes),
            first: self.first(),
            told: self.told(),
            removed: self.removed(),
            change: self.change(),
            moves: self.moves(),
            is_upkeep: self.is_upkeep(),
        }
    }

    /// The new directory, when there is one.
    fn made(&self, votes: &[Vote]) -> Option<Making> {
        match (&self.operation, votes) {
            (Operation::Mkdir { parent, name, new, .. }, [Vote::Made(id)]) => {
                let new = NewDirectory { id: *id, ..new.clone() };
                Some(Making { parent: *parent, name: name.clone(), new })
            }
            _ => None,
        }
    }

    /// The transaction that this one takes the place of.
    pub(crate) fn first(&self) -> Option<TransactionId> {
        match self.operation {
            Operation::MakeAgain { first, .. } => Some(first),
            _ => None,
        }
    }

    /// What the client is told of, since nobody can ask for it any more.
    fn removed(&self) -> Option<Box<Attr>> {
        self.removed.clone()
    }

    pub(crate) fn parts_made(&self) -> Vec<InodeId> {
        self.parts_made.clone()
    }

    /// The directory that is to be split, and its parts as they were asked for.
    pub(crate) fn divides(&self) -> Option<(InodeId, Vec<NewDirectory>)> {
        match &self.operation {
            Operation::Split { inode, parts } => Some((*inode, parts.iter().map(|(_, new)| new.clone()).collect())),
            _ => None,
        }
    }

    /// What the coordinator changes of a directory by its decision.
    fn change(&self) -> Option<(InodeId, DirectoryChange)> {
        match &self.operation {
            Operation::Reform { inode, change, .. } => Some((*inode, change.clone())),
            _ => None,
        }
    }

    /// Who asks for it takes what it knows of a name to another one.
    fn moves(&self) -> bool {
        matches!(self.operation, Operation::Rename(_))
    }

    /// The name that a whiteout is left at, and whose it is.
    pub(crate) fn whiteout(&self) -> Option<(InodeId, Name, Credentials)> {
        let Operation::Rename(Renaming { source, whiteout: Some(cred), .. }) = &self.operation else { return None };
        (!self.stays).then(|| (source.0, source.1.clone(), *cred))
    }

    /// What keeps a split directory as it is to be: the next step of it begins when this one has ended everywhere.
    fn is_upkeep(&self) -> bool {
        matches!(self.operation, Operation::Split { .. } | Operation::Reform { .. } | Operation::Shift { .. })
    }

    /// The inode that the client is told of, where there was one before.
    fn told(&self) -> Option<InodeId> {
        match &self.operation {
            Operation::Link { inode, .. } | Operation::Split { inode, .. } => Some(*inode),
            Operation::Reform { inode, change: DirectoryChange::Set(_) | DirectoryChange::Policy(_), .. } => {
                Some(*inode)
            }
            Operation::Reform { .. } | Operation::Shift { .. } => None,
            Operation::Mkdir { .. }
            | Operation::MakeAgain { .. }
            | Operation::Rmdir { .. }
            | Operation::Unlink { .. }
            | Operation::Rename(_) => None,
        }
    }

    /// `votes` on what was asked for last.
    pub(crate) fn next(&mut self, votes: &[Vote]) -> Step {
        let last = |vote: &Vote| if let Vote::Last(attr) = vote { Some(attr.clone()) } else { None };
        self.removed = self.removed.take().or_else(|| votes.iter().find_map(last));
        match &self.operation {
            Operation::Rename(_) => self.next_of_rename(votes),
            Operation::Split { parts, .. } => {
                let parts = parts.clone();
                self.next_of_split(parts, votes)
            }
            Operation::Reform { inode, parts, .. } => {
                let all = [Part::Hold(*inode)].into_iter().chain(parts.iter().cloned().map(Part::Conform));
                let step = ask(all);
                if std::mem::replace(&mut self.stage, Stage::Last) == Stage::Begin { step } else { Step::Decide(None) }
            }
            Operation::Shift { directory, part, moved } => {
                let give = Part::Give { directory: *directory, moved: moved.clone() };
                let step = ask([give, Part::Take { part: *part, moved: moved.clone() }]);
                if std::mem::replace(&mut self.stage, Stage::Last) == Stage::Begin { step } else { Step::Decide(None) }
            }
            Operation::MakeAgain { making, .. } => {
                let making = making.clone();
                self.next_of_again(&making, votes)
            }
            Operation::Mkdir { .. } | Operation::Rmdir { .. } | Operation::Unlink { .. } | Operation::Link { .. } => {
                self.next_of_one(votes)
            }
        }
    }

    /// One name here, and one inode elsewhere.
    fn next_of_one(&mut self, votes: &[Vote]) -> Step {
        match (self.stage, votes) {
            (Stage::Begin, _) => {
                self.stage = Stage::First;
                let (parent, name, becomes) = match &self.operation {
                    // For the check of the bound of subdirectories; the id comes with the decision.
                    Operation::Mkdir { parent, name, .. } => {
                        (*parent, name, Some(Edge { child: *parent, kind: FileType::Directory }))
                    }
                    Operation::Rmdir { parent, name, .. } | Operation::Unlink { parent, name, .. } => {
                        (*parent, name, None)
                    }
                    Operation::Link { inode, parent, name } => {
                        (*parent, name, Some(Edge { child: *inode, kind: FileType::Regular }))
                    }
                    Operation::Rename(_)
                    | Operation::MakeAgain { .. }
                    | Operation::Split { .. }
                    | Operation::Reform { .. }
                    | Operation::Shift { .. } => return Step::Again,
                };
                ask([Part::Entry { parent, name: name.clone(), becomes }])
            }
            (Stage::First, [vote]) => {
                self.stage = Stage::Last;
                self.ask_inode(vote)
            }
            (Stage::Last, [Vote::Made(id)]) => Step::Decide(Some(Edge { child: *id, kind: FileType::Directory })),
            (Stage::Last, [Vote::Inode(kind)]) => match &self.operation {
                Operation::Link { inode, .. } => Step::Decide(Some(Edge { child: *inode, kind: *kind })),
                _ => Step::Decide(None),
            },
            (Stage::Last, [Vote::Parts(parts)]) => self.ask_parts(parts),
            (Stage::Last, [Vote::Last(_)]) | (Stage::Parts, _) => Step::Decide(None),
            _ => Step::Refuse(Errno::EIO),
        }
    }

    fn next_of_again(&mut self, Making { parent, name, new }: &Making, votes: &[Vote]) -> Step {
        let edge = Edge { child: new.id, kind: FileType::Directory };
        match (self.stage, votes) {
            (Stage::Begin, _) => {
                self.stage = Stage::First;
                ask([Part::Entry { parent: *parent, name: name.clone(), becomes: Some(edge) }])
            }
            (Stage::First, [vote]) => {
                self.stage = Stage::Last;
                match vote.entry(*parent) {
                    Some((Some(there), _)) if there == edge => {
                        // Its name is there: what is made in it must not go if this attempt is given up.
                        let new = NewDirectory { at_once: false, ..new.clone() };
                        Step::Ask(vec![(new.id.home(), Part::Make(new))])
                    }
                    // It was removed, or moved, for which it must have been there.
                    _ => Step::Nothing,
                }
            }
            (Stage::Last, [Vote::Made(_)]) => Step::Decide(Some(edge)),
            _ => Step::Refuse(Errno::EIO),
        }
    }

    /// A directory that is removed is split: so must be its parts.
    fn ask_parts(&mut self, parts: &[InodeId]) -> Step {
        self.stage = Stage::Parts;
        ask(parts.iter().copied().map(Part::Rmdir))
    }

    /// The directory itself is locked last: its names may not change from then on.
    fn next_of_split(&mut self, parts: Vec<(ShardId, NewDirectory)>, votes: &[Vote]) -> Step {
        match self.stage {
            Stage::Begin => {
                self.stage = Stage::First;
                Step::Ask(parts.into_iter().map(|(shard, new)| (shard, Part::Make(new))).collect())
            }
            Stage::First => {
                self.stage = Stage::Last;
                let id = |vote: &Vote| if let Vote::Made(id) = vote { Some(*id) } else { None };
                self.parts_made = votes.iter().filter_map(id).collect();
                Step::Divide
            }
            _ => Step::Decide(None),
        }
    }

    fn ask_inode(&self, vote: &Vote) -> Step {
        let Some((there, visible)) = vote.entry(InodeId(0)) else { return Step::Refuse(Errno::EIO) };
        let visible = |parent: InodeId| if visible == InodeId(0) { parent } else { visible };
        let is_dir = |edge: Edge| edge.kind == FileType::Directory;
        match (&self.operation, there) {
            (Operation::Mkdir { .. } | Operation::Link { .. }, Some(_)) => Step::Refuse(Errno::EEXIST),
            (Operation::Mkdir { new, home, .. }, None) => Step::Ask(vec![(*home, Part::Make(new.clone()))]),
            (Operation::Link { inode, parent, .. }, None) => {
                ask([Part::Link { inode: *inode, parent: visible(*parent) }])
            }
            (_, None) => Step::Refuse(Errno::ENOENT),
            (Operation::Rmdir { .. }, Some(edge)) if !is_dir(edge) => Step::Refuse(Errno::ENOTDIR),
            (Operation::Rmdir { owner, .. }, Some(edge)) => ask([Part::Rmdir(edge.child).by(*owner)]),
            (_, Some(edge)) if is_dir(edge) => Step::Refuse(Errno::EISDIR),
            (Operation::Unlink { owner, .. }, Some(edge)) => ask([Part::Unlink(edge.child).by(*owner)]),
            (_, Some(_)) => Step::Refuse(Errno::EIO),
        }
    }

    fn next_of_rename(&mut self, votes: &[Vote]) -> Step {
        let Operation::Rename(renaming) = self.operation.clone() else { return Step::Again };
        match (self.stage, votes) {
            (Stage::Begin, _) if renaming.needs_token => {
                self.stage = Stage::Token;
                ask([Part::Token])
            }
            (Stage::Begin | Stage::Token, _) => {
                self.stage = Stage::First;
                ask([entry(&renaming.source, None)])
            }
            (Stage::First, [vote]) => {
                let Some((moved, source_in)) = vote.entry(renaming.source.0) else { return Step::Refuse(Errno::EIO) };
                let Some(moved) = moved else { return Step::Refuse(Errno::ENOENT) };
                self.source_in = source_in;
                let crosses = renaming.source.0 != renaming.target.0;
                if crosses && moved.kind == FileType::Directory && !renaming.needs_token {
                    return Step::Again;
                }
                self.moved = Some(moved);
                self.stage = Stage::Second;
                ask([entry(&renaming.target, Some(moved)).by(renaming.remover)])
            }
            (Stage::Second, [vote]) => {
                let Some((other, target_in)) = vote.entry(renaming.target.0) else { return Step::Refuse(Errno::EIO) };
                (self.other, self.target_in) = (other, target_in);
                match other {
                    None if renaming.exchanges => Step::Refuse(Errno::ENOENT),
                    Some(_) if !renaming.replaces => Step::Refuse(Errno::EEXIST),
                    _ => self.check_target(&renaming),
                }
            }
            (Stage::Last, _) | (Stage::Parts, _) => {
                let split =
                    votes.iter().find_map(|vote| if let Vote::Parts(parts) = vote { Some(parts) } else { None });
                match split {
                    Some(parts) => self.ask_parts(parts),
                    None => Step::Decide(self.other.filter(|_| renaming.exchanges)),
                }
            }
            _ => Step::Refuse(Errno::EIO),
        }
    }

    /// What a `Climb` found.
    pub(crate) fn climbed(&mut self, within: bool) -> Step {
        let Operation::Rename(renaming) = self.operation.clone() else { return Step::Again };
        match (self.stage, within) {
            (Stage::TargetWithin, true) => Step::Refuse(Errno::EINVAL),
            (Stage::TargetWithin, false) => self.check_source(&renaming),
            (Stage::SourceWithin, true) if renaming.exchanges => Step::Refuse(Errno::EINVAL),
            (Stage::SourceWithin, true) => Step::Refuse(Errno::ENOTEMPTY),
            (Stage::SourceWithin, false) => self.ask_inodes(&renaming),
            _ => Step::Refuse(Errno::EIO),
        }
    }

    fn check_target(&mut self, renaming: &Renaming) -> Step {
        let Some(moved) = self.moved else { return Step::Again };
        if renaming.source.0 == renaming.target.0 || moved.kind != FileType::Directory {
            return self.check_source(renaming);
        }
        self.stage = Stage::TargetWithin;
        Step::Climb { from: renaming.target.0, ancestor: moved.child }
    }

    fn check_source(&mut self, renaming: &Renaming) -> Step {
        match self.other.filter(|other| other.kind == FileType::Directory) {
            Some(other) if renaming.source.0 != renaming.target.0 => {
                self.stage = Stage::SourceWithin;
                Step::Climb { from: renaming.source.0, ancestor: other.child }
            }
            _ => self.ask_inodes(renaming),
        }
    }

    fn ask_inodes(&mut self, renaming: &Renaming) -> Step {
        let Some(moved) = self.moved else { return Step::Again };
        self.stage = Stage::Last;
        let [owner, other_owner] = renaming.owners;
        let mut parts = vec![Part::Move { inode: moved.child, parent: self.target_in }.by(owner)];
        let Some(other) = self.other else { return ask(parts) };
        if other.child == moved.child {
            // Who asked moves what it knows of these names all the same: it gets leases on them.
            self.stays = true;
            return Step::Decide(Some(moved));
        }
        let is_dir = |edge: Edge| edge.kind == FileType::Directory;
        let part = match (is_dir(moved), is_dir(other)) {
            _ if renaming.exchanges => Part::Move { inode: other.child, parent: self.source_in },
            (true, false) => return Step::Refuse(Errno::ENOTDIR),
            (false, true) => return Step::Refuse(Errno::EISDIR),
            (true, true) => Part::Rmdir(other.child),
            (false, false) => Part::Unlink(other.child),
        };
        parts.push(part.by(other_owner));
        ask(parts)
    }
}

fn entry((parent, name): &(InodeId, Name), becomes: Option<Edge>) -> Part {
    Part::Entry { parent: *parent, name: name.clone(), becomes }
}

fn ask(parts: impl IntoIterator<Item = Part>) -> Step {
    let place = |part: Part| (part.shard().unwrap_or(InodeId::ROOT.home()), part);
    Step::Ask(parts.into_iter().map(place).collect())
}
