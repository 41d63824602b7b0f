//! Stores that were restored from a backup.

use types::id::{Epoch, GroupId, NodeId, PoolId, ShardId, TargetId};

use super::{World, check, metadata, storage};
use crate::event::{Admin, Answer, Event, Registration, Seen};
use crate::map::TargetState;
use crate::refusal::Refusal;

#[test]
fn an_old_store_gives_no_id_out_again() {
    let mut world = World::new();
    world.register(storage("s1", &["a"]));
    let mut backup = world.clone();
    let known = |uuid: &str, targets: &[&str], id, target| {
        let mut known = Registration { id: Some(NodeId(id)), ..storage(uuid, targets) };
        known.targets.last_mut().expect("one").id = Some(TargetId(target));
        Event::RegisterNode(known)
    };
    let refused = |world: &mut World, event| {
        let map = world.map().clone();
        let refusal = world.apply(event).expect_err("its id was not given out here");
        assert!(refusal.is_permanent() && !refusal.to_string().contains("empty directory"), "{refusal}");
        assert_eq!(world.map(), &map);
        match refusal {
            Refusal::StoreIsOld { what } => what,
            other => panic!("{other}"),
        }
    };
    // Nodes 2 and 3 came after the backup, and a target of node 1. Services ask again, as they are started again.
    for (of, what) in [
        (known("s3", &["c"], 3, 4), "node 3"),
        (known("s2", &["b"], 2, 3), "node 2"),
        (known("s1", &["a", "b2"], 1, 2), "target 2 (/b2)"),
    ] {
        for _ in 0..2 {
            assert_eq!(refused(&mut backup, of.clone()), what);
            backup.restart();
        }
    }
    assert_eq!(backup.live.next.session, world.live.next.session + (1 << 32), "once");
    let new = backup.register(storage("s4", &["d"]));
    assert_eq!((new.node, new.targets), (NodeId(4), vec![TargetId(5)]));
    assert!(backup.map().groups.contains_key(&GroupId(5)), "groups are in the layouts of files");
    for _ in 0..2 {
        assert_eq!(refused(&mut backup, known("s1", &["a", "b"], 1, 5)), "target 5 (/b)", "it was given to another");
        assert_eq!(refused(&mut backup, known("s2", &["x"], 4, 6)), "node 4", "so was this");
        backup.restart();
    }
    let Ok(Answer::Session(session)) = backup.apply(Event::RegisterClient) else { panic!("no session") };
    assert!(session.0 > 1 << 32, "clients of that time may still be there");
    // Who was deleted since is told so all the same.
    backup.tick_after(10_000);
    backup.admin(Admin::SetTargetState { target: TargetId(5), state: TargetState::Bad }).expect("there");
    backup.admin(Admin::DeleteNode { node: NodeId(4), really: true, deletion: None }).expect("offline");
    let deleted = backup.apply(known("s4", &["d"], 4, 5));
    assert_eq!(deleted, Err(Refusal::NodeForgotten { id: NodeId(4) }));
    check(&backup);
}

#[test]
fn an_old_store_whose_ids_came_again_gives_no_session_out_again() {
    let mut backup = World::new();
    // A new node got the id that another had, before that one came back.
    backup.register(storage("new", &[]));
    let session = backup.live.next.session;
    for _ in 0..2 {
        let old = Registration { id: Some(NodeId(1)), ..storage("old", &[]) };
        let refusal = backup.apply(Event::RegisterNode(old));
        assert_eq!(refusal, Err(Refusal::StoreIsOld { what: "node 1".to_owned() }));
        assert_eq!(backup.live.next.session, session + (1 << 32), "once");
        backup.restart();
    }
    assert_eq!(backup.register(storage("next", &[])).node, NodeId(2), "no id was skipped");
}

