//! A target that belongs to a run, and what is known of it. Pure.

use wire::v1::bench::{BenchPhase, BenchRun};

use crate::targets::Place;

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Run(Box<BenchRun>),
    /// Its service knows nothing of the run (any more).
    Lost,
    /// Its service has begun another run since, which took the place of this one.
    Replaced,
    /// Why there is none.
    Silent(String),
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) place: Place,
    pub(crate) answer: Answer,
}

impl Member {
    pub(crate) fn run(&self) -> Option<&BenchRun> {
        match &self.answer {
            Answer::Run(run) => Some(run),
            Answer::Lost | Answer::Replaced | Answer::Silent(_) => None,
        }
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.run().is_some_and(|run| run.phase.is_under_way())
    }

    /// Bytes per second over the measured time, where it came to an end in good order, and was not stopped before it had begun.
    pub(crate) fn rate(&self) -> Option<f64> {
        let run = self.run()?;
        let measured = matches!(run.phase, BenchPhase::Running | BenchPhase::Finished)
            || (run.phase == BenchPhase::Stopped && run.blocks > 0);
        (measured && run.elapsed_us > 0).then(|| run.blocks as f64 * f64::from(run.plan.block) / seconds(run))
    }
}

/// The measured time.
pub(crate) fn seconds(run: &BenchRun) -> f64 {
    run.elapsed_us as f64 / 1e6
}

/// KiB per second, for people.
pub(crate) fn kib(bytes_per_second: f64) -> String {
    format!("{:.0} KiB/s", bytes_per_second / 1024.0)
}
