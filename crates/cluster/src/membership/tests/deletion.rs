//! Deletions beside what else may happen meanwhile.

use types::id::TargetId;

use super::{World, plenty, storage};
use crate::event::{Admin, Report};
use crate::map::TargetState;
use crate::refusal::Refusal;

const TARGET: TargetId = TargetId(1);

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

#[test]
fn a_target_whose_node_has_not_registered_since_a_restart_is_waited_for() {
    let mut world = world();
    let delete = |really| Admin::DeleteTarget { target: TARGET, really };
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
