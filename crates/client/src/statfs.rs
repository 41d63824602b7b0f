//! Capacity of the whole file system.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use cluster::map::{ClusterMap, Group, NodeState, ServiceKind};
use types::error::Errno;
use types::id::{GroupId, ShardId};
use wire::v1::{meta, storage};

use crate::caller::Caller;
use crate::looks::Looks;
use crate::mutex::lock;
use crate::router::{Client, Destination};

/// So often a target that has not answered is looked up in the map: its node may be known to be offline by now.
const LOOK: Duration = Duration::from_millis(200);

/// One answer is for all who ask so soon after it: monitoring, and programs that ask before each file.
const FRESH: Duration = Duration::from_secs(1);

/// After so long, what is known from before will do: `df` is not to hang with one target.
const PATIENCE: Duration = Duration::from_secs(2);

/// A target of a node that is offline, and that did not answer, is asked so late again, and then waited for no longer than
/// [`LOOK`]: it is most likely gone. But it may be that mgmtd alone does not hear of the node.
const SILENCE: Duration = Duration::from_secs(10);

/// What `df` shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatFs {
    /// Bytes of all storage targets that answer.
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// More that fit: bounded by the inodes that the targets' file systems can still make.
    pub free_inodes: u64,
}

/// Of all threads of a mount: what was answered, and whether one of them asks.
#[derive(Default)]
pub(crate) struct Answers(Mutex<Round>);

#[derive(Default)]
struct Round {
    asking: bool,
    /// What the last one came to, and when.
    last: Option<(Instant, Result<StatFs, Errno>)>,
    said: Said,
}

/// What each shard and target has said last. One that is slow says it again.
#[derive(Clone, Default)]
struct Said {
    inodes: BTreeMap<ShardId, u64>,
    targets: BTreeMap<GroupId, Room>,
    /// Those of nodes that are offline which did not answer, and when they were asked last.
    silent: BTreeMap<GroupId, Instant>,
}

/// Of one target.
#[derive(Clone, Copy)]
struct Room {
    total_bytes: u64,
    free_bytes: u64,
    free_inodes: u64,
}

/// What became of asking a target.
enum Found {
    Room(Room),
    /// It did not answer, when it was asked last.
    Silent(Instant),
}

/// What a thread does that wants to know.
enum Turn<'a> {
    Knows(Result<StatFs, Errno>),
    /// With what was said last.
    Asks(Asking<'a>, Said),
    /// Another one asks.
    Waits,
}

/// No other thread asks until this is dropped, as by a program that is killed.
struct Asking<'a>(&'a Answers);

impl Answers {
    fn turn(&self) -> Turn<'_> {
        let mut round = self.round();
        match round.last {
            Some((when, last)) if when.elapsed() < FRESH => Turn::Knows(last),
            _ if round.asking => Turn::Waits,
            _ => {
                round.asking = true;
                Turn::Asks(Asking(self), round.said.clone())
            }
        }
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        lock(&self.0)
    }
}

impl Asking<'_> {
    fn end(self, said: Result<Said, Errno>) -> Result<StatFs, Errno> {
        let mut round = self.0.round();
        let answer = said.map(|said| {
            round.said = said;
            round.said.sum()
        });
        // That this program ends is nothing to the others.
        if answer != Err(Errno::EINTR) {
            round.last = Some((Instant::now(), answer));
        }
        answer
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.round().asking = false;
    }
}

impl Said {
    fn sum(&self) -> StatFs {
        let mut sum = StatFs { inodes: self.inodes.values().sum(), ..StatFs::default() };
        for room in self.targets.values() {
            sum.total_bytes += room.total_bytes;
            sum.free_bytes += room.free_bytes;
            sum.free_inodes += room.free_inodes;
        }
        sum
    }
}

impl Client {
    /// Asks the shards and the targets themselves, unless that has just been done, for all threads of the mount at once. One
    /// that does not answer soon counts as it did the last time. Targets of nodes that are offline, or turn out to be so
    /// meanwhile, count only if they answer. Those that their nodes run without do not count.
    ///
    /// # Errors
    /// `EIO` where one of a node that is not offline, and has never answered before, does not do so within the bound.
    pub async fn statfs(&self, caller: &Caller<'_>) -> Result<StatFs, Errno> {
        let mut looks = Looks::default();
        loop {
            match self.shared.space.turn() {
                Turn::Knows(answer) => return answer,
                Turn::Asks(asking, before) => return asking.end(self.ask_for_space(caller, &before).await),
                Turn::Waits => looks.pause_for(caller).await?,
            }
        }
    }

