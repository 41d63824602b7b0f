//! Targets and nodes that go for good: first nothing new may come to them, then nothing may be left that needs them.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use cluster::map::{ClusterMap, ServiceKind, Target, TargetState};
use conf::Fatal;
use control::{Client, ControlError, Deletion};
use types::id::{GroupId, NodeId, SessionId, TargetId};

use crate::admin::Admin;
use crate::fsck::Users;

/// A target's word that it is empty is waited for at least so long, and for so many heartbeats: the second one after its state
/// was set counts.
const WORD_MIN: Duration = Duration::from_secs(60);
const WORD_HEARTBEATS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(200);

/// What is said of one that is left so.
const UNCERTAIN: &str = "it was bad before, and may not recover by itself any more: set it good when it is";

#[derive(Clone, Copy)]
pub(crate) enum Doomed {
    Target(TargetId),
    Node(NodeId),
}

impl Doomed {
    fn targets(self, map: &ClusterMap) -> impl Iterator<Item = &Target> {
        map.targets.values().filter(move |target| match self {
            Self::Target(id) => target.id == id,
            Self::Node(id) => target.node == id,
        })
    }

    /// Those that files may name.
    fn groups(self, map: &ClusterMap) -> BTreeSet<GroupId> {
        let targets: BTreeSet<TargetId> = self.targets(map).map(|target| target.id).collect();
        let concerned = |members: &[TargetId]| members.iter().any(|member| targets.contains(member));
        let storage = map.groups.values().filter(|group| group.kind == ServiceKind::Storage);
        storage.filter(|group| concerned(&group.members)).map(|group| group.id).collect()
    }

    async fn ask(self, client: &Client, deletion: Option<SessionId>) -> Result<Deletion, ControlError> {
        match self {
            Self::Target(id) => client.delete_target(id, deletion).await,
            Self::Node(id) => client.delete_node(id, deletion).await,
        }
    }
}

/// A target that takes no new file meanwhile, and how it was.
#[derive(Clone, Copy, Debug)]
struct TakenOut {
    target: TargetId,
    deletion: SessionId,
    state: TargetState,
    /// The node's own reports decided on the state; `None` where mgmtd was lost over taking it out.
    was_reported: Option<bool>,
}

impl TakenOut {
    /// Releasing a bad one that people have set so would be as wrong as leaving one so that its own disk had made bad.
    fn is_uncertain(self) -> bool {
        self.state == TargetState::Bad && self.was_reported.is_none()
    }

    async fn put_back(self, client: &Client) -> Result<(), ControlError> {
        match self.state {
            // Somebody has set it between the look at it and this.
            TargetState::Good if self.was_reported == Some(false) => Ok(()),
            TargetState::Good | TargetState::NeedsResync => {
                client.put_back(self.target, Some(self.state), self.deletion).await
            }
            TargetState::Bad if self.is_uncertain() => Err(ControlError::Refused(UNCERTAIN.to_owned())),
            TargetState::Bad if self.was_reported == Some(true) => {
                client.put_back(self.target, None, self.deletion).await
            }
            TargetState::Bad => Ok(()),
        }
    }
}

impl Admin {
    /// Whoever is in the way at first sight is found before anything is changed.
    pub(crate) fn delete(&self, doomed: Doomed, really: bool) -> Result<Vec<String>> {
        let would = self.ask_what_would_go(doomed);
        // Of a target that is not empty, which files are in the way says more than that some are.
        if would.is_ok() || matches!((&would, doomed), (Err(ControlError::Refused(_)), Doomed::Target(_))) {
            self.check_unused(doomed)?;
        }
        let would = would.map_err(Fatal::from)?;
        if !really {
            return Ok(would.lines);
        }
        let (view, deletion) = (self.view()?, self.session()?);
        let mut taken_out = Vec::new();
        self.take_out(doomed.targets(&view.map), deletion, &mut taken_out)
            .and_then(|()| self.check_unused(doomed))
            .and_then(|()| self.delete_when_heard(doomed, deletion, word_max(would.heartbeat), would.lines))
            .map_err(|why| put_back(&taken_out, why, |one| self.put_back(one)))
    }

    /// Since a restart of mgmtd a node may not have registered yet.
    fn ask_what_would_go(&self, doomed: Doomed) -> Result<Deletion, ControlError> {
        let deadline = Instant::now() + WORD_MIN;
        loop {
            match self.management().read(async |client| doomed.ask(client, None).await) {
                Err(ControlError::NotHeard(_)) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                outcome => return outcome,
            }
        }
    }

    /// One that is not there any more was deleted, and the answer lost.
    fn put_back(&self, one: TakenOut) -> Result<(), ControlError> {
        let back = self.management().change(async |client| one.put_back(client).await);
        match self.view() {
            Ok(view) if back.is_err() && !view.map.targets.contains_key(&one.target) => Ok(()),
            _ => back,
        }
    }

