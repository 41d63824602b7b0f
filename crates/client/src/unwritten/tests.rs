use types::attr::{Attr, SetAttr};
use wire::frame::Status;
use wire::op::Op;
use wire::v1::meta::InodeReply;

use super::keeping::{GATHER_MAX, Kept, OBJECT_LONG};
use super::readers::errno_of_reader;
use super::*;
use crate::file::Intent;
use crate::patience::PATIENCE;
use crate::settle::Settling;
use crate::test_cluster::Script;
use crate::{test_client, test_cluster};

const FILE: InodeId = InodeId(77);

/// A file that its client alone writes, with `data` at its beginning, which no server takes.
fn keep_back(client: &Client, data: &[u8]) {
    let lease = Lease::granted(client.shared.board.ticket(), Subject::inode(FILE), 100_000);
    client.shared.with_new_file(
        FILE,
        || test_client::file(FILE),
        |file| {
            file.add_handle(true);
            file.intent = Intent::Held { exclusive: true, recorded: false, synced: 0, intents: 1 };
            file.unwritten.begin_anew(lease);
            file.unwritten.fresh = true;
        },
    );
    let kept = client.try_to_keep_back(FILE, &test_client::layout(), 0, &Slice::from_vec(data.to_vec()));
    assert!(matches!(kept, Ok(Kept::Yes { watch: true, write: false })));
}

#[test]
fn with_targets_short_of_space_no_more_is_kept_back_until_the_shard_is_asked_again() {
    test_client::run(async |client| {
        keep_back(&client, b"some");
        let again = || client.try_to_keep_back(FILE, &test_client::layout(), 4, &Slice::from_vec(b"more".to_vec()));
        client.shared.with_file(FILE, |file| file.unwritten.short = true);
        assert!(matches!(again(), Ok(Kept::No)));
        client.shared.board.note(Subject::inode(FILE));
        assert!((0..PATIENCE).all(|_| matches!(again(), Ok(Kept::No))));
        assert!(matches!(again(), Ok(Kept::Ask)), "there may be some again");
    });
}

/// Who asks for the file waits until the lease is over, and what is not with the servers by then is lost.
#[test]
fn no_more_is_kept_back_than_a_slow_link_takes_in_time() {
    test_client::run(async |client| {
        keep_back(&client, b"some");
        let flown = |seconds| {
            let took = Duration::from_secs(seconds);
            client.shared.landings.fly_for_test(GroupId(1), Instant::now(), took, 1 << 20);
            client.shared.with_file(FILE, |file| file.unwritten.in_time = None);
        };
        let more = |len| client.try_to_keep_back(FILE, &test_client::layout(), 4, &Slice::from_vec(vec![1; len]));
        assert!(matches!(more(1 << 20), Ok(Kept::Full)), "nothing is known");
        // A term of 100 s.
        flown(1);
        assert!(matches!(more(1 << 20), Ok(Kept::Yes { .. })));
        flown(64);
        assert!(matches!(more(1 << 20), Ok(Kept::No)), "the link is slow");
        (0..64).for_each(|_| flown(0));
        assert!(matches!(more(1 << 20), Ok(Kept::Yes { .. })), "it is not any more");
    });
}

/// Nobody takes a lease back to open a file that is settled.
#[test]
fn nothing_is_kept_back_under_a_lease_from_before_the_last_settling() {
    let caller = Caller::patient(Credentials::default());
    test_client::run(async |client| {
        keep_back(&client, b"some");
        let more = || client.try_to_keep_back(FILE, &test_client::layout(), 4, &Slice::from_vec(b"more".to_vec()));
        assert!(matches!(more(), Ok(Kept::Yes { .. })));
        let asked_before = client.shared.board.ticket();
        client.shared.with_file(FILE, |file| (file.handles, file.writers) = (2, 0));
        assert_eq!(client.settle(&caller, FILE, Settling::Release).await, Err(Errno::EIO), "nobody answers");
        let granted = InodeReply { unsettled: true, exclusive: true, intents: 3, ..test_client::reply(FILE) };
        client.shared.with_file(FILE, |file| {
            file.writers = 1;
            file.granted(&granted);
            file.size = 4;
        });
        let may_keep = || {
            client.shared.with_file(FILE, |file| file.unwritten.fresh = true);
            matches!(more(), Ok(Kept::Yes { .. }))
        };
        assert!(!may_keep(), "others may have opened it since");
        let alone = InodeReply { alone: true, lease_ms: 100_000, intents: 1, ..granted };
        client.told_if_alone(asked_before, &alone);
        assert!(!may_keep(), "it was so until the settling");
        client.told_if_alone(client.shared.board.ticket(), &InodeReply { intents: 3, ..alone });
        assert!(may_keep());
    });
}

