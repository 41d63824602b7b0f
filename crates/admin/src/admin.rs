//! The connection of an administrator to one cluster.

use std::path::Path;

use anyhow::{Context, Result};
use cluster::map::TargetState;
use conf::Fatal;
use control::{Client, ControlError, View};
use net::{ClusterKey, Identity};
use types::id::{GroupId, NodeId, PoolId, SessionId, TargetId};
use wire::v1::bench::BenchPlan;

use crate::data::{DataError, DataPlane, on_ring};
use crate::delete::Doomed;
use crate::entry::{self, Entry, Policy, Subject};
use crate::fsck::{self, Report, Stage};
use crate::management::Management;
use crate::netbench::{self, NetChoice, NetPlan};
use crate::scrub::{self, ScrubReport};
use crate::storagebench::{self, Choice, Reached, Started};

pub struct Admin {
    management: Management,
    identity: Identity,
}

impl Admin {
    /// Connects to mgmtd at `address` (`host:port`) with the key in `key_file`.
    ///
    /// # Errors
    /// Where the key cannot be read, nobody answers, or the two sides do not come to terms.
    pub fn connect(address: &str, key_file: &Path) -> Result<Self> {
        let key = ClusterKey::from_file(key_file).map_err(|error| Fatal::usage(error.to_string()))?;
        let name = format!("administrator, process {}", std::process::id());
        let mut identity = Identity::new(key, name);
        let management = Management::connect(address, &identity)?;
        identity.cluster = management.cluster();
        Ok(Self { management, identity })
    }

