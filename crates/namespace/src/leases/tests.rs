use super::*;

const TERM: u64 = 10_000;
const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);
const C: SessionId = SessionId(3);
const FILE: InodeId = InodeId(77);
const DIRECTORY: InodeId = InodeId(70);

fn leases() -> Leases {
    let mut leases = Leases::new(TERM, 1000, Before::default(), 1, 0);
    for session in [A, B, C] {
        leases.listen(session, true);
    }
    leases
}

fn before<const N: usize>(sessions: [SessionId; N]) -> Before {
    Before { sessions: sessions.into(), term_ms: TERM }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn ids(leases: &mut Leases, session: SessionId) -> Vec<u64> {
    leases.unacknowledged(session).iter().map(|recall| recall.id).collect()
}

fn has_ended(leases: &mut Leases) -> bool {
    !leases.take_ended().is_empty()
}

#[test]
fn a_change_waits_until_all_others_have_given_back() {
    let mut leases = leases();
    for session in [A, B, C] {
        assert_eq!(leases.grant(session, Subject::inode(FILE)), 10_000);
    }
    let touched = [Touched::inode(FILE)];
    assert!(!leases.may_change(A, &touched));
    assert_eq!((leases.next_alert(), leases.next_alert(), leases.next_alert()), (Some(B), Some(C), None));
    // Asking again recalls nothing anew.
    assert!(!leases.may_change(A, &touched));
    let (of_b, of_c) = (ids(&mut leases, B), ids(&mut leases, C));
    assert_eq!((of_b.len(), of_c.len(), ids(&mut leases, A).len()), (1, 1, 0));
    assert_eq!(leases.grant(A, Subject::inode(FILE)), 0, "not while it is being taken back");
    leases.acknowledge(B, &of_b);
    assert!(!has_ended(&mut leases) && !leases.may_change(A, &touched));
    leases.acknowledge(C, &of_b);
    assert!(!leases.may_change(A, &touched), "another one's recall counts for nobody");
    leases.acknowledge(C, &of_c);
    assert!(has_ended(&mut leases) && leases.may_change(A, &touched));
    assert!(leases.next_alert().is_none() && ids(&mut leases, B).is_empty());
}

#[test]
fn a_change_hears_of_the_end_of_what_it_waits_for_alone() {
    let mut leases = leases();
    let (file, other) = (Touched::inode(FILE), Touched::inode(DIRECTORY));
    for touched in [file, other] {
        leases.grant(B, touched.subject());
    }
    assert!(!leases.may_change(A, &[file]));
    let awaited = leases.awaited();
    assert!(!leases.may_change(A, &[other]) && leases.awaited() != awaited);
    let recalled = ids(&mut leases, B);
    leases.acknowledge(B, &recalled[1..]);
    assert_eq!(leases.take_ended(), [leases.awaited()]);
    leases.acknowledge(B, &recalled[..1]);
    assert_eq!(leases.take_ended(), [awaited]);
    assert!(!leases.are_names_free(DIRECTORY));
    let awaited = leases.awaited();
    leases.advance(TERM);
    assert_eq!(leases.take_ended(), [awaited]);
}

#[test]
fn who_alone_has_not_given_back_what_it_wants_to_change_itself_goes_on() {
    let mut leases = leases();
    let touched = [Touched::inode(FILE)];
    for session in [A, B] {
        leases.grant(session, Subject::inode(FILE));
    }
    assert!(!leases.may_change(A, &touched) && !leases.may_change(B, &touched));
    let of_a = ids(&mut leases, A);
    leases.acknowledge(A, &of_a);
    assert_eq!(leases.take_ended(), [leases.awaited()]);
    assert!(!leases.may_change(A, &touched) && leases.may_change(B, &touched));
}

/// Whether who wants to change it goes through all that hold it: then it finds one that was put there behind its back.
fn looks_for_holders(leases: &mut Leases, session: SessionId) -> bool {
    while leases.next_alert().is_some() {}
    leases.table.note(Subject::inode(FILE), SessionId(9), TERM);
    assert!(!leases.may_change(session, &[Touched::inode(FILE)]));
    leases.table.release(Subject::inode(FILE), SessionId(9));
    leases.next_alert() == Some(SessionId(9))
}

#[test]
fn holders_are_gone_through_twice_however_many_want_to_change_it() {
    let mut leases = leases();
    for session in [A, B, C] {
        leases.grant(session, Subject::inode(FILE));
    }
    assert!(!leases.may_change(A, &[Touched::inode(FILE)]));
    assert!(!looks_for_holders(&mut leases, A), "all others were asked");
    assert!(!leases.may_change(B, &[Touched::inode(FILE)]));
    assert_eq!(leases.next_alert(), Some(A));
    for session in [A, B, C, SessionId(4)] {
        assert!(!looks_for_holders(&mut leases, session), "all were asked");
    }
}

#[test]
fn who_holds_it_since_all_were_asked_is_asked_as_well() {
    let mut leases = leases();
    let touched = [Touched::inode(FILE)];
    leases.grant(B, Subject::inode(FILE));
    assert!(!leases.may_change(A, &touched));
    assert_eq!(leases.next_alert(), Some(B));
    leases.presume_of(C, Subject::inode(FILE));
    assert!(!leases.may_change(A, &touched));
    assert_eq!((leases.next_alert(), leases.next_alert()), (Some(C), None));
    let (of_b, of_c) = (ids(&mut leases, B), ids(&mut leases, C));
    leases.acknowledge(B, &of_b);
    assert!(!leases.may_change(A, &touched));
    leases.acknowledge(C, &of_c);
    assert!(leases.may_change(A, &touched));
}

#[test]
fn who_waits_goes_on_as_the_last_that_is_asked_also_where_others_were_told_in_between() {
    let mut leases = leases();
    let touched = [Touched::inode(FILE)];
    leases.grant(A, Subject::inode(FILE));
    assert!(!leases.may_change(B, &touched));
    // As where A changes its mode, and tells those who have it open.
    assert!(leases.may_change(A, &touched));
    for opener in [B, C] {
        leases.presume_of(opener, Subject::inode(FILE));
    }
    assert!(!leases.may_change(A, &touched));
    assert_eq!(leases.take_ended(), [leases.awaited()], "once is enough");
    assert!(!leases.may_change(B, &touched));
    for session in [A, C] {
        let recalled = ids(&mut leases, session);
        leases.acknowledge(session, &recalled);
    }
    assert_eq!(leases.take_ended(), [leases.awaited()]);
    assert!(leases.may_change(B, &touched));
}

#[test]
fn who_holds_it_too_waits_for_no_longer_term_than_those_of_others() {
    let mut leases = leases();
    leases.grant(B, Subject::inode(FILE));
    leases.advance(TERM - 1_000);
    leases.grant(C, Subject::inode(FILE));
    let touched = [Touched::inode(FILE)];
    assert!(!leases.may_change(A, &touched) && !leases.may_change(C, &touched));
    assert!(!has_ended(&mut leases));
    // C does not give its own back: its program waits inside the change.
    leases.advance(TERM);
    assert!(has_ended(&mut leases) && leases.may_change(C, &touched) && !leases.may_change(A, &touched));
    leases.advance(2 * TERM);
    assert!(has_ended(&mut leases) && leases.may_change(A, &touched));
}

#[test]
fn a_silent_holder_is_waited_for_until_its_term_is_over() {
    let mut leases = leases();
    leases.grant(B, Subject::inode(FILE));
    leases.advance(4_000);
    leases.grant(B, Subject::inode(FILE));
    assert!(!leases.may_change(A, &[Touched::inode(FILE)]));
    leases.advance(13_999);
    assert!(!has_ended(&mut leases) && !leases.may_change(A, &[Touched::inode(FILE)]));
    leases.advance(14_000);
    assert!(has_ended(&mut leases) && leases.may_change(A, &[Touched::inode(FILE)]));
    assert!(ids(&mut leases, B).is_empty(), "it is over: nothing to acknowledge");
}

#[test]
fn who_has_given_it_back_is_not_waited_for_until_its_term_is_over() {
    let (mut leases, touched) = (leases(), [Touched::inode(FILE)]);
    leases.grant(B, Subject::inode(FILE));
    leases.advance(9_000);
    leases.grant(C, Subject::inode(FILE));
    assert!(!leases.may_change(A, &touched));
    let of_c = ids(&mut leases, C);
    leases.acknowledge(C, &of_c);
    leases.advance(TERM - 1);
    assert!(!has_ended(&mut leases) && !leases.may_change(A, &touched));
    leases.advance(TERM);
    assert!(has_ended(&mut leases) && leases.may_change(A, &touched));
    // The same where it gives it back when the other's term is over.
    let mut leases = self::leases();
    leases.grant(B, Subject::inode(FILE));
    leases.advance(9_000);
    leases.grant(C, Subject::inode(FILE));
    assert!(!leases.may_change(A, &touched));
    leases.advance(TERM);
    assert!(!has_ended(&mut leases) && !leases.may_change(A, &touched));
    let of_c = ids(&mut leases, C);
    leases.acknowledge(C, &of_c);
    assert!(has_ended(&mut leases) && leases.may_change(A, &touched));
}

#[test]
fn who_is_not_asked_after_a_restart_is_waited_for_until_what_is_presumed_is_over() {
    let text = name("f");
    let touched = [Touched::name(DIRECTORY, &text)];
    for gives_back in [true, false] {
        let mut leases = Leases::new(TERM, 1000, before([A, B]), 1, 0);
        let recall = |id| (id, Recall { id, inode: FILE, name: None });
        leases.out.insert(SessionId(9), (1_000_000..).take(RECALLS_MAX).map(recall).collect());
        leases.listen(C, true);
        leases.advance(9_000);
        leases.grant(C, touched[0].subject());
        assert!(!leases.may_change(A, &touched));
        assert!(!leases.may_change(C, &touched), "A and B may hold it");
        if gives_back {
            let of_c = ids(&mut leases, C);
            leases.acknowledge(C, &of_c);
        }
        leases.advance(TERM - 1);
        assert!(!has_ended(&mut leases) && !leases.may_change(C, &touched));
        leases.advance(TERM);
        assert_eq!(leases.take_ended().first(), Some(&leases.awaited()));
        assert!(leases.may_change(C, &touched), "nobody else holds it");
        assert_eq!(leases.may_change(A, &touched), gives_back);
        leases.advance(9_000 + TERM);
        assert!(leases.may_change(A, &touched));
    }
}

#[test]
fn who_waits_for_silence_hears_of_it_also_where_nothing_went_on_for_long() {
    let mut leases = leases();
    let name = name("f");
    leases.grant(B, Subject::name(DIRECTORY, &name));
    assert!(!leases.are_names_free(DIRECTORY));
    let awaited = leases.awaited();
    leases.advance(3 * TERM);
    leases.grant(B, Subject::inode(FILE));
    assert_eq!(leases.take_ended(), [awaited]);
    leases.advance(3 * TERM + SILENCE_MS - 1);
    assert_eq!(leases.grant(B, Subject::name(DIRECTORY, &name)), 0);
    assert!(leases.are_names_free(DIRECTORY) && !has_ended(&mut leases), "once is enough");
    leases.advance(3 * TERM + SILENCE_MS);
    assert_ne!(leases.grant(B, Subject::name(DIRECTORY, &name)), 0);
}

#[test]
fn what_is_held_without_a_gap_goes_on() {
    let (mut leases, subject) = (leases(), Subject::inode(FILE));
    assert_eq!(leases.renew(B, subject), 0, "it was never given");
    leases.grant(B, subject);
    leases.advance(9_999);
    assert_eq!((leases.renew(B, subject), leases.renew(C, subject)), (10_000, 0));
    leases.advance(19_998);
    assert!(!leases.may_change(A, &[Touched::inode(FILE)]), "for another term");
    assert_eq!(leases.renew(B, subject), 0, "it is being taken back");
    leases.advance(19_999);
    assert!(leases.may_change(A, &[Touched::inode(FILE)]));
    assert_eq!(leases.renew(B, subject), 0, "others may have changed it since");
}

#[test]
fn terms_outlive_the_turn_of_generations() {
    for granted_at in [0, 1, 5_000, 9_999, 10_000, 10_001, 19_999] {
        let mut leases = leases();
        leases.advance(granted_at);
        assert_eq!(leases.grant(B, Subject::inode(FILE)), 10_000);
        for step in 0..100 {
            leases.advance(granted_at + step * 100);
            assert!(!leases.may_change(A, &[Touched::inode(FILE)]), "{granted_at} + {}", step * 100);
        }
        leases.advance(granted_at + TERM);
        assert!(leases.may_change(A, &[Touched::inode(FILE)]));
    }
}

#[test]
fn names_and_inodes_are_told_apart() {
    let mut leases = leases();
    let (here, there) = (name("here"), name("there"));
    leases.grant(B, Subject::name(DIRECTORY, &here));
    assert!(leases.may_change(A, &[Touched::inode(DIRECTORY), Touched::name(DIRECTORY, &there)]));
    assert!(!leases.may_change(A, &[Touched::name(DIRECTORY, &there), Touched::name(DIRECTORY, &here)]));
    let recalls = leases.unacknowledged(B);
    assert_eq!((recalls.len(), recalls[0].inode, recalls[0].name.as_ref()), (1, DIRECTORY, Some(&here)));
}

#[test]
fn what_was_changed_cools_before_it_is_leased_again() {
    let mut leases = leases();
    leases.grant(B, Subject::inode(FILE));
    assert!(!leases.may_change(A, &[Touched::inode(FILE)]));
    let recalls = ids(&mut leases, B);
    leases.advance(100);
    leases.acknowledge(B, &recalls);
    assert_eq!((leases.grant(B, Subject::inode(FILE)), leases.grant(A, Subject::inode(FILE))), (0, 0));
    leases.advance(100 + COOLING_MS);
    assert_eq!(leases.grant(B, Subject::inode(FILE)), 10_000);
}

#[test]
fn who_does_not_listen_gets_none_and_who_stops_keeps_its_term() {
    let mut leases = leases();
    leases.listen(C, false);
    assert_eq!(leases.grant(C, Subject::inode(FILE)), 0);
    leases.grant(B, Subject::inode(FILE));
    leases.listen(B, false);
    assert!(!leases.may_change(A, &[Touched::inode(FILE)]));
    leases.listen(B, true);
    assert_eq!(ids(&mut leases, B).len(), 1, "it hears of it when it is back");
    leases.forget(B);
    assert!(has_ended(&mut leases) && leases.may_change(A, &[Touched::inode(FILE)]));
}

#[test]
fn after_a_restart_everybody_may_hold_anything_for_a_term() {
    let mut leases = Leases::new(TERM, 1000, before([A, B]), 1, 500);
    leases.listen(A, true);
    leases.listen(C, true);
    assert!(!leases.may_change(A, &[Touched::inode(FILE)]), "B may hold it");
    assert!(!leases.may_change(C, &[Touched::inode(FILE)]), "A and B may hold it");
    let recalls = ids(&mut leases, A);
    leases.acknowledge(A, &recalls);
    leases.listen(B, true);
    let recalls = ids(&mut leases, B);
    assert_eq!(recalls.len(), 1);
    leases.acknowledge(B, &recalls);
    assert!(leases.may_change(C, &[Touched::inode(FILE)]));
    assert!(!leases.may_change(C, &[Touched::inode(DIRECTORY)]));
    leases.advance(500 + TERM);
    assert!(has_ended(&mut leases) && leases.may_change(C, &[Touched::inode(DIRECTORY)]));
}

#[test]
fn without_a_term_there_are_none_and_the_table_is_bounded() {
    let mut off = Leases::new(0, 1000, Before { term_ms: 0, ..before([A]) }, 1, 0);
    off.listen(B, true);
    assert_eq!(off.grant(B, Subject::inode(FILE)), 0);
    assert!(off.may_change(C, &[Touched::inode(FILE)]));
    let mut small = Leases::new(TERM, 2, Before::default(), 1, 0);
    small.listen(A, true);
    let granted: Vec<_> = (1..=3).map(|id| small.grant(A, Subject::inode(InodeId(id))) > 0).collect();
    assert_eq!(granted, [true, true, false]);
    assert!(small.grant(A, Subject::inode(InodeId(1))) > 0, "what is there is renewed");
}

#[test]
fn listings_leave_a_quarter_of_the_room() {
    let mut leases = Leases::new(TERM, 8, Before::default(), 1, 0);
    leases.listen(A, true);
    let list = |leases: &mut Leases, ids: std::ops::Range<u64>| -> usize {
        ids.filter(|id| leases.grant_of(A, Subject::inode(InodeId(*id)), Room::ForListings) > 0).count()
    };
    assert_eq!(list(&mut leases, 0..100), 6);
    assert_eq!(list(&mut leases, 0..6), 6, "what is there is renewed");
    let granted: Vec<_> = (100..103).map(|id| leases.grant(A, Subject::inode(InodeId(id))) > 0).collect();
    assert_eq!(granted, [true, true, false]);
    assert_eq!(list(&mut leases, 100..103), 2);
    leases.advance(TERM);
    assert_eq!(list(&mut leases, 200..300), 6, "in another term");
}

/// What must hold whatever happens: who was told a lease and has neither given it back nor outlived its term is never
/// overtaken by a change.
#[test]
fn no_change_overtakes_a_holder() {
    let mut dice = 7u64;
    let mut roll = |bound: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % bound
    };
    let mut leases = leases();
    let mut now = 0;
    let mut believed: BTreeMap<(SessionId, InodeId), u64> = BTreeMap::new();
    let (mut changes, mut waits) = (0, 0);
    for _ in 0..200_000 {
        let (session, inode) = (SessionId(1 + roll(3)), InodeId(100 + roll(4)));
        match roll(10) {
            0..=3 => {
                let term = leases.grant(session, Subject::inode(inode));
                if term > 0 {
                    believed.insert((session, inode), now + u64::from(term));
                }
            }
            4..=6 => {
                if leases.may_change(session, &[Touched::inode(inode)]) {
                    changes += 1;
                    let holder =
                        believed.iter().find(|((other, of), until)| *other != session && *of == inode && **until > now);
                    assert_eq!(holder, None, "at {now}");
                } else {
                    waits += 1;
                }
            }
            7 | 8 => {
                let recalls = leases.unacknowledged(session);
                for recall in &recalls {
                    believed.remove(&(session, recall.inode));
                }
                let recalls: Vec<_> = recalls.iter().map(|recall| recall.id).collect();
                leases.acknowledge(session, &recalls);
            }
            _ => {
                now += roll(2_000);
                leases.advance(now);
            }
        }
    }
    assert!(changes > 1_000 && waits > 1_000, "{changes} changes, {waits} waits");
}

