//! The data plane's protocol: frame header, messages by version, and their codec.
//!
//! A frame is a 64-byte header ([`frame::Header`]), a small body (one message of [`v1`]) and a payload of raw bytes
//! that no one parses. Pure: bytes in, values out.

pub mod codec;
mod crc;
pub mod frame;
pub mod hello;
pub mod op;
pub mod sums;
pub mod v1;