#[test]
fn what_a_truncate_that_fails_would_have_cut_off_is_still_to_be_written() {
    let caller = Caller::patient(Credentials::default());
    test_client::run(async |client| {
        keep_back(&client, b"some and more");
        let truncated = client.truncate(&caller, FILE, 4, SetAttr::default()).await;
        assert_eq!(truncated, Err(Errno::EIO), "nobody answers");
        let left = client.shared.with_file(FILE, |file| {
            let bytes = file.unwritten.waiting.iter().map(|(_, run)| run.bytes().to_vec()).collect::<Vec<_>>();
            (bytes, file.unwritten.kept > file.unwritten.written, file.unwritten.weight())
        });
        let (bytes, is_to_be_written, weight) = left.expect("it is open");
        assert_eq!(bytes, [b"some and more"]);
        assert!(is_to_be_written);
        assert_eq!(client.shared.metrics.unwritten.get(), weight);
    });
}

#[test]
fn short_writes_are_not_left_behind_by_a_stream_of_long_ones() {
    let mut unwritten = Unwritten::default();
    unwritten.keep_for_test(0, b"short");
    let long = vec![1; ENOUGH];
    unwritten.keep_for_test(1 << 30, &long);
    assert!(unwritten.is_due(Instant::now()));
    let first = unwritten.take(false);
    assert!(!first.have_some_of(&(0..5)) && !unwritten.waiting.is_empty(), "those may still grow");
    assert!(!unwritten.is_due(Instant::now()));
    unwritten.leave_nothing_behind();
    assert!(!unwritten.is_due(Instant::now()), "the watch writes them");
    unwritten.flying = Some(Arc::new(first));
    unwritten.leave_nothing_behind();
    unwritten.flying = None;
    assert!(unwritten.is_due(Instant::now()));
    assert!(unwritten.take(false).have_some_of(&(0..5)));
    assert!(!unwritten.is_due(Instant::now()), "nothing is left");
}

#[test]
fn who_reads_is_not_told_why_others_could_not_write() {
    let told = [Errno::ENOSPC, Errno::ESTALE, Errno::EINTR].map(errno_of_reader);
    assert_eq!(told, [Errno::EIO, Errno::EIO, Errno::EINTR]);
}

#[test]
fn who_reads_elsewhere_does_not_need_what_cannot_be_written() {
    let caller = Caller::patient(Credentials::default());
    test_client::run(async |client| {
        keep_back(&client, b"some");
        for (range, outcome) in [(4..9, Ok(())), (3..9, Err(Errno::EIO)), (0..1, Err(Errno::EIO))] {
            assert_eq!(client.write_out_to_read(&caller, FILE, &range).await, outcome, "{range:?}");
        }
        client.shared.with_file(FILE, |file| give_up(&client.shared, FILE, file, "so it is"));
        assert_eq!(client.write_out_to_read(&caller, FILE, &(4..9)).await, Err(Errno::EIO), "who knows what it had");
    });
}

