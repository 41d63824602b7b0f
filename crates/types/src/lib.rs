//! The words of Weft: ids, attributes, credentials, layouts and error facts.
//!
//! Plain values with no I/O, no clock and no async, so that every other crate can depend on this one.

pub mod allocation;
pub mod attr;
pub mod cred;
pub mod error;
pub mod flags;
pub mod id;
pub mod layout;
pub mod lock;
pub mod name;
pub mod name_hash;
pub mod parts;
pub mod placement;
pub mod time;
pub mod walk;
pub mod xattr;
