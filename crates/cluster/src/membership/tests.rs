//! Scenarios, an exploration of all short histories, and properties of random long ones.

mod behind;
mod damage;
mod deletion;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use types::id::{Epoch, Generation, GroupId, NodeId, PoolId, SessionId, ShardId, TargetId};

use super::{Membership, Rules};
use crate::capacity::Capacity;
use crate::difference::Difference;
use crate::event::{
    Admin, Answer, Effects, Event, Heartbeat, Moment, Registered, Registration, Report, TargetRegistration,
};
use crate::map::{CapacityClass, ClusterMap, NodeState, Rail, ServiceKind, TargetState};
use crate::refusal::Refusal;

const CLUSTER: &str = "c-1";

/// A membership with its disk and its clock.
#[derive(Clone)]
struct World {
    live: Membership,
    disk: BTreeMap<Vec<u8>, Vec<u8>>,
    now: Moment,
}

impl World {
    fn new() -> Self {
        let (live, effects) = Membership::create(CLUSTER, Rules::default(), Moment(0));
        let mut world = Self { live, disk: BTreeMap::new(), now: Moment(0) };
        world.persist(effects);
        world
    }

    fn apply(&mut self, event: Event) -> Result<Answer, Refusal> {
        let effects = self.live.apply(event, self.now)?;
        let answer = effects.answer.clone();
        self.persist(effects);
        match answer {
            Answer::Refused(refusal) => Err(refusal),
            answer => Ok(answer),
        }
    }

    fn persist(&mut self, effects: Effects) {
        for (key, value) in effects.records {
            match value {
                Some(value) => drop(self.disk.insert(key, value)),
                None => drop(self.disk.remove(&key)),
            }
        }
    }

    fn restored(&self) -> Membership {
        let restored = Membership::restore(self.disk.clone(), Rules::default(), self.now);
        restored.expect("what was persisted is whole").expect("something was persisted")
    }

    fn restart(&mut self) {
        self.live = self.restored();
    }

    fn map(&self) -> &ClusterMap {
        self.live.map()
    }

    fn register(&mut self, registration: Registration) -> Registered {
        match self.apply(Event::RegisterNode(registration)) {
            Ok(Answer::Registered(registered)) => registered,
            other => panic!("not registered: {other:?}"),
        }
    }

    fn beat(&mut self, node: u32, incarnation: u64, targets: Vec<(TargetId, Report)>) -> Result<Answer, Refusal> {
        self.apply(Event::Heartbeat(Heartbeat { node: NodeId(node), incarnation, targets }))
    }

    /// So long passes, with ticks as often as they come.
    fn tick_after(&mut self, ms: u64) {
        let end = self.now.0 + ms;
        while self.now.0 < end {
            self.now.0 = end.min(self.now.0 + 500);
            self.apply(Event::Tick).expect("never refused");
        }
    }

    fn admin(&mut self, admin: Admin) -> Result<Answer, Refusal> {
        self.apply(Event::Admin(admin))
    }

    fn state(&self, node: u32) -> NodeState {
        self.map().nodes[&NodeId(node)].state
    }
}

fn plenty() -> Report {
    let capacity = Capacity { total_bytes: 1 << 40, free_bytes: 1 << 39, total_inodes: 1 << 20, free_inodes: 1 << 19 };
    Report { capacity, failing: false, empty: false }
}

fn node(uuid: &str, kind: ServiceKind, targets: &[&str]) -> Registration {
    let target = |uuid: &&str| TargetRegistration {
        uuid: (*uuid).to_owned(),
        id: None,
        path: format!("/{uuid}"),
        ports: vec![1, 2],
        report: plenty(),
    };
    Registration {
        cluster: String::new(),
        uuid: uuid.to_owned(),
        kind,
        id: None,
        alias: String::new(),
        incarnation: 1,
        rails: vec![Rail { interface: "lo".into(), address: [127, 0, 0, 1].into() }],
        metrics: String::new(),
        targets: targets.iter().map(target).collect(),
    }
}

fn storage(uuid: &str, targets: &[&str]) -> Registration {
    node(uuid, ServiceKind::Storage, targets)
}

fn metadata(uuid: &str, targets: &[&str]) -> Registration {
    node(uuid, ServiceKind::Metadata, targets)
}