#[test]
fn a_lease_moves_with_what_it_is_about() {
    let (from, to) = (name("from"), name("to"));
    let (source, target) = (Subject::name(DIRECTORY, &from), Subject::name(DIRECTORY, &to));
    let touched = [Touched::name(DIRECTORY, &to)];
    // Also where the new name gives no leases yet.
    let mut leases = leases();
    leases.grant(A, target);
    assert!(!leases.may_change(B, &touched));
    let recalled = ids(&mut leases, A);
    leases.acknowledge(A, &recalled);
    assert!(leases.may_change(B, &touched));
    leases.grant(A, source);
    assert_eq!(leases.grant(A, target), 0, "too soon");
    leases.carry(A, source, target);
    assert!(leases.may_change(A, &touched) && !leases.may_change(B, &touched));

    // A recall that is under way may be obeyed before the move: it does not count for what was moved.
    let early = ids(&mut leases, A);
    leases.carry(A, source, target);
    leases.acknowledge(A, &early);
    assert!(!leases.may_change(B, &touched));
    assert_eq!(leases.next_alert(), Some(A));
    let late = ids(&mut leases, A);
    assert!(late.len() == 1 && late != early);
    leases.acknowledge(A, &late);
    assert!(leases.may_change(B, &touched));

    // Nothing was held, so nothing moves.
    let nothing = Subject::name(DIRECTORY, &name("nothing"));
    leases.carry(A, nothing, target);
    assert!(leases.may_change(B, &touched));

    // After a restart everybody may hold everything.
    let mut leases = Leases::new(TERM, 1000, before([A]), 1, 0);
    assert!(!leases.may_change(B, &touched));
    let recalled = ids(&mut leases, A);
    leases.acknowledge(A, &recalled);
    assert!(leases.may_change(B, &touched));
    leases.carry(A, source, target);
    assert!(!leases.may_change(B, &touched));
}

