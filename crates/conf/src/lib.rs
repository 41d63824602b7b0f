//! conf

pub mod identity;
