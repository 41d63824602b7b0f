//! A cluster that nobody asks for anything.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::cpu::Watch;
use crate::job::Measured;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Idle {
    pub(crate) seconds: f64,
    pub(crate) watch: Watch,
}

impl Idle {
    /// `idle`: one operation is a second. CPU time of those who are watched, after they have done what was left.
    pub(crate) fn run(&self) -> Result<Vec<Measured>> {
        self.watch.settle();
        let (begin, before) = (Instant::now(), self.watch.read()?);
        std::thread::sleep(Duration::from_secs_f64(self.seconds));
        let (seconds, cpu_us) = (begin.elapsed().as_secs_f64(), self.watch.since(&before)?);
        let operations = seconds.round() as u64;
        Ok(vec![Measured { phase: "idle".to_owned(), operations, bytes: 0, seconds, cpu_us, p99_us: None }])
    }
}
