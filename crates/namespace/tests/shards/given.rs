//! Changes over several shards that are made only where it still is as whoever permitted them was told.

use kv::memory::MemoryKv;
use namespace::error::Error;
use namespace::shard::Shard;
use namespace::transaction::part::{Moved, NewDirectory, Part, Vote};
use namespace::transaction::{Message, Reply};
use namespace::view::{Create, Exactly, PolicyChange, Rename};
use types::attr::{FileType, SetAttr};
use types::cred::{Conditions, Credentials};
use types::error::Errno;
use types::flags::FileFlags;
use types::id::{InodeId, SessionId, ShardId, TransactionId};
use types::layout::LayoutPolicy;
use types::name::Name;
use types::parts::PartNumber;
use types::placement::Placement;
use types::time::Timestamp;

use crate::node::{Splits, config};

const ROOT: InodeId = InodeId::ROOT;
const ASKER: SessionId = SessionId(1);
const OWNER: Credentials = Credentials { uid: 1, gid: 1, umask: 0 };
const OTHER: u32 = 2;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn by(user: u32, part: Part) -> Part {
    Part::By { user, part: Box::new(part) }
}

/// One of two shards, asked by hand. Its root directory is sticky.
struct Bed {
    shard: Shard<MemoryKv>,
    sequence: u64,
}

impl Bed {
    fn new() -> Self {
        let mut shard =
            Shard::open(MemoryKv::new(), config(0, 3_000, Splits::default()), Timestamp(1), 1).expect("opens");
        shard.set_shards(vec![ShardId(0), ShardId(1)], vec![ShardId(0), ShardId(1)]);
        shard.session_open(ASKER, b"").expect("opens");
        let mut bed = Self { shard, sequence: 0 };
        let (sticky, exactly) = (SetAttr { mode: Some(0o1777), ..SetAttr::default() }, bed.exactly(None));
        bed.shard.set(exactly, ROOT, &sticky, false).expect("set");
        bed
    }

    fn exactly(&mut self, remover: Option<u32>) -> Exactly {
        self.sequence += 1;
        let given = Conditions { remover, ..Conditions::default() };
        Exactly { session: ASKER, sequence: self.sequence, answered_below: self.sequence, given }
    }

    fn create(&mut self, text: &str) -> InodeId {
        let (kind, mode, rdev, cred) = (FileType::Fifo, 0o644, 0, OWNER);
        let (open, write_intent, exclusive, draft) = (false, false, true, false);
        let (parent, name) = (ROOT, &name(text));
        let create = Create { parent, name, kind, mode, rdev, cred, open, write_intent, exclusive, draft };
        let exactly = self.exactly(None);
        self.shard.create(exactly, &create).expect("made").attr.inode
    }

    /// Parts that the other shard is asked for.
    fn asked(&mut self) -> Vec<Part> {
        let message = self.shard.take_outgoing().pop().expect("it is asked").message;
        let Message::Prepare { parts, .. } = message else { panic!("{message:?}") };
        parts
    }
}

/// What `OTHER` removes, and renames, of what is at home in the other shard: that has to look whose it is.
#[test]
fn the_shard_of_what_loses_its_name_looks_whose_it_is() {
    let mut bed = Bed::new();
    let exactly = bed.exactly(None);
    let change = PolicyChange { directories: Some(Placement::Shard(ShardId(1))), ..PolicyChange::default() };
    bed.shard.set_policy(exactly, ROOT, &change).expect("set");
    let exactly = bed.exactly(None);
    bed.shard.mkdir(exactly, ROOT, &name("d"), 0o755, OWNER).map(drop).expect_err("the other shard is asked");
    let prepare = bed.shard.take_outgoing().pop().expect("a message").message;
    let made = InodeId::new(ShardId(1), 5);
    bed.shard.replied(ShardId(1), &prepare, Reply::Prepared(vec![Vote::Made(made)])).expect("decided");
    bed.shard.commit().expect("commits");
    let finish = bed.shard.take_outgoing().pop().expect("a message").message;
    bed.shard.replied(ShardId(1), &finish, Reply::Done).expect("forgotten");
    bed.shard.commit().expect("commits");

    for (remover, expected) in [(None, Part::Rmdir(made)), (Some(OTHER), by(OTHER, Part::Rmdir(made)))] {
        let exactly = bed.exactly(remover);
        let Err(Error::Blocked(_)) = bed.shard.rmdir(exactly, ROOT, &name("d")) else { panic!("it is elsewhere") };
        let message = bed.shard.take_outgoing().pop().expect("it is asked").message;
        let Message::Prepare { parts, .. } = &message else { panic!("{message:?}") };
        assert_eq!(*parts, [expected]);
        bed.shard.replied(ShardId(1), &message, Reply::Refused(Errno::ECANCELED)).expect("given up");
        bed.shard.commit().expect("commits");
        let again = bed.shard.rmdir(exactly, ROOT, &name("d")).map(drop);
        assert_eq!(again, Err(Error::Refused(Errno::ECANCELED)));
        bed.shard.take_outgoing();
    }
    let exactly = bed.exactly(Some(OTHER));
    let (source_name, target_name) = (&name("d"), &name("x"));
    let (source_parent, target_parent, flags, cred) = (ROOT, ROOT, 0, OWNER);
    let rename = Rename { source_parent, source_name, target_parent, target_name, flags, cred };
    bed.shard.rename(exactly, &rename).map(drop).expect_err("it is elsewhere");
    assert_eq!(bed.asked(), [by(OTHER, Part::Move { inode: made, parent: ROOT })]);
}