#[test]
fn new_targets_become_groups_pools_and_shards() {
    let mut world = World::new();
    assert_eq!(world.map().epoch, Epoch(1));
    let first = world.register(metadata("m1", &["mt1"]));
    let second = world.register(metadata("m2", &["mt2"]));
    let third = world.register(storage("s1", &["st1", "st2"]));
    assert_eq!((first.node, second.node, third.node), (NodeId(1), NodeId(2), NodeId(3)));
    assert_eq!(third.targets, [TargetId(3), TargetId(4)]);
    assert_eq!((first.alias.as_str(), third.alias.as_str()), ("metadata-1", "storage-1"));
    let map = world.map();
    assert_eq!(map.shards, [(ShardId(0), GroupId(1)), (ShardId(1), GroupId(2))].into());
    assert_eq!(map.pools[&PoolId::DEFAULT].groups, [GroupId(3), GroupId(4)]);
    assert_eq!(map.groups[&GroupId(4)].members, [TargetId(4)]);
    assert_eq!(map.epoch, Epoch(4), "one per change");
    assert_eq!(map.route_shard(ShardId(0)).expect("registered").node, NodeId(1));
}

#[test]
fn ids_are_kept_across_restarts_of_either_side() {
    let mut world = World::new();
    let before = world.register(storage("s1", &["a", "b"]));
    let epoch = world.map().epoch;
    // The same again is no change of the map.
    assert_eq!(world.register(storage("s1", &["a", "b"])), before);
    assert_eq!(world.map().epoch, epoch);
    world.restart();
    assert_eq!(world.register(Registration { cluster: CLUSTER.into(), ..storage("s1", &["a", "b"]) }), before);
    assert_eq!(world.map().epoch, epoch);
    // Another port is.
    let mut moved = storage("s1", &["a", "b"]);
    moved.targets[0].ports = vec![9];
    assert_eq!(world.register(moved), before);
    assert_eq!(world.map().epoch.0, epoch.0 + 1);
    // A new target in the middle gets the next id, not a used one.
    assert_eq!(world.register(storage("s1", &["a", "new", "b"])).targets, [TargetId(1), TargetId(3), TargetId(2)]);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut world = World::new();
    world.register(Registration { alias: "big".into(), ..storage("s1", &["a"]) });
    let (map, disk) = (world.map().clone(), world.disk.clone());
    let mut refused = |registration: Registration| match world.apply(Event::RegisterNode(registration)) {
        Err(refusal) => {
            assert!(refusal.is_permanent());
            refusal.to_string()
        }
        Ok(answer) => panic!("taken: {answer:?}"),
    };
    let foreign = Registration { cluster: "c-2".into(), ..storage("s1", &["a"]) };
    assert_eq!(refused(foreign), "this node belongs to cluster c-2, this is cluster c-1");
    assert!(refused(metadata("s1", &["a"])).contains("cannot become a metadata service"));
    assert!(refused(Registration { alias: "big".into(), ..storage("s2", &[]) }).contains("belongs to node 1"));
    assert!(refused(Registration { alias: "a b".into(), ..storage("s2", &[]) }).contains("no valid name"));
    assert!(refused(storage("s2", &["a"])).contains("belongs to node 1"));
    assert!(refused(storage("s2", &["x", "x"])).contains("was its directory copied?"));
    assert!(refused(Registration { rails: vec![], ..storage("s2", &[]) }).contains("address"));
    let mut portless = storage("s2", &["x"]);
    portless.targets[0].ports.clear();
    assert!(refused(portless).contains("ports"));
    assert_eq!((world.map(), &world.disk), (&map, &disk));
}

#[test]
fn silence_takes_a_node_offline_in_two_steps_and_a_heartbeat_brings_it_back() {
    let mut world = World::new();
    world.register(storage("s1", &["a"]));
    let epoch = world.map().epoch.0;
    world.tick_after(4_999);
    assert_eq!((world.state(1), world.map().epoch.0), (NodeState::Online, epoch));
    world.tick_after(1);
    assert_eq!((world.state(1), world.map().epoch.0), (NodeState::ProbablyOffline, epoch + 1));
    world.tick_after(5_000);
    assert_eq!(world.state(1), NodeState::Offline);
    world.tick_after(60_000);
    assert_eq!(world.map().epoch.0, epoch + 2);
    world.beat(1, 1, vec![]).expect("registered");
    assert_eq!((world.state(1), world.map().epoch.0), (NodeState::Online, epoch + 3));
    world.tick_after(2_000);
    assert_eq!(world.state(1), NodeState::Online);
}

