//! Both sides of the handshake against each other, through a wire that can cut, bend and record.

use std::collections::VecDeque;

use net::handshake::{Established, Handshake, HandshakeError, Initiator, MESSAGE_MAX, Responder, Step};
use net::{ClusterKey, Identity};
use proptest::prelude::*;

fn identity(key: u8, cluster: &str, name: &str) -> Identity {
    Identity {
        cluster: cluster.to_owned(),
        incarnation: 42,
        ..Identity::new(ClusterKey::from_bytes([key; 32]), name.to_owned())
    }
}

/// What happens to the bytes of one direction.
#[derive(Clone, Copy, Default)]
struct Fault {
    /// Only so many bytes arrive, then the stream ends.
    cut: Option<usize>,
    /// This bit of the stream arrives flipped.
    flip: Option<usize>,
}

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    fault: Fault,
    waiting: VecDeque<u8>,
    /// All bytes that were sent, before any fault.
    sent: Vec<u8>,
    closed: bool,
}

impl Pipe {
    fn send(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let at = self.sent.len();
            self.sent.push(byte);
            if self.fault.cut.is_some_and(|cut| at >= cut) {
                self.closed = true;
                continue;
            }
            let flip = self.fault.flip.filter(|flip| flip / 8 == at).map_or(0, |flip| 1 << (flip % 8));
            self.waiting.push_back(byte ^ flip);
        }
    }
}

type Outcome = Result<Established, HandshakeError>;

/// One side with what it waits for.
struct Side<'a> {
    machine: &'a mut dyn Handshake,
    wants: Option<usize>,
    outcome: Option<Outcome>,
}

impl Side<'_> {
    /// Goes as far as the input allows; true if it moved.
    fn run(&mut self, input: &mut Pipe, output: &mut Pipe) -> bool {
        let mut moved = false;
        while self.outcome.is_none() {
            let step = match self.wants {
                None => self.machine.step(&[]),
                Some(len) if input.waiting.len() >= len => {
                    let received: Vec<u8> = input.waiting.drain(..len).collect();
                    self.machine.step(&received)
                }
                Some(_) if input.closed => Step::Done(Err(HandshakeError::Ended)),
                Some(_) => break,
            };
            moved = true;
            self.wants = None;
            match step {
                Step::Send(bytes) => output.send(&bytes),
                Step::Receive(len) => {
                    assert!(len <= MESSAGE_MAX);
                    self.wants = Some(len);
                }
                Step::Done(outcome) => {
                    output.closed = true;
                    self.outcome = Some(outcome);
                }
            }
        }
        moved
    }
}

struct Meeting {
    initiator: Outcome,
    responder: Outcome,
    to_responder: Vec<u8>,
    to_initiator: Vec<u8>,
}

fn meet(initiator: &mut dyn Handshake, responder: &mut dyn Handshake, up: Fault, down: Fault) -> Meeting {
    let mut initiator = Side { machine: initiator, wants: None, outcome: None };
    let mut responder = Side { machine: responder, wants: None, outcome: None };
    let mut up = Pipe { fault: up, ..Pipe::default() };
    let mut down = Pipe { fault: down, ..Pipe::default() };
    // A waiting side whose peer is over sees the end of the stream.
    while initiator.run(&mut down, &mut up) | responder.run(&mut up, &mut down) {}
    Meeting {
        initiator: initiator.outcome.unwrap_or(Err(HandshakeError::TimedOut)),
        responder: responder.outcome.unwrap_or(Err(HandshakeError::TimedOut)),
        to_responder: up.sent,
        to_initiator: down.sent,
    }
}

fn meet_with(client: &Identity, server: &Identity) -> Meeting {
    meet(&mut Initiator::new(client), &mut Responder::new(server), Fault::default(), Fault::default())
}

#[test]
fn both_sides_agree_on_version_and_seed() {
    let server = Identity { node: "u4".to_owned(), ..identity(1, "c", "storaged 4") };
    let meeting = meet_with(&identity(1, "c", "client host1:/mnt"), &server);
    let (client, server) = (meeting.initiator.unwrap(), meeting.responder.unwrap());
    assert_eq!((client.version, client.seed), (server.version, server.seed));
    assert_eq!(client.version, wire::frame::VERSION);
    assert_eq!((client.peer.cluster.as_str(), client.peer.incarnation), ("c", 42));
    assert_eq!((server.peer.cluster.as_str(), server.peer.name.as_str()), ("c", "client host1:/mnt"));
    assert_eq!((client.peer.node.as_str(), server.peer.node.as_str()), ("u4", ""));
    let again = meet_with(&identity(1, "c", ""), &identity(1, "c", ""));
    assert_ne!(client.seed, again.initiator.unwrap().seed, "each connection has its own seed");
}