#[test]
fn a_part_for_a_user_is_promised_where_that_user_may_do_it() {
    let mut bed = Bed::new();
    let f = bed.create("f");
    let mut number = 77;
    let mut prepare = |bed: &mut Bed, part: Part| {
        number += 1;
        let transaction = TransactionId(InodeId::new(ShardId(1), number).0);
        let promised = bed.shard.prepare(ASKER, transaction, 0, vec![part]).map(drop);
        if promised.is_ok() {
            bed.shard.finish(transaction, false, None).expect("given up");
        }
        bed.shard.commit().expect("commits");
        promised
    };
    let entry = || Part::Entry { parent: ROOT, name: name("f"), becomes: None };
    for part in [Part::Unlink(f), Part::Move { inode: f, parent: ROOT }, entry()] {
        let refused = prepare(&mut bed, by(OTHER, part.clone()));
        assert_eq!(refused, Err(Error::Refused(Errno::ECANCELED)), "{part:?}");
        assert_eq!(prepare(&mut bed, by(OWNER.uid, part.clone())), Ok(()), "{part:?}");
        assert_eq!(prepare(&mut bed, part), Ok(()));
    }
}

fn from_elsewhere(number: u64) -> TransactionId {
    TransactionId(InodeId::new(ShardId(1), number).0)
}

impl Bed {
    fn promise(&mut self, number: u64, part: Part) -> Vote {
        let votes = self.shard.prepare(ASKER, from_elsewhere(number), 0, vec![part]).expect("promised");
        self.shard.commit().expect("commits");
        self.shard.take_outgoing();
        votes.into_iter().next().expect("a vote")
    }

    fn finish(&mut self, number: u64) {
        self.shard.finish(from_elsewhere(number), true, None).expect("done");
        self.shard.commit().expect("commits");
    }

    /// What `OTHER` asks for waits for the outcome of that transaction, which is asked for, and is not refused.
    fn waits_for(&mut self, number: u64, part: Part) {
        let promised = self.shard.prepare(ASKER, from_elsewhere(99), 0, vec![by(OTHER, part.clone())]);
        assert_eq!(promised, Err(Error::Again), "{part:?}");
        let asked = self.shard.take_outgoing().pop().expect("the outcome is asked for").message;
        assert_eq!(asked, Message::AskOutcome { transaction: from_elsewhere(number) });
    }
}

fn entry(parent: InodeId, name: Name) -> Part {
    Part::Entry { parent, name, becomes: None }
}

fn make(part: Option<PartNumber>) -> Part {
    let (id, parent) = (InodeId(0), InodeId::new(ShardId(1), 16));
    let (mode, uid, gid, flags, time, policy) = (0o755, 1, 2, FileFlags::NONE, Timestamp(3), LayoutPolicy::default());
    let (access, default, fills, at_once) = (None, None, part.is_some(), false);
    Part::Make(NewDirectory { id, parent, mode, uid, gid, flags, time, policy, access, default, part, fills, at_once })
}

/// What is known of it here may be what was before, or nothing yet.
#[test]
fn whose_it_is_matters_only_when_nothing_of_it_is_in_doubt() {
    let mut bed = Bed::new();
    let f = bed.create("f");
    bed.promise(77, Part::Unlink(f));
    bed.waits_for(77, Part::Unlink(f));
    let Vote::Made(made) = bed.promise(78, make(None)) else { panic!("it is a directory") };
    bed.waits_for(78, entry(made, name("x")));
    // A part that is about to take a name sends nobody back to where that was.
    let number = PartNumber { index: 1, count: 2 };
    let Vote::Made(part) = bed.promise(79, make(Some(number))) else { panic!("it is a part") };
    bed.finish(79);
    bed.promise(80, Part::Take { part, moved: Moved { from: number.begin(), to: number.end(), entries: Vec::new() } });
    let names = (0..).map(|at| name(&format!("{at}")));
    let its = names.into_iter().find(|name| PartNumber::of_name(name, number.count) == number).expect("a name");
    bed.waits_for(80, entry(part, its.clone()));
    bed.finish(80);
    bed.promise(81, by(OTHER, entry(part, its)));
}