#[test]
fn while_mgmtd_stood_still_nobody_was_silent() {
    let mut world = World::new();
    world.register(storage("s1", &["a"]));
    world.register(storage("s2", &["b"]));
    world.tick_after(4_000);
    world.beat(2, 1, vec![]).expect("registered");
    // Its process was stopped, or its disk hung: the heartbeats of that time are lost.
    world.now.0 += 60_000;
    world.apply(Event::Tick).expect("never refused");
    assert_eq!((world.state(1), world.state(2)), (NodeState::ProbablyOffline, NodeState::Online));
    world.tick_after(3_000);
    assert_eq!((world.state(1), world.state(2)), (NodeState::ProbablyOffline, NodeState::ProbablyOffline));
    world.tick_after(5_000);
    assert_eq!((world.state(1), world.state(2)), (NodeState::Offline, NodeState::Offline));
}

#[test]
fn after_a_restart_of_mgmtd_nodes_have_the_full_time_to_register_again() {
    let mut world = World::new();
    world.register(storage("s1", &["a"]));
    world.now = Moment(1_000_000);
    world.restart();
    world.tick_after(4_000);
    assert_eq!(world.state(1), NodeState::Online);
    let refusal = world.beat(1, 1, vec![]).unwrap_err();
    assert!(!refusal.is_permanent(), "{refusal}");
    world.register(storage("s1", &["a"]));
    world.beat(1, 1, vec![]).expect("registered");
    world.tick_after(4_999);
    assert_eq!(world.state(1), NodeState::Online);
}

#[test]
fn of_two_processes_with_one_identity_the_older_must_stop() {
    let mut world = World::new();
    world.register(storage("s1", &["a"]));
    world.register(Registration { incarnation: 2, ..storage("s1", &["a"]) });
    assert_eq!(world.beat(1, 1, vec![]), Err(Refusal::Superseded { id: NodeId(1) }));
    world.beat(1, 2, vec![]).expect("the newer one");
    assert_eq!(world.beat(9, 2, vec![]), Err(Refusal::NodeForgotten { id: NodeId(9) }));
    // It was cut off, and comes back: it may not take the newer one's place.
    let older = Event::RegisterNode(storage("s1", &["a"]));
    assert_eq!(world.apply(older.clone()), Err(Refusal::Superseded { id: NodeId(1) }));
    world.beat(1, 2, vec![]).expect("still the one");
    // Even where there were some more since.
    for incarnation in 3..20 {
        world.register(Registration { incarnation, ..storage("s1", &["a"]) });
    }
    assert_eq!(world.apply(older), Err(Refusal::Superseded { id: NodeId(1) }));
    // The same process again, after it has lost its connection, is no other.
    world.register(Registration { incarnation: 19, ..storage("s1", &["a"]) });
}

#[test]
fn a_number_that_comes_again_is_taken_when_nobody_else_is_heard_of() {
    let mut world = World::new();
    let number = |incarnation| Registration { incarnation, ..storage("s1", &["a"]) };
    let superseded = Err(Refusal::Superseded { id: NodeId(1) });
    world.register(number(1));
    world.register(number(2));
    for _ in 0..3 {
        world.tick_after(9_000);
        assert_eq!(world.apply(Event::RegisterNode(number(1))), superseded);
        world.beat(1, 2, vec![]).expect("the newer one");
    }
    world.tick_after(9_999);
    assert_eq!(world.apply(Event::RegisterNode(number(1))), superseded);
    world.tick_after(1);
    world.register(number(1));
    // It holds the place like any other, also when it has lost its connection.
    world.register(number(1));
    world.beat(1, 1, vec![]).expect("the one");
    assert_eq!(world.beat(1, 2, vec![]), superseded);
    assert_eq!(world.apply(Event::RegisterNode(number(2))), superseded);
}