    async fn ask_for_space(&self, caller: &Caller<'_>, before: &Said) -> Result<Said, Errno> {
        let map = self.shared.map();
        let inodes = map.shards.keys().map(async |&shard| {
            let answer = async {
                self.call(caller, Destination::Shard(shard), &meta::StatFs {}).await.map(|reply| reply.inodes)
            };
            or_known(answer, before.inodes.get(&shard).copied()).await.map(|inodes| (shard, inodes))
        });
        let targets = storage_groups_served(&map).into_iter().map(async |(group, state)| {
            let room = if state == NodeState::Offline {
                self.room_if_there(caller, group, before.silent.get(&group).copied()).await
            } else {
                let known = before.targets.get(&group).copied().map(Some);
                or_known(self.room(caller, group), known).await.map(|room| room.map(Found::Room))
            };
            room.map(|found| (group, found))
        });
        let inodes = ring::join_all(inodes).await.into_iter().collect::<Result<_, _>>()?;
        let mut said = Said { inodes, ..Said::default() };
        for found in ring::join_all(targets).await {
            match found? {
                (group, Some(Found::Room(room))) => drop(said.targets.insert(group, room)),
                (group, Some(Found::Silent(asked))) => drop(said.silent.insert(group, asked)),
                (_, None) => {}
            }
        }
        Ok(said)
    }

    /// Of a target whose node mgmtd does not hear of; `silent`: it did not answer then.
    async fn room_if_there(
        &self,
        caller: &Caller<'_>,
        group: GroupId,
        silent: Option<Instant>,
    ) -> Result<Option<Found>, Errno> {
        let patience = match silent {
            Some(asked) if asked.elapsed() < SILENCE => return Ok(Some(Found::Silent(asked))),
            Some(_) => LOOK,
            None => PATIENCE,
        };
        match ring::timeout(patience, self.ask_for_room(caller, group)).await {
            Ok(Ok(room)) => Ok(Some(Found::Room(room))),
            Ok(Err(Errno::EINTR)) => Err(Errno::EINTR),
            Ok(Err(_)) | Err(_) => Ok(Some(Found::Silent(Instant::now()))),
        }
    }

    async fn ask_for_room(&self, caller: &Caller<'_>, group: GroupId) -> Result<Room, Errno> {
        let answer = self.call(caller, Destination::Lane(group, 0), &storage::TargetStat { group }).await?;
        let storage::TargetStatReply { total_bytes, free_bytes, free_inodes, .. } = answer;
        Ok(Room { total_bytes, free_bytes, free_inodes })
    }

    /// `None` where it is not served any more.
    async fn room(&self, caller: &Caller<'_>, group: GroupId) -> Result<Option<Room>, Errno> {
        let mut answer = pin!(self.ask_for_room(caller, group));
        loop {
            let answer = ring::timeout(LOOK, answer.as_mut()).await;
            let is_served = || {
                let map = self.shared.map();
                map.groups.get(&group).and_then(|of| served(&map, of)).is_some_and(|state| state != NodeState::Offline)
            };
            match answer {
                Ok(Ok(room)) => return Ok(Some(room)),
                _ if !is_served() => return Ok(None),
                Ok(Err(errno)) => return Err(errno),
                Err(_) => {}
            }
        }
    }
}

/// What `answer` comes to; where that takes long, what is `known`.
async fn or_known<T>(answer: impl Future<Output = Result<T, Errno>>, known: Option<T>) -> Result<T, Errno> {
    match known {
        Some(known) => ring::timeout(PATIENCE, answer).await.unwrap_or(Ok(known)),
        None => answer.await,
    }
}

/// The state of the node that the group's target is served by.
fn served(map: &ClusterMap, group: &Group) -> Option<NodeState> {
    let target = group.members.first().and_then(|target| map.targets.get(target));
    let node = target.filter(|target| !target.ports.is_empty()).and_then(|target| map.nodes.get(&target.node));
    node.map(|node| node.state)
}

