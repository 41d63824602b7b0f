//! Where a payload lies in memory that a caller shares: the one decoder whose result becomes a pointer.

use std::sync::{Arc, LazyLock};

use ring::buf::Buf;
use ring::shared::Memory;
use wire::frame::{PAYLOAD_MAX, Place};

/// Bytes of the memory in which places are looked for.
const MEMORY: usize = 1 << 20;

static SHARED: LazyLock<Arc<Memory>> =
    LazyLock::new(|| Arc::new(Memory::create(MEMORY).expect("memory that takes up nothing")));

/// The payload of a request that names a place.
pub fn place(data: &[u8]) {
    let Some(place) = Place::decode(data) else { return };
    assert_eq!(place.encode()[..], *data, "one encoding of each place");
    assert!(place.len <= PAYLOAD_MAX as u64, "no longer than a payload may be");
    if let Some(found) = Buf::in_memory(&SHARED, place.offset, place.len as usize) {
        assert_eq!(found.len() as u64, place.len);
        assert!(place.offset + place.len <= SHARED.length() as u64, "within the memory");
        // Reading it all would show a range that is not mapped.
        assert!(found.iter().all(|&byte| byte == 0));
    }
}