#[test]
fn a_lease_given_after_a_restart_outlives_what_was_presumed() {
    let mut leases = Leases::new(TERM, 1000, before([A, B]), 1, 0);
    leases.listen(B, true);
    leases.advance(6_000);
    assert!(leases.grant(B, Subject::inode(FILE)) > 0);
    assert!(!leases.may_change(A, &[Touched::inode(FILE)]));
    leases.advance(TERM);
    assert!(!leases.may_change(A, &[Touched::inode(FILE)]), "B believes until 16,000");
    leases.advance(6_000 + TERM);
    assert!(leases.may_change(A, &[Touched::inode(FILE)]));
}

#[test]
fn who_has_not_come_back_after_a_restart_may_still_be_told_by_another_shard() {
    let to = name("to");
    let mut leases = Leases::new(TERM, 1000, before([A]), 1, 0);
    leases.advance(TERM);
    assert!(!leases.presume());
    leases.arrived(A, Subject::name(DIRECTORY, &to));
    assert!(!leases.may_change(B, &[Touched::name(DIRECTORY, &to)]));
    // Nobody can tell it: it ends by itself.
    leases.advance(2 * TERM);
    assert!(leases.may_change(B, &[Touched::name(DIRECTORY, &to)]));
    // Nothing of this is true of who never listened, or has ended.
    leases.arrived(B, Subject::name(DIRECTORY, &to));
    assert!(leases.may_change(A, &[Touched::name(DIRECTORY, &to)]));
    leases.forget(A);
    leases.arrived(A, Subject::name(DIRECTORY, &to));
    assert!(leases.may_change(B, &[Touched::name(DIRECTORY, &to)]));
}