/// Nothing is left that could not be written, so that the truncate goes on, and fails at its objects.
#[test]
fn what_was_taken_out_for_a_truncate_that_fails_later_is_still_to_be_written() {
    let caller = Caller::patient(Credentials::default());
    test_client::run(async |client| {
        keep_back(&client, b"some and more");
        let truncated = client.truncate(&caller, FILE, 0, SetAttr::default()).await;
        assert_eq!(truncated, Err(Errno::EIO), "nobody answers");
        assert_eq!(client.write_out(&caller, FILE).await, Err(Errno::EIO), "it is not forgotten");
        let bytes = client.shared.with_file(FILE, |file| file.unwritten.find(&(0..13)));
        assert_eq!(bytes.flatten().as_deref(), Some(&b"some and more"[..]));
    });
}

/// Somebody else may have written there.
#[test]
fn what_was_taken_out_under_a_lease_that_has_ended_does_not_come_back() {
    let caller = Caller::patient(Credentials::default());
    test_client::run(async |client| {
        keep_back(&client, b"some and more");
        let taken = client.cut_unwritten(FILE, 0);
        let lease = Lease::granted(client.shared.board.ticket(), Subject::inode(FILE), 100_000);
        client.shared.with_file(FILE, |file| file.know_objects_anew(lease));
        client.put_back_unwritten(FILE, &taken);
        let is_clean = client.shared.with_file(FILE, |file| file.unwritten.is_clean());
        assert_eq!(
            (is_clean, client.fsync(&caller, FILE, crate::Durability::Data).await),
            (Some(true), Err(Errno::EIO)),
            "fsync tells"
        );
    });
}

/// Else the bound on what all files may keep back would move with each of them.
#[test]
fn of_a_run_that_is_written_in_part_both_parts_count() {
    test_client::run(async |client| {
        let first = vec![1; GATHER_MAX];
        client.shared.landings.passage(GroupId(1), 1 << 30).has_landed();
        keep_back(&client, &first);
        for n in 1.. {
            let data = Slice::from_vec(vec![2; GATHER_MAX - 1]);
            let kept = client.try_to_keep_back(FILE, &test_client::layout(), n * (GATHER_MAX as u64 - 1), &data);
            let Ok(Kept::Yes { write, .. }) = kept else { panic!("it is kept back") };
            if write {
                break;
            }
        }
        let weight =
            || client.shared.with_file(FILE, |file| (file.unwritten.waiting.weight(), file.unwritten.weight()));
        let Step::Write(mut flight, _) = client.next_step(FILE, None) else { panic!("it is due") };
        let (waiting, all) = weight().expect("it is open");
        assert!(waiting > 0, "a part stays");
        assert_eq!(client.shared.metrics.unwritten.get(), all);
        flight.landed = true;
        drop(flight);
        assert_eq!(client.shared.metrics.unwritten.get(), waiting);
    });
}

#[test]
fn what_is_left_of_a_file_is_not_read_where_writes_were_lost() {
    let caller = Caller::patient(Credentials::default());
    test_client::run(async |client| {
        let shared = &client.shared;
        shared.with_new_file(FILE, || test_client::file(FILE), |file| file.add_handle(false));
        let lease = Lease::granted(shared.board.ticket(), Subject::inode(FILE), 100_000);
        let attr = Attr { size: 3, ..test_client::reply(FILE).attr };
        shared.learn(shared.contents.asks(FILE), lease, attr, Some(Arc::from(&b"old"[..])));
        let read = async || client.read(&caller, FILE, 0, 10, false).await.map(|parts| crate::data::joined(&parts));
        assert_eq!(read().await, Ok(b"old".to_vec()));
        shared.with_file(FILE, |file| file.unwritten.lose());
        assert_eq!(read().await, Err(Errno::EIO));
    });
}

