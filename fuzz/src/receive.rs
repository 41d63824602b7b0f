//! The receive path: frames with right checksums and any content, in pieces of any length.

use net::receive::{FrameError, Parsed, Receiver, Role, check_payload};
use wire::frame::{HEADER_LEN, MAGIC, VERSION, crc32c, flags};

const SEED: u32 = 0x0102_0304;

/// The first byte chooses the side; then come frames, each as its length in one byte (in units of 97 payload bytes),
/// a body length, whether to leave it as it is, and 40 header bytes; the lengths of the pieces are taken from all over.
pub fn receive(data: &[u8]) {
    let [role, script @ ..] = data else { return };
    let role = if role & 1 == 0 { Role::Requests } else { Role::Replies };
    let stream = stream(script);
    let whole = take(&stream, role, std::iter::repeat(stream.len().max(1)));
    let pieces = data.iter().cycle().map(|&byte| usize::from(byte) * usize::from(byte) / 16 + 1);
    let pieced = take(&stream, role, pieces);
    assert_eq!(whole, pieced, "pieces make no difference");
}

fn stream(script: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    for frame in script.chunks(43) {
        let [payload, body, mode, fields @ ..] = frame else { return stream };
        let (body_len, payload_len) = (usize::from(*body), usize::from(*payload) * 97);
        let mut bytes = vec![0u8; HEADER_LEN + body_len + payload_len];
        for (place, byte) in bytes.iter_mut().zip(fields) {
            *place = *byte;
        }
        for (at, byte) in bytes[HEADER_LEN..].iter_mut().enumerate() {
            *byte = (at as u8).wrapping_mul(*mode);
        }
        if mode & 0xf0 != 0 {
            repair(&mut bytes, body_len, payload_len, *mode);
        }
        stream.extend_from_slice(&bytes);
    }
    stream
}

/// Makes a header of it that belongs to what follows; the low bits of `mode` leave something wrong.
fn repair(bytes: &mut [u8], body_len: usize, payload_len: usize, mode: u8) {
    let body_crc = crc32c(&bytes[HEADER_LEN..HEADER_LEN + body_len]);
    let payload_crc = crc32c(&bytes[HEADER_LEN + body_len..]);
    bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
    bytes[7] &= 2;
    let known = flags::REPLY | flags::CHECKED | flags::PLACED | flags::ROOM;
    bytes[8] &= known as u8;
    bytes[9] = 0;
    if mode & 1 == 0 {
        bytes[10..12].fill(0);
    }
    bytes[40..44].copy_from_slice(&(body_len as u32).to_le_bytes());
    bytes[44..48].copy_from_slice(&(payload_len as u32).to_le_bytes());
    if mode & 0xe != 2 {
        bytes[48..52].copy_from_slice(&body_crc.to_le_bytes());
    }
    if mode & 0xe != 4 {
        bytes[52..56].copy_from_slice(&payload_crc.to_le_bytes());
    }
    bytes[56..60].fill(0);
    let crc = crc32c(&bytes[..60]) ^ SEED;
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
}

/// Request id, checksum of the body and of the payload of each frame, and how it ended.
type Taken = (Vec<(u64, u32, u32)>, Option<FrameError>);

fn take(stream: &[u8], role: Role, mut pieces: impl Iterator<Item = usize>) -> Taken {
    let mut receiver = Receiver::new(VERSION, SEED, role);
    let (mut from, mut there, mut taken) = (0, 0, Vec::new());
    let mut last = 0;
    loop {
        match receiver.parse(&stream[from..there]) {
            Err(error) => return (taken, Some(error)),
            Ok(Parsed::Need(len)) => {
                assert!(len > there - from, "asks for what is there");
                if there == stream.len() {
                    return (taken, None);
                }
                there = stream.len().min(there + pieces.next().unwrap_or(1));
            }
            Ok(Parsed::Frame { header, body, payload, missing }) => {
                let payload = from + payload.start..from + payload.end + missing;
                if payload.end > stream.len() {
                    return (taken, None);
                }
                if let Err(error) = check_payload(&header, &stream[payload.clone()]) {
                    return (taken, Some(error));
                }
                let body = &stream[from + body.start..from + body.end];
                assert_eq!(crc32c(body), header.body_crc);
                assert!(role == Role::Replies || header.request > last, "requests rise");
                last = header.request;
                taken.push((header.request, crc32c(body), crc32c(&stream[payload.clone()])));
                from = payload.end;
                there = there.max(from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The corpus gets past the checks, else all of this explores nothing.
    #[test]
    fn good_frames_are_taken_and_broken_ones_are_not() {
        let count = |data: &[u8]| {
            let role = if data[0] & 1 == 0 { Role::Requests } else { Role::Replies };
            let (taken, error) = take(&stream(&data[1..]), role, std::iter::repeat(1 << 20));
            (taken.len(), error)
        };
        assert_eq!(count(include_bytes!("../corpus/receive/requests")), (3, None));
        assert_eq!(count(include_bytes!("../corpus/receive/replies")), (3, None));
        assert_eq!(count(include_bytes!("../corpus/receive/broken")), (1, Some(FrameError::BodyChecksum)));
    }

    /// Of requests that name places instead of sending bytes, and that offer room for the reply.
    #[test]
    fn frames_in_shared_memory_are_taken() {
        let script = include_bytes!("../corpus/receive/places");
        let stream = stream(&script[1..]);
        let mut receiver = Receiver::new(VERSION, SEED, Role::Requests);
        let (mut rest, mut seen) = (&stream[..], Vec::new());
        while !rest.is_empty() {
            let Ok(Parsed::Frame { header, payload, missing: 0, .. }) = receiver.parse(rest) else {
                panic!("no frame")
            };
            seen.push(header.flags);
            rest = &rest[payload.end..];
        }
        assert_eq!(seen, [flags::PLACED, flags::ROOM, flags::CHECKED | flags::PLACED]);
    }
}
