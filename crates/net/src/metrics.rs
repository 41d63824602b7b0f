//! What the data plane counts, for all threads of the process.

use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use telemetry::metrics::{Counter, Gauge, Metrics, level};
use telemetry::names;

use crate::handshake::HandshakeError;
use crate::receive::FrameError;

mod failed;

use failed::Failed;

static HANDLES: OnceLock<Handles> = OnceLock::new();

struct Handles {
    connections: Gauge,
    refused: Vec<(&'static str, Counter)>,
    frames: Vec<(&'static str, Counter)>,
    unanswered: Counter,
    placed: Counter,
    failed: Failed,
    /// For what is only known when it is there: rails.
    metrics: Metrics,
}

/// The rail of connections within this host.
pub const WITHIN_HOST: &str = "local";
const REFUSALS: [&str; 8] = ["foreign", "key", "malformed", "version", "cluster", "ended", "timeout", "full"];
const FRAMES: [&str; 5] = ["header", "checksum", "order", "kind", "content"];

/// Counts into `metrics` from here on; the first call of a process decides. Without it nothing is counted.
pub fn install(metrics: &Metrics) {
    HANDLES.get_or_init(|| {
        metrics.before_text(|| HANDLES.get().iter().for_each(|handles| handles.failed.forget(Instant::now())));
        handles(metrics)
    });
}

fn handles(metrics: &Metrics) -> Handles {
    Handles {
        connections: metrics.gauge(&names::CONNECTIONS, &[]),
        refused: REFUSALS.map(|reason| (reason, metrics.counter(&names::CONNECTIONS_REFUSED, &[reason]))).into(),
        frames: FRAMES.map(|reason| (reason, metrics.counter(&names::FRAMES_REFUSED, &[reason]))).into(),
        unanswered: metrics.counter(&names::REQUEST_ERRORS, &["any", "unanswered"]),
        placed: metrics.counter(&names::PLACED_BYTES, &[]),
        failed: Failed::default(),
        metrics: metrics.clone(),
    }
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

/// One connection of a service that has its own transport under the same handshake: it counts for as long as this lives.
#[derive(Debug)]
pub struct Counted(Meter);

impl Counted {
    /// Accepted at this address of ours.
    #[must_use]
    pub fn accepted(at: IpAddr) -> Self {
        connected();
        Self(Meter::on(Some(at.to_canonical())))
    }

    pub fn sent(&self, bytes: usize) {
        self.0.sent(bytes);
    }

    pub fn received(&self, bytes: usize) {
        self.0.received(bytes);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        disconnected();
    }
}

/// Counts the bytes of one connection, under its rail: the address of our interface.
#[derive(Clone, Default, Debug)]
pub(crate) struct Meter {
    sent: Counter,
    received: Counter,
    /// What was sent and received by rail and peer, on connections that we made.
    path: Option<(Counter, Counter)>,
}

impl Meter {
    pub(crate) fn accepted(socket: &OwnedFd) -> Self {
        Self::on(local_address(socket))
    }

    /// `None`: within this host.
    fn on(rail: Option<IpAddr>) -> Self {
        let Some(handles) = HANDLES.get() else { return Self::default() };
        let rail = rail.map_or_else(|| WITHIN_HOST.to_owned(), |address| address.to_string());
        Self {
            sent: handles.metrics.counter(&names::SENT_BYTES, &[&rail]),
            received: handles.metrics.counter(&names::RECEIVED_BYTES, &[&rail]),
            path: None,
        }
    }

    pub(crate) fn made(socket: &OwnedFd, peer: &str) -> Self {
        let meter = Self::accepted(socket);
        let rail = local_address(socket).map_or_else(|| WITHIN_HOST.to_owned(), |address| address.to_string());
        let counter = |def| HANDLES.get().map(|handles| handles.metrics.counter(def, &[&rail, peer]));
        Self { path: counter(&names::RAIL_SENT_BYTES).zip(counter(&names::RAIL_RECEIVED_BYTES)), ..meter }
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.sent.inc_by(bytes as u64);
        if let Some((sent, _)) = &self.path {
            sent.inc_by(bytes as u64);
        }
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received.inc_by(bytes as u64);
        if let Some((_, received)) = &self.path {
            received.inc_by(bytes as u64);
        }
    }
}

/// The address of our end; `None` where that is no internet socket.
pub(crate) fn local_address(socket: &OwnedFd) -> Option<IpAddr> {
    let socket = TcpStream::from(socket.as_fd().try_clone_to_owned().ok()?);
    socket.local_addr().ok().map(|address| address.ip().to_canonical())
}

/// State of one rail to one peer, as all of this process's connections over it find it.
#[derive(Clone, Default)]
pub(crate) struct RailState {
    /// Its name and the peer's.
    name: [String; 2],
    connections: Gauge,
    healthy: Gauge,
    failures: Counter,
    round_trip: Gauge,
}

impl RailState {
    /// `rail`: our address, or how it is called where we have not bound one.
    pub(crate) fn of(rail: &str, peer: &str) -> Self {
        let Some(handles) = HANDLES.get() else { return Self::default() };
        let (metrics, labels) = (&handles.metrics, [rail, peer]);
        Self {
            name: labels.map(str::to_owned),
            connections: metrics.gauge(&names::RAIL_CONNECTIONS, &labels),
            healthy: metrics.gauge(&names::RAIL_HEALTHY, &labels),
            failures: metrics.counter(&names::RAIL_FAILURES, &labels),
            round_trip: metrics.gauge(&names::RAIL_ROUND_TRIP, &labels),
        }
    }

    pub(crate) fn began(&self) {
        connected();
        self.connections.inc();
        self.works();
    }

    pub(crate) fn works(&self) {
        self.healthy.set(1);
    }

    pub(crate) fn ended(&self) {
        disconnected();
        self.connections.dec();
    }

    /// A connection was lost, and nothing says that its rail is worse than before.
    pub(crate) fn lost(&self) {
        self.failures.inc();
    }

    /// Whether it was healthy until now.
    pub(crate) fn failed(&self) -> bool {
        self.failures.inc();
        let Some(handles) = HANDLES.get() else { return self.healthy.set(0) > 0 };
        handles.failed.failed(&self.name, &self.healthy, Instant::now())
    }

    /// One try more after a failure, with the same outcome.
    pub(crate) fn still_fails(&self) {
        if let Some(handles) = HANDLES.get() {
            handles.failed.still_fails(&self.name, &self.healthy, Instant::now());
        }
    }

    pub(crate) fn measured(&self, round_trip: Duration) {
        self.round_trip.set(level(round_trip.as_micros()));
    }
}

/// Not over the socket, but in shared memory.
pub(crate) fn placed(bytes: usize) {
    if let Some(handles) = HANDLES.get() {
        handles.placed.inc_by(bytes as u64);
    }
}

pub(crate) fn refused(reason: &str) {
    if let Some(handles) = HANDLES.get() {
        count(&handles.refused, reason);
    }
}

pub(crate) fn refusal_label(reason: &HandshakeError) -> &'static str {
    match reason {
        HandshakeError::Foreign | HandshakeError::HandshakeVersion(_) => "foreign",
        HandshakeError::Key => "key",
        HandshakeError::Forged | HandshakeError::Length(_) | HandshakeError::Malformed(_) => "malformed",
        HandshakeError::Version(_) => "version",
        HandshakeError::Cluster { .. } | HandshakeError::Refused(_) => "cluster",
        HandshakeError::Ended => "ended",
        HandshakeError::TimedOut => "timeout",
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
        let (_listener, address) = ring::op::listen("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let socket = OwnedFd::from(TcpStream::connect(address).expect("connected"));
        let meter = Meter::made(&socket, "192.0.2.1");
        meter.sent(10);
        meter.received(20);
        unanswered();
        let counted = [10, 20].map(|bytes| {
            let counted = Counted::accepted("::ffff:127.0.0.3".parse().expect("an address"));
            counted.sent(bytes);
            counted
        });
        drop(counted);
        refused(refusal_label(&HandshakeError::TimedOut));
        let text = metrics.text();
        for (name, reason) in [
            ("connections_refused", "key"),
            ("connections_refused", "timeout"),
            ("frames_refused", "header"),
            ("frames_refused", "kind"),
        ] {
            let found = text.lines().any(|line| {
                line.starts_with(&format!("weft_{name}_total")) && line.contains(reason) && line.ends_with(" 1")
            });
            assert!(found, "{name} {reason}: {text}");
        }
        for line in [
            r#"weft_sent_bytes_total{service="test",rail="127.0.0.1"} 10"#,
            r#"weft_sent_bytes_total{service="test",rail="127.0.0.3"} 30"#,
            r#"weft_rail_received_bytes_total{service="test",rail="127.0.0.1",peer="192.0.2.1"} 20"#,
        ] {
            assert!(text.contains(line), "no {line} in {text}");
        }
    }
}
