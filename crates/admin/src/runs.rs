//! What runs over many targets have in common: what they are called, whom they have reached, and who was silent.

use serde::Serialize;
use types::id::TargetId;

use crate::targets::Place;

/// A run that has begun.
#[derive(Clone, Debug, Serialize)]
pub struct Started {
    pub run: u64,
    pub targets: Vec<TargetId>,
    /// Targets that belong to it, but did not answer.
    pub silent: Vec<Silent>,
}

/// Why there is no answer.
#[derive(Clone, Debug, Serialize)]
pub struct Silent {
    pub target: TargetId,
    pub node: String,
    pub reason: String,
}

/// What a stop or a cleaning has reached.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Reached {
    pub targets: Vec<TargetId>,
    pub silent: Vec<Silent>,
    /// Targets that answered, and could not do it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Silent>,
}

pub(crate) fn silent(place: &Place, reason: String) -> Silent {
    Silent { target: place.target, node: place.alias.clone(), reason }
}

/// Names a run: rises from one to the next, whoever begins them.
pub(crate) fn next_run_number() -> u64 {
    telemetry::clock::now_ms()
}
