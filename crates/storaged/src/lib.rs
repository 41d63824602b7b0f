//! storaged
#![allow(dead_code)]
mod bounded_map;
mod dispatch;
mod engine;
mod failures;
mod lane;
pub mod local;
mod metrics;
mod object_table;
mod open_files;
mod order;
mod pace;
mod served;
mod streams;
mod target;
