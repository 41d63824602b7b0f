//! Every message survives its own encoding, and no bytes whatever make a decoder panic or take memory that was not sent.

mod samples;

use proptest::prelude::*;
use samples::{Dice, Sample, Visitor, decoded, encoded, visit_all};
use types::id::InodeId;
use wire::codec::{DecodeError, Wire};
use wire::frame::{HEADER_LEN, Header, VERSION};
use wire::v1::meta::Walk;

struct RoundTrip(Dice);

impl Visitor for RoundTrip {
    fn visit<T: Wire + Sample + PartialEq + std::fmt::Debug>(&mut self, name: &'static str) {
        let message = T::sample(&mut self.0);
        assert_eq!(decoded::<T>(&encoded(&message)).as_ref(), Ok(&message), "{name}");
    }
}

/// A body cut short anywhere, or with a byte too many, is refused.
struct Cut(Dice);

impl Visitor for Cut {
    fn visit<T: Wire + Sample + PartialEq + std::fmt::Debug>(&mut self, name: &'static str) {
        let mut body = encoded(&T::sample(&mut self.0));
        for len in 0..body.len() {
            assert!(decoded::<T>(&body[..len]).is_err(), "{name} cut to {len} of {}", body.len());
        }
        body.push(0);
        assert!(decoded::<T>(&body).is_err(), "{name} with a byte after it");
    }
}

/// Whatever decodes encodes to the same bytes again: there is one encoding of each value.
struct Canonical<'a>(&'a [u8]);

impl Visitor for Canonical<'_> {
    fn visit<T: Wire + Sample + PartialEq + std::fmt::Debug>(&mut self, name: &'static str) {
        if let Ok(message) = decoded::<T>(self.0) {
            assert_eq!(encoded(&message), self.0, "{name}");
        }
    }
}

/// Good bodies with some bytes changed.
struct Mutated<'a>(Dice, &'a [(prop::sample::Index, u8)]);

impl Visitor for Mutated<'_> {
    fn visit<T: Wire + Sample + PartialEq + std::fmt::Debug>(&mut self, name: &'static str) {
        let mut body = encoded(&T::sample(&mut self.0));
        if body.is_empty() {
            return;
        }
        for (at, value) in self.1 {
            let at = at.index(body.len());
            body[at] = *value;
        }
        Canonical(&body).visit::<T>(name);
    }
}

proptest! {
    #[test]
    fn every_message_round_trips(seed in any::<u64>()) {
        visit_all(&mut RoundTrip(Dice::seeded(seed)));
    }

    #[test]
    fn noise_decodes_to_nothing_or_to_itself(body in prop::collection::vec(any::<u8>(), 0..400)) {
        visit_all(&mut Canonical(&body));
    }

    #[test]
    fn small_numbers_decode_to_nothing_or_to_themselves(body in prop::collection::vec(0u8..3, 0..400)) {
        visit_all(&mut Canonical(&body));
    }

    #[test]
    fn mutated_messages_decode_to_nothing_or_to_themselves(
        seed in any::<u64>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        visit_all(&mut Mutated(Dice::seeded(seed), &changes));
    }

    #[test]
    fn headers_of_noise_are_refused(mut bytes in prop::array::uniform32(any::<u8>()), seed in any::<u32>()) {
        bytes[..4].copy_from_slice(b"WEFT");
        let mut header = [0; HEADER_LEN];
        header[..32].copy_from_slice(&bytes);
        header[32..].copy_from_slice(&bytes);
        prop_assert!(Header::decode(&header, seed, VERSION).is_err());
    }
}

#[test]
fn a_body_of_another_length_is_refused() {
    for seed in 0..8 {
        visit_all(&mut Cut(Dice::seeded(seed * 77)));
    }
}

#[test]
fn a_walk_of_no_names_too_many_or_too_long_ones_is_refused() {
    let body = |count: u32, len: u8| {
        let mut body = encoded(&InodeId::ROOT);
        body.extend(count.to_le_bytes());
        for _ in 0..count {
            body.push(len);
            body.extend(vec![b'x'; len.into()]);
        }
        body.push(0);
        body
    };
    for (count, len) in [(1, 1), (64, 1), (16, 255)] {
        assert!(decoded::<Walk>(&body(count, len)).is_ok(), "{count} of {len}");
    }
    for (count, len) in [(0, 0), (65, 1), (17, 255), (64, 64), (1, 0)] {
        let refused = decoded::<Walk>(&body(count, len));
        assert!(matches!(refused, Err(DecodeError::Invalid(_))), "{count} of {len}: {refused:?}");
    }
}

/// A count that promises more than the body has must not be believed.
#[test]
fn a_huge_count_costs_nothing() {
    let mut body = u32::MAX.to_le_bytes().to_vec();
    assert!(decoded::<Vec<u8>>(&body).is_err());
    body.extend_from_slice(&[0; 64]);
    visit_all(&mut Canonical(&body));
}
