//! Directories whose parts other shards have yet to promise are used meanwhile.

use kv::memory::MemoryKv;
use namespace::error::{Error, Result};
use namespace::shard::Shard;
use namespace::transaction::part::{Part, Vote};
use namespace::transaction::{Message, Reply};
use namespace::view::{Create, Exactly, GroupSpace, PoolSpace, SpaceClass};
use types::attr::{FileType, SetAttr, SetTime};
use types::cred::{Conditions, Credentials};
use types::id::{GroupId, InodeId, PoolId, SessionId, ShardId};
use types::name::Name;
use types::time::Timestamp;

use crate::node::{Splits, config};

const ROOT: InodeId = InodeId::ROOT;
const ASKER: SessionId = SessionId(1);
const OTHER: ShardId = ShardId(1);
const CRED: Credentials = Credentials { uid: 0, gid: 0, umask: 0 };
/// For how long a service waits for a promise.
const PROMISE_MS: u64 = 60_000;
const TURN_MS: u64 = 50;

/// One shard of two, and what it has asked the other one for, each with the time.
struct Bed {
    shard: Shard<MemoryKv>,
    now_ms: u64,
    sequence: u64,
    asked: Vec<(u64, Message)>,
    /// How often parts were asked for.
    attempts: usize,
    aborts: usize,
}

impl Bed {
    fn new(split_rate: u64) -> Self {
        let splits = Splits { above: 0, rate: split_rate };
        let mut shard = Shard::open(MemoryKv::new(), config(0, 0, splits), Timestamp(1), 1).expect("opens");
        shard.set_shards(vec![ShardId(0), OTHER], vec![ShardId(0), OTHER]);
        let groups = vec![GroupSpace { group: GroupId(101), class: SpaceClass::Normal, free_bytes: 1 << 40 }];
        shard.set_pools(vec![PoolSpace { pool: PoolId(1), groups }]);
        shard.session_open(ASKER, b"").expect("opens");
        Self { shard, now_ms: 1, sequence: 0, asked: Vec::new(), attempts: 0, aborts: 0 }
    }

    fn exactly(&mut self) -> Exactly {
        self.sequence += 1;
        Exactly { session: ASKER, sequence: self.sequence, answered_below: self.sequence, given: Conditions::default() }
    }

    fn create(&mut self, text: &str) -> Result<()> {
        let (exactly, name) = (self.exactly(), name(text));
        let (kind, open, write_intent, exclusive) = (FileType::Regular, false, false, true);
        let (parent, mode, rdev, cred, draft) = (ROOT, 0o644, 0, CRED, false);
        let create = Create { parent, name: &name, kind, mode, rdev, cred, open, write_intent, exclusive, draft };
        self.shard.create(exactly, &create).map(drop)
    }

    fn unlink(&mut self, text: &str) -> Result<()> {
        let exactly = self.exactly();
        self.shard.unlink(exactly, ROOT, &name(text)).map(drop)
    }

