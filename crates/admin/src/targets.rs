//! Storage targets as the cluster map has them, and which of them a benchmark or a scrub is about. Pure.

use cluster::map::{ClusterMap, NodeState, ServiceKind};
use conf::Fatal;
use types::id::{GroupId, NodeId, TargetId};

/// A storage target as the cluster map has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) target: TargetId,
    pub(crate) group: GroupId,
    pub(crate) node: NodeId,
    pub(crate) alias: String,
    pub(crate) pool: String,
    /// Its service is there.
    pub(crate) online: bool,
}

impl Place {
    /// As messages call it.
    pub(crate) fn name(&self) -> String {
        format!("target {} (node {})", self.target, self.alias)
    }
}

/// Storage targets that have any of these; all of them where nothing is named.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Choice {
    pub targets: Vec<TargetId>,
    /// Names or ids.
    pub nodes: Vec<String>,
    /// Names.
    pub pools: Vec<String>,
}

impl Choice {
    fn is_all(&self) -> bool {
        self.targets.is_empty() && self.nodes.is_empty() && self.pools.is_empty()
    }

    /// # Errors
    /// A usage error where something that is named is not there, or there is no storage target.
    pub(crate) fn of(&self, map: &ClusterMap) -> Result<Vec<Place>, Fatal> {
        let places = places(map);
        let is_node = |place: &Place, name: &String| place.alias == *name || place.node.to_string() == *name;
        for target in &self.targets {
            if !places.iter().any(|place| place.target == *target) {
                return Err(Fatal::usage(format!(
                    "there is no storage target {target}: `weft target list` shows them"
                )));
            }
        }
        for name in &self.nodes {
            if !places.iter().any(|place| is_node(place, name)) {
                return Err(Fatal::usage(format!("no storage node is called {name:?}: `weft node list` shows them")));
            }
        }
        for name in &self.pools {
            if !places.iter().any(|place| place.pool == *name) {
                return Err(Fatal::usage(format!("no pool {name:?} has targets: `weft pool list` shows them")));
            }
        }
        let is_chosen = |place: &Place| {
            let in_nodes = self.nodes.iter().any(|name| is_node(place, name));
            self.is_all() || self.targets.contains(&place.target) || in_nodes || self.pools.contains(&place.pool)
        };
        let chosen: Vec<Place> = places.into_iter().filter(is_chosen).collect();
        if chosen.is_empty() {
            return Err(Fatal::usage("the cluster has no storage target yet: start a storage service"));
        }
        Ok(chosen)
    }
}

/// All storage targets.
pub(crate) fn places(map: &ClusterMap) -> Vec<Place> {
    let targets = map.targets.values().filter(|target| target.kind == ServiceKind::Storage);
    let place = |target: &cluster::map::Target| {
        // A group's requests go to its first member; today it has no other.
        let group = map.groups.values().find(|group| group.members.first() == Some(&target.id))?;
        let pool = map.pools.values().find(|pool| pool.groups.contains(&group.id));
        let node = map.nodes.get(&target.node)?;
        Some(Place {
            target: target.id,
            group: group.id,
            node: node.id,
            alias: node.alias.clone(),
            pool: pool.map(|pool| pool.name.clone()).unwrap_or_default(),
            online: node.state == NodeState::Online,
        })
    };
    targets.filter_map(place).collect()
}

#[cfg(test)]
mod tests {
    use cluster::map::{CapacityClass, Group, Node, Pool, Target, TargetState};
    use types::id::{Generation, PoolId};

    use super::*;

    /// Storage nodes a (targets 1, 2) and b (3), pools default (1, 2) and fast (3).
    fn map() -> ClusterMap {
        let mut map = ClusterMap::empty("c".to_owned());
        for (id, alias, state) in [(1, "a", NodeState::Online), (2, "b", NodeState::Offline)] {
            let (id, kind) = (NodeId(id), ServiceKind::Storage);
            let (uuid, metrics, alias) = (String::new(), String::new(), alias.to_owned());
            map.nodes.insert(id, Node { id, uuid, kind, alias, state, rails: Vec::new(), metrics });
        }
        for (id, node) in [(1, 1), (2, 1), (3, 2)] {
            let (id, group, kind) = (TargetId(id), GroupId(10 + id), ServiceKind::Storage);
            let (state, class) = (TargetState::Good, CapacityClass::Normal);
            let (uuid, path, ports, node) = (String::new(), String::new(), vec![1], NodeId(node));
            map.targets.insert(id, Target { id, uuid, node, kind, state, class, ports, path });
            map.groups.insert(group, Group { id: group, kind, generation: Generation(1), members: vec![id] });
        }
        for (id, name, groups) in [(1, "default", vec![11, 12]), (2, "fast", vec![13])] {
            let (id, name, groups) = (PoolId(id), name.to_owned(), groups.into_iter().map(GroupId).collect());
            map.pools.insert(id, Pool { id, name, groups });
        }
        map
    }

    fn chosen(choice: &Choice) -> Vec<u32> {
        choice.of(&map()).expect("all is there").iter().map(|place| place.target.0).collect()
    }

    #[test]
    fn targets_are_chosen_by_id_node_and_pool() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        assert_eq!(chosen(&Choice::default()), [1, 2, 3]);
        assert_eq!(chosen(&Choice { targets: vec![TargetId(2)], ..Choice::default() }), [2]);
        assert_eq!(chosen(&Choice { nodes: words(&["a"]), ..Choice::default() }), [1, 2]);
        assert_eq!(chosen(&Choice { nodes: words(&["2"]), ..Choice::default() }), [3]);
        let some = Choice { targets: vec![TargetId(1)], pools: words(&["fast"]), ..Choice::default() };
        assert_eq!(chosen(&some), [1, 3]);
        let places = Choice::default().of(&map()).expect("there");
        assert_eq!((places[2].pool.as_str(), places[2].group, places[2].online), ("fast", GroupId(13), false));
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (choice, word) in [
            (Choice { targets: vec![TargetId(9)], ..Choice::default() }, "target 9"),
            (Choice { nodes: vec!["c".to_owned()], ..Choice::default() }, "\"c\""),
            (Choice { pools: vec!["slow".to_owned()], ..Choice::default() }, "\"slow\""),
        ] {
            let refusal = choice.of(&map()).expect_err("refused");
            assert!(refusal.code == 2 && refusal.message.contains(word), "{}", refusal.message);
        }
        let none = Choice::default().of(&ClusterMap::empty(String::new())).expect_err("nothing there");
        assert!(none.message.contains("start a storage service"));
    }
}
