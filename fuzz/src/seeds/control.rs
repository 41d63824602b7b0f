//! Seeds of what mgmtd is told and what it keeps, from a small cluster; and of places in shared memory.

use cluster::capacity::Capacity;
use cluster::event::{Admin, Event, Moment, Registration, Report, TargetRegistration};
use cluster::map::{Rail, ServiceKind};
use cluster::membership::{Membership, Rules};
use control::{View, convert};
use prost::Message;
use types::id::{NodeId, TargetId};
use wire::frame::{PAYLOAD_MAX, Place};

use super::Seed;

/// The cluster that everything is about.
pub const CLUSTER: &str = "00000000-0000-4000-8000-000000000001";

const REGISTER: u8 = 0;
const HEARTBEAT: u8 = 1;
const VIEW: u8 = 2;

pub(super) fn places() -> Vec<Seed> {
    let places = [
        ("first", 0, 4096),
        ("last", (1 << 20) - 4096, 4096),
        ("past-the-end", (1 << 20) - 4096, 4097),
        ("far", u64::MAX - 10, 11),
        ("longest", 0, PAYLOAD_MAX as u64),
        ("too-long", 0, PAYLOAD_MAX as u64 + 1),
    ];
    places.map(|(name, offset, len)| Seed::new("place", name, Place { offset, len }.encode().to_vec())).to_vec()
}

pub(super) fn control() -> Vec<Seed> {
    let new = register(&metadata(None), CLUSTER);
    let known = register(&metadata(Some(NodeId(1))), CLUSTER);
    let foreign = register(&metadata(Some(NodeId(1))), "another");
    let storage = register(&storage(), "");
    let beats = convert::heartbeat(NodeId(2), 7, &[(TargetId(2), report(900)), (TargetId(3), report(5))]);
    let beats = framed(HEARTBEAT, &beats.encode_to_vec());
    let (first, second) = views();
    let told = framed(VIEW, &first.to_update().encode_to_vec());
    let again = framed(VIEW, &first.to_update_since(&first).encode_to_vec());
    let changed = framed(VIEW, &second.to_changes_since(&first).encode_to_vec());
    vec![
        Seed::new("control", "nodes", [&new[..], &storage, &beats, &known].concat()),
        Seed::new("control", "foreign", [&new[..], &foreign].concat()),
        Seed::new("control", "heartbeat-of-nobody", beats),
        Seed::new("control", "views", [told, again, changed].concat()),
    ]
}

pub(super) fn records() -> Vec<Seed> {
    let (_, effects) = Membership::create(CLUSTER, Rules::default(), Moment(0));
    let mut without_epoch = effects.records;
    without_epoch.retain(|(key, _)| key != b"e");
    let list = |records: &[Record]| -> Vec<u8> {
        let one = |(key, value): &Record| {
            let value = value.clone().unwrap_or_default();
            [&[key.len() as u8][..], &(value.len() as u16).to_le_bytes(), key, &value].concat()
        };
        records.iter().flat_map(one).collect()
    };
    vec![
        Seed::new("records", "grown", list(&grown().1)),
        Seed::new("records", "without-epoch", list(&without_epoch)),
        Seed::new("records", "unknown-key", list(&[(b"z".to_vec(), Some(b"{}".to_vec()))])),
    ]
}

/// A key and its value; `None`: none any more.
type Record = (Vec<u8>, Option<Vec<u8>>);

/// A cluster with a node of each kind, and all that it persists; in an order in which later records replace earlier ones.
fn grown() -> (Membership, Vec<Record>) {
    let (mut membership, effects) = Membership::create(CLUSTER, Rules::default(), Moment(0));
    let mut records = effects.records;
    for node in [metadata(None), storage()] {
        let effects = membership.apply(Event::RegisterNode(node), Moment(1)).expect("a good registration");
        records.retain(|(key, _)| effects.records.iter().all(|(newer, _)| newer != key));
        records.extend(effects.records);
    }
    (membership, records)
}

fn view(membership: &Membership) -> View {
    View::new(membership.map().clone(), membership.capacities().into())
}

/// Before and after a change.
fn views() -> (View, View) {
    let mut membership = grown().0;
    let first = view(&membership);
    let alias = Admin::SetAlias { node: NodeId(1), alias: "renamed".to_owned() };
    membership.apply(Event::Admin(alias), Moment(2)).expect("a good name");
    (first, view(&membership))
}

fn register(node: &Registration, cluster: &str) -> Vec<u8> {
    let reports: Vec<Report> = node.targets.iter().map(|target| target.report).collect();
    framed(REGISTER, &convert::registration(cluster, node, &reports).encode_to_vec())
}

fn framed(kind: u8, message: &[u8]) -> Vec<u8> {
    let len = u16::try_from(message.len()).expect("a small message");
    [&[kind][..], &len.to_le_bytes(), message].concat()
}

fn metadata(id: Option<NodeId>) -> Registration {
    node(ServiceKind::Metadata, id, vec![target("meta-1", id.map(|id| TargetId(id.0)))])
}

fn storage() -> Registration {
    node(ServiceKind::Storage, None, vec![target("store-1", None), target("store-2", None)])
}

fn node(kind: ServiceKind, id: Option<NodeId>, targets: Vec<TargetRegistration>) -> Registration {
    let rails = ["10.0.0.1", "fe80::1"]
        .map(|address| Rail { interface: "eth0".to_owned(), address: address.parse().expect("an address") });
    Registration {
        cluster: CLUSTER.to_owned(),
        uuid: format!("node of {kind}"),
        kind,
        id,
        alias: String::new(),
        incarnation: 7,
        rails: rails.to_vec(),
        metrics: "10.0.0.1:9100".to_owned(),
        targets,
    }
}

fn target(uuid: &str, id: Option<TargetId>) -> TargetRegistration {
    TargetRegistration {
        uuid: uuid.to_owned(),
        id,
        path: format!("/{uuid}"),
        ports: vec![1, 65535],
        report: report(900),
    }
}

fn report(free_bytes: u64) -> Report {
    let capacity = Capacity { total_bytes: 1000, free_bytes, total_inodes: 1000, free_inodes: 900 };
    Report { capacity, failing: false, empty: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::restores;

    #[test]
    fn one_store_is_whole_and_the_others_are_not() {
        let whole = records().into_iter().filter(|seed| restores(&seed.bytes)).map(|seed| seed.name);
        assert_eq!(whole.collect::<Vec<_>>(), ["grown"]);
    }

    /// The targets explore nothing where their seeds are refused at the door.
    #[test]
    fn nodes_and_views_get_in() {
        let (membership, _) = grown();
        assert_eq!((membership.map().nodes.len(), membership.map().targets.len()), (2, 3));
        let mut known = View::default();
        assert_eq!(known.update(&view(&membership).to_update()), Ok(true));
        let changed = views().1.to_changes_since(&known);
        assert!(changed.map.is_empty());
        assert_eq!(known.update(&changed), Ok(true));
    }
}