#[test]
fn what_was_deleted_is_told_so() {
    let mut world = World::new();
    world.register(storage("s1", &[]));
    world.tick_after(10_000);
    world.admin(Admin::DeleteNode { node: NodeId(1), really: true, deletion: None }).expect("offline and empty");
    let deleted = Registration { id: Some(NodeId(1)), ..storage("s1", &[]) };
    let refusal = world.apply(Event::RegisterNode(deleted)).expect_err("deleted");
    assert_eq!(refusal, Refusal::NodeForgotten { id: NodeId(1) });
    let text = refusal.to_string();
    assert!(text.find("lost its store") < text.find("empty directory"), "nobody empties what may be needed: {text}");
}

#[test]
fn reports_change_class_and_state_with_hysteresis_and_space_alone_no_epoch() {
    let mut world = World::new();
    world.register(storage("s1", &["a"]));
    let (target, epoch) = (TargetId(1), world.map().epoch.0);
    let with_free = |free_bytes| Report { capacity: Capacity { free_bytes, ..plenty().capacity }, ..plenty() };
    world.beat(1, 1, vec![(target, with_free(1 << 38))]).expect("registered");
    assert_eq!(world.map().epoch.0, epoch);
    assert_eq!(world.live.capacities()[&target].free_bytes, 1 << 38);
    world.beat(1, 1, vec![(target, with_free(1 << 30))]).expect("registered");
    assert_eq!((world.map().targets[&target].class, world.map().epoch.0), (CapacityClass::Emergency, epoch + 1));
    let failing = Report { failing: true, ..with_free(1 << 30) };
    world.beat(1, 1, vec![(target, failing)]).expect("registered");
    assert_eq!(world.map().targets[&target].state, TargetState::Good, "once is not enough");
    world.beat(1, 1, vec![(target, failing)]).expect("registered");
    assert_eq!(world.map().targets[&target].state, TargetState::Bad);
    assert_eq!(world.map().groups[&GroupId(1)].generation, Generation(2));
    for _ in 0..2 {
        world.beat(1, 1, vec![(target, with_free(1 << 30))]).expect("registered");
        assert_eq!(world.map().targets[&target].state, TargetState::Bad);
    }
    world.beat(1, 1, vec![(target, with_free(1 << 30))]).expect("registered");
    assert_eq!(world.map().targets[&target].state, TargetState::Good);
    assert_eq!(world.map().groups[&GroupId(1)].generation, Generation(3));
    // A node cannot report on others' targets.
    world.register(storage("s2", &["b"]));
    world.beat(2, 1, vec![(target, with_free(7))]).expect("registered");
    assert_eq!(world.live.capacities()[&target].free_bytes, 1 << 30);
}

#[test]
fn a_state_that_an_administrator_has_set_stays_until_given_back() {
    let mut world = World::new();
    world.register(storage("s1", &["a"]));
    let target = TargetId(1);
    world.admin(Admin::SetTargetState { target, state: TargetState::Bad }).expect("there");
    world.restart();
    world.register(storage("s1", &["a"]));
    for _ in 0..10 {
        world.beat(1, 1, vec![(target, plenty())]).expect("registered");
    }
    assert_eq!(world.map().targets[&target].state, TargetState::Bad);
    world.admin(Admin::SetTargetState { target, state: TargetState::Good }).expect("there");
    assert_eq!(world.map().targets[&target].state, TargetState::Good);
    let failing = Report { failing: true, ..plenty() };
    for _ in 0..2 {
        world.beat(1, 1, vec![(target, failing)]).expect("registered");
    }
    assert_eq!(world.map().targets[&target].state, TargetState::Bad, "reports count again");
}

#[test]
fn a_target_that_is_bad_by_itself_can_be_held_bad_and_released_as_it_was() {
    let mut world = World::new();
    world.register(storage("s1", &["a"]));
    let target = TargetId(1);
    for _ in 0..2 {
        world.beat(1, 1, vec![(target, Report { failing: true, ..plenty() })]).expect("registered");
    }
    let state = |world: &World| world.map().targets[&target].state;
    assert_eq!(state(&world), TargetState::Bad);
    let really = Admin::DeleteTarget { target, really: true, deletion: None };
    assert_eq!(world.admin(really.clone()), Err(Refusal::TakesFiles { target }), "it may recover meanwhile");
    let set_bad = Admin::SetTargetState { target, state: TargetState::Bad };
    assert_eq!(world.admin(set_bad.clone()), Ok(Answer::StateSet { was_reported: true }));
    assert_eq!(world.admin(set_bad), Ok(Answer::StateSet { was_reported: false }));
    let empty = Report { empty: true, ..plenty() };
    for _ in 0..10 {
        world.beat(1, 1, vec![(target, empty)]).expect("registered");
    }
    assert_eq!(state(&world), TargetState::Bad);
    world.clone().admin(really).expect("held bad and empty");
    let release = Admin::ReleaseTargetState { target };
    assert_eq!(world.admin(release.clone()), Ok(Answer::StateSet { was_reported: false }));
    assert_eq!(world.admin(release), Ok(Answer::StateSet { was_reported: true }));
    assert_eq!(state(&world), TargetState::Bad);
    check(&world);
    world.beat(1, 1, vec![(target, empty)]).expect("registered");
    assert_eq!(state(&world), TargetState::Good, "reports count again");
    let nobody = Admin::ReleaseTargetState { target: TargetId(9) };
    assert_eq!(world.admin(nobody), Err(Refusal::NoTarget(TargetId(9))));
}

