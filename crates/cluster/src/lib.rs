//! Membership as a pure function: events and the time go in, effects and a new cluster map come out.
//!
//! No clock, no socket and no store in here: mgmtd drives it, persists what it says, and publishes the map.

pub mod capacity;
pub mod difference;
pub mod event;
pub mod map;
pub mod membership;
pub mod record;
pub mod refusal;
mod skipped;