    /// A turn of the shard with what is done in it, later than the one before.
    fn turn<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        self.now_ms += TURN_MS;
        self.shard.begin_turn(Timestamp(self.now_ms as i64), self.now_ms);
        self.shard.go_on_dividing();
        assert_eq!(self.shard.go_on_splitting(), [], "the store is whole");
        let result = work(self);
        self.shard.commit().expect("commits");
        for outgoing in self.shard.take_outgoing() {
            self.attempts += usize::from(matches!(outgoing.message, Message::Prepare { .. }));
            self.aborts += usize::from(matches!(outgoing.message, Message::Finish { commit: false, .. }));
            self.asked.push((self.now_ms, outgoing.message));
        }
        result
    }

    /// The other shard's promise of what it was asked for last.
    fn promise(&mut self) {
        let at = self.asked.iter().rposition(|(_, message)| matches!(message, Message::Prepare { .. }));
        let (_, message) = self.asked.remove(at.expect("asked for"));
        let Message::Prepare { parts, .. } = &message else { panic!("{message:?}") };
        assert!(matches!(parts[..], [Part::Make(_)]), "{parts:?}");
        let reply = Reply::Prepared(vec![Vote::Made(InodeId::new(OTHER, 5))]);
        self.shard.replied(OTHER, &message, reply).expect("the store is whole");
    }

    /// Whoever did not answer for long is not waited for.
    fn lose_late(&mut self) {
        for (_, message) in self.asked.extract_if(.., |(since_ms, _)| *since_ms + PROMISE_MS <= self.now_ms) {
            self.shard.replied(OTHER, &message, Reply::Failed).expect("the store is whole");
        }
    }

    fn split(&mut self) -> Exactly {
        let exactly = self.exactly();
        let begun = self.turn(|bed| bed.shard.split(exactly, ROOT, 2).map(drop));
        assert!(matches!(begun, Err(Error::Blocked(_))), "{begun:?}");
        exactly
    }

    /// The directory has its parts.
    fn is_split(&mut self) -> bool {
        !self.shard.parts(ROOT).expect("told").parts.is_empty()
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

#[test]
fn a_busy_directory_is_used_while_another_shard_hangs() {
    let mut bed = Bed::new(4);
    let until_ms = bed.now_ms + 1_800_000;
    while bed.now_ms < until_ms {
        bed.turn(|bed| {
            bed.lose_late();
            bed.create("f").expect("nothing is locked");
        });
        bed.turn(|bed| bed.unlink("f").expect("nothing is locked"));
    }
    assert!((2..=12).contains(&bed.attempts), "{} in half an hour", bed.attempts);
    // Nobody uses it any more: there is no need to split it.
    for _ in 0..(PROMISE_MS + 10_000) / TURN_MS {
        bed.turn(Bed::lose_late);
    }
    assert!(!bed.shard.is_splitting());
}

#[test]
fn who_asks_for_a_split_gets_one_that_is_as_the_directory_is() {
    let mut bed = Bed::new(0);
    bed.split();
    let set = |bed: &mut Bed, set| {
        let exactly = bed.exactly();
        bed.shard.set(exactly, ROOT, &set, false).expect("set");
    };
    bed.turn(|bed| set(bed, SetAttr { mode: Some(0o700), ..SetAttr::default() }));
    bed.turn(Bed::promise);
    assert_eq!((bed.is_split(), bed.aborts), (false, 1), "its parts would have the mode from before");
    bed.turn(|bed| bed.create("f").expect("made"));
    bed.split();
    bed.turn(|bed| set(bed, SetAttr { mtime: Some(SetTime::At(Timestamp(3))), ..SetAttr::default() }));
    bed.turn(Bed::promise);
    assert_eq!((bed.is_split(), bed.aborts), (false, 2), "its parts would have a later time than was set");
    let exactly = bed.split();
    bed.turn(Bed::promise);
    assert!(bed.is_split());
    assert_eq!(bed.turn(|bed| bed.shard.split(exactly, ROOT, 2)).expect("split").parts.len(), 2);
}

#[test]
fn a_directory_waits_for_its_split_until_it_is_as_empty_as_before_or_not_for_long() {
    let mut bed = Bed::new(0);
    bed.split();
    bed.turn(|bed| bed.create("f").expect("made"));
    bed.turn(Bed::promise);
    assert!(!bed.is_split() && bed.shard.is_splitting());
    bed.turn(|bed| bed.unlink("f").expect("gone"));
    bed.turn(|_| ());
    assert!(bed.is_split());
    let mut bed = Bed::new(0);
    bed.split();
    bed.turn(|bed| bed.create("f").expect("made"));
    bed.turn(Bed::promise);
    for _ in 0..6000 / TURN_MS {
        bed.turn(|_| ());
    }
    assert_eq!((bed.is_split(), bed.shard.is_splitting(), bed.aborts), (false, false, 1));
}
