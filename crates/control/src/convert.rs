//! Between the messages and the values of crate `cluster`. What a message says is checked here and nowhere else.

use std::time::Duration;

use cluster::capacity::Capacity;
use cluster::event::{Heartbeat, Registration, Report, Seen, TargetRegistration};
use cluster::map::{Rail, ServiceKind, TargetState};
use types::id::{Epoch, NodeId, TargetId};

use crate::node::{Deletion, Registered};
use crate::proto;
use crate::view::View;

/// A message that no release of this version would send, in one line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("bad request: {0}")]
pub struct BadMessage(String);

fn bad<T>(text: impl Into<String>) -> Result<T, BadMessage> {
    Err(BadMessage(text.into()))
}

/// The registration at `cluster`, with `reports` on its targets.
#[must_use]
pub fn registration(cluster: &str, node: &Registration, reports: &[Report]) -> proto::RegisterNodeRequest {
    let rail = |rail: &Rail| proto::Rail { interface: rail.interface.clone(), address: rail.address.to_string() };
    let targets = node.targets.iter().enumerate();
    proto::RegisterNodeRequest {
        cluster: cluster.to_owned(),
        uuid: node.uuid.clone(),
        kind: kind_to_proto(node.kind).into(),
        id: node.id.unwrap_or_default().0,
        alias: node.alias.clone(),
        incarnation: node.incarnation,
        rails: node.rails.iter().map(rail).collect(),
        metrics: node.metrics.clone(),
        targets: targets.map(|(at, target)| target_registration(target, reports.get(at))).collect(),
        known: None,
    }
}

fn target_registration(target: &TargetRegistration, report: Option<&Report>) -> proto::TargetRegistration {
    proto::TargetRegistration {
        uuid: target.uuid.clone(),
        id: target.id.unwrap_or_default().0,
        path: target.path.clone(),
        ports: target.ports.iter().copied().map(u32::from).collect(),
        report: report.map(report_to_proto),
    }
}

/// # Errors
/// Where a field holds no value of its type.
pub fn registration_from(message: proto::RegisterNodeRequest) -> Result<Registration, BadMessage> {
    let kind = match message.kind() {
        proto::ServiceKind::Metadata => ServiceKind::Metadata,
        proto::ServiceKind::Storage => ServiceKind::Storage,
        proto::ServiceKind::Unspecified => return bad("no such service kind"),
    };
    Ok(Registration {
        cluster: message.cluster,
        uuid: message.uuid,
        kind,
        id: (message.id != 0).then_some(NodeId(message.id)),
        alias: message.alias,
        incarnation: message.incarnation,
        rails: message.rails.into_iter().map(rail_from).collect::<Result<_, _>>()?,
        metrics: message.metrics,
        targets: message.targets.into_iter().map(target_from).collect::<Result<_, _>>()?,
    })
}

fn rail_from(message: proto::Rail) -> Result<Rail, BadMessage> {
    match message.address.parse() {
        Ok(address) => Ok(Rail { interface: message.interface, address }),
        Err(_) => bad(format!("{:?} is no address", message.address)),
    }
}

fn target_from(message: proto::TargetRegistration) -> Result<TargetRegistration, BadMessage> {
    let port = |port: u32| u16::try_from(port).ok().filter(|&port| port != 0);
    let Some(ports) = message.ports.into_iter().map(port).collect() else { return bad("no such port") };
    Ok(TargetRegistration {
        uuid: message.uuid,
        id: (message.id != 0).then_some(TargetId(message.id)),
        path: message.path,
        ports,
        report: message.report.as_ref().map(report_from).unwrap_or_default(),
    })
}

#[must_use]
pub fn heartbeat(node: NodeId, incarnation: u64, reports: &[(TargetId, Report)]) -> proto::HeartbeatRequest {
    let one = |(target, report): &(TargetId, Report)| proto::TargetReport {
        target: target.0,
        report: Some(report_to_proto(report)),
    };
    proto::HeartbeatRequest { node: node.0, incarnation, targets: reports.iter().map(one).collect() }
}

#[must_use]
pub fn heartbeat_from(message: &proto::HeartbeatRequest) -> Heartbeat {
    let one = |target: &proto::TargetReport| {
        (TargetId(target.target), target.report.as_ref().map(report_from).unwrap_or_default())
    };
    Heartbeat {
        node: NodeId(message.node),
        incarnation: message.incarnation,
        targets: message.targets.iter().map(one).collect(),
    }
}

#[must_use]
pub(crate) fn seen(seen: &Seen) -> proto::Seen {
    let &Seen { epoch, nodes, targets, groups, pools, shards, sessions } = seen;
    proto::Seen { epoch: epoch.0, nodes, targets, groups, pools, shards, sessions }
}