#[test]
fn a_target_that_its_node_does_not_find_keeps_its_place_and_has_no_route() {
    let mut world = World::new();
    world.register(storage("s1", &["a", "b"]));
    assert_eq!(world.register(storage("s1", &["a"])).targets, [TargetId(1)]);
    assert_eq!(world.map().route_lane(GroupId(2), 0), None);
    assert_eq!([1, 2, 9].map(|group| world.map().is_left_out(GroupId(group))), [false, true, false]);
    assert!(world.map().pools[&PoolId::DEFAULT].groups.contains(&GroupId(2)));
    let state = |world: &World| world.map().targets[&TargetId(2)].state;
    assert_eq!(state(&world), TargetState::Bad);
    assert_eq!(world.register(storage("s1", &["a", "b"])).targets, [TargetId(1), TargetId(2)]);
    assert!(world.map().route_lane(GroupId(2), 0).is_some());
    for _ in 0..3 {
        assert_eq!(state(&world), TargetState::Bad, "it has to prove itself");
        world.beat(1, 1, vec![(TargetId(2), plenty())]).expect("registered");
    }
    assert_eq!(state(&world), TargetState::Good);
    // The node is reached by those that it has.
    world.register(storage("s1", &["b"]));
    assert_eq!(world.map().route_lane(GroupId(1), 0), None);
    assert!(!world.map().lanes(NodeId(1)).is_empty());
}

#[test]
fn sessions_are_never_given_out_twice_and_are_no_change_of_the_map() {
    let mut world = World::new();
    let epoch = world.map().epoch;
    for expected in 1..=3 {
        assert_eq!(world.apply(Event::RegisterClient), Ok(Answer::Session(SessionId(expected))));
        world.restart();
    }
    assert_eq!(world.map().epoch, epoch);
}

#[test]
fn pools_take_storage_groups_and_aliases_are_unique() {
    let mut world = World::new();
    world.register(metadata("m1", &["mt"]));
    world.register(storage("s1", &["a", "b"]));
    let Ok(Answer::Pool(fast)) = world.admin(Admin::CreatePool { name: "fast".into() }) else { panic!("no pool") };
    assert!(world.admin(Admin::CreatePool { name: "fast".into() }).is_err());
    assert!(world.admin(Admin::CreatePool { name: "no/slash".into() }).is_err());
    world.admin(Admin::AssignPool { group: GroupId(2), pool: fast }).expect("storage");
    assert_eq!(world.map().pools[&fast].groups, [GroupId(2)]);
    assert_eq!(world.map().pools[&PoolId::DEFAULT].groups, [GroupId(3)]);
    assert!(world.admin(Admin::AssignPool { group: GroupId(1), pool: fast }).is_err(), "metadata");
    assert!(world.admin(Admin::AssignPool { group: GroupId(9), pool: fast }).is_err());
    assert!(world.admin(Admin::RemovePool { pool: fast }).unwrap_err().to_string().contains("1 groups"));
    assert_eq!(world.admin(Admin::RemovePool { pool: PoolId::DEFAULT }), Err(Refusal::DefaultPool));
    world.admin(Admin::AssignPool { group: GroupId(2), pool: PoolId::DEFAULT }).expect("storage");
    world.admin(Admin::RemovePool { pool: fast }).expect("empty");
    let Ok(Answer::Pool(again)) = world.admin(Admin::CreatePool { name: "fast".into() }) else { panic!("no pool") };
    assert!(again > fast, "a pool's id came again");

    let alias = |node, alias: &str| Admin::SetAlias { node: NodeId(node), alias: alias.to_owned() };
    world.admin(alias(1, "north")).expect("free");
    assert!(world.admin(alias(2, "north")).is_err());
    world.admin(alias(1, "north")).expect("its own");
    assert_eq!(world.register(Registration { alias: "south".into(), ..metadata("m1", &["mt"]) }).alias, "north");
}