#[test]
fn a_side_that_does_not_know_its_cluster_takes_the_others() {
    let meeting = meet_with(&identity(1, "", "new"), &identity(1, "c", ""));
    assert_eq!(meeting.initiator.unwrap().peer.cluster, "c");
    assert!(meeting.responder.is_ok());
    assert!(meet_with(&identity(1, "c", ""), &identity(1, "", "")).initiator.is_ok());
}

#[test]
fn a_wrong_key_is_named_on_both_sides_and_nothing_else_is_said() {
    let meeting = meet_with(&identity(1, "c", "secret name"), &identity(2, "c", "other"));
    assert_eq!(meeting.initiator, Err(HandshakeError::Key));
    assert_eq!(meeting.responder, Err(HandshakeError::Key));
    assert_eq!(HandshakeError::Key.to_string(), "the other side does not hold this cluster's key");
    assert_eq!(meeting.to_initiator, b"WEFT\x01\0\0\0");
    assert_eq!(meeting.to_responder.len(), 6 + 2 + 48, "one ephemeral key and one tag");
}

#[test]
fn no_secret_and_no_name_crosses_the_wire_in_the_clear() {
    let meeting = meet_with(&identity(0x55, "cluster-id", "client-name"), &identity(0x55, "cluster-id", "x"));
    for stream in [&meeting.to_responder, &meeting.to_initiator] {
        for needle in [&b"cluster-id"[..], b"client-name", &[0x55; 8]] {
            assert!(!stream.windows(needle.len()).any(|window| window == needle));
        }
    }
}

#[test]
fn another_cluster_is_refused_by_name() {
    let meeting = meet_with(&identity(1, "aaa", ""), &identity(1, "bbb", ""));
    let (client, server) = (meeting.initiator.unwrap_err(), meeting.responder.unwrap_err());
    assert_eq!(client, HandshakeError::Cluster { ours: "aaa".into(), theirs: "bbb".into() });
    assert_eq!(server, HandshakeError::Cluster { ours: "bbb".into(), theirs: "aaa".into() });
    assert_eq!(client.to_string(), "the other side belongs to cluster bbb, this side to cluster aaa");
}

#[test]
fn the_newest_common_version_is_taken_and_no_common_one_is_named_on_both_sides() {
    let id = identity(1, "c", "");
    let versions = |client, server| {
        let mut initiator = Initiator::with_versions(&id, client);
        let mut responder = Responder::with_versions(&id, server);
        meet(&mut initiator, &mut responder, Fault::default(), Fault::default())
    };
    for (client, server, expected) in [((1, 3), (2, 5), 3), ((4, 5), (1, 4), 4), ((2, 2), (1, 9), 2)] {
        let meeting = versions(client, server);
        assert_eq!(meeting.initiator.unwrap().version, expected);
        assert_eq!(meeting.responder.unwrap().version, expected);
    }
    for (client, server) in [((1, 2), (3, 4)), ((3, 4), (1, 2))] {
        let meeting = versions(client, server);
        for (error, theirs) in [(meeting.initiator.unwrap_err(), server), (meeting.responder.unwrap_err(), client)] {
            let text = error.to_string();
            assert!(matches!(error, HandshakeError::Version(_)), "{text}");
            assert!(text.contains(&format!("versions {} to {}", theirs.0, theirs.1)), "{text}");
        }
    }
}

#[test]
fn a_stranger_gets_no_answer_and_a_clear_line() {
    let mut responder = Responder::new(&identity(1, "c", ""));
    assert_eq!(responder.step(&[]), Step::Receive(8));
    assert_eq!(responder.step(b"GET / HT"), Step::Done(Err(HandshakeError::Foreign)));
    let mut initiator = Initiator::new(&identity(1, "c", ""));
    assert!(matches!(initiator.step(&[]), Step::Send(_)));
    assert_eq!(initiator.step(&[]), Step::Receive(8));
    assert_eq!(initiator.step(b"HTTP/1.1"), Step::Done(Err(HandshakeError::Foreign)));
    assert_eq!(initiator.step(b"HTTP/1.1"), Step::Done(Err(HandshakeError::Ended)));
}

