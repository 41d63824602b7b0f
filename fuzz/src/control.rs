//! What reaches mgmtd over gRPC, through the checks and into the membership; and the views that go the other way.

use std::collections::BTreeMap;

use cluster::event::{Effects, Event, Moment};
use cluster::membership::{Membership, Rules};
use control::{View, convert, proto};
use prost::Message;
use types::id::{GroupId, ShardId};

use crate::seeds::CLUSTER;

/// Messages one after the other: one byte that chooses the kind, two for the length, and the bytes of the message.
pub fn control(data: &[u8]) {
    let mut management = Management::new();
    let mut view = View::default();
    let mut rest = data;
    while let [kind, low, high, after @ ..] = rest {
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        let (message, later) = after.split_at(len);
        rest = later;
        match kind % 3 {
            0 => management.register(message),
            1 => management.heartbeat(message),
            _ => look(&mut view, message),
        }
        management.pass_time();
    }
    management.assert_can_restart();
}

/// mgmtd without its store: what it would have persisted is kept here.
struct Management {
    membership: Membership,
    now: Moment,
    records: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Management {
    fn new() -> Self {
        let now = Moment(0);
        let (membership, effects) = Membership::create(CLUSTER, Rules::default(), now);
        let mut new = Self { membership, now, records: BTreeMap::new() };
        new.keep(effects);
        new
    }

    fn register(&mut self, message: &[u8]) {
        let Ok(message) = proto::RegisterNodeRequest::decode(message) else { return };
        let Ok(registration) = convert::registration_from(message) else { return };
        let ports = registration.targets.iter().flat_map(|target| &target.ports);
        assert!(ports.into_iter().all(|&port| port != 0), "ports are checked");
        self.happen(Event::RegisterNode(registration));
    }

    fn heartbeat(&mut self, message: &[u8]) {
        let Ok(message) = proto::HeartbeatRequest::decode(message) else { return };
        self.happen(Event::Heartbeat(convert::heartbeat_from(&message)));
    }

    fn pass_time(&mut self) {
        self.now.0 += self.membership.rules().offline_after_ms / 2;
        self.happen(Event::Tick);
    }

    fn happen(&mut self, event: Event) {
        let before = self.membership.map().clone();
        match self.membership.apply(event, self.now) {
            Ok(effects) => self.keep(effects),
            Err(_) => assert_eq!(*self.membership.map(), before, "what is refused changes nothing"),
        }
    }

    fn keep(&mut self, effects: Effects) {
        for (key, value) in effects.records {
            match value {
                Some(value) => self.records.insert(key, value),
                None => self.records.remove(&key),
            };
        }
    }

    /// Whatever a node has said, the store is one from which mgmtd comes up again, with the same map.
    fn assert_can_restart(&self) {
        let restored = Membership::restore(self.records.clone(), Rules::default(), self.now);
        let restored = restored.expect("no registration damages the store").expect("a store that was used");
        assert_eq!(restored.map(), self.membership.map());
    }
}

/// A client or service that is told of the cluster.
fn look(view: &mut View, message: &[u8]) {
    let Ok(update) = proto::ViewUpdate::decode(message) else { return };
    let before = view.clone();
    match view.update(&update) {
        Ok(changed) => {
            assert_eq!(changed, *view != before);
            assert!(view.map.epoch >= before.map.epoch, "maps only get newer");
            assert_eq!(view.update(&update), Ok(false), "the same again says nothing");
        }
        Err(_) => assert_eq!(*view, before, "what is refused changes nothing"),
    }
    // Those who ask the map find their way, or none.
    for group in view.map.groups.keys().copied().chain([GroupId(0)]) {
        let _ = view.map.route_lane(group, usize::MAX);
    }
    for shard in view.map.shards.keys().copied().chain([ShardId(0)]) {
        let _ = view.map.route_shard(shard);
    }
    for node in view.map.nodes.keys() {
        let _ = view.map.lanes(*node);
    }
}
