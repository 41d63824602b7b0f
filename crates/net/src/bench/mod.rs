//! NetBench: how much goes over the ways to a node, and how long a request takes there, without any disk.
//!
//! One side asks ([`measure`]), from threads of its own and over connections of its own, made as everybody makes them; the
//! other answers from memory ([`memory`]). The requests are operations of their own (`wire::v1::netbench`), which no
//! ordinary client ever sends.

mod drive;
pub mod histogram;
pub mod memory;
mod ways;

pub use drive::{Asker, Measure, measure};
pub use ways::{Over, ways};
