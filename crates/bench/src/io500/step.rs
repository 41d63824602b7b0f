//! One phase, in a process of its own.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::phase::{Counts, Phase};
use super::{find, ior, mdtest};
use crate::cpu::Watch;
use crate::job::Measured;
use crate::store::core::Core;
use crate::store::{Place, Store, in_kept_store, in_store};
use crate::work::gate::{Gate, Tally, together_within};

/// A phase that takes so many times the wanted seconds, and [`PATIENCE_MIN`], hangs.
const PATIENCE_FACTOR: u32 = 20;
const PATIENCE_MIN: Duration = Duration::from_secs(600);

/// What to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) phase: Phase,
    pub(crate) place: Place,
    pub(crate) processes: usize,
    /// Of phases that go on for a time.
    pub(crate) seconds: u32,
    pub(crate) bounds: Bounds,
    pub(crate) counts: Counts,
}

/// The most that each process makes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Bounds {
    /// Of ior-easy, and of ior-hard.
    pub(crate) bytes: u64,
    /// Of mdtest-easy, and of mdtest-hard.
    pub(crate) files: u64,
}

/// All directories, parents first; the first one is the folder itself.
pub(crate) fn directories(processes: usize) -> Vec<String> {
    let fixed = ["", ior::EASY, ior::HARD, mdtest::EASY, mdtest::HARD].map(str::to_owned);
    fixed.into_iter().chain((0..processes).map(mdtest::own_directory)).collect()
}

impl Step {
    pub(crate) fn run(&self) -> Result<Measured> {
        let patience = PATIENCE_MIN + Duration::from_secs(u64::from(self.seconds)) * PATIENCE_FACTOR;
        let work = |number: usize, gate: &mut Gate<'_>| {
            in_kept_store! {
                &self.place, false, store => self.work(store, number, gate)
            }
        };
        // To end a session is no part of a phase.
        let end = |_, core: Option<Core>| {
            drop(core);
            Ok(())
        };
        let measured = together_within(patience, self.phase.name(), self.processes, &Watch::default(), work, end)?;
        // The processes are gone: this one may have threads now.
        in_store!(&self.place, false, store => self.check(store, &measured)?);
        Ok(measured)
    }

    fn work<S: Store>(&self, store: &mut S, number: usize, gate: &mut Gate<'_>) -> Result<Tally> {
        match self.phase {
            Phase::IorEasyWrite => ior::write(self, ior::Shape::Easy, store, number, gate),
            Phase::IorHardWrite => ior::write(self, ior::Shape::Hard, store, number, gate),
            Phase::IorEasyRead => ior::read(self, ior::Shape::Easy, store, number, gate),
            Phase::IorHardRead => ior::read(self, ior::Shape::Hard, store, number, gate),
            Phase::IorRnd4kEasyRead => ior::read_random(self, store, number, gate),
            Phase::MdtestEasyWrite => mdtest::create(self, mdtest::Kind::Easy, store, number, gate),
            Phase::MdtestHardWrite => mdtest::create(self, mdtest::Kind::Hard, store, number, gate),
            Phase::MdtestEasyStat => mdtest::stat(self, mdtest::Kind::Easy, store, number, gate),
            Phase::MdtestHardStat => mdtest::stat(self, mdtest::Kind::Hard, store, number, gate),
            Phase::MdtestHardRead => mdtest::read(self, store, number, gate),
            Phase::MdtestEasyDelete => mdtest::delete(self, mdtest::Kind::Easy, store, number, gate),
            Phase::MdtestHardDelete => mdtest::delete(self, mdtest::Kind::Hard, store, number, gate),
            Phase::Find => find::find(store, gate),
        }
    }

    /// Whether all of it was done, where no single process knows.
    fn check<S: Store>(&self, store: &mut S, measured: &Measured) -> Result<()> {
        match self.phase {
            Phase::MdtestEasyDelete => {
                (0..self.processes).try_for_each(|number| mdtest::is_empty(store, &mdtest::own_directory(number)))
            }
            Phase::MdtestHardDelete => mdtest::is_empty(store, mdtest::HARD),
            Phase::Find => find::check(self, measured),
            _ => Ok(()),
        }
    }

    /// Does `one` again and again, each time with the next number from 0 on, until the time is over or `bound` is reached,
    /// and then until the slowest process has done as often as the fastest. Answers how often.
    pub(crate) fn stonewalled(
        &self,
        gate: &Gate<'_>,
        begin: Instant,
        bound: u64,
        mut one: impl FnMut(u64) -> Result<()>,
    ) -> Result<u64> {
        let end = begin + Duration::from_secs(u64::from(self.seconds));
        let mut count = 0;
        while count < bound && Instant::now() < end {
            one(count)?;
            count += 1;
        }
        let most = gate.wear_out(count);
        (count..most).try_for_each(one)?;
        Ok(most)
    }

    /// The process whose files number `number` works on: not its own, which it may have in its caches.
    pub(crate) fn neighbour(&self, number: usize, shift: usize) -> usize {
        (number + shift) % self.processes
    }
}
