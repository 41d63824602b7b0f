//! How two processes come to trust a connection: pure state machines, bytes in and bytes out.
//!
//! ```text
//! initiator                                     responder
//! "WEFT" version u16 | len u16 | psk, e    ->                        proves the key (tag under the key)
//!                                          <-   "WEFT" version u16 | len u16 | e, ee
//! len u16 | ClientHello, encrypted         ->                        proves that it is no replay
//!                                          <-   len u16 | ServerHello, encrypted
//! ```
//!
//! Pattern `Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s` with the cluster key as the pre-shared key and the preamble as the
//! prologue. A length of 0 in the place of the responder's first message says "you do not hold this cluster's key"
//! and nothing else. Integers are little-endian.
//!
//! Both machines are driven alike: call [`Handshake::step`] with nothing first, do what it says, call again. It asks
//! for exact numbers of bytes, so nothing that follows the handshake is ever read by it. Time limits are the caller's.

use std::io::{Read, Write};

use snow::{HandshakeState, TransportState};
use thiserror::Error;
use wire::codec::{Bytes, Wire, decode_body};
use wire::frame::{VERSION, VERSION_MIN};
use wire::hello::{ClientHello, ServerHello, VersionMismatch, negotiate};

use crate::identity::Identity;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const MAGIC: [u8; 4] = *b"WEFT";
/// Version of the handshake itself.
const HANDSHAKE_VERSION: u16 = 1;
const PREAMBLE_LEN: usize = 6;
/// Longest message of the handshake, in bytes, so that a stranger costs no memory.
pub const MESSAGE_MAX: usize = 1024;
/// Bytes of the name of a connection.
pub const ID_LEN: usize = 16;
/// Longest name, cluster id and refusal that are kept from the other side, in bytes.
const TEXT_MAX: usize = 200;

/// What both sides know when a handshake is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Established {
    /// Protocol version of every frame that follows.
    pub version: u16,
    /// Seed of the header checksums of this connection; the same on both sides.
    pub seed: u32,
    /// Names this connection among all that there ever were; the same on both sides.
    pub id: [u8; ID_LEN],
    pub peer: PeerHello,
}

/// What the other side said of itself, made safe to log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PeerHello {
    /// Empty where it did not say.
    pub cluster: String,
    /// Only initiators say one.
    pub name: String,
    /// Of an initiator that is a client, its session.
    pub incarnation: u64,
    /// Its UUID. Only responders say one, and only services.
    pub node: String,
}

/// Why there is no connection.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum HandshakeError {
    #[error("the other side does not speak Weft")]
    Foreign,
    #[error("the other side speaks handshake version {0}, this side {HANDSHAKE_VERSION}: upgrade the older one")]
    HandshakeVersion(u16),
    #[error("the other side does not hold this cluster's key")]
    Key,
    #[error("a handshake message is damaged, or replayed from another connection")]
    Forged,
    #[error("a handshake message of {0} bytes is out of range")]
    Length(u16),
    #[error("a handshake message is malformed: {0}")]
    Malformed(&'static str),
    #[error("{0}")]
    Version(VersionMismatch),
    #[error("the other side belongs to cluster {theirs}, this side to cluster {ours}")]
    Cluster { ours: String, theirs: String },
    #[error("refused: {0}")]
    Refused(String),
    #[error("the connection ended in the middle of the handshake")]
    Ended,
    #[error("the handshake took too long")]
    TimedOut,
}

impl HandshakeError {
    /// Waiting does not help: the two sides disagree about key, cluster or version.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        !matches!(self, Self::Ended | Self::TimedOut | Self::Forged)
    }
}

/// What the one who drives the machine has to do next.
#[derive(PartialEq, Eq, Debug)]
pub enum Step {
    /// Send all of these bytes, then step with nothing.
    Send(Vec<u8>),
    /// Receive exactly so many bytes (at most [`MESSAGE_MAX`]), then step with them.
    Receive(usize),
    /// The end. Stepping again gives [`HandshakeError::Ended`].
    Done(Result<Established, HandshakeError>),
}

/// Either side of a handshake.
pub trait Handshake {
    /// Goes on with what was received, or with nothing where nothing was asked for.
    fn step(&mut self, received: &[u8]) -> Step;
}

