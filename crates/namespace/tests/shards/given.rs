//! Changes over several shards that are made only where it still is as whoever permitted them was told.

use kv::memory::MemoryKv;
use namespace::error::Error;
use namespace::shard::Shard;
use namespace::transaction::part::{Part, Vote};
use namespace::transaction::{Message, Reply};
use namespace::view::{Create, Exactly, PolicyChange, Rename};
use types::attr::{FileType, SetAttr};
use types::cred::{Conditions, Credentials};
use types::error::Errno;
use types::id::{InodeId, SessionId, ShardId, TransactionId};
use types::name::Name;
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
