//! One function per decoder that outsiders can reach: it takes any bytes and panics where the decoder breaks a promise.
//!
//! `cargo fuzz run TARGET --features libfuzzer` explores them; `cargo test` runs them for some seconds on any toolchain.

mod control;
mod kernel;
mod place;
mod receive;
mod records;
pub mod seeds;

use net::handshake::{Handshake, Initiator, MESSAGE_MAX, Responder, Step};
use net::{ClusterKey, Identity};
use wire::codec::{Wire, decode_body};
use wire::frame::{BODY_MAX, HEADER_LEN, Header, PAYLOAD_MAX, VERSION};
use wire::hello::{ClientHello, ServerHello};
use wire::op::Op;

pub use control::control;
pub use kernel::kernel;
pub use place::place;
pub use receive::receive;
pub use records::records;

/// A name and what it runs.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("header", header),
    ("hello", hello),
    ("message", message),
    ("receive", receive),
    ("handshake", handshake),
    ("place", place),
    ("control", control),
    ("records", records),
    ("kernel", kernel),
];

/// A header of 60 bytes; its magic and checksum are made right, since no fuzzer guesses a checksum.
pub fn header(data: &[u8]) {
    let mut bytes = [0; HEADER_LEN];
    for (place, byte) in bytes.iter_mut().zip(data) {
        *place = *byte;
    }
    let _ = Header::decode(&bytes, 0, VERSION);
    bytes[..4].copy_from_slice(&wire::frame::MAGIC.to_le_bytes());
    let crc = wire::frame::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    if let Ok(header) = Header::decode(&bytes, 0, VERSION) {
        assert_eq!(header.encode(0), bytes, "one encoding of each header");
        assert!(header.body_len as usize <= BODY_MAX && header.payload_len as usize <= PAYLOAD_MAX);
    }
}

/// Both hellos.
pub fn hello(data: &[u8]) {
    canonical::<ClientHello>(data);
    canonical::<ServerHello>(data);
}

fn canonical<T: Wire>(data: &[u8]) {
    if let Ok(message) = decode_body::<T>(data) {
        let mut again = Vec::new();
        message.encode(&mut again);
        assert_eq!(again, data, "one encoding of each message");
    }
}

/// The number of an operation, as a header has it (so that a seed stays what it is when operations are added), whether it
/// is the reply, and a body.
pub fn message(data: &[u8]) {
    decodes(data);
}

/// Whether `data` is a message that exists.
fn decodes(data: &[u8]) -> bool {
    let [low, high, reply, body @ ..] = data else { return false };
    let Some(op) = Op::from_u16(u16::from_le_bytes([*low, *high])) else { return false };
    let again = op.reencode(reply & 1 == 1, body);
    if let Ok(again) = &again {
        assert_eq!(again, body, "one encoding of each {} message", op.name());
    }
    again.is_ok()
}

/// Both sides of the handshake, given pieces of `data` in the lengths that they ask for.
pub fn handshake(data: &[u8]) {
    let identity = Identity {
        cluster: "cluster".to_owned(),
        incarnation: 1,
        ..Identity::new(ClusterKey::from_bytes([1; 32]), "name")
    };
    survives(&mut Initiator::new(&identity), data);
    survives(&mut Responder::new(&identity), data);
}

fn survives(machine: &mut impl Handshake, data: &[u8]) {
    let mut rest = data;
    let mut received: &[u8] = &[];
    for _ in 0..16 {
        match machine.step(received) {
            Step::Send(bytes) => {
                assert!(bytes.len() <= 2 * MESSAGE_MAX);
                received = &[];
            }
            Step::Receive(len) => {
                assert!(len <= MESSAGE_MAX, "memory is bounded");
                let Some((piece, later)) = rest.split_at_checked(len) else { return };
                (received, rest) = (piece, later);
            }
            Step::Done(result) => {
                assert!(result.is_err(), "nobody guesses a proof of the key");
                return;
            }
        }
    }
    panic!("a handshake has fewer steps");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_has_its_seeds_and_each_of_them_decodes() {
        let seeds = seeds::messages();
        for op in Op::ALL {
            for reply in [0, 1] {
                let [low, high] = (*op as u16).to_le_bytes();
                let of_it = seeds.iter().filter(|seed| seed.bytes.starts_with(&[low, high, reply]));
                assert_eq!(of_it.count(), 1, "{} {reply}", op.name());
            }
        }
        assert_eq!(seeds.len(), 2 * Op::ALL.len());
        for seed in &seeds {
            assert!(decodes(&seed.bytes), "{}", seed.name);
        }
    }
}