/// A shard that has restarted renews no lease that it does not know, and servers may all be away for a while.
#[test]
fn what_is_kept_back_has_half_a_term_to_be_written_in() {
    test_client::run(async |client| {
        keep_back(&client, b"some");
        let (board, term) = (&client.shared.board, Duration::from_millis(9_500));
        let again = |age: Duration| {
            let lease = Lease::granted(board.ticket().before(age), Subject::inode(FILE), 10_000);
            client.shared.with_file(FILE, |file| file.unwritten.lease = lease);
            let kept = client.try_to_keep_back(FILE, &test_client::layout(), 4, &Slice::from_vec(b"more".to_vec()));
            (kept, board.holds_most(lease, Instant::now()))
        };
        assert!(matches!(again(term / 5), (Ok(Kept::Yes { .. }), true)));
        assert!(matches!(again(term / 3), (Ok(Kept::Yes { .. }), false)), "who looks after it renews it in time");
        assert!(matches!(again(term * 3 / 5), (Ok(Kept::Ask), false)), "at once: it was held until now");
        assert!(matches!(again(term * 3 / 5), (Ok(Kept::No), false)), "it is being asked for");
        assert!(matches!(again(term / 5), (Ok(Kept::Yes { .. }), true)));
    });
}

/// A disk's file system may refuse it, and then all that is kept back of the file.
#[test]
fn what_makes_a_long_object_longer_is_not_kept_back() {
    test_client::run(async |client| {
        keep_back(&client, b"some");
        let is_kept = |size: u64, uneven: bool, offset: u64| {
            client.shared.with_file(FILE, |file| (file.size, file.uneven) = (size, uneven));
            let kept =
                client.try_to_keep_back(FILE, &test_client::layout(), offset, &Slice::from_vec(b"more".to_vec()));
            matches!(kept, Ok(Kept::Yes { .. }))
        };
        assert!(is_kept(OBJECT_LONG - 4, false, OBJECT_LONG - 4));
        assert!(!is_kept(OBJECT_LONG, false, OBJECT_LONG - 2));
        assert!(!is_kept(16 << 40, false, 16 << 40));
        assert!(is_kept(16 << 40, false, (16 << 40) - 4), "it has that already");
        assert!(!is_kept(16 << 40, true, (16 << 40) - 4), "another one may have it");
    });
}

/// A new file of which up to 8 bytes may be in the metadata.
fn make_draft(client: &Client) {
    let lease = Lease::granted(client.shared.board.ticket(), Subject::inode(FILE), 100_000);
    let made = InodeReply { draft: true, inline_limit: 8, ..test_client::reply(FILE) };
    client.shared.with_new_file(FILE, || test_client::file(FILE), |file| file.add_handle(true));
    client.begin_draft(&made, lease, client.shared.contents.renames());
}

async fn change_mode(client: &Client) {
    let change = SetAttr { mode: Some(0o755), ..SetAttr::default() };
    client.setattr(&Caller::patient(Credentials::default()), FILE, change).await.expect("it is a draft");
}

async fn write(client: &Client, offset: u64) {
    let data = Slice::from_vec(b"ten bytes!".to_vec());
    client.write(&Caller::patient(Credentials::default()), FILE, offset, &data, false).await.expect("it is kept back");
}

async fn gives_intent(shard: &Script) {
    let alone = InodeReply { unsettled: true, exclusive: true, alone: true, ..test_client::reply(FILE) };
    let granted = InodeReply { draft: true, lease_ms: 100_000, ..alone };
    shard.next(Op::WriteIntent).await.responder.reply(&granted);
}

/// Says of the object that there is none, as before each write to one of which nothing is known.
async fn has_no_object(shard: &Script) {
    let none = storage::ObjectStat { exists: false, version: 5, size: 0, blocks: 0, mtime: Timestamp(0) };
    shard.next(Op::Stat).await.responder.reply(&storage::StatReply { objects: vec![none] });
}

/// The same, and that the session goes on, as before the first write over a new connection.
async fn is_new(shard: &Script) {
    has_no_object(shard).await;
    shard.does(Op::Ping).await;
}

async fn takes_first_write(shard: &Script, size: u64) {
    is_new(shard).await;
    shard.next(Op::Write).await.responder.reply(&storage::WriteReply { version: 9, size, durable: false });
}

/// A program that sets attributes after it has written is about to close the file.
#[test]
fn what_objects_are_to_have_of_a_new_file_is_on_its_way_once_attributes_are_set() {
    test_cluster::run(async |shard, [client, _]| {
        make_draft(&client);
        // There is nothing to write yet: the chance is still there.
        change_mode(&client).await;
        write(&client, 0).await;
        change_mode(&client).await;
        shard.opens_session(1).await;
        gives_intent(shard).await;
        takes_first_write(shard, 10).await;
        write(&client, 10).await;
        change_mode(&client).await;
        shard.nothing_comes().await;
    });
}

