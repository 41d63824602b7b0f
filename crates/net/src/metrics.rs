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
    sent: Counter,
    placed: Counter,
    received: Counter,
}

/// The one rail of this release.
const RAIL: &str = "0";
const REFUSALS: [&str; 8] = ["foreign", "key", "malformed", "version", "cluster", "ended", "timeout", "full"];
const FRAMES: [&str; 5] = ["header", "checksum", "order", "kind", "content"];

/// Counts into `metrics` from here on; the first call of a process decides. Without it nothing is counted.
pub fn install(metrics: &Metrics) {
    HANDLES.get_or_init(|| Handles {
        connections: metrics.gauge(&names::CONNECTIONS, &[]),
        refused: REFUSALS.map(|reason| (reason, metrics.counter(&names::CONNECTIONS_REFUSED, &[reason]))).into(),
        frames: FRAMES.map(|reason| (reason, metrics.counter(&names::FRAMES_REFUSED, &[reason]))).into(),
        unanswered: metrics.counter(&names::REQUEST_ERRORS, &["any", "unanswered"]),
        sent: metrics.counter(&names::SENT_BYTES, &[RAIL]),
        placed: metrics.counter(&names::PLACED_BYTES, &[]),
        received: metrics.counter(&names::RECEIVED_BYTES, &[RAIL]),
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

pub(crate) fn sent(bytes: usize) {
    if let Some(handles) = HANDLES.get() {
        handles.sent.inc_by(bytes as u64);
    }
}

/// Not over the socket, but in shared memory.
pub(crate) fn placed(bytes: usize) {
    if let Some(handles) = HANDLES.get() {
        handles.placed.inc_by(bytes as u64);
    }
}

pub(crate) fn received(bytes: usize) {
    if let Some(handles) = HANDLES.get() {
        handles.received.inc_by(bytes as u64);
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
        | FrameError::NoSuchPlace
        | FrameError::Body(_) => "content",
    }
}

#[cfg(test)]
mod tests {
    use wire::frame::HeaderError;

    use super::*;

    #[test]
    fn every_label_has_its_counter() {
        let metrics = Metrics::new("test");
        install(&metrics);
        refused("key");
        frame_refused(&FrameError::Header(HeaderError::Checksum));
        frame_refused(&FrameError::NotARequest);
        sent(10);
        received(20);
        unanswered();
        let text = metrics.text();
        for (name, reason) in [("connections_refused", "key"), ("frames_refused", "header"), ("frames_refused", "kind")]
        {
            let found = text.lines().any(|line| {
                line.starts_with(&format!("weft_{name}_total")) && line.contains(reason) && line.ends_with(" 1")
            });
            assert!(found, "{name} {reason}: {text}");
        }
        assert!(text.lines().any(|line| line.starts_with("weft_sent_bytes_total") && line.ends_with(" 10")), "{text}");
    }
}
