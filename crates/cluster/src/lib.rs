//! Membership as a pure function: events and the time go in, effects and a new cluster map come out.

pub mod map;