#[test]
fn an_old_store_goes_on_above_what_anybody_has_seen() {
    let mut world = World::new();
    world.register(metadata("m1", &["a"]));
    let mut backup = world.clone();
    world.register(metadata("m2", &["b", "c"]));
    world.register(storage("s1", &["d"]));
    world.admin(Admin::CreatePool { name: "fast".into() }).expect("a new name");
    let seen = Seen { sessions: 8, ..Seen::of(world.map()) };
    assert_eq!((seen.shards, seen.targets), (3, 5));
    for _ in 0..2 {
        backup.apply(Event::Seen(seen)).expect("never refused");
        assert_eq!(backup.map().epoch.0, seen.epoch.0 + 1, "above, and once");
        assert_eq!(backup.live.next.session, 8 + (1 << 32), "once");
        check(&backup);
        backup.restart();
    }
    // Those who had them before are told so, as where they had come themselves.
    let known = Registration { id: Some(NodeId(2)), ..metadata("m2", &["b", "c"]) };
    assert_eq!(backup.apply(Event::RegisterNode(known)), Err(Refusal::StoreIsOld { what: "node 2".into() }));
    let new = backup.register(metadata("m3", &["e"]));
    assert_eq!((new.node, new.targets), (NodeId(4), vec![TargetId(5)]));
    assert_eq!(backup.map().shards, [(ShardId(0), GroupId(1)), (ShardId(3), GroupId(5))].into());
    assert_eq!(backup.admin(Admin::CreatePool { name: "fast".into() }), Ok(Answer::Pool(PoolId(3))));
    check(&backup);
}

#[test]
fn an_old_store_gives_no_shard_out_again() {
    let mut world = World::new();
    world.register(metadata("m1", &["a"]));
    let mut backup = world.clone();
    // Nobody remembers a map: all that is known of shard 1 is the number of a target that came with it, or after it.
    world.register(metadata("m2", &["b"]));
    let mut later = world.register(storage("s1", &["c"]));
    let id = later.targets.pop();
    let mut known = Registration { id: Some(later.node), ..storage("s1", &["c"]) };
    known.targets[0].id = id;
    for _ in 0..2 {
        assert!(backup.apply(Event::RegisterNode(known.clone())).is_err());
        backup.restart();
    }
    backup.register(metadata("m3", &["d"]));
    assert_eq!(backup.map().shards.last_key_value(), Some((&ShardId(3), &GroupId(4))));
    check(&backup);
}

#[test]
fn wild_numbers_use_nothing_up() {
    let mut world = World::new();
    world.register(metadata("m1", &["a"]));
    let (map, next) = (world.map().clone(), world.live.next.clone());
    let most = u32::MAX;
    let wild = Seen {
        epoch: Epoch(u64::MAX),
        nodes: most,
        targets: most,
        groups: most,
        pools: most,
        shards: most,
        sessions: u64::MAX,
    };
    world.apply(Event::Seen(wild)).expect("never refused");
    assert_eq!((world.map(), &world.live.next), (&map, &next));
    let mut stranger = Registration { id: Some(NodeId(most)), ..metadata("m2", &["b"]) };
    stranger.targets[0].id = Some(TargetId(most));
    let refusal = world.apply(Event::RegisterNode(stranger));
    assert_eq!(refusal, Err(Refusal::StoreIsOld { what: format!("node {most}") }));
    let new = world.register(metadata("m3", &["c"]));
    assert_eq!((new.node, new.targets), (NodeId(2), vec![TargetId(2)]));
    assert_eq!(world.map().shards.len(), 2);
}

#[test]
fn a_start_gives_no_session_out_again_that_its_store_has_never_heard_of() {
    let session = |world: &mut World| match world.apply(Event::RegisterClient) {
        Ok(Answer::Session(session)) => session.0,
        other => panic!("no session: {other:?}"),
    };
    let mut world = World::new();
    world.live.begin_sessions_at(1000);
    let backup = world.clone();
    assert_eq!((session(&mut world), session(&mut world)), (1000, 1001));
    let mut world = backup;
    world.restart();
    world.live.begin_sessions_at(2000);
    assert_eq!(session(&mut world), 2000);
    // A clock that was set back, or is far from right, changes nothing.
    for first in [1500, u64::MAX] {
        let last = session(&mut world);
        world.restart();
        world.live.begin_sessions_at(first);
        assert_eq!(session(&mut world), last + 1);
    }
    check(&world);
}
