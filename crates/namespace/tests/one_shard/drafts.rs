//! Files of which their maker keeps back what was done to them: whoever else looks sees what the maker has said, and what it
//! says after that is refused; over restarts too.

use namespace::error::{Error, Result};
use namespace::shard::Config;
use namespace::view::{
    Create, Drafted, HeldOpen, InodeView, PolicyChange, Settle, Settled, Telling, WriteInline, XATTR_CREATE,
};
use types::attr::{FileType, SetAttr};
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::layout::{INLINE_DEFAULT, INLINE_MAX};
use types::time::Timestamp;

use crate::common::{A, B, Bed, EXPIRY_MS, ROOT, config, name, refused};

const TERM_MS: u64 = 1000;

fn bed() -> Bed {
    let mut bed = Bed::with(Config { lease_term_ms: TERM_MS, ..config() });
    listen(&mut bed);
    bed
}

fn listen(bed: &mut Bed) {
    for session in [A, B] {
        bed.shard.listen(session, true);
    }
}

fn make(bed: &mut Bed, session: SessionId, text: &str) -> InodeView {
    let exactly = bed.next(session);
    let name = name(text);
    let create = Create { write_intent: true, draft: true, ..crate::common::creation(&name) };
    let view = bed.shard.create(exactly, &create).expect("made");
    bed.turn();
    view
}

fn draft(bed: &mut Bed, text: &str) -> InodeId {
    let view = make(bed, A, text);
    assert!(view.draft && view.lease_ms > 0);
    view.attr.inode
}

fn drafted(contents: Option<&[u8]>) -> Drafted {
    let contents = contents.map(<[u8]>::to_vec);
    let (atime, mtime, ctime) = (Timestamp(11), Timestamp(22), Timestamp(33));
    Drafted { contents, mode: 0o600, uid: 7, gid: 8, atime, mtime, ctime }
}

fn settle(inode: InodeId, size: u64) -> Settle {
    Settle {
        inode,
        size,
        blocks: size.div_ceil(512),
        mtime: None,
        gathered: None,
        release: false,
        close: false,
        untouched: false,
        read: None,
    }
}

fn publish(bed: &mut Bed, session: SessionId, inode: InodeId, drafted: &Drafted) -> Result<Settled> {
    let exactly = bed.next(session);
    bed.shard.settle(exactly, &settle(inode, 0), Some(drafted.clone()))
}

fn contents(bed: &mut Bed, session: SessionId, inode: InodeId) -> Result<Vec<u8>> {
    bed.shard.read_inline(session, inode, 0, INLINE_MAX).map(|(_, bytes)| bytes)
}

fn is_recalling<T: std::fmt::Debug>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Recalling))
}

/// The session gives back all that it is asked for.
fn acknowledge(bed: &mut Bed, session: SessionId) {
    let ids: Vec<u64> = bed.shard.recalls(session).iter().map(|recall| recall.id).collect();
    assert!(!ids.is_empty(), "nothing is recalled");
    bed.shard.acknowledge_recalls(session, &ids);
}

fn held(inode: InodeId, write_intent: bool) -> HeldOpen {
    HeldOpen { inode, write_intent, draft: true }
}

fn tell(bed: &mut Bed, session: SessionId, opens: &[HeldOpen]) {
    bed.shard.session_tell(session, b"again", &Telling::whole(opens, &[])).expect("told");
    bed.shard.listen(session, true);
}

#[test]
fn what_is_said_at_once_is_all_there() {
    let mut bed = bed();
    let f = draft(&mut bed, "f");
    assert!(publish(&mut bed, A, f, &drafted(Some(b"abc"))).unwrap().settled);
    bed.turn();
    let view = bed.stat(f).unwrap();
    assert!(!view.draft && !view.unsettled);
    let attr = view.attr;
    assert_eq!((attr.mode, attr.uid, attr.gid, attr.size, attr.blocks), (0o600, 7, 8, 3, 1));
    assert_eq!((attr.atime, attr.mtime, attr.ctime), (Timestamp(11), Timestamp(22), Timestamp(33)));
    assert_eq!(contents(&mut bed, B, f).unwrap(), b"abc");
    assert_eq!(refused(publish(&mut bed, A, f, &drafted(Some(b"x")))), Errno::ECANCELED, "once");
    assert_eq!(contents(&mut bed, A, f).unwrap(), b"abc");
}

