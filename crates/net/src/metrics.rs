//! What the data plane counts, for all threads of the process.

use std::sync::OnceLock;

use telemetry::metrics::{Counter, Gauge, Metrics};
use telemetry::names;

use crate::receive::FrameError;

static HANDLES: OnceLock<Handles> = OnceLock::new();

struct Handles {
    connections: Gauge,
    refused: Vec<(&'static str, Counter)>,
    frames: Vec<(&'static str, Counter)>,
    unanswered: Counter,
}

const REFUSALS: [&str; 8] = ["foreign", "key", "malformed", "version", "cluster", "ended", "timeout", "full"];
const FRAMES: [&str; 5] = ["header", "checksum", "order", "kind", "content"];

/// Counts into `metrics` from here on; the first call of a process decides. Without it nothing is counted.
pub fn install(metrics: &Metrics) {
    HANDLES.get_or_init(|| Handles {
        connections: metrics.gauge(&names::CONNECTIONS, &[]),
        refused: REFUSALS.map(|reason| (reason, metrics.counter(&names::CONNECTIONS_REFUSED, &[reason]))).into(),
        frames: FRAMES.map(|reason| (reason, metrics.counter(&names::FRAMES_REFUSED, &[reason]))).into(),
        unanswered: metrics.counter(&names::REQUEST_ERRORS, &["any", "unanswered"]),
    });
}

pub(crate) fn connected() {
    if let Some(handles) = HANDLES.get() {
        handles.connections.inc();
    }
}

pub(crate) fn disconnected() {
    if let Some(handles) = HANDLES.get() {
        handles.connections.dec();
    }
}

pub(crate) fn unanswered() {
    if let Some(handles) = HANDLES.get() {
        handles.unanswered.inc();
    }
}

pub(crate) fn refused(reason: &str) {
    if let Some(handles) = HANDLES.get() {
        count(&handles.refused, reason);
    }
}

pub(crate) fn frame_refused(error: &FrameError) {
    if let Some(handles) = HANDLES.get() {
        count(&handles.frames, frame_label(error));
    }
}

fn count(counters: &[(&'static str, Counter)], reason: &str) {
    if let Some((_, counter)) = counters.iter().find(|(label, _)| *label == reason) {
        counter.inc();
    }
}

fn frame_label(error: &FrameError) -> &'static str {
    match error {
        FrameError::Header(_) => "header",
        FrameError::BodyChecksum | FrameError::PayloadChecksum => "checksum",
        FrameError::NotRising { .. } => "order",
        FrameError::NotARequest | FrameError::NotAReply | FrameError::UnknownReply(_) | FrameError::OtherOp { .. } => {
            "kind"
        }
        FrameError::StatusOfRequest(_)
        | FrameError::ContentOfFailure
        | FrameError::PayloadOverflow { .. }
        | FrameError::Body(_) => "content",
    }
}