#[test]
fn a_metadata_node_that_comes_back_with_more_targets_gets_more_shards() {
    let mut world = World::new();
    world.register(metadata("m1", &["a"]));
    world.register(metadata("m2", &["b"]));
    world.register(metadata("m1", &["a", "c"]));
    let shards = [(ShardId(0), GroupId(1)), (ShardId(1), GroupId(2)), (ShardId(2), GroupId(3))];
    assert_eq!(world.map().shards, shards.into());
    let epoch = world.map().epoch;
    world.register(metadata("m1", &["a", "c"]));
    assert_eq!((world.map().shards.clone(), world.map().epoch), (shards.into(), epoch));
}

#[test]
fn deletion_is_a_dry_run_at_first_and_refused_where_something_may_be_stored() {
    let mut world = World::new();
    world.register(metadata("m1", &["mt"]));
    world.register(storage("s1", &["a", "b"]));
    let (m, a, b) = (TargetId(1), TargetId(2), TargetId(3));
    let delete = |target, really| Admin::DeleteTarget { target, really, deletion: None };
    assert_eq!(world.admin(delete(m, true)), Err(Refusal::RunsShard { target: m, shard: 0 }));
    assert_eq!(world.admin(delete(a, false)), Err(Refusal::NotEmpty { target: a }));
    let empty = Report { empty: true, ..plenty() };
    world.beat(2, 1, vec![(a, empty), (b, empty)]).expect("registered");
    let (map, dry) = (world.map().clone(), world.admin(delete(a, false)).expect("empty"));
    assert_eq!(dry, Answer::Deleted(vec!["target 2 (/a)".into(), "group 2".into()]));
    assert_eq!(world.map(), &map);
    // As long as new files may come, its word is worth nothing, nor is one from before.
    assert_eq!(world.admin(delete(a, true)), Err(Refusal::TakesFiles { target: a }));
    world.admin(Admin::SetTargetState { target: a, state: TargetState::Bad }).expect("there");
    for report in [empty, plenty()] {
        let refusal = world.admin(delete(a, true)).expect_err("it may have been on its way");
        assert_eq!((&refusal, refusal.is_permanent()), (&Refusal::NotHeard { target: a }, false));
        world.beat(2, 1, vec![(a, report), (b, empty)]).expect("registered");
    }
    assert_eq!(world.admin(delete(a, true)), Err(Refusal::NotEmpty { target: a }));
    world.beat(2, 1, vec![(a, empty), (b, empty)]).expect("registered");
    assert_eq!(world.admin(delete(a, true)), Ok(dry));
    assert!(!world.map().targets.contains_key(&a) && !world.map().groups.contains_key(&GroupId(2)));
    assert_eq!(world.map().pools[&PoolId::DEFAULT].groups, [GroupId(3)]);
    let node = |really| Admin::DeleteNode { node: NodeId(2), really, deletion: None };
    assert_eq!(world.admin(node(true)), Err(Refusal::StillRunning { node: NodeId(2) }));
    world.tick_after(10_000);
    assert_eq!(world.admin(node(true)), Err(Refusal::TakesFiles { target: b }));
    world.admin(Admin::SetTargetState { target: b, state: TargetState::Bad }).expect("there");
    world.admin(node(true)).expect("offline");
    assert!(!world.map().nodes.contains_key(&NodeId(2)));
    assert_eq!(world.map().deleted_groups, [GroupId(2), GroupId(3)].into());
    world.restart();
    assert_eq!(world.map().deleted_groups, [GroupId(2), GroupId(3)].into(), "also for who asks later");
    let again = world.register(storage("s3", &["c"]));
    assert_eq!((again.node, again.targets), (NodeId(3), vec![TargetId(4)]), "ids never come again");
}