#[test]
fn others_wait_for_the_makers_word() {
    type Act = fn(&mut Bed, InodeId) -> Result<()>;
    let acts: [(&str, Act); 9] = [
        ("stat", |bed, f| bed.shard.getattr(B, f).map(drop)),
        ("lookup", |bed, _| bed.shard.lookup(B, ROOT, &name("f")).map(drop)),
        ("open", |bed, f| bed.shard.open_inode(B, f, true).map(drop)),
        ("read", |bed, f| contents(bed, B, f).map(drop)),
        ("info", |bed, f| bed.shard.entry_info(B, f).map(drop)),
        ("set", |bed, f| {
            let exactly = bed.next(B);
            bed.shard.set(exactly, f, &SetAttr { mode: Some(0o640), ..SetAttr::default() }, false).map(drop)
        }),
        ("write", |bed, f| {
            let exactly = bed.next(B);
            bed.shard.write_inline(exactly, &WriteInline { inode: f, offset: 3, append: false, bytes: b"d" }).map(drop)
        }),
        ("intent", |bed, f| {
            let exactly = bed.next(B);
            match bed.shard.write_intent(exactly, f, false) {
                Err(Error::Growing) => Ok(()),
                result => result.map(drop),
            }
        }),
        ("xattr", |bed, f| {
            let exactly = bed.next(B);
            bed.shard.set_xattr(exactly, f, b"user.x", b"1", XATTR_CREATE)
        }),
    ];
    for (what, act) in acts {
        let mut bed = bed();
        let f = draft(&mut bed, "f");
        assert!(is_recalling(act(&mut bed, f)), "{what}");
        publish(&mut bed, A, f, &drafted(Some(b"abc"))).expect("still its draft");
        bed.turn();
        // Who only looks need not wait for the lease as well.
        match act(&mut bed, f) {
            Err(Error::Recalling) => {
                acknowledge(&mut bed, A);
                act(&mut bed, f).unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            result => result.unwrap_or_else(|error| panic!("{what}: {error}")),
        }
        bed.turn();
        assert_eq!(bed.shard.getattr(B, f).unwrap().attr.uid, 7, "{what}");
    }
}

#[test]
fn a_maker_that_was_silent_is_not_believed_afterwards() {
    let mut bed = bed();
    let f = draft(&mut bed, "f");
    assert!(is_recalling(bed.shard.getattr(B, f)));
    bed.wait_ms(TERM_MS + 1);
    let view = bed.shard.getattr(B, f).expect("the term is over");
    assert_eq!((view.attr.size, view.attr.uid), (0, 1000));
    bed.turn();
    assert_eq!(refused(publish(&mut bed, A, f, &drafted(Some(b"abc")))), Errno::ECANCELED);
    let exactly = bed.next(A);
    assert_eq!(refused(bed.shard.write_intent_of_draft(exactly, f, false)), Errno::ECANCELED);
    bed.turn();
    assert_eq!(contents(&mut bed, B, f).unwrap(), b"");
}

#[test]
fn a_maker_that_was_silent_while_nobody_asked_is_believed() {
    let mut bed = bed();
    let f = draft(&mut bed, "f");
    bed.wait_ms(5 * TERM_MS);
    publish(&mut bed, A, f, &drafted(Some(b"abc"))).expect("nobody was told otherwise");
    bed.turn();
    assert_eq!(contents(&mut bed, B, f).unwrap(), b"abc");
}

#[test]
fn who_gives_the_lease_back_without_a_word_has_said_all() {
    let mut bed = bed();
    let f = draft(&mut bed, "f");
    assert!(is_recalling(bed.shard.getattr(B, f)));
    acknowledge(&mut bed, A);
    assert_eq!(bed.shard.getattr(B, f).unwrap().attr.size, 0);
    bed.turn();
    assert_eq!(refused(publish(&mut bed, A, f, &drafted(Some(b"abc")))), Errno::ECANCELED);
}

#[test]
fn what_only_the_shard_decides_is_no_draft() {
    let mut bed = bed();
    let exactly = bed.next(A);
    let change = PolicyChange { inline_limit: Some(0), ..PolicyChange::default() };
    bed.shard.set_policy(exactly, ROOT, &change).unwrap();
    bed.turn();
    let view = make(&mut bed, A, "in objects");
    assert!(!view.draft && view.alone && view.unsettled);

    let mut bed = self::bed();
    bed.shard.listen(A, false);
    assert!(!make(&mut bed, A, "without a lease").draft);
    let deaf = bed.lookup(ROOT, "without a lease").unwrap();
    assert!(!bed.stat(deaf).unwrap().draft);

    let mut bed = self::bed();
    let opened = bed.make(ROOT, "for reading", FileType::Regular, true, true).unwrap();
    assert!(!opened.draft);
    let acl =
        [2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 5, 0, 255, 255, 255, 255, 32, 0, 5, 0, 255, 255, 255, 255];
    bed.set_xattr(ROOT, b"system.posix_acl_default", &acl, 0).unwrap();
    bed.turn();
    // A minimal ACL leaves no attribute behind on a file.
    let plain = make(&mut bed, A, "plain");
    assert_eq!(plain.draft, plain.bare);
}

#[test]
fn a_draft_that_grows_keeps_its_attributes_back() {
    let mut bed = bed();
    let f = draft(&mut bed, "f");
    let exactly = bed.next(A);
    let view = bed.shard.write_intent_of_draft(exactly, f, false).expect("no contents to be moved");
    assert!(
        view.draft && view.alone && view.exclusive && view.unsettled && view.inline_limit == 0 && view.lease_ms > 0
    );
    bed.turn();
    assert!(is_recalling(bed.shard.getattr(B, f)));
    assert_eq!(refused(publish(&mut bed, A, f, &drafted(Some(b"abc")))), Errno::EOPNOTSUPP);
    let exactly = bed.next(A);
    let settle = Settle { release: true, close: true, ..settle(f, 100_000) };
    assert!(bed.shard.settle(exactly, &settle, Some(drafted(None))).unwrap().settled);
    bed.turn();
    acknowledge(&mut bed, A);
    let view = bed.shard.getattr(B, f).unwrap();
    assert!(!view.unsettled && view.has_objects);
    assert_eq!((view.attr.size, view.attr.mode, view.attr.mtime), (100_000, 0o600, Timestamp(22)));
}

#[test]
fn contents_that_do_not_fit_are_refused_and_nothing_is_done() {
    let mut bed = bed();
    let f = draft(&mut bed, "f");
    let long = vec![1; INLINE_DEFAULT as usize + 1];
    assert_eq!(refused(publish(&mut bed, A, f, &drafted(Some(&long)))), Errno::EOPNOTSUPP);
    bed.turn();
    let view = bed.stat(f).unwrap();
    assert!(view.draft && view.attr.uid == 1000);
    publish(&mut bed, A, f, &drafted(Some(&long[1..]))).expect("fits");
}

#[test]
fn the_end_of_the_open_ends_the_draft() {
    let mut bed = bed();
    let f = draft(&mut bed, "f");
    bed.shard.close_inode(A, f, None).unwrap();
    bed.turn();
    assert!(bed.shard.getattr(B, f).is_ok(), "nobody is waited for");
    assert_eq!(refused(publish(&mut bed, A, f, &drafted(Some(b"abc")))), Errno::ECANCELED);
}

#[test]
fn a_draft_without_a_name_is_told_all_the_same() {
    let mut bed = bed();
    let f = draft(&mut bed, "f");
    bed.unlink(ROOT, "f").unwrap();
    bed.turn();
    publish(&mut bed, A, f, &Drafted { ctime: Timestamp(0), ..drafted(Some(b"abc")) }).unwrap();
    bed.turn();
    let attr = bed.stat(f).unwrap().attr;
    assert!(attr.nlink == 0 && attr.size == 3 && attr.ctime > Timestamp(0), "{attr:?}");
    bed.shard.close_inode(A, f, None).unwrap();
    bed.turn();
    assert_eq!(refused(bed.stat(f)), Errno::ESTALE);
}

#[test]
fn a_turn_that_fails_leaves_the_draft() {
    let mut bed = bed();
    let f = draft(&mut bed, "f");
    bed.kv.fail_commit(1, kv::KvError::NoSpace("full".into()));
    let exactly = bed.next(A);
    bed.shard.settle(exactly, &settle(f, 0), Some(drafted(Some(b"abc")))).unwrap();
    assert!(bed.shard.commit().is_err());
    assert!(bed.stat(f).unwrap().draft);
    bed.shard.settle(exactly, &settle(f, 0), Some(drafted(Some(b"abc")))).expect("again");
    bed.turn();
    assert_eq!(contents(&mut bed, A, f).unwrap(), b"abc");
}

#[test]
fn makers_claim_their_drafts_after_a_restart() {
    let mut bed = bed();
    let (f, g) = (draft(&mut bed, "f"), draft(&mut bed, "g"));
    let exactly = bed.next(A);
    bed.shard.write_intent_of_draft(exactly, g, false).unwrap();
    bed.turn();
    bed.wait_ms(60 * TERM_MS);
    bed.restart();
    listen(&mut bed);
    tell(&mut bed, B, &[]);
    assert!(is_recalling(bed.shard.getattr(B, f)), "the maker is not back");
    tell(&mut bed, A, &[held(f, false), held(g, true)]);
    assert!(is_recalling(bed.shard.getattr(B, f)));
    publish(&mut bed, A, f, &drafted(Some(b"abc"))).expect("its draft");
    publish(&mut bed, A, g, &drafted(None)).expect("its draft");
    bed.turn();
    acknowledge(&mut bed, A);
    assert!(bed.tick().grace_ended);
    assert_eq!(bed.shard.getattr(B, f).unwrap().attr.uid, 7);
    assert_eq!(contents(&mut bed, B, f).unwrap(), b"abc");
}

#[test]
fn makers_claim_their_drafts_also_where_leases_are_given_no_more() {
    let mut bed = bed();
    let f = draft(&mut bed, "f");
    bed.config.lease_term_ms = 0;
    bed.restart();
    tell(&mut bed, B, &[]);
    assert!(is_recalling(bed.shard.getattr(B, f)), "the maker goes by the lease that it was given");
    tell(&mut bed, A, &[held(f, false)]);
    publish(&mut bed, A, f, &drafted(Some(b"abc"))).expect("its draft");
    bed.turn();
    acknowledge(&mut bed, A);
    assert_eq!(contents(&mut bed, B, f).unwrap(), b"abc");
}

#[test]
fn who_asks_again_for_the_objects_of_a_draft_still_knows_them_alone() {
    let mut bed = bed();
    let f = draft(&mut bed, "f");
    let exactly = bed.next(A);
    bed.shard.write_intent_of_draft(exactly, f, false).unwrap();
    bed.turn();
    // The answer was lost with the shard's memory.
    bed.restart();
    tell(&mut bed, A, &[held(f, false)]);
    let view = bed.shard.write_intent_of_draft(exactly, f, false).unwrap();
    assert!(view.exclusive && view.lease_ms > 0, "another session that is not back is not waited for: {view:?}");
    bed.turn();
    let exactly = bed.next(A);
    let view = bed.shard.write_intent_of_draft(exactly, f, false).unwrap();
    assert!(view.draft && view.exclusive && view.unsettled, "{view:?}");
}

/// Nobody was told of a draft: no session that is not back has to be waited for.
#[test]
fn a_reclaimed_draft_grows_at_once() {
    let mut bed = bed();
    let f = draft(&mut bed, "f");
    bed.restart();
    tell(&mut bed, A, &[held(f, false)]);
    let exactly = bed.next(A);
    let view = bed.shard.write_intent_of_draft(exactly, f, false).expect("not the other session's");
    assert!(view.draft && view.lease_ms > 0);
}

/// It asked for the shard before its time was over, and told what it holds after that: of another incarnation.
#[test]
fn a_session_that_came_back_late_claims_nothing_later() {
    let mut bed = bed();
    let f = draft(&mut bed, "f");
    bed.restart();
    tell(&mut bed, B, &[]);
    bed.wait_ms(EXPIRY_MS - 1);
    bed.shard.session_open(A, b"again").expect("asked");
    bed.shard.touch(B);
    bed.wait_ms(2);
    assert!(bed.tick().grace_ended);
    bed.turn();
    assert_eq!(bed.shard.getattr(B, f).expect("nobody is waited for").attr.size, 0);
    bed.turn();
    bed.restart();
    tell(&mut bed, A, &[held(f, false)]);
    assert_eq!(refused(publish(&mut bed, A, f, &drafted(Some(b"abc")))), Errno::ECANCELED);
}

#[test]
fn an_answer_that_was_lost_with_the_shard_is_given_again() {
    let mut bed = bed();
    let f = draft(&mut bed, "f");
    let exactly = bed.next(A);
    bed.shard.settle(exactly, &settle(f, 0), Some(drafted(Some(b"abc")))).unwrap();
    bed.turn();
    bed.restart();
    tell(&mut bed, A, &[held(f, false)]);
    assert!(bed.shard.settle(exactly, &settle(f, 0), Some(drafted(Some(b"abc")))).unwrap().settled);
    assert!(!bed.stat(f).unwrap().draft);
}

#[test]
fn what_others_were_told_outlives_restarts() {
    for restarts in [1, 2] {
        let mut bed = bed();
        let f = draft(&mut bed, "f");
        if restarts == 1 {
            // Told after the term, before the restart.
            assert!(is_recalling(bed.shard.getattr(B, f)));
            bed.wait_ms(TERM_MS + 1);
            bed.shard.getattr(B, f).expect("the term is over");
        } else {
            // Told between two restarts, before the maker is back.
            bed.restart();
            tell(&mut bed, B, &[]);
            assert!(is_recalling(bed.shard.getattr(B, f)));
            bed.wait_ms(TERM_MS + 1);
            bed.shard.getattr(B, f).expect("presumed no longer");
        }
        bed.turn();
        bed.restart();
        tell(&mut bed, A, &[held(f, false)]);
        assert_eq!(refused(publish(&mut bed, A, f, &drafted(Some(b"abc")))), Errno::ECANCELED, "{restarts}");
    }
}

#[test]
fn a_session_that_has_ended_claims_nothing() {
    let mut bed = bed();
    let f = draft(&mut bed, "f");
    bed.wait_ms(EXPIRY_MS + 1);
    bed.shard.touch(B);
    bed.tick();
    bed.turn();
    assert_eq!(bed.shard.getattr(B, f).unwrap().attr.size, 0);
    tell(&mut bed, A, &[held(f, false)]);
    assert_eq!(refused(publish(&mut bed, A, f, &drafted(Some(b"abc")))), Errno::ECANCELED);
}

#[test]
fn a_repeated_create_is_no_draft() {
    let mut bed = bed();
    let exactly = bed.next(A);
    let name = name("f");
    let create = Create { write_intent: true, draft: true, ..crate::common::creation(&name) };
    assert!(bed.shard.create(exactly, &create).unwrap().draft);
    bed.turn();
    let again = bed.shard.create(exactly, &create).unwrap();
    assert!(!again.draft && again.lease_ms == 0);
    assert!(bed.shard.getattr(B, again.attr.inode).is_ok());
}
