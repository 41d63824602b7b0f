//! Fixed-width little-endian encoding of message bodies. Decoding trusts nothing: every length is checked against
//! what is left, so that a hostile body costs an error and no memory.

use thiserror::Error;
use types::attr::{Attr, FileType, SetAttr, SetTime};
use types::cred::{Conditions, Credentials};
use types::error::Errno;
use types::flags::FileFlags;
use types::id::{
    Epoch, Generation, GroupId, InodeId, NodeId, ObjectId, PoolId, SessionId, ShardId, TargetId, TransactionId,
};
use types::layout::{Layout, LayoutPolicy};
use types::lock::{Held, LockKind, LockMode, LockRange};
use types::name::Name;
use types::placement::Placement;
use types::time::{AccessTimes, Timestamp};
use types::walk::{WALK_NAMES_MAX, WalkEnd, WalkNames};

/// Why a body is not the message that its header announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DecodeError {
    #[error("body ends early")]
    Truncated,
    #[error("body has bytes after the message")]
    Trailing,
    #[error("field out of range: {0}")]
    Invalid(&'static str),
}

/// Takes fields off the front of a body.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[must_use]
    pub fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    /// # Errors
    /// `Truncated` where fewer than `len` bytes are left.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// # Errors
    /// `Trailing` where bytes are left over.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }
}

/// A value with a place in a message body.
pub trait Wire: Sized {
    fn encode(&self, out: &mut Vec<u8>);
    /// # Errors
    /// Where the bytes are no such value.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// Decodes a whole body as one message.
///
/// # Errors
/// Where the body is anything but exactly one such message.
pub fn decode_body<T: Wire>(body: &[u8]) -> Result<T, DecodeError> {
    let mut reader = Reader::new(body);
    let message = T::decode(&mut reader)?;
    reader.finish()?;
    Ok(message)
}

macro_rules! wire_int {
    ($($int:ty),*) => {$(
        impl Wire for $int {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                let bytes = reader.take(size_of::<$int>())?;
                Ok(<$int>::from_le_bytes(bytes.try_into().map_err(|_| DecodeError::Truncated)?))
            }
        }
    )*};
}
wire_int!(u8, u16, u32, u64, i64);

macro_rules! wire_newtype {
    ($($name:ident),*) => {$(
        impl Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                self.0.encode(out);
            }
            fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Wire::decode(reader).map($name)
            }
        }
    )*};
}
wire_newtype!(NodeId, TargetId, GroupId, ShardId, SessionId, PoolId, Epoch, Generation, InodeId, Timestamp, Errno);
wire_newtype!(TransactionId);

impl Wire for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(reader)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Invalid("bool")),
        }
    }
}

impl<T: Wire> Wire for Box<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Box::new(T::decode(reader)?))
    }
}

impl<T: Wire> Wire for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            None => out.push(0),
            Some(value) => {
                out.push(1);
                value.encode(out);
            }
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if bool::decode(reader)? { T::decode(reader).map(Some) } else { Ok(None) }
    }
}

/// A sequence: a 32-bit count, then the items. Memory grows with the bytes that are really there.
impl<T: Wire> Wire for Vec<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        for item in self {
            item.encode(out);
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = u32::decode(reader)? as usize;
        if count > reader.remaining() {
            return Err(DecodeError::Truncated);
        }
        (0..count).map(|_| T::decode(reader)).collect()
    }
}

/// Raw bytes with a 32-bit length: extended attribute values, symlink targets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bytes(pub Vec<u8>);

impl Wire for Bytes {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).encode(out);
        out.extend_from_slice(&self.0);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = u32::decode(reader)? as usize;
        reader.take(len).map(|bytes| Self(bytes.to_vec()))
    }
}

impl Wire for Name {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.as_bytes().len() as u8);
        out.extend_from_slice(self.as_bytes());
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = usize::from(u8::decode(reader)?);
        Name::new(reader.take(len)?).map_err(|_| DecodeError::Invalid("name"))
    }
}

impl Wire for FileType {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        FileType::from_u8(u8::decode(reader)?).ok_or(DecodeError::Invalid("file type"))
    }
}

impl Wire for FileFlags {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.bits());
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        FileFlags::from_bits(u8::decode(reader)?.into()).ok_or(DecodeError::Invalid("flags of a file"))
    }
}

