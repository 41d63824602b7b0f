//! Several shards over stores in memory, and messages between them that are delayed, reordered and lost, while processes
//! are killed and the power is cut.

#[path = "../one_shard/common/collisions.rs"]
mod collisions;

mod against_model;
mod awaited;
mod beliefs;
mod crashes;
mod crowds;
mod dividing;
mod durable;
mod flags;
mod given;
mod holding;
mod leases;
mod node;
mod racing;
mod removing;
mod repeat;
mod seeds;
mod sim;
mod unconfirmed;
mod walking;