/// As after a restart with a thousand clients: each change of theirs is one more thing for all others to give back.
#[test]
fn with_many_sessions_a_restart_makes_no_more_recalls_than_there_is_memory_for() {
    let sessions: BTreeSet<SessionId> = (1..=1000).map(SessionId).collect();
    let mut leases = Leases::new(TERM, 1000, Before { sessions: sessions.clone(), term_ms: TERM }, 1, 0);
    for &session in &sessions {
        leases.listen(session, true);
    }
    let names: Vec<Name> = (0..1000).map(|n| name(&format!("file{n}"))).collect();
    for _ in 0..10 {
        for (&session, name) in sessions.iter().zip(&names) {
            let touched = [Touched::directory(InodeId(1_000_000 + session.0)), Touched::name(DIRECTORY, name)];
            assert!(!leases.may_change(session, &touched));
        }
    }
    let out: usize = leases.out.values().map(BTreeMap::len).sum();
    assert!((RECALLS_MAX..RECALLS_MAX + 2000).contains(&out), "{out}");
    // Some of what is kept back is told with this one: it is recalled from all.
    assert!(!leases.may_change(A, &[Touched::inode(FILE)]));
    assert_eq!(leases.recalled[&Subject::inode(FILE)].holders.len(), 999);
    // What all have given back may be changed; of others the term is waited for, whatever is given back.
    for &session in &sessions {
        while !leases.out.get(&session).is_none_or(BTreeMap::is_empty) {
            let told = ids(&mut leases, session);
            leases.acknowledge(session, &told);
        }
    }
    assert!(leases.may_change(A, &[Touched::name(DIRECTORY, &names[0]), Touched::inode(FILE)]));
    assert!(!leases.may_change(SessionId(1000), &[Touched::name(DIRECTORY, &names[999])]));
    leases.advance(TERM);
    assert!(has_ended(&mut leases) && leases.may_change(SessionId(1000), &[Touched::name(DIRECTORY, &names[999])]));
}

#[test]
fn what_is_to_be_given_back_is_told_in_pieces() {
    let mut leases = leases();
    for n in 0..5000 {
        leases.table.note(Subject::inode(InodeId(10_000 + n)), B, TERM);
        assert!(!leases.may_change(A, &[Touched::inode(InodeId(10_000 + n))]));
    }
    let mut told = Vec::new();
    loop {
        let next = ids(&mut leases, B);
        if next.is_empty() {
            break;
        }
        assert!(next.len() <= TOLD_AT_ONCE);
        leases.acknowledge(B, &next);
        told.extend(next);
    }
    assert!(told.len() == 5000 && told.is_sorted());
}
