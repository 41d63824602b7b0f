//! `S` session slot: a session in slot 0; in the other slots the outcomes of its changes, one record for each commit in
//! which it had some. A slot is written anew once the client has the answers to all its outcomes.

use types::id::{InodeId, SessionId};

use crate::error::Damage;
use crate::schema::meta::Counts;
use crate::schema::{Fields, inode_end, inode_key};

pub const PREFIX: u8 = b'S';
/// The slot of the session itself.
pub const SELF: u32 = 0;

const VERSION: u8 = 1;
const HEAD_LEN: usize = 1 + 8 + 8 + 8;
const OUTCOME_LEN: usize = 8 + 1 + 8;

/// What a change came to, as far as a repeated answer needs it; attributes are read again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing to say.
    Done,
    /// The inode that was made, changed or opened.
    Inode(InodeId),
    /// The inode that was made or opened: the session holds it open.
    Opened(InodeId),
    /// The inode that was made or changed: the session has its write intent.
    Intended(InodeId),
    /// The inode that was made: the session holds it open, and has its write intent.
    OpenedToWrite(InodeId),
    Settled {
        settled: bool,
        intents: u64,
    },
    /// Bytes of contents in the metadata were written at this offset.
    Wrote(u64),
}

impl Outcome {
    fn parts(self) -> (u8, u64) {
        match self {
            Self::Done => (0, 0),
            Self::Inode(inode) => (1, inode.0),
            Self::Opened(inode) => (2, inode.0),
            Self::Intended(inode) => (3, inode.0),
            Self::Settled { settled: false, intents } => (4, intents),
            Self::Settled { settled: true, intents } => (5, intents),
            Self::OpenedToWrite(inode) => (6, inode.0),
            Self::Wrote(offset) => (7, offset),
        }
    }

    fn from_parts(tag: u8, number: u64) -> Option<Self> {
        Some(match tag {
            0 if number == 0 => Self::Done,
            1 => Self::Inode(InodeId(number)),
            2 => Self::Opened(InodeId(number)),
            3 => Self::Intended(InodeId(number)),
            4 | 5 => Self::Settled { settled: tag == 5, intents: number },
            6 => Self::OpenedToWrite(InodeId(number)),
            7 => Self::Wrote(number),
            _ => return None,
        })
    }
}

/// The outcomes of one commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replies {
    pub counts: Counts,
    /// Outcomes of lower sequences are no longer needed.
    pub answered_below: u64,
    pub outcomes: Vec<(u64, Outcome)>,
}

pub fn ser_key(key: &mut Vec<u8>, session: SessionId, slot: u32) {
    inode_key(key, PREFIX, InodeId(session.0));
    key.extend_from_slice(&slot.to_be_bytes());
}

/// Where the records of `session` end.
pub fn ser_end(key: &mut Vec<u8>, session: SessionId) {
    inode_end(key, PREFIX, InodeId(session.0));
}

/// # Errors
/// Where the key is no session's.
pub fn deser_key(key: &[u8]) -> Result<(SessionId, u32), Damage> {
    let mut fields = Fields::new(key, key);
    fields.prefix(PREFIX)?;
    let parts = (SessionId(fields.key_u64()?), fields.key_u32()?);
    fields.finish()?;
    Ok(parts)
}

/// The value of slot 0: what people call the session.
pub fn ser_self(value: &mut Vec<u8>, description: &[u8]) {
    value.clear();
    value.push(VERSION);
    value.extend_from_slice(description);
}

/// # Errors
/// Where the value is of another version.
pub fn deser_self<'a>(key: &'a [u8], value: &'a [u8]) -> Result<&'a [u8], Damage> {
    let mut fields = Fields::new(value, key);
    fields.version(VERSION)?;
    Ok(fields.rest())
}

/// Begins the value of another slot; outcomes follow with `ser_outcome`.
pub fn ser_head(value: &mut Vec<u8>, counts: Counts, answered_below: u64) {
    value.clear();
    value.push(VERSION);
    value.extend_from_slice(&counts.commit.to_le_bytes());
    value.extend_from_slice(&counts.inodes.to_le_bytes());
    value.extend_from_slice(&answered_below.to_le_bytes());
}

pub fn ser_outcome(value: &mut Vec<u8>, sequence: u64, outcome: Outcome) {
    let (tag, number) = outcome.parts();
    value.extend_from_slice(&sequence.to_le_bytes());
    value.push(tag);
    value.extend_from_slice(&number.to_le_bytes());
}

/// # Errors
/// Where the value is no such record.
pub fn deser_value(key: &[u8], value: &[u8]) -> Result<Replies, Damage> {
    let mut fields = Fields::new(value, key);
    fields.version(VERSION)?;
    let counts = Counts { commit: fields.u64()?, inodes: fields.u64()? };
    let answered_below = fields.u64()?;
    let count = value.len().saturating_sub(HEAD_LEN) / OUTCOME_LEN;
    let mut outcomes = Vec::with_capacity(count);
    for _ in 0..count {
        let sequence = fields.u64()?;
        let (tag, number) = (fields.u8()?, fields.u64()?);
        let outcome =
            Outcome::from_parts(tag, number).ok_or_else(|| fields.damage("stored reply of an unknown kind"))?;
        outcomes.push((sequence, outcome));
    }
    fields.finish()?;
    Ok(Replies { counts, answered_below, outcomes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn outcome() -> impl Strategy<Value = Outcome> {
        prop_oneof![
            Just(Outcome::Done),
            any::<u64>().prop_map(|id| Outcome::Inode(InodeId(id))),
            any::<u64>().prop_map(|id| Outcome::Opened(InodeId(id))),
            any::<u64>().prop_map(|id| Outcome::Intended(InodeId(id))),
            any::<u64>().prop_map(Outcome::Wrote),
            (any::<bool>(), any::<u64>()).prop_map(|(settled, intents)| Outcome::Settled { settled, intents }),
        ]
    }

    proptest! {
        #[test]
        fn round_trips(
            n: [u64; 4], slot: u32, outcomes in prop::collection::vec((any::<u64>(), outcome()), 0..20), cut in 1usize..17,
        ) {
            let replies =
                Replies { counts: Counts { commit: n[0], inodes: n[1] }, answered_below: n[2], outcomes };
            let (mut key, mut value) = (Vec::new(), Vec::new());
            ser_key(&mut key, SessionId(n[3]), slot);
            prop_assert_eq!(deser_key(&key), Ok((SessionId(n[3]), slot)));
            ser_head(&mut value, replies.counts, replies.answered_below);
            for &(sequence, outcome) in &replies.outcomes {
                ser_outcome(&mut value, sequence, outcome);
            }
            prop_assert!(deser_value(&key, &value[..value.len() - cut]).is_err());
            prop_assert_eq!(deser_value(&key, &value), Ok(replies));
        }
    }

    #[test]
    fn a_session_is_in_slot_0() {
        let (mut key, mut value, mut end) = (Vec::new(), Vec::new(), Vec::new());
        ser_key(&mut key, SessionId(5), SELF);
        ser_self(&mut value, b"host:/mnt");
        ser_end(&mut end, SessionId(5));
        assert_eq!(deser_self(&key, &value), Ok(&b"host:/mnt"[..]));
        assert!(deser_self(&key, b"").is_err());
        assert!(key < end);
    }
}
