//! Decisions that nobody waits for may go to their participants late, and others may not.

use kv::KvError;
use kv::memory::MemoryKv;
use namespace::error::Error;
use namespace::shard::Shard;
use namespace::transaction::part::{Part, Vote};
use namespace::transaction::{Haste, Message, Outcome, Outgoing, Reply};
use namespace::view::{Exactly, PolicyChange, Rename};
use types::cred::{Conditions, Credentials};
use types::id::{InodeId, SessionId, ShardId, TransactionId};
use types::name::Name;
use types::placement::Placement;
use types::time::Timestamp;

use crate::node::{Splits, config};

const ROOT: InodeId = InodeId::ROOT;
const ASKER: SessionId = SessionId(1);

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// One shard of two, asked by hand.
fn shard() -> Shard<MemoryKv> {
    let mut shard = Shard::open(MemoryKv::new(), config(0, 3_000, Splits::default()), Timestamp(1), 1).expect("opens");
    shard.set_shards(vec![ShardId(0), ShardId(1)], vec![ShardId(0), ShardId(1)]);
    shard.session_open(ASKER, b"").expect("opens");
    shard
}

fn asks(outgoing: &[Outgoing]) -> Vec<TransactionId> {
    let asked = |outgoing: &Outgoing| match outgoing.message {
        Message::AskOutcome { transaction } => Some(transaction),
        _ => None,
    };
    outgoing.iter().filter_map(asked).collect()
}

#[test]
fn who_meets_a_promise_makes_its_shard_ask_once() {
    let [first, second] = [77, 78].map(|number| TransactionId(InodeId::new(ShardId(1), number).0));
    let entry = |text| vec![Part::Entry { parent: ROOT, name: name(text), becomes: None }];
    let mut shard = shard();
    assert_eq!(shard.prepare(ASKER, first, 0, entry("x")), Ok(vec![Vote::Entry(None)]));
    assert_eq!(shard.prepare(ASKER, second, 0, entry("y")), Ok(vec![Vote::Entry(None)]));
    shard.commit().expect("commits");
    assert!(asks(&shard.take_outgoing()).is_empty(), "nothing waits");
    let Err(Error::Blocked(by)) = shard.getattr(ASKER, ROOT) else { panic!("it may have changed already") };
    shard.await_end(by);
    shard.await_end(by);
    assert_eq!(asks(&shard.take_outgoing()), [by]);
    // Another shard's transaction is refused, and waits as well.
    let (asked, other) = if by == first { ("y", second) } else { ("x", first) };
    let third = TransactionId(InodeId::new(ShardId(1), 79).0);
    assert_eq!(shard.prepare(ASKER, third, 0, entry(asked)), Err(Error::Again));
    assert_eq!(shard.prepare(ASKER, third, 0, entry(asked)), Err(Error::Again));
    assert_eq!(asks(&shard.take_outgoing()), [other]);
    shard.await_end(TransactionId(InodeId::new(ShardId(1), 80).0));
    assert!(shard.take_outgoing().is_empty(), "nothing is known of that one");
}

/// A shard that is to make a directory in the other one, as the second thing that is asked for.
fn making() -> (Shard<MemoryKv>, TransactionId) {
    let mut shard = shard();
    let exactly =
        |sequence| Exactly { session: ASKER, sequence, answered_below: sequence, given: Conditions::default() };
    let change = PolicyChange { directories: Some(Placement::Shard(ShardId(1))), ..PolicyChange::default() };
    shard.set_policy(exactly(1), ROOT, &change).expect("set");
    let cred = Credentials { uid: 0, gid: 0, umask: 0 };
    let made = shard.mkdir(exactly(2), ROOT, &name("d"), 0o755, cred);
    let Err(Error::Blocked(transaction)) = made else { panic!("{made:?}") };
    (shard, transaction)
}

/// Decides on a directory in the other shard, after that has asked for the outcome or not; whether the decision is in haste.
fn decide(asked: bool) -> Haste {
    let (mut shard, transaction) = making();
    let mut outgoing = shard.take_outgoing();
    let prepare = outgoing.pop().expect("a message");
    assert!(outgoing.is_empty() && prepare.haste == Haste::Now && !prepare.after_sync);
    if asked {
        assert_eq!(shard.outcome(transaction), Outcome::Pending);
    }
    let made = InodeId::new(ShardId(1), 5);
    let votes = vec![Vote::Made(made)];
    shard.replied(ShardId(1), &prepare.message, Reply::Prepared(votes)).expect("decided");
    shard.commit().expect("commits");
    let outgoing = shard.take_outgoing();
    let [finish] = &outgoing[..] else { panic!("{outgoing:?}") };
    let expected = Message::Finish { transaction, commit: true, made: Some(made) };
    assert_eq!((&finish.message, finish.after_sync), (&expected, true));
    assert_eq!(shard.outcome(transaction), Outcome::Commit);
    finish.haste
}

#[test]
fn a_decision_is_in_haste_where_its_participant_has_asked() {
    assert_eq!(decide(false), Haste::WithNextSync);
    assert_eq!(decide(true), Haste::Now);
}

