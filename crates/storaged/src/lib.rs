//! storaged
#![allow(dead_code)]
mod bounded_map;
mod engine;
mod failures;
mod object_table;
mod open_files;
mod order;
mod pace;
mod streams;
mod target;