/// With the states of their nodes.
fn storage_groups_served(map: &ClusterMap) -> Vec<(GroupId, NodeState)> {
    let groups = map.groups.values().filter(|group| group.kind == ServiceKind::Storage);
    groups.filter_map(|group| Some((group.id, served(map, group)?))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cluster::map::{CapacityClass, Node, Target, TargetState};
    use types::cred::Credentials;
    use types::id::{Generation, NodeId, TargetId};

    use wire::op::Op;

    use super::*;
    use crate::test_cluster::{SHARD, Script, Server, join, run};

    async fn says(script: &Script, inodes: u64) {
        let reply = meta::StatFsReply { inodes, total_bytes: 0, free_bytes: 0 };
        script.next(Op::StatFs).await.responder.reply(&reply);
    }

    /// By the clock: other sleeps count from the begin of a turn, which may be some time ago on a busy machine.
    async fn no_longer_fresh() {
        ring::sleep_until(Instant::now() + FRESH).await;
    }

    #[test]
    fn one_answer_is_for_all_threads_and_for_a_moment() {
        run(async |script, [one, other]| {
            let ask = async |client: &Client| client.statfs(&Caller::patient(Credentials::default())).await;
            let same = async |inodes| {
                for client in [&one, &other] {
                    assert_eq!(ask(client).await.map(|stat| stat.inodes), Ok(inodes));
                }
            };
            let both = join(same(5), same(5));
            join(both, async {
                script.opens_session(1).await;
                says(script, 5).await;
            })
            .await;
            script.nothing_comes().await;
            no_longer_fresh().await;
            join(same(6), says(script, 6)).await;
            // One that is slow says what it said the last time.
            no_longer_fresh().await;
            let begin = Instant::now();
            same(6).await;
            assert!(begin.elapsed() < 2 * PATIENCE, "{:?}", begin.elapsed());
            drop(script.next(Op::StatFs).await);
        });
    }

    #[test]
    fn a_target_of_a_node_that_mgmtd_alone_does_not_hear_counts() {
        run(async |script, [client, _]| {
            let mut map = client.shared.map().as_ref().clone();
            let unheard = Server::start(&mut map, ServiceKind::Storage);
            map.nodes.last_entry().expect("its node").get_mut().state = NodeState::Offline;
            map.epoch.0 += 1;
            client.shared.update_map(Arc::new(map));
            let ask = async || {
                no_longer_fresh().await;
                let begin = Instant::now();
                let stat = client.statfs(&Caller::patient(Credentials::default())).await.expect("answered");
                (stat.total_bytes, begin.elapsed())
            };
            let room = storage::TargetStatReply { total_bytes: 100, free_bytes: 50, total_inodes: 9, free_inodes: 8 };
            let there = async {
                script.opens_session(1).await;
                says(script, 5).await;
                unheard.script.next(Op::TargetStat).await.responder.reply(&room);
            };
            join(async { assert_eq!(ask().await.0, 100) }, there).await;
            // It is gone now: that is found out once.
            let gone = async {
                says(script, 5).await;
                let unanswered = unheard.script.next(Op::TargetStat).await;
                says(script, 5).await;
                unheard.script.nothing_comes().await;
                drop(unanswered);
            };
            let asks = async {
                let (bytes, took) = ask().await;
                assert!(bytes == 0 && took < 2 * PATIENCE, "{bytes} bytes after {took:?}");
                let (bytes, took) = ask().await;
                assert!(bytes == 0 && took < PATIENCE / 2, "{bytes} bytes after {took:?}");
            };
            join(asks, gone).await;
        });
    }

    #[test]
    fn who_is_gone_keeps_nobody_waiting() {
        let answers = Answers::default();
        let Turn::Asks(asking, _) = answers.turn() else { panic!("nobody asks") };
        assert!(matches!(answers.turn(), Turn::Waits));
        drop(asking);
        let Turn::Asks(asking, _) = answers.turn() else { panic!("nobody asks any more") };
        assert_eq!(asking.end(Err(Errno::EINTR)), Err(Errno::EINTR));
        let Turn::Asks(asking, _) = answers.turn() else { panic!("it was its own end") };
        let said = Ok(Said { inodes: [(SHARD, 7)].into(), ..Said::default() });
        let stat = asking.end(said);
        assert!(
            matches!(answers.turn(), Turn::Knows(known) if known == stat && stat.is_ok_and(|stat| stat.inodes == 7))
        );
    }

    #[test]
    fn targets_that_their_nodes_run_without_are_not_asked() {
        let (kind, text) = (ServiceKind::Storage, String::new);
        let mut map = ClusterMap::empty(text());
        for (id, state) in [(1, NodeState::Online), (2, NodeState::Offline)] {
            let (id, uuid, alias, metrics) = (NodeId(id), text(), text(), text());
            map.nodes.insert(id, Node { id, uuid, kind, alias, state, rails: Vec::new(), metrics });
        }
        for (id, node, ports) in [(1, 1, vec![7]), (2, 1, vec![]), (3, 2, vec![7])] {
            let (id, group, node, uuid, path) = (TargetId(id), GroupId(id), NodeId(node), text(), text());
            let (state, class) = (TargetState::Good, CapacityClass::Normal);
            map.targets.insert(id, Target { id, uuid, node, kind, state, class, ports, path });
            map.groups.insert(group, Group { id: group, kind, generation: Generation(1), members: vec![id] });
        }
        assert_eq!(storage_groups_served(&map), [(GroupId(1), NodeState::Online), (GroupId(3), NodeState::Offline)]);
    }
}