#[test]
fn who_writes_on_after_attributes_were_set_has_the_chance_later() {
    test_cluster::run(async |shard, [client, _]| {
        make_draft(&client);
        write(&client, 0).await;
        change_mode(&client).await;
        write(&client, 10).await;
        shard.opens_session(1).await;
        gives_intent(shard).await;
        shard.nothing_comes().await;
        write(&client, 20).await;
        change_mode(&client).await;
        takes_first_write(shard, 30).await;
    });
}

#[test]
fn a_flush_waits_for_what_is_on_its_way_and_tells_what_has_failed() {
    let caller = Caller::patient(Credentials::default());
    test_cluster::run(async |shard, [client, _]| {
        make_draft(&client);
        write(&client, 0).await;
        change_mode(&client).await;
        shard.opens_session(1).await;
        gives_intent(shard).await;
        is_new(shard).await;
        let early = shard.next(Op::Write).await;
        let flushes = async || assert_eq!(client.write_out(&caller, FILE).await, Err(Errno::ENOSPC));
        let answers = async || {
            let settled = meta::SettleReply { settled: false, intents: 1 };
            shard.next(Op::Settle).await.responder.reply(&settled);
            shard.nothing_comes().await;
            early.responder.fail(Status::Errno(Errno::ENOSPC));
            has_no_object(shard).await;
            shard.refuses(Op::Write, Errno::ENOSPC).await;
        };
        test_cluster::join(flushes(), answers()).await;
        let bytes = client.shared.with_file(FILE, |file| file.unwritten.find(&(0..10)));
        assert_eq!(bytes.flatten().as_deref(), Some(&b"ten bytes!"[..]), "it is still here");
    });
}

/// Its contents are with the request then.
#[test]
fn a_draft_that_is_being_told_is_read_and_goes_to_objects_where_it_is_not_taken() {
    let caller = Caller::patient(Credentials::default());
    test_cluster::run(async |shard, [client, _]| {
        make_draft(&client);
        let data = Slice::from_vec(b"five!".to_vec());
        client.write(&caller, FILE, 0, &data, false).await.expect("it is kept back");
        let read = async || client.read(&caller, FILE, 0, 9, false).await.map(|parts| crate::data::joined(&parts));
        let weight = client.shared.metrics.unwritten.get();
        let flushes = async || assert_eq!(client.write_out(&caller, FILE).await, Ok(()));
        let answers = async || {
            shard.opens_session(1).await;
            let told = shard.next(Op::Settle).await;
            assert_eq!((read().await, client.shared.metrics.unwritten.get()), (Ok(b"five!".to_vec()), weight));
            told.responder.fail(Status::Errno(Errno::EOPNOTSUPP));
            gives_intent(shard).await;
            assert_eq!(read().await, Ok(b"five!".to_vec()));
            takes_first_write(shard, 5).await;
        };
        test_cluster::join(flushes(), answers()).await;
        let kept = client.shared.with_file(FILE, |file| file.kept_back());
        assert_eq!(kept, Some(KeptBack::default()));
    });
}

#[test]
fn one_look_tells_all_that_is_kept_back() {
    let mut file = test_client::file(FILE);
    assert_eq!(file.kept_back(), KeptBack::default());
    file.unwritten.keep_for_test(0, b"some");
    assert_eq!(file.kept_back(), KeptBack { writes: Some(1), ..KeptBack::default() });
    file.unwritten.flying = Some(Arc::new(file.unwritten.take(true)));
    assert_eq!(file.kept_back().writes, Some(1), "who waits for all waits for these");
    (file.unwritten.flying, file.unwritten.written) = (None, 1);
    assert_eq!(file.kept_back(), KeptBack::default());
    file.unwritten.lose();
    assert_eq!(file.kept_back().writes, Some(1), "that is to be told");
}
