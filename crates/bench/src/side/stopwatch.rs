//! Time and CPU of a measurement that this process makes itself.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;

use crate::cpu::{Watch, Who, of_self_and_children};
use crate::job::Measured;

pub(crate) struct Stopwatch<'a> {
    /// As what this process's own CPU time counts.
    own: Who,
    watch: &'a Watch,
    others: BTreeMap<Who, f64>,
    cpu: f64,
    begin: Instant,
}

impl<'a> Stopwatch<'a> {
    /// # Errors
    /// As [`Watch::read`], here and at the end.
    pub(crate) fn start(own: Who, watch: &'a Watch) -> Result<Self> {
        Ok(Self { own, others: watch.read()?, cpu: of_self_and_children(), watch, begin: Instant::now() })
    }

    pub(crate) fn stop(self, phase: &str, operations: u64) -> Result<Measured> {
        let seconds = self.begin.elapsed().as_secs_f64();
        let mut cpu_us = self.watch.since(&self.others)?;
        *cpu_us.entry(self.own).or_default() += of_self_and_children() - self.cpu;
        Ok(Measured { phase: phase.to_owned(), operations, bytes: 0, seconds, cpu_us, p99_us: None })
    }
}