    /// From here on no new file gets them, also where a disk recovers. Also those are `taken_out` of which it is not certain.
    fn take_out<'a>(
        &self,
        targets: impl Iterator<Item = &'a Target>,
        deletion: SessionId,
        taken_out: &mut Vec<TakenOut>,
    ) -> Result<()> {
        for target in targets.filter(|target| target.kind == ServiceKind::Storage) {
            let one = TakenOut { target: target.id, deletion, state: target.state, was_reported: None };
            let set = self.change(async |client| client.take_out(target.id, deletion).await);
            taken_out.push(TakenOut { was_reported: set.as_ref().ok().copied(), ..one });
            set?;
        }
        Ok(())
    }

    fn check_unused(&self, doomed: Doomed) -> Result<()> {
        let users = self.on_data(async |data| match doomed.groups(data.map()) {
            groups if groups.is_empty() => Ok(Users::default()),
            groups => Users::find(data, &groups).await,
        })?;
        let what = match doomed {
            Doomed::Target(id) => format!("target {id}"),
            Doomed::Node(id) => format!("node {id}"),
        };
        ensure!(users.is_none(), Fatal::usage(format!("{what} is in use: {users}")));
        Ok(())
    }

    /// Answers `lines`, where they are gone.
    fn delete_when_heard(
        &self,
        doomed: Doomed,
        deletion: SessionId,
        patience: Duration,
        lines: Vec<String>,
    ) -> Result<Vec<String>> {
        let (deadline, mut is_lost) = (Instant::now() + patience, false);
        loop {
            let outcome = self.management().change(async |client| doomed.ask(client, Some(deletion)).await);
            let is_over = Instant::now() >= deadline;
            match outcome {
                Err(ControlError::NotHeard(_)) if !is_over => {}
                Err(ControlError::Lost { .. } | ControlError::Unreachable { .. }) if !is_over => is_lost = true,
                // The answer was lost.
                Err(ControlError::Refused(_)) if is_lost && self.is_gone(doomed)? => return Ok(lines),
                outcome => return Ok(outcome.map_err(Fatal::from)?.lines),
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn is_gone(&self, doomed: Doomed) -> Result<bool> {
        let map = self.view()?.map;
        Ok(match doomed {
            Doomed::Target(id) => !map.targets.contains_key(&id),
            Doomed::Node(id) => !map.nodes.contains_key(&id),
        })
    }
}

/// Longest wait for a target's word that it is empty.
fn word_max(heartbeat: Duration) -> Duration {
    WORD_MIN.max(heartbeat.saturating_mul(WORD_HEARTBEATS))
}

/// Tries it with all of them; `why`, with the names of those that stay set bad.
fn put_back<E: Display>(
    taken_out: &[TakenOut],
    why: anyhow::Error,
    put: impl Fn(TakenOut) -> Result<(), E>,
) -> anyhow::Error {
    let failed = |one: &TakenOut| put(*one).err().map(|error| format!("target {} ({error})", one.target));
    let stay: Vec<String> = taken_out.iter().filter_map(failed).collect();
    if stay.is_empty() {
        return why;
    }
    why.context(format!("what follows went wrong, and then these could not be set back from bad: {}", stay.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn all_are_put_back_that_can_be_and_the_others_named() {
        let (deletion, state) = (SessionId(7), TargetState::Good);
        let one = |id| TakenOut { target: TargetId(id), deletion, state, was_reported: Some(true) };
        let tried = RefCell::new(Vec::new());
        let put = |bad: &'static [u32]| {
            let tried = &tried;
            move |one: TakenOut| {
                tried.borrow_mut().push(one.target.0);
                if bad.contains(&one.target.0) { Err("lost mgmtd") } else { Ok(()) }
            }
        };
        let why = || Fatal::usage("node 1 is in use").into();
        let error = put_back(&[one(1), one(2), one(3), one(4)], why(), put(&[1, 3]));
        assert_eq!(*tried.borrow(), [1, 2, 3, 4]);
        let text = format!("{error:#}");
        assert!(text.ends_with("bad: target 1 (lost mgmtd), target 3 (lost mgmtd): node 1 is in use"), "{text}");
        assert_eq!(conf::exit_code(error.as_ref()), 2, "as without");
        assert_eq!(format!("{:#}", put_back(&[one(1)], why(), put(&[]))), "node 1 is in use");
    }

    #[test]
    fn a_bad_one_of_which_nobody_said_whether_it_recovers_is_named() {
        let (target, deletion) = (TargetId(3), SessionId(7));
        let one = TakenOut { target, deletion, state: TargetState::Bad, was_reported: None };
        assert!(one.is_uncertain());
        assert!(!TakenOut { was_reported: Some(false), ..one }.is_uncertain());
        assert!(!TakenOut { state: TargetState::Good, ..one }.is_uncertain());
    }

    #[test]
    fn a_word_is_waited_for_as_long_as_it_may_take() {
        assert_eq!(word_max(Duration::ZERO), Duration::from_secs(60));
        assert_eq!(word_max(Duration::from_secs(2)), Duration::from_secs(60));
        assert_eq!(word_max(Duration::from_secs(60)), Duration::from_secs(180));
    }
}
