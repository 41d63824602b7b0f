//! NetBench over all storage nodes: this host measures its ways to each of them, or each of them its ways to the others.

mod report;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::map::{ClusterMap, NodeState, ServiceKind};
use conf::Fatal;
use net::Identity;
use net::bench::{Asker, Measure, Over, measure, ways};
use net::pairs::Selector;
use types::id::{GroupId, NodeId};
pub use wire::v1::netbench::NetPlan;
use wire::v1::netbench::{NetLoad, NetMeasure, NetRun, NetStart, NetStatus, NetStop};

pub use self::report::{Figure, Report, Row};
use crate::data::DataPlane;
use crate::runs::next_run_number;

/// Between two questions how a run goes.
const PAUSE: Duration = Duration::from_millis(200);
/// As a measurement says it of itself.
const STOPPED: &str = "stopped";
/// For a node to hear that it is to stop. One that does not ends its run by itself.
const STOP_MAX: Duration = Duration::from_secs(2);
/// Beyond a measurement's time, for a node to have it ended.
const GRACE: Duration = Duration::from_secs(60);

/// Who measures whom.
#[derive(Clone, Debug, Default)]
pub struct NetChoice {
    /// Storage nodes, by name or id; none: all.
    pub nodes: Vec<String>,
    /// The nodes measure each other, rather than this host them.
    pub servers: bool,
    /// Interfaces of this host to go out by, best first; none: all.
    pub interfaces: Vec<Selector>,
    /// Ends everything soon once it is set.
    pub stop: Option<&'static AtomicBool>,
}

/// A storage node.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    node: NodeId,
    alias: String,
    online: bool,
    /// By which its requests find it.
    group: GroupId,
}

impl NetChoice {
    fn stop(&self) -> &'static AtomicBool {
        static NEVER: AtomicBool = AtomicBool::new(false);
        self.stop.unwrap_or(&NEVER)
    }

    fn is_stopped(&self) -> bool {
        self.stop().load(Ordering::Relaxed)
    }

    fn places(&self, map: &ClusterMap) -> Result<Vec<Place>, Fatal> {
        let all = places(map);
        let is = |place: &Place, name: &String| place.alias == *name || place.node.to_string() == *name;
        if let Some(name) = self.nodes.iter().find(|name| !all.iter().any(|place| is(place, name))) {
            return Err(Fatal::usage(format!("no storage node is called {name:?}: `weft node list` shows them")));
        }
        let chosen: Vec<Place> = all
            .into_iter()
            .filter(|place| self.nodes.is_empty() || self.nodes.iter().any(|name| is(place, name)))
            .collect();
        match (chosen.len(), self.servers) {
            (0, _) => Err(Fatal::usage("the cluster has no storage node yet: start a storage service")),
            (1, true) => {
                let only = &chosen[0].alias;
                Err(Fatal::usage(format!("{only} is alone: for nodes to measure each other there must be two")))
            }
            _ => Ok(chosen),
        }
    }
}

fn places(map: &ClusterMap) -> Vec<Place> {
    let nodes = map.nodes.values().filter(|node| node.kind == ServiceKind::Storage);
    let place = |node: &cluster::map::Node| {
        // One that it cannot open has no lane to be asked at. Where none has, it says so itself.
        let any = || map.targets.values().find(|target| target.node == node.id);
        let target = map.served_by(node.id).or_else(any)?.id;
        let group = map.groups.values().find(|group| group.members.first() == Some(&target))?.id;
        Some(Place { node: node.id, alias: node.alias.clone(), online: node.state == NodeState::Online, group })
    };
    let mut places: Vec<Place> = nodes.filter_map(place).collect();
    // Their numbers say only who came first.
    places.sort_by(|a, b| a.alias.cmp(&b.alias));
    places
}