/// What it saw there has never been.
#[test]
fn a_refusal_goes_with_the_turn_that_it_rests_on() {
    let (mut shard, _) = making();
    let prepare = shard.take_outgoing().pop().expect("a message").message;
    let made = InodeId::new(ShardId(1), 5);
    shard.replied(ShardId(1), &prepare, Reply::Prepared(vec![Vote::Made(made)])).expect("decided");
    shard.commit().expect("commits");
    let finish = shard.take_outgoing().pop().expect("a message").message;
    shard.replied(ShardId(1), &finish, Reply::Done).expect("forgotten");
    shard.commit().expect("commits");
    let exactly = |sequence| Exactly { session: ASKER, sequence, answered_below: 1, given: Conditions::default() };
    let cred = Credentials { uid: 0, gid: 0, umask: 0 };
    let (from, to) = (name("d"), name("x"));
    let rename =
        Rename { source_parent: ROOT, source_name: &from, target_parent: ROOT, target_name: &to, flags: 1, cred };
    shard.store().fail_commit(1, KvError::NoSpace("full".into()));
    shard.symlink(exactly(5), ROOT, &to, b"target", cred).expect("made");
    let Err(Error::Blocked(first)) = shard.rename(exactly(6), &rename) else { panic!("the directory is elsewhere") };
    shard.commit().expect_err("the disk is full");
    shard.take_outgoing();
    assert!(shard.take_ended().contains(&first), "the name was there");
    let Err(Error::Blocked(second)) = shard.rename(exactly(6), &rename) else { panic!("nothing is there any more") };
    assert_ne!(first, second);
}

/// With many who make directories there, some are always on their way.
#[test]
fn who_renames_a_directory_waits_for_none_that_began_later() {
    let mut shard = shard();
    let exactly = |sequence| Exactly { session: ASKER, sequence, answered_below: 1, given: Conditions::default() };
    let cred = Credentials { uid: 0, gid: 0, umask: 0 };
    let dir = shard.mkdir(exactly(1), ROOT, &name("dir"), 0o755, cred).expect("made").attr.inode;
    let change = PolicyChange { directories: Some(Placement::Shard(ShardId(1))), ..PolicyChange::default() };
    shard.set_policy(exactly(2), dir, &change).expect("set");
    let make = |shard: &mut Shard<MemoryKv>, sequence, text| {
        let made = shard.mkdir(exactly(sequence), dir, &name(text), 0o755, cred);
        let Err(Error::Blocked(by)) = made else { panic!("{made:?}") };
        by
    };
    let first = make(&mut shard, 3, "first");
    let prepare = shard.take_outgoing().pop().expect("a message").message;
    let second = make(&mut shard, 4, "second");
    assert_ne!(first, second, "nobody waits");
    let (from, to) = (name("dir"), name("renamed"));
    let rename =
        Rename { source_parent: ROOT, source_name: &from, target_parent: ROOT, target_name: &to, flags: 0, cred };
    let Err(Error::Blocked(by)) = shard.rename(exactly(5), &rename) else { panic!("names in it are locked") };
    assert_eq!(make(&mut shard, 6, "third"), by, "it waits as well, behind the other");
    shard.abandon(second, ASKER);
    let made = InodeId::new(ShardId(1), 5);
    shard.replied(ShardId(1), &prepare, Reply::Prepared(vec![Vote::Made(made)])).expect("decided");
    shard.commit().expect("commits");
    shard.rename(exactly(5), &rename).expect("renamed");
    let third = make(&mut shard, 6, "third");
    assert!(third != first && third != second);
}

#[test]
fn nobody_gets_the_token_who_has_given_up() {
    let [first, second] = [77, 78].map(|number| TransactionId(InodeId::new(ShardId(1), number).0));
    let token = || vec![Part::Token];
    let mut shard = shard();
    assert_eq!(shard.prepare(ASKER, first, 0, token()), Ok(vec![Vote::Token]));
    assert_eq!(shard.prepare(ASKER, second, 0, token()), Err(Error::Blocked(first)));
    shard.commit().expect("commits");
    // Its coordinator waits no longer, or its client has gone.
    shard.finish(second, false, None).expect("nothing to be done");
    shard.finish(first, true, None).expect("done");
    shard.commit().expect("commits");
    assert_eq!(shard.take_ended(), [first]);
    assert_eq!(shard.prepare(ASKER, second, 0, token()), Err(Error::Again));
    assert!(shard.is_clean(), "nothing is promised that nobody wants");
}

#[test]
fn nothing_is_kept_for_a_session_that_ends_meanwhile() {
    for is_made in [true, false] {
        let (mut shard, _) = making();
        let prepare = shard.take_outgoing().pop().expect("a message").message;
        shard.session_close(ASKER).expect("closes");
        shard.commit().expect("commits");
        assert!(shard.has_begun(ASKER, 2), "it is under way");
        let votes = vec![Vote::Made(InodeId::new(ShardId(1), 5))];
        let reply = if is_made { Reply::Prepared(votes) } else { Reply::Failed };
        shard.replied(ShardId(1), &prepare, reply).expect("ends");
        shard.commit().expect("commits");
        assert!(!shard.has_begun(ASKER, 2));
    }
}

/// A killed program has given a change up: its client says with the next one that it asks for no answer below.
#[test]
fn nothing_is_kept_for_a_change_that_was_given_up() {
    let cred = Credentials { uid: 0, gid: 0, umask: 0 };
    let exactly =
        |sequence| Exactly { session: ASKER, sequence, answered_below: sequence, given: Conditions::default() };
    for ends_before in [true, false] {
        let (mut shard, _) = making();
        let prepare = shard.take_outgoing().pop().expect("a message").message;
        let reply = Reply::Prepared(vec![Vote::Made(InodeId::new(ShardId(1), 5))]);
        if ends_before {
            shard.replied(ShardId(1), &prepare, reply.clone()).expect("ends");
            shard.commit().expect("commits");
            assert!(shard.has_begun(ASKER, 2), "it may be asked for");
        }
        drop(shard.mkdir(exactly(3), ROOT, &name("e"), 0o755, cred));
        if !ends_before {
            shard.replied(ShardId(1), &prepare, reply).expect("ends");
            shard.commit().expect("commits");
            drop(shard.mkdir(exactly(4), ROOT, &name("f"), 0o755, cred));
        }
        assert!(!shard.has_begun(ASKER, 2));
    }
}