#[test]
fn a_target_that_its_node_runs_without_goes_as_one_whose_node_is_offline() {
    let mut world = World::new();
    world.register(storage("s1", &["a", "b"]));
    world.register(storage("s1", &["a"]));
    let b = TargetId(2);
    let delete = |really| Admin::DeleteTarget { target: b, really, deletion: None };
    world.admin(delete(false)).expect("nobody can tell what it holds");
    assert_eq!(world.admin(delete(true)), Err(Refusal::TakesFiles { target: b }), "it may come back");
    world.admin(Admin::SetTargetState { target: b, state: TargetState::Bad }).expect("there");
    world.restart();
    world.admin(delete(true)).expect("also before its node has registered again");
    assert_eq!(world.map().groups.keys().collect::<Vec<_>>(), [&GroupId(1)]);
    // Whoever finds the disk after all is told.
    let found = TargetRegistration { id: Some(b), ..storage("s1", &["b"]).targets.remove(0) };
    let late = Registration { targets: vec![found], ..storage("s1", &[]) };
    let refused = world.apply(Event::RegisterNode(late));
    assert_eq!(refused, Err(Refusal::TargetForgotten { id: b, path: "/b".into() }));
}

/// What must hold after every event.
fn check(world: &World) {
    let map = world.map();
    for target in map.targets.values() {
        assert!(map.nodes.contains_key(&target.node), "target {} without node", target.id);
    }
    for group in map.groups.values() {
        assert!(!group.members.is_empty(), "group {} without target", group.id);
        assert!(group.members.iter().all(|member| map.targets.contains_key(member)), "group {} of ghosts", group.id);
    }
    let in_pools: Vec<GroupId> = map.pools.values().flat_map(|pool| pool.groups.clone()).collect();
    for group in map.groups.values() {
        let expected = usize::from(group.kind == ServiceKind::Storage);
        assert_eq!(in_pools.iter().filter(|&&id| id == group.id).count(), expected, "group {} in pools", group.id);
    }
    assert!(in_pools.iter().all(|id| map.groups.contains_key(id)));
    assert!(map.shards.values().all(|id| map.groups[id].kind == ServiceKind::Metadata));
    let has_metadata = map.groups.values().any(|group| group.kind == ServiceKind::Metadata);
    assert_eq!(map.shards.contains_key(&ShardId(0)), has_metadata);
    let run: BTreeSet<GroupId> = map.shards.values().copied().collect();
    let metadata = map.groups.values().filter(|group| group.kind == ServiceKind::Metadata).count();
    assert_eq!((run.len(), map.shards.len()), (metadata, metadata), "each metadata group runs one shard");
    let mut aliases: Vec<&String> = map.nodes.values().map(|node| &node.alias).collect();
    aliases.sort_unstable();
    assert!(aliases.windows(2).all(|pair| pair[0] != pair[1]), "an alias twice");
    let restored = world.restored();
    assert_eq!(restored.map(), map, "restart changes the map");
    assert_eq!((&restored.next, &restored.pinned), (&world.live.next, &world.live.pinned), "restart changes the rest");
}

/// What must hold from one event to the next.
fn check_step(before: &ClusterMap, after: &ClusterMap) {
    let changed = ClusterMap { epoch: before.epoch, ..after.clone() } != *before;
    assert_eq!(after.epoch.0, before.epoch.0 + u64::from(changed), "an epoch per change");
    let told = Difference::between(before, after).apply(before);
    assert_eq!(told.as_ref(), Some(after), "who is told the difference alone");
    for (id, group) in &after.groups {
        let Some(old) = before.groups.get(id) else { continue };
        let states = |map: &ClusterMap| -> Vec<Option<TargetState>> {
            group.members.iter().map(|member| map.targets.get(member).map(|target| target.state)).collect()
        };
        let moved = old.members != group.members || states(before) != states(after);
        assert_eq!(group.generation.0, old.generation.0 + u64::from(moved), "a generation per change of group {id}");
    }
    for (id, target) in &after.targets {
        let known = before.targets.values().find(|old| old.uuid == target.uuid);
        assert!(known.is_none_or(|old| old.id == *id), "target {} has another id", target.uuid);
    }
}

