//! Deletions beside what else may happen meanwhile.

use types::id::{NodeId, SessionId, TargetId};

use super::{World, check, plenty, storage};
use crate::event::{Admin, Answer, Report};
use crate::map::TargetState;
use crate::refusal::Refusal;

const TARGET: TargetId = TargetId(1);
const OURS: SessionId = SessionId(7);
const THEIRS: SessionId = SessionId(8);

/// With one target, which holds nothing.
fn world() -> World {
    let mut world = World::new();
    world.register(storage("s1", &["a"]));
    beat(&mut world);
    world
}

fn beat(world: &mut World) {
    world.beat(1, 1, vec![(TARGET, Report { empty: true, ..plenty() })]).expect("registered");
}

fn take_out(world: &mut World, deletion: SessionId) -> Result<Answer, Refusal> {
    world.admin(Admin::TakeOut { target: TARGET, deletion })
}

fn set(world: &mut World, state: TargetState) {
    world.admin(Admin::SetTargetState { target: TARGET, state }).expect("there");
}

fn put_back(world: &mut World, state: Option<TargetState>) -> Result<Answer, Refusal> {
    world.admin(Admin::PutBack { target: TARGET, state, deletion: OURS })
}

fn delete(world: &mut World, deletion: SessionId) -> Result<Answer, Refusal> {
    world.admin(Admin::DeleteTarget { target: TARGET, really: true, deletion: Some(deletion) })
}

/// What others may do that gives files to a target, or wants it for themselves.
const MEANWHILE: [fn(&mut World); 3] = [
    |world| {
        set(world, TargetState::Good);
        set(world, TargetState::Bad);
    },
    |world| {
        set(world, TargetState::Good);
        take_out(world, THEIRS).expect("there");
    },
    |world| set(world, TargetState::Bad),
];

#[test]
fn a_target_that_others_have_set_since_it_was_looked_at_is_not_deleted() {
    for meanwhile in MEANWHILE {
        let mut world = world();
        assert_eq!(take_out(&mut world, OURS), Ok(Answer::StateSet { was_reported: true }));
        beat(&mut world);
        beat(&mut world);
        world.restart();
        let untouched = &mut world.clone();
        meanwhile(&mut world);
        for world in [&mut *untouched, &mut world] {
            world.register(storage("s1", &["a"]));
            beat(world);
            beat(world);
        }
        let refusal = delete(&mut world, OURS).expect_err("files may have come");
        assert_eq!((&refusal, refusal.is_permanent()), (&Refusal::SetSince { target: TARGET }, true));
        delete(untouched, OURS).expect("taken out all the time");

        // Nor with its node, of which nothing is heard.
        world.tick_after(20_000);
        let node = |deletion| Admin::DeleteNode { node: NodeId(1), really: true, deletion: Some(deletion) };
        assert_eq!(world.admin(node(OURS)), Err(Refusal::SetSince { target: TARGET }));
        take_out(&mut world, OURS).expect("there");
        world.admin(node(OURS)).expect("looked at anew");
        assert!(world.live.pinned.is_empty());
        check(&world);
    }
}

#[test]
fn what_others_have_set_a_deletion_that_fails_leaves() {
    let state = |world: &World| (world.map().targets[&TARGET].state, world.live.pinned.contains_key(&TARGET));
    for back in [Some(TargetState::Good), None] {
        let mut world = world();
        take_out(&mut world, OURS).expect("there");
        let mut alone = world.clone();
        put_back(&mut alone, back).expect("nobody else has set it");
        assert_eq!(state(&alone), (back.unwrap_or(TargetState::Bad), false));
        // Once more, since the answer was lost.
        let before = alone.map().clone();
        assert_eq!(put_back(&mut alone, back), Ok(Answer::StateSet { was_reported: true }));
        assert_eq!(alone.map(), &before);

        for meanwhile in MEANWHILE {
            let mut world = world.clone();
            meanwhile(&mut world);
            world.restart();
            assert_eq!(put_back(&mut world, back), Err(Refusal::SetSince { target: TARGET }));
            assert_eq!(state(&world), (TargetState::Bad, true));
        }
        set(&mut world, TargetState::NeedsResync);
        put_back(&mut world, Some(TargetState::NeedsResync)).expect("it is so");
        set(&mut world, TargetState::Good);
        put_back(&mut world, back).expect("its node's reports decide");
        assert_eq!(state(&world), (TargetState::Good, false));
    }
}

#[test]
fn a_target_whose_node_has_not_registered_since_a_restart_is_waited_for() {
    let mut world = world();
    let delete = |really| Admin::DeleteTarget { target: TARGET, really, deletion: None };
    world.admin(Admin::SetTargetState { target: TARGET, state: TargetState::Bad }).expect("there");
    world.restart();
    for really in [false, true] {
        assert_eq!(world.admin(delete(really)), Err(Refusal::NotHeard { target: TARGET }), "really: {really}");
    }
    world.register(storage("s1", &["a"]));
    beat(&mut world);
    beat(&mut world);
    world.admin(delete(true)).expect("it has said that it is empty");
}
