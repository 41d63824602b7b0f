//! What mgmtd finds in its store.

use std::collections::BTreeMap;

use cluster::event::{Event, Moment};
use cluster::membership::{Membership, Rules};

/// Records one after the other: one byte with the length of the key, two with that of the value, and both.
pub fn records(data: &[u8]) {
    restores(data);
}

/// Whether mgmtd would come up with these.
pub(crate) fn restores(data: &[u8]) -> bool {
    let mut records = BTreeMap::new();
    let mut rest = data;
    while let [key, low, high, after @ ..] = rest {
        let (key, after) = after.split_at(usize::from(*key).min(after.len()));
        let (value, later) = after.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(after.len()));
        records.insert(key.to_vec(), value.to_vec());
        rest = later;
    }
    let Ok(Some(mut membership)) = Membership::restore(records.clone(), Rules::default(), Moment(0)) else {
        return false;
    };
    // What it accepts it can work with: all nodes go offline, and that is written down.
    let effects = membership.apply(Event::Tick, Moment(1 << 40)).expect("time cannot be refused");
    for (key, value) in effects.records {
        match value {
            Some(value) => records.insert(key, value),
            None => records.remove(&key),
        };
    }
    let again = Membership::restore(records, Rules::default(), Moment(0)).expect("what it wrote").expect("something");
    assert_eq!(again.map(), membership.map());
    true
}