/// One of a small set of events, as a number chooses; also whether time passes and whether mgmtd restarts before it.
fn small_event(world: &mut World, choice: u8) -> Option<Event> {
    let report =
        |failing, empty, free_bytes| Report { capacity: Capacity { free_bytes, ..plenty().capacity }, failing, empty };
    let beat = |node, reports: Vec<(u32, Report)>| {
        let targets = reports.into_iter().map(|(id, report)| (TargetId(id), report)).collect();
        Event::Heartbeat(Heartbeat { node: NodeId(node), incarnation: 1, targets })
    };
    Some(match choice {
        0 => Event::RegisterNode(metadata("m", &["x"])),
        1 => Event::RegisterNode(storage("s", &["a"])),
        2 => Event::RegisterNode(storage("s", &["a", "b"])),
        3 => Event::RegisterNode(Registration { incarnation: 2, alias: "new".into(), ..storage("t", &["c"]) }),
        4 => beat(1, vec![(1, report(true, false, 1 << 39))]),
        5 => beat(2, vec![(2, report(false, true, 1 << 30)), (3, report(false, true, 1 << 39))]),
        6 => {
            world.tick_after(4_500);
            world.now.0 += 500;
            Event::Tick
        }
        7 => Event::RegisterClient,
        8 => Event::Admin(Admin::CreatePool { name: "p".into() }),
        9 => Event::Admin(Admin::AssignPool { group: GroupId(2), pool: PoolId(2) }),
        10 => Event::Admin(Admin::SetTargetState { target: TargetId(1), state: TargetState::Bad }),
        11 => Event::Admin(Admin::DeleteTarget { target: TargetId(2), really: true, deletion: None }),
        12 => Event::Admin(Admin::DeleteNode { node: NodeId(2), really: true, deletion: None }),
        13 => Event::Admin(Admin::SetAlias { node: NodeId(1), alias: "new".into() }),
        14 => Event::Admin(Admin::SetTargetState { target: TargetId(1), state: TargetState::Good }),
        15 => Event::Admin(Admin::RemovePool { pool: PoolId(2) }),
        16 => Event::Admin(Admin::SetTargetState { target: TargetId(2), state: TargetState::Bad }),
        17 => Event::Admin(Admin::ReleaseTargetState { target: TargetId(1) }),
        18 => Event::Admin(Admin::TakeOut { target: TargetId(1), deletion: SessionId(9) }),
        19 => Event::Admin(Admin::PutBack { target: TargetId(1), state: None, deletion: SessionId(9) }),
        _ => {
            world.restart();
            return None;
        }
    })
}
const CHOICES: u8 = 21;

fn step(world: &mut World, choice: u8) {
    let before = world.clone();
    let Some(event) = small_event(world, choice) else { return };
    let mut twin = world.live.clone();
    let (one, other) = (world.live.clone().apply(event.clone(), world.now), twin.apply(event.clone(), world.now));
    assert_eq!(one, other, "not deterministic");
    if world.apply(event).is_err() {
        assert_eq!(world.map(), before.map(), "a refused event has changed the map");
        assert_eq!(world.live.touched.len(), 0, "a refused event has left something for the next");
    }
    check_step(before.map(), world.map());
}

#[test]
fn who_is_heard_after_the_time_of_a_tick_stays_as_heard() {
    let mut world = World::new();
    world.register(storage("s", &["a"]));
    // Requests were taken late: the tick is of the time before, and the beat came since.
    world.now.0 += 9_000;
    world.beat(1, 1, Vec::new()).expect("registered");
    world.live.apply(Event::Tick, Moment(1_000)).expect("never refused");
    let heard = world.now;
    world.tick_after(4_999);
    assert_eq!(world.state(1), NodeState::Online, "silent since {heard:?} only");
}

#[test]
fn all_short_histories_keep_the_invariants() {
    fn explore(world: &World, depth: u32) {
        for choice in 0..CHOICES {
            let mut next = world.clone();
            step(&mut next, choice);
            if depth == 1 {
                check(&next);
            } else {
                explore(&next, depth - 1);
            }
        }
    }
    explore(&World::new(), 3);
    // From a populated cluster, too.
    let mut world = World::new();
    for choice in [0, 2, 3, 5, 8, 9] {
        step(&mut world, choice);
    }
    explore(&world, 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn long_histories_keep_the_invariants(choices in prop::collection::vec(0..CHOICES, 1..80)) {
        let mut world = World::new();
        for choice in choices {
            step(&mut world, choice);
            check(&world);
        }
    }
}