/// This host to each chosen node, and to all of them at once. Blocks; `progress` hears what is being measured.
///
/// # Errors
/// Usage errors of the plan and the choice. What fails on the way is said by its row.
pub(crate) fn from_here(
    map: &ClusterMap,
    identity: &Identity,
    plan: &NetPlan,
    choice: &NetChoice,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<Report> {
    plan.check().map_err(Fatal::usage)?;
    let places = choice.places(map)?;
    let asker = Asker { identity: identity.clone(), interfaces: Arc::from(choice.interfaces.clone()) };
    let mut report = Report::begin(plan);
    let mut reached = Vec::new();
    for place in &places {
        let lanes = map.lanes(place.node);
        let ways = ways(&lanes, &asker.interfaces);
        let mut row = Row::new(report::HERE, &place.alias, "none");
        if !place.online {
            row.fail("the node is offline: start its storage service".to_owned());
            report.rows.push(row);
            continue;
        }
        if ways.is_empty() {
            row.fail("no way leads there: see `weft node list`, and --interfaces".to_owned());
            report.rows.push(row);
            continue;
        }
        for over in ways {
            let mut row = Row::new(report::HERE, &place.alias, &over.to_string());
            loads(&mut row, &[NetLoad::Ping, NetLoad::Write, NetLoad::Read], progress, |load| {
                measure(&asker, &lanes, &over, load, plan, choice.stop())
            });
            report.rows.push(row);
        }
        reached.extend(lanes);
    }
    if places.len() > 1 && !report.has_failed() {
        let mut row = Row::new(report::HERE, "all nodes", &Over::AllRails.to_string());
        loads(&mut row, &[NetLoad::Write, NetLoad::Read], progress, |load| {
            measure(&asker, &reached, &Over::AllRails, load, plan, choice.stop())
        });
        report.rows.push(row);
    }
    Ok(report)
}

/// One after the other, until one fails.
fn loads(row: &mut Row, loads: &[NetLoad], progress: &mut dyn FnMut(&str), mut run: impl FnMut(NetLoad) -> Measure) {
    for &load in loads {
        progress(&format!("{} to {} ({}): {load:?}", row.from, row.to, row.way));
        let measured = run(load);
        row.note(load, &measured);
        if row.failure.is_some() {
            return;
        }
    }
}

/// Each chosen node to all the others, one node after the other.
///
/// # Errors
/// Usage errors of the plan and the choice, and a node that is busy. What fails on the way is said by its row.
pub(crate) async fn among_servers(
    data: &DataPlane<'_>,
    plan: &NetPlan,
    choice: &NetChoice,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<Report> {
    plan.check().map_err(Fatal::usage)?;
    let places = choice.places(data.map())?;
    let names: BTreeMap<NodeId, String> = places.iter().map(|place| (place.node, place.alias.clone())).collect();
    let mut report = Report::begin(plan);
    for place in &places {
        let others: Vec<NodeId> = names.keys().copied().filter(|&node| node != place.node).collect();
        let outcome = if !place.online {
            Err("the node is offline: start its storage service".to_owned())
        } else if choice.is_stopped() {
            Err(STOPPED.to_owned())
        } else {
            of_server(data, plan, choice, (place, &others), progress).await
        };
        match outcome {
            Ok(measures) => report.rows.extend(rows(&place.alias, &names, &measures)),
            Err(failure) => {
                let mut row = Row::new(&place.alias, "the others", "none");
                row.fail(failure);
                report.rows.push(row);
            }
        }
    }
    Ok(report)
}

/// What one node measures of its ways to `others`. Whatever goes wrong, it is told to stop: it would go on for hours perhaps,
/// and refuse the next run.
async fn of_server(
    data: &DataPlane<'_>,
    plan: &NetPlan,
    choice: &NetChoice,
    (place, others): (&Place, &[NodeId]),
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<NetMeasure>, String> {
    let number = next_run_number();
    let request = NetStart { run: number, plan: plan.clone(), nodes: others.to_vec() };
    let outcome = run_on_server(data, place, &request, choice, progress).await;
    if outcome.is_err() {
        let _ = ring::timeout(STOP_MAX, data.lane(place.group, 0, &NetStop { run: number })).await;
    }
    outcome
}

/// Begins a run on a node, and waits for its end.
async fn run_on_server(
    data: &DataPlane<'_>,
    place: &Place,
    request: &NetStart,
    choice: &NetChoice,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<NetMeasure>, String> {
    let started = data.lane(place.group, 0, request).await.map_err(|error| error.to_string())?;
    if !started.refused.0.is_empty() {
        return Err(String::from_utf8_lossy(&started.refused.0).into_owned());
    }
    let patience = Duration::from_millis(request.plan.duration_ms) + GRACE;
    let (mut seen, mut since) = (0, ring::now());
    loop {
        let status = data.lane(place.group, 0, &NetStatus {}).await.map_err(|error| error.to_string())?;
        let Some(NetRun { under_way, measures, .. }) = status.run.filter(|run| run.run == request.run) else {
            return Err("it was restarted, or told to measure something else, in the midst".to_owned());
        };
        if !under_way {
            return Ok(measures);
        }
        if choice.is_stopped() {
            return Err(STOPPED.to_owned());
        }
        if measures.len() > seen {
            (seen, since) = (measures.len(), ring::now());
        }
        if ring::now().saturating_duration_since(since) > patience {
            return Err(format!("it does not come to an end: nothing new for {} s", patience.as_secs()));
        }
        progress(&format!("{} to the others: {} done", place.alias, measures.len()));
        ring::sleep(PAUSE).await;
    }
}

/// A row for each way to each node. Pure.
fn rows(from: &str, names: &BTreeMap<NodeId, String>, measures: &[NetMeasure]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for measure in measures {
        let to = names.get(&measure.node).cloned().unwrap_or_else(|| measure.node.to_string());
        let way = String::from_utf8_lossy(&measure.way.0);
        if rows.last().is_none_or(|row| row.to != to || row.way != way) {
            rows.push(Row::new(from, &to, &way));
        }
        if let Some(row) = rows.last_mut() {
            row.note(measure.load, &measured(measure));
        }
    }
    rows
}

fn measured(told: &NetMeasure) -> Measure {
    let failure = String::from_utf8_lossy(&told.failure.0).into_owned();
    Measure {
        requests: told.requests,
        bytes: told.bytes,
        elapsed: Duration::from_micros(told.elapsed_us),
        p50_ns: told.p50_ns,
        p99_ns: told.p99_ns,
        p999_ns: told.p999_ns,
        max_ns: told.max_ns,
        failure: (!failure.is_empty()).then_some(failure),
    }
}

#[cfg(test)]
mod tests {
    use cluster::map::{CapacityClass, Group, Node, Target, TargetState};
    use types::id::{Generation, TargetId};
    use wire::codec::Bytes;

    use super::*;

    fn map(storage: &[&str]) -> ClusterMap {
        let mut map = ClusterMap::empty("c".to_owned());
        for (id, alias) in (1..).zip(storage) {
            let (node, target, group) = (NodeId(id), TargetId(id), GroupId(10 + id));
            let kind = ServiceKind::Storage;
            let (uuid, path, metrics) = (String::new(), String::new(), String::new());
            let (state, alias) = (NodeState::Online, (*alias).to_owned());
            map.nodes
                .insert(node, Node { id: node, uuid: uuid.clone(), kind, alias, state, rails: Vec::new(), metrics });
            let (state, class) = (TargetState::Good, CapacityClass::Normal);
            map.targets.insert(target, Target { id: target, uuid, node, kind, state, class, ports: vec![1], path });
            map.groups.insert(group, Group { id: group, kind, generation: Generation(1), members: vec![target] });
        }
        map
    }

    fn choose(nodes: &[&str], servers: bool, map: &ClusterMap) -> Result<Vec<String>, Fatal> {
        let nodes = nodes.iter().map(|&node| node.to_owned()).collect();
        let places = NetChoice { nodes, servers, ..NetChoice::default() }.places(map)?;
        Ok(places.into_iter().map(|place| place.alias).collect())
    }

    #[test]
    fn nodes_are_chosen_by_name_and_id() {
        let both = map(&["a", "b"]);
        assert_eq!(choose(&[], true, &both).expect("two"), ["a", "b"]);
        assert_eq!(choose(&["2"], false, &both).expect("there"), ["b"]);
        assert_eq!(choose(&[], false, &map(&["b", "a"])).expect("two"), ["a", "b"], "whoever came first");
        for (nodes, servers, map, word) in [
            (&["c"][..], false, &both, "\"c\""),
            (&["a"][..], true, &both, "alone"),
            (&[][..], false, &map(&[]), "start a storage service"),
        ] {
            let refusal = choose(nodes, servers, map).expect_err("refused");
            assert!(refusal.code == 2 && refusal.message.contains(word), "{}", refusal.message);
        }
    }

    #[test]
    fn a_node_is_asked_at_a_target_that_it_serves() {
        let mut map = map(&["a"]);
        let (id, group) = (TargetId(2), GroupId(12));
        let first = map.targets.get_mut(&TargetId(1)).expect("there");
        let second = Target { id, ..first.clone() };
        first.ports.clear();
        assert_eq!(places(&map)[0].group, GroupId(11), "it has no other");
        map.targets.insert(id, second);
        let group_of = |group| Group { id: group, members: vec![id], ..map.groups[&GroupId(11)].clone() };
        map.groups.insert(group, group_of(group));
        assert_eq!(places(&map)[0].group, group);
    }

    #[test]
    fn measures_of_one_way_are_one_row() {
        let measure = |node: u32, way: &str, load: NetLoad, failure: &str| NetMeasure {
            node: NodeId(node),
            way: Bytes(way.as_bytes().to_vec()),
            load,
            requests: 10,
            bytes: 1_000,
            elapsed_us: 500_000,
            p50_ns: 1_000,
            p99_ns: 2_000,
            p999_ns: 3_000,
            max_ns: 4_000,
            failure: Bytes(failure.as_bytes().to_vec()),
        };
        let names = BTreeMap::from([(NodeId(2), "b".to_owned()), (NodeId(3), "c".to_owned())]);
        let all = [
            measure(2, "x", NetLoad::Ping, ""),
            measure(2, "x", NetLoad::Write, ""),
            measure(2, "x", NetLoad::Read, ""),
            measure(2, "y", NetLoad::Ping, ""),
            measure(3, "y", NetLoad::Ping, "it broke"),
        ];
        let rows = rows("a", &names, &all);
        let shown: Vec<_> = rows.iter().map(|row| (row.to.as_str(), row.way.as_str())).collect();
        assert_eq!(shown, [("b", "x"), ("b", "y"), ("c", "y")]);
        assert_eq!(rows[0].write.as_ref().expect("measured").bytes_per_second, 2_000.0);
        assert!(rows[1].write.is_none() && rows[1].failure.is_none());
        assert_eq!(rows[2].failure.as_deref(), Some("it broke"));
    }
}