/// Drives a handshake over a blocking stream. Set its time limits before; errors of the stream count as its end.
///
/// # Errors
/// Where the two sides do not come to terms.
pub fn drive_blocking(
    machine: &mut impl Handshake,
    stream: &mut (impl Read + Write),
) -> Result<Established, HandshakeError> {
    let mut received = Vec::new();
    loop {
        match machine.step(&received) {
            Step::Send(bytes) => {
                stream.write_all(&bytes).map_err(|_| HandshakeError::Ended)?;
                received.clear();
            }
            Step::Receive(len) => {
                received.resize(len, 0);
                stream.read_exact(&mut received).map_err(|_| HandshakeError::Ended)?;
            }
            Step::Done(result) => return result,
        }
    }
}

fn preamble() -> [u8; PREAMBLE_LEN] {
    let version = HANDSHAKE_VERSION.to_le_bytes();
    [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], version[0], version[1]]
}

fn check_preamble(bytes: &[u8]) -> Result<(), HandshakeError> {
    if bytes.len() < PREAMBLE_LEN || bytes[..4] != MAGIC {
        return Err(HandshakeError::Foreign);
    }
    match u16::from_le_bytes([bytes[4], bytes[5]]) {
        HANDSHAKE_VERSION => Ok(()),
        other => Err(HandshakeError::HandshakeVersion(other)),
    }
}

/// The length in the last two bytes of what was received.
fn length(bytes: &[u8]) -> Result<usize, HandshakeError> {
    let Some(&[low, high]) = bytes.last_chunk::<2>() else {
        return Err(HandshakeError::Malformed("no length"));
    };
    let length = u16::from_le_bytes([low, high]);
    if length as usize > MESSAGE_MAX { Err(HandshakeError::Length(length)) } else { Ok(length as usize) }
}

fn with_length(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).expect("our own messages are short");
    [&length.to_le_bytes()[..], message].concat()
}

fn noise(identity: &Identity, initiator: bool) -> HandshakeState {
    let preamble = preamble();
    let builder = snow::Builder::new(PATTERN.parse().expect("a pattern that snow knows"))
        .prologue(&preamble)
        .and_then(|builder| builder.psk(0, identity.key.as_bytes()))
        .expect("one prologue and one key of the right length");
    let state = if initiator { builder.build_initiator() } else { builder.build_responder() };
    state.expect("the pattern needs no more than the pre-shared key")
}

/// It is our turn and there is room enough: what can fail is a point of theirs that no key exchange takes.
fn write_noise(noise: &mut HandshakeState) -> Result<Vec<u8>, HandshakeError> {
    let mut message = vec![0; MESSAGE_MAX];
    let len = noise.write_message(&[], &mut message).map_err(|_| HandshakeError::Forged)?;
    message.truncate(len);
    Ok(message)
}

/// The only failures left to `read_message` are those of the bytes received.
fn read_noise(noise: &mut HandshakeState, message: &[u8]) -> Result<(), HandshakeError> {
    let mut payload = [0; MESSAGE_MAX];
    match noise.read_message(message, &mut payload) {
        Ok(0) => Ok(()),
        Ok(_) => Err(HandshakeError::Malformed("payload before the hello")),
        Err(_) => Err(HandshakeError::Key),
    }
}

/// What both sides derive from the key exchange.
#[derive(Clone, Copy)]
struct Bond {
    seed: u32,
    id: [u8; ID_LEN],
}

/// What is derived, and the cipher of the two hellos.
fn transport(noise: HandshakeState) -> (Bond, TransportState) {
    let id: [u8; ID_LEN] = *noise.get_handshake_hash().first_chunk().expect("a hash is longer than that");
    let seed = u32::from_le_bytes([id[0], id[1], id[2], id[3]]);
    (Bond { seed, id }, noise.into_transport_mode().expect("both messages were exchanged"))
}

fn seal(transport: &mut TransportState, hello: &impl Wire) -> Vec<u8> {
    let mut body = Vec::new();
    hello.encode(&mut body);
    let mut message = vec![0; MESSAGE_MAX];
    let len = transport.write_message(&body, &mut message).expect("our own hellos are short");
    message.truncate(len);
    message
}

fn open<T: Wire>(transport: &mut TransportState, message: &[u8]) -> Result<T, HandshakeError> {
    let mut body = [0; MESSAGE_MAX];
    let len = transport.read_message(message, &mut body).map_err(|_| HandshakeError::Forged)?;
    decode_body(&body[..len]).map_err(|_| HandshakeError::Malformed("hello"))
}

/// Text of ours for a hello: short enough.
fn outgoing(text: &str) -> Bytes {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Bytes(text.as_bytes()[..end].to_vec())
}

