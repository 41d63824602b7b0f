//! Stores of which something is missing, or not what it must be.

use std::collections::BTreeMap;

use types::id::PoolId;

use super::{World, metadata, storage};
use crate::event::Moment;
use crate::membership::{Membership, Rules};
use crate::record::{Key, NextIds, encode};

#[test]
fn damaged_records_are_noticed() {
    let mut world = World::new();
    world.register(storage("s1", &["a"]));
    world.register(metadata("m1", &["m"]));
    assert_eq!(Membership::restore(BTreeMap::new(), Rules::default(), Moment(0)).map(|none| none.is_none()), Ok(true));
    for key in world.disk.keys() {
        let mut damaged = world.disk.clone();
        damaged.insert(key.clone(), b"{".to_vec());
        let result = Membership::restore(damaged, Rules::default(), Moment(0));
        assert!(result.is_err(), "record {key:02x?} was taken");
    }
    for key in world.disk.keys().filter(|key| b"ceingt".contains(&key[0])) {
        let mut incomplete = world.disk.clone();
        incomplete.remove(key);
        // A lost leaf cannot be noticed; a lost root, or one that others name, can.
        let result = Membership::restore(incomplete, Rules::default(), Moment(0));
        assert!(result.is_err(), "the loss of {key:02x?} went unnoticed");
    }
    let next = || world.live.next.clone();
    let back = [
        NextIds { node: 2, ..next() },
        NextIds { target: 2, ..next() },
        NextIds { group: 2, ..next() },
        NextIds { pool: PoolId::DEFAULT.0, ..next() },
        NextIds { shard: 0, ..next() },
    ];
    for next in back {
        let mut set_back = world.disk.clone();
        set_back.insert(Key::Next.bytes(), encode(&next));
        let result = Membership::restore(set_back, Rules::default(), Moment(0));
        assert!(result.is_err(), "{next:?} went unnoticed");
    }
    world.disk.insert(b"z".to_vec(), vec![]);
    assert!(Membership::restore(world.disk, Rules::default(), Moment(0)).is_err());
}