#[test]
fn another_handshake_version_is_told_ours() {
    let mut responder = Responder::new(&identity(1, "c", ""));
    responder.step(&[]);
    assert_eq!(responder.step(b"WEFT\x09\0\x30\0"), Step::Send(b"WEFT\x01\0\0\0".to_vec()));
    assert_eq!(responder.step(&[]), Step::Done(Err(HandshakeError::HandshakeVersion(9))));
}

#[test]
fn an_oversized_message_is_refused_before_it_is_read() {
    let mut responder = Responder::new(&identity(1, "c", ""));
    responder.step(&[]);
    assert_eq!(responder.step(b"WEFT\x01\0\xff\xff"), Step::Done(Err(HandshakeError::Length(0xffff))));
}

#[test]
fn a_stream_cut_at_any_byte_establishes_nothing_for_its_receiver() {
    let (client, server) = (identity(1, "c", "client"), identity(1, "c", "server"));
    let whole = meet_with(&client, &server);
    for cut in 0..whole.to_responder.len() {
        let up = Fault { cut: Some(cut), ..Fault::default() };
        let meeting = meet(&mut Initiator::new(&client), &mut Responder::new(&server), up, Fault::default());
        assert_eq!(meeting.responder, Err(HandshakeError::Ended), "up {cut}");
        assert!(meeting.initiator.is_err(), "up {cut}");
    }
    for cut in 0..whole.to_initiator.len() {
        let down = Fault { cut: Some(cut), ..Fault::default() };
        let meeting = meet(&mut Initiator::new(&client), &mut Responder::new(&server), Fault::default(), down);
        assert_eq!(meeting.initiator, Err(HandshakeError::Ended), "down {cut}");
    }
}

#[test]
fn any_flipped_bit_is_noticed_by_its_receiver() {
    let (client, server) = (identity(1, "c", "client"), identity(1, "c", "server"));
    let whole = meet_with(&client, &server);
    // One bit of each byte, another one each time.
    for bit in (0..whole.to_responder.len()).map(|at| at * 8 + at % 8) {
        let up = Fault { flip: Some(bit), ..Fault::default() };
        let meeting = meet(&mut Initiator::new(&client), &mut Responder::new(&server), up, Fault::default());
        assert!(meeting.responder.is_err() && meeting.initiator.is_err(), "up bit {bit}");
    }
    for bit in (0..whole.to_initiator.len()).map(|at| at * 8 + at % 8) {
        let down = Fault { flip: Some(bit), ..Fault::default() };
        let meeting = meet(&mut Initiator::new(&client), &mut Responder::new(&server), Fault::default(), down);
        assert!(meeting.initiator.is_err(), "down bit {bit}");
    }
}

/// Says what it was given, whatever it hears.
struct Recording(VecDeque<Vec<u8>>);

impl Handshake for Recording {
    fn step(&mut self, _received: &[u8]) -> Step {
        self.0.pop_front().map_or(Step::Done(Err(HandshakeError::Ended)), Step::Send)
    }
}

#[test]
fn a_recorded_session_gets_no_further_than_the_fresh_challenge() {
    let (client, server) = (identity(1, "c", "client"), identity(1, "c", "server"));
    let first = meet_with(&client, &server);
    let mut replay = Recording([first.to_responder.clone()].into());
    let second = meet(&mut replay, &mut Responder::new(&server), Fault::default(), Fault::default());
    assert_eq!(second.responder, Err(HandshakeError::Forged));
    assert_eq!(second.to_initiator.len(), 6 + 2 + 48, "its challenge and nothing after");
    let mut replay = Recording([first.to_initiator].into());
    let third = meet(&mut Initiator::new(&client), &mut replay, Fault::default(), Fault::default());
    assert_eq!(third.initiator, Err(HandshakeError::Key));
}

#[test]
fn a_hostile_name_cannot_fake_a_log_line() {
    let long = format!("x\n2026 ERROR fake\x1b[31m{}", "é".repeat(400));
    let meeting = meet_with(&identity(1, "c", &long), &identity(1, "c", ""));
    let name = meeting.responder.unwrap().peer.name;
    assert!(name.starts_with("x?2026 ERROR fake?[31m") && name.len() <= 200, "{name}");
    assert!(!name.chars().any(char::is_control));
}

proptest! {
    #[test]
    fn noise_from_the_wire_never_panics(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..8)) {
        let id = identity(1, "c", "");
        let (mut initiator, mut responder) = (Initiator::new(&id), Responder::new(&id));
        for machine in [&mut initiator as &mut dyn Handshake, &mut responder] {
            for chunk in &chunks {
                if let Step::Done(result) = machine.step(chunk) {
                    prop_assert!(result.is_err());
                }
            }
        }
    }
}