impl Wire for Placement {
    fn encode(&self, out: &mut Vec<u8>) {
        self.to_u32().encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Placement::from_u32(u32::decode(reader)?).ok_or(DecodeError::Invalid("placement"))
    }
}

impl Wire for AccessTimes {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        AccessTimes::from_u8(u8::decode(reader)?).ok_or(DecodeError::Invalid("rule for access times"))
    }
}

impl Wire for LockKind {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        LockKind::from_u8(u8::decode(reader)?).ok_or(DecodeError::Invalid("kind of lock"))
    }
}

impl Wire for LockMode {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        LockMode::from_u8(u8::decode(reader)?).ok_or(DecodeError::Invalid("mode of a lock"))
    }
}

impl Wire for LockRange {
    fn encode(&self, out: &mut Vec<u8>) {
        self.start().encode(out);
        self.end().encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (start, end) = (u64::decode(reader)?, u64::decode(reader)?);
        LockRange::new(start, end).ok_or(DecodeError::Invalid("range of a lock"))
    }
}

impl Wire for SetTime {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            SetTime::Now => out.push(0),
            SetTime::At(time) => {
                out.push(1);
                time.encode(out);
            }
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if bool::decode(reader)? { Timestamp::decode(reader).map(SetTime::At) } else { Ok(SetTime::Now) }
    }
}

impl Wire for WalkNames {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        self.iter().for_each(|name| name.encode(out));
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let invalid = DecodeError::Invalid("names of a walk");
        let count = u32::decode(reader)? as usize;
        if count > WALK_NAMES_MAX {
            return Err(invalid);
        }
        let names = (0..count).map(|_| Name::decode(reader)).collect::<Result<_, _>>()?;
        WalkNames::new(names).ok_or(invalid)
    }
}

/// One byte, and with 1 where to go on.
impl Wire for WalkEnd {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            WalkEnd::Found => out.push(0),
            WalkEnd::GoOn(directory) => {
                out.push(1);
                directory.encode(out);
            }
            WalkEnd::Absent => out.push(2),
            WalkEnd::NotDirectory => out.push(3),
            WalkEnd::Symlink => out.push(4),
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(reader)? {
            0 => WalkEnd::Found,
            1 => WalkEnd::GoOn(InodeId::decode(reader)?),
            2 => WalkEnd::Absent,
            3 => WalkEnd::NotDirectory,
            4 => WalkEnd::Symlink,
            _ => return Err(DecodeError::Invalid("end of a walk")),
        })
    }
}

/// Implements [`Wire`] for structs that exist elsewhere: the listed fields, in order.
macro_rules! wire_struct {
    ($($name:ident { $($field:ident),* $(,)? })*) => {$(
        impl Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$field.encode(out);)*
            }
            fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(Self { $($field: Wire::decode(reader)?),* })
            }
        }
    )*};
}

wire_struct! {
    Credentials { uid, gid, umask }
    Conditions { owner, group, fixed, remover }
    ObjectId { inode, stripe }
    Attr { inode, kind, mode, uid, gid, nlink, rdev, size, blocks, atime, mtime, ctime, btime }
    SetAttr { mode, uid, gid, size, atime, mtime, kill_suid_sgid, kill_sgid, flags }
    Layout { chunk_size, groups }
    LayoutPolicy { chunk_size, stripe_count, pool, directories, inline_limit }
    Held { range, mode, pid }
}

/// Declares message structs together with their encoding: the fields in the order written.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind,)*
        }

        impl $crate::codec::Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                let _ = &out;
                $($crate::codec::Wire::encode(&self.$field, out);)*
            }
            fn decode(reader: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::DecodeError> {
                let _ = &reader;
                Ok(Self { $($field: $crate::codec::Wire::decode(reader)?),* })
            }
        }
    )*};
}
pub(crate) use messages;

/// Declares kinds and their encoding: one byte, the number of each.
macro_rules! numbered {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $number,)*
        }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
        }

        impl $crate::codec::Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                out.push(*self as u8);
            }
            fn decode(reader: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::DecodeError> {
                match <u8 as $crate::codec::Wire>::decode(reader)? {
                    $($number => Ok(Self::$variant),)*
                    _ => Err($crate::codec::DecodeError::Invalid(stringify!($name))),
                }
            }
        }
    )*};
}
pub(crate) use numbered;