/// Text of theirs for our logs: short, and nothing in it that steers a terminal or fakes a line.
fn incoming(text: &Bytes) -> String {
    let text = String::from_utf8_lossy(&text.0[..text.0.len().min(TEXT_MAX)]);
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Ids of two clusters, where both sides know theirs, and they differ.
fn check_cluster(ours: &str, theirs: &str) -> Result<(), HandshakeError> {
    if ours.is_empty() || theirs.is_empty() || ours == theirs {
        return Ok(());
    }
    Err(HandshakeError::Cluster { ours: ours.to_owned(), theirs: theirs.to_owned() })
}

/// The connecting side.
pub struct Initiator {
    identity: Identity,
    versions: (u16, u16),
    state: InitiatorState,
}

enum InitiatorState {
    Start,
    AwaitHead(HandshakeState),
    ReadHead(HandshakeState),
    ReadKeyProof(HandshakeState),
    AwaitHelloLength(TransportState, Bond),
    ReadHelloLength(TransportState, Bond),
    ReadHello(TransportState, Bond),
    Over,
}

impl Initiator {
    #[must_use]
    pub fn new(identity: &Identity) -> Self {
        Self::with_versions(identity, (VERSION_MIN, VERSION))
    }

    /// As if this build spoke protocol versions `versions.0` to `versions.1`.
    #[must_use]
    pub fn with_versions(identity: &Identity, versions: (u16, u16)) -> Self {
        Self { identity: identity.clone(), versions, state: InitiatorState::Start }
    }

    fn advance(&mut self, received: &[u8]) -> Result<Step, HandshakeError> {
        use InitiatorState::{
            AwaitHead, AwaitHelloLength, Over, ReadHead, ReadHello, ReadHelloLength, ReadKeyProof, Start,
        };
        let (state, step) = match std::mem::replace(&mut self.state, Over) {
            Start => {
                let mut noise = noise(&self.identity, true);
                let opening = [&preamble()[..], &with_length(&write_noise(&mut noise)?)].concat();
                (AwaitHead(noise), Step::Send(opening))
            }
            AwaitHead(noise) => (ReadHead(noise), Step::Receive(PREAMBLE_LEN + 2)),
            ReadHead(noise) => {
                check_preamble(received)?;
                match length(received)? {
                    0 => return Err(HandshakeError::Key),
                    len => (ReadKeyProof(noise), Step::Receive(len)),
                }
            }
            ReadKeyProof(mut noise) => {
                read_noise(&mut noise, received)?;
                let (bond, mut transport) = transport(noise);
                let hello = seal(&mut transport, &self.hello());
                (AwaitHelloLength(transport, bond), Step::Send(with_length(&hello)))
            }
            AwaitHelloLength(transport, bond) => (ReadHelloLength(transport, bond), Step::Receive(2)),
            ReadHelloLength(transport, bond) => (ReadHello(transport, bond), Step::Receive(length(received)?)),
            ReadHello(mut transport, bond) => {
                let hello = open(&mut transport, received)?;
                (Over, Step::Done(self.judge(&hello, bond)))
            }
            Over => return Err(HandshakeError::Ended),
        };
        self.state = state;
        Ok(step)
    }

    fn hello(&self) -> ClientHello {
        ClientHello {
            version_min: self.versions.0,
            version_max: self.versions.1,
            cluster: outgoing(&self.identity.cluster),
            name: outgoing(&self.identity.name),
            incarnation: self.identity.incarnation,
        }
    }

    fn judge(&self, hello: &ServerHello, bond: Bond) -> Result<Established, HandshakeError> {
        let theirs = (hello.version_min, hello.version_max);
        let version = negotiate(self.versions, theirs).map_err(HandshakeError::Version)?;
        let (cluster, node) = (incoming(&hello.cluster), incoming(&hello.node));
        let peer = PeerHello { cluster, name: String::new(), incarnation: hello.incarnation, node };
        check_cluster(&self.identity.cluster, &peer.cluster)?;
        if !hello.refusal.0.is_empty() || hello.version != version {
            return Err(HandshakeError::Refused(incoming(&hello.refusal)));
        }
        Ok(Established { version, seed: bond.seed, id: bond.id, peer })
    }
}

impl Handshake for Initiator {
    fn step(&mut self, received: &[u8]) -> Step {
        self.advance(received).unwrap_or_else(|error| Step::Done(Err(error)))
    }
}

/// The accepting side. Answers nothing to one who cannot prove the key but that it could not.
pub struct Responder {
    identity: Identity,
    versions: (u16, u16),
    state: ResponderState,
}

enum ResponderState {
    Start,
    ReadHead,
    ReadKeyProof,
    AwaitHelloLength(TransportState, Bond),
    ReadHelloLength(TransportState, Bond),
    ReadHello(TransportState, Bond),
    /// The last message is on its way; then this is the result.
    Closing(Result<Established, HandshakeError>),
    Over,
}

impl Responder {
    #[must_use]
    pub fn new(identity: &Identity) -> Self {
        Self::with_versions(identity, (VERSION_MIN, VERSION))
    }

    /// As if this build spoke protocol versions `versions.0` to `versions.1`.
    #[must_use]
    pub fn with_versions(identity: &Identity, versions: (u16, u16)) -> Self {
        Self { identity: identity.clone(), versions, state: ResponderState::Start }
    }

    fn advance(&mut self, received: &[u8]) -> Result<Step, HandshakeError> {
        use ResponderState::{
            AwaitHelloLength, Closing, Over, ReadHead, ReadHello, ReadHelloLength, ReadKeyProof, Start,
        };
        let (state, step) = match std::mem::replace(&mut self.state, Over) {
            Start => (ReadHead, Step::Receive(PREAMBLE_LEN + 2)),
            ReadHead => match check_preamble(received) {
                Ok(()) => (ReadKeyProof, Step::Receive(length(received)?)),
                // Our preamble tells the other side which version it should speak. A stranger gets nothing.
                Err(error @ HandshakeError::HandshakeVersion(_)) => (Closing(Err(error)), Step::Send(refusal())),
                Err(error) => return Err(error),
            },
            ReadKeyProof => {
                let mut noise = noise(&self.identity, false);
                match read_noise(&mut noise, received) {
                    Ok(()) => {
                        let answer = [&preamble()[..], &with_length(&write_noise(&mut noise)?)].concat();
                        let (bond, transport) = transport(noise);
                        (AwaitHelloLength(transport, bond), Step::Send(answer))
                    }
                    Err(error) => (Closing(Err(error)), Step::Send(refusal())),
                }
            }
            AwaitHelloLength(transport, bond) => (ReadHelloLength(transport, bond), Step::Receive(2)),
            ReadHelloLength(transport, bond) => (ReadHello(transport, bond), Step::Receive(length(received)?)),
            ReadHello(mut transport, bond) => {
                let hello = open(&mut transport, received)?;
                let result = self.judge(&hello, bond);
                let answer = seal(&mut transport, &self.hello(&result));
                (Closing(result), Step::Send(with_length(&answer)))
            }
            Closing(result) => (Over, Step::Done(result)),
            Over => return Err(HandshakeError::Ended),
        };
        self.state = state;
        Ok(step)
    }

    fn judge(&self, hello: &ClientHello, bond: Bond) -> Result<Established, HandshakeError> {
        let theirs = (hello.version_min, hello.version_max);
        let version = negotiate(self.versions, theirs).map_err(HandshakeError::Version)?;
        let (cluster, name) = (incoming(&hello.cluster), incoming(&hello.name));
        let peer = PeerHello { cluster, name, incarnation: hello.incarnation, node: String::new() };
        check_cluster(&self.identity.cluster, &peer.cluster)?;
        Ok(Established { version, seed: bond.seed, id: bond.id, peer })
    }

    fn hello(&self, result: &Result<Established, HandshakeError>) -> ServerHello {
        let refusal = match result {
            Ok(_) => Bytes::default(),
            Err(HandshakeError::Cluster { ours, theirs }) => outgoing(&format!("this is cluster {ours}, not {theirs}")),
            Err(error) => outgoing(&error.to_string()),
        };
        ServerHello {
            version: result.as_ref().map_or(0, |established| established.version),
            version_min: self.versions.0,
            version_max: self.versions.1,
            cluster: outgoing(&self.identity.cluster),
            refusal,
            incarnation: self.identity.incarnation,
            node: outgoing(&self.identity.node),
        }
    }
}

impl Handshake for Responder {
    fn step(&mut self, received: &[u8]) -> Step {
        self.advance(received).unwrap_or_else(|error| Step::Done(Err(error)))
    }
}

/// The preamble, and a message of no bytes: "you do not hold the key".
fn refusal() -> Vec<u8> {
    [&preamble()[..], &[0, 0]].concat()
}