    /// UUID of the cluster.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.identity.cluster
    }

    /// The cluster as it is now.
    ///
    /// # Errors
    /// Where mgmtd does not answer.
    pub fn view(&self) -> Result<View> {
        self.read(async |client| client.view().await)
    }

    /// # Errors
    /// Where mgmtd does not answer, there is no such node, or the name is taken.
    pub fn set_alias(&self, node: NodeId, alias: &str) -> Result<()> {
        self.change(async |client| client.set_alias(node, alias).await)
    }

    /// # Errors
    /// Where mgmtd does not answer, or the name is bad or taken.
    pub fn create_pool(&self, name: &str) -> Result<PoolId> {
        self.change(async |client| client.create_pool(name).await)
    }

    /// # Errors
    /// Where mgmtd does not answer, or the pool is the default one or not empty.
    pub fn remove_pool(&self, pool: PoolId) -> Result<()> {
        self.change(async |client| client.remove_pool(pool).await)
    }

    /// Moves a storage group into a pool: new files of the pool may use it from then on.
    ///
    /// # Errors
    /// Where mgmtd does not answer, or there is no such storage group or pool.
    pub fn assign_pool(&self, group: GroupId, pool: PoolId) -> Result<()> {
        self.change(async |client| client.assign_pool(group, pool).await)
    }

    /// # Errors
    /// Where mgmtd does not answer or there is no such target.
    pub fn set_target_state(&self, target: TargetId, state: TargetState) -> Result<()> {
        self.change(async |client| client.set_target_state(target, state).await).map(|_| ())
    }

    /// Answers what is deleted with it, one line per thing; without `really` nothing is.
    ///
    /// # Errors
    /// Where mgmtd does not answer or refuses, or a file may need the target: then it is what it was, or the error names it.
    pub fn delete_target(&self, target: TargetId, really: bool) -> Result<Vec<String>> {
        self.delete(Doomed::Target(target), really)
    }

    /// As [`Self::delete_target`], for a node with all its targets.
    ///
    /// # Errors
    /// As [`Self::delete_target`].
    pub fn delete_node(&self, node: NodeId, really: bool) -> Result<Vec<String>> {
        self.delete(Doomed::Node(node), really)
    }

    /// # Errors
    /// Where the entry is not there or its shard does not answer.
    pub fn entry_info(&self, subject: &Subject) -> Result<Entry> {
        self.on_data(async |data| entry::info(data, subject).await)
    }

    /// Sets what new files of a directory get.
    ///
    /// # Errors
    /// Where the entry is no directory, a value is out of range, or its shard does not answer.
    pub fn entry_set(&self, subject: &Subject, policy: Policy) -> Result<Entry> {
        self.on_data(async |data| entry::set(data, subject, policy).await)
    }

    /// Splits an empty directory into so many parts, each in another metadata shard.
    ///
    /// # Errors
    /// Where the entry is no directory, has entries or is split already, there are fewer shards than parts, or its shard does
    /// not answer.
    pub fn entry_split(&self, subject: &Subject, count: u16) -> Result<Entry> {
        self.on_data(async |data| entry::split(data, subject, count).await)
    }

    /// Checks the whole cluster while it works; changes nothing.
    ///
    /// # Errors
    /// Where a shard or a storage group does not answer.
    pub fn fsck(&self, progress: &mut dyn FnMut(Stage)) -> Result<Report> {
        self.on_data(async |data| fsck::run(data, progress).await)
    }

    /// Begins a benchmark inside the storage services, on all chosen targets or none. It goes on by itself.
    ///
    /// # Errors
    /// Where the plan cannot be, a target is not there, one is busy with another run, or none answers.
    pub fn start_storagebench(&self, plan: &BenchPlan, choice: &Choice) -> Result<Started> {
        self.on_data(async |data| Ok(storagebench::start(data, plan, choice).await))?
    }

    /// The latest storage benchmark, with the verdict where it has ended.
    ///
    /// # Errors
    /// Where no storage service knows of any.
    pub fn storagebench(&self) -> Result<storagebench::Report> {
        self.on_data(async |data| Ok(storagebench::latest(data).await))?
    }

    /// The storage benchmark that has begun so, with the verdict where it has ended.
    ///
    /// # Errors
    /// Where mgmtd does not answer.
    pub fn storagebench_of(&self, started: &Started, plan: &BenchPlan) -> Result<storagebench::Report> {
        self.on_data(async |data| Ok(storagebench::of(data, started, plan).await))
    }

    /// Ends it. What was measured stays.
    ///
    /// # Errors
    /// Where mgmtd does not answer.
    pub fn stop_storagebench(&self) -> Result<Reached> {
        self.on_data(async |data| Ok(storagebench::stop(data, 0).await))
    }

    /// Removes the files of earlier runs.
    ///
    /// # Errors
    /// Where a run is under way, or a target is not there.
    pub fn clean_storagebench(&self, choice: &Choice) -> Result<Reached> {
        self.on_data(async |data| Ok(storagebench::clean(data, choice).await))?
    }

    /// Measures the ways to the chosen storage nodes, or of these among each other, without any disk. Blocks until all is
    /// measured; `progress` hears what goes on.
    ///
    /// # Errors
    /// Where the plan cannot be, a node is not there, or mgmtd does not answer. What fails on the way is in the report.
    pub fn netbench(
        &self,
        plan: &NetPlan,
        choice: &NetChoice,
        progress: &mut dyn FnMut(&str),
    ) -> Result<netbench::Report> {
        if choice.servers {
            return self.on_data(async |data| Ok(netbench::among_servers(data, plan, choice, progress).await))?;
        }
        netbench::from_here(&self.view()?.map, &self.identity, plan, choice, progress)
    }

    /// Begins to go over the objects of all chosen targets and to verify their checksums, at `rate` bytes a second of each
    /// target (0: as many as it can). It goes on by itself, and changes no data.
    ///
    /// # Errors
    /// Where a target is not there, checksums are off, a scrub is under way, or none answers.
    pub fn start_scrub(&self, rate: u64, choice: &Choice) -> Result<Started> {
        self.on_data(async |data| Ok(scrub::start(data, rate, choice).await))?
    }

    /// How such a run goes: the one that was `begun`, or the latest. `names` the corrupt blocks with their files, which takes
    /// its time where there are many.
    ///
    /// # Errors
    /// Where none was begun, and no storage service knows of any.
    pub fn scrub(&self, begun: Option<&Started>, names: bool) -> Result<ScrubReport> {
        self.on_data(async |data| Ok(scrub::progress(data, begun, names).await))?
    }

    /// Ends it.
    ///
    /// # Errors
    /// Where mgmtd does not answer.
    pub fn stop_scrub(&self) -> Result<Reached> {
        self.on_data(async |data| Ok(scrub::stop(data, 0).await))
    }

    pub(crate) fn management(&self) -> &Management {
        &self.management
    }

    /// What may be asked twice.
    pub(crate) fn read<T>(&self, request: impl AsyncFn(&Client) -> Result<T, ControlError>) -> Result<T> {
        Ok(self.management.read(request).map_err(Fatal::from)?)
    }

    pub(crate) fn change<T>(&self, request: impl AsyncFnOnce(&Client) -> Result<T, ControlError>) -> Result<T> {
        Ok(self.management.change(request).map_err(Fatal::from)?)
    }

    /// A new one: no other command has its number.
    pub(crate) fn session(&self) -> Result<SessionId> {
        self.read(async |client| client.register_client(&self.identity.name).await)
    }

    /// Does `work` with connections to shards and lanes, under a session of its own.
    pub(crate) fn on_data<T>(&self, work: impl AsyncFnOnce(&DataPlane<'_>) -> Result<T, DataError>) -> Result<T> {
        let view = self.view()?;
        let session = self.session()?;
        // Blocks the ring, where one request at a time is under way.
        let ask_map = || self.view().ok().map(|view| view.map.as_ref().clone());
        let data = DataPlane::new(self.identity.clone(), view.map.as_ref().clone(), Box::new(ask_map), session);
        let work = async {
            let result = work(&data).await;
            data.close().await;
            result
        };
        Ok(on_ring(work).context("cannot start an event loop")??)
    }
}