#[must_use]
pub fn seen_from(message: &proto::Seen) -> Seen {
    let &proto::Seen { epoch, nodes, targets, groups, pools, shards, sessions } = message;
    Seen { epoch: Epoch(epoch), nodes, targets, groups, pools, shards, sessions }
}

/// `None` of nothing: the whole is to be told.
#[must_use]
pub(crate) fn known(view: &View) -> Option<proto::Known> {
    let epoch = view.map.epoch.0;
    (epoch > 0).then(|| proto::Known { epoch, check: view.check() })
}

#[must_use]
pub(crate) fn registered_from(message: &proto::RegisterNodeReply) -> Registered {
    Registered {
        cluster: message.cluster.clone(),
        node: NodeId(message.node),
        alias: message.alias.clone(),
        targets: message.targets.iter().copied().map(TargetId).collect(),
        heartbeat: Duration::from_millis(message.heartbeat_ms.max(1)),
        offline_after: Duration::from_millis(message.offline_after_ms),
    }
}

pub(crate) fn deletion_from(message: proto::DeleteReply) -> Deletion {
    Deletion { lines: message.deleted, heartbeat: Duration::from_millis(message.heartbeat_ms) }
}

fn report_to_proto(report: &Report) -> proto::Report {
    proto::Report {
        total_bytes: report.capacity.total_bytes,
        free_bytes: report.capacity.free_bytes,
        total_inodes: report.capacity.total_inodes,
        free_inodes: report.capacity.free_inodes,
        failing: report.failing,
        empty: report.empty,
    }
}

fn report_from(message: &proto::Report) -> Report {
    let capacity = Capacity {
        total_bytes: message.total_bytes,
        free_bytes: message.free_bytes,
        total_inodes: message.total_inodes,
        free_inodes: message.free_inodes,
    };
    Report { capacity, failing: message.failing, empty: message.empty }
}

fn kind_to_proto(kind: ServiceKind) -> proto::ServiceKind {
    match kind {
        ServiceKind::Metadata => proto::ServiceKind::Metadata,
        ServiceKind::Storage => proto::ServiceKind::Storage,
    }
}

#[must_use]
pub(crate) fn state_to_proto(state: TargetState) -> proto::TargetState {
    match state {
        TargetState::Good => proto::TargetState::Good,
        TargetState::NeedsResync => proto::TargetState::NeedsResync,
        TargetState::Bad => proto::TargetState::Bad,
    }
}

/// # Errors
/// Where the message names no state.
pub fn state_from(message: proto::TargetState) -> Result<TargetState, BadMessage> {
    match message {
        proto::TargetState::Good => Ok(TargetState::Good),
        proto::TargetState::NeedsResync => Ok(TargetState::NeedsResync),
        proto::TargetState::Bad => Ok(TargetState::Bad),
        proto::TargetState::Unspecified => bad("no such target state"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Registration {
        let ports = vec![1, 65535];
        let target = TargetRegistration { uuid: "t".into(), id: None, path: "/t".into(), ports, report: report() };
        Registration {
            cluster: "c".into(),
            uuid: "u".into(),
            kind: ServiceKind::Storage,
            id: Some(NodeId(3)),
            alias: "a".into(),
            incarnation: 77,
            rails: vec![Rail { interface: "eth0".into(), address: "fe80::1".parse().expect("an address") }],
            metrics: "h:1".into(),
            targets: vec![target],
        }
    }

    fn report() -> Report {
        let capacity = Capacity { total_bytes: 1, free_bytes: 2, total_inodes: 3, free_inodes: 4 };
        Report { capacity, failing: true, empty: true }
    }

    #[test]
    fn a_registration_survives_the_wire() {
        assert_eq!(registration_from(registration("c", &node(), &[report()])), Ok(node()));
        let beat = heartbeat_from(&heartbeat(NodeId(3), 77, &[(TargetId(9), report())]));
        assert_eq!(beat, Heartbeat { node: NodeId(3), incarnation: 77, targets: vec![(TargetId(9), report())] });
        let known = Seen { epoch: Epoch(1), nodes: 2, targets: 3, groups: 4, pools: 5, shards: 6, sessions: 7 };
        assert_eq!(seen_from(&seen(&known)), known);
    }

    #[test]
    fn nonsense_is_refused() {
        let good = || registration("c", &node(), &[]);
        let mut message = good();
        message.kind = 99;
        assert!(registration_from(message).is_err());
        let mut message = good();
        message.rails[0].address = "here".into();
        assert!(registration_from(message).is_err());
        for port in [0, 65536] {
            let mut message = good();
            message.targets[0].ports = vec![port];
            assert!(registration_from(message).is_err());
        }
    }
}
