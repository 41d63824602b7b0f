//! Every administrative verb as a function that returns data. The command line is one face of it.
//!
//! What it never does: print, exit, or decide anything that a service should. Errors carry the exit code that they ask
//! for (`conf::exit_code`).

mod admin;
mod data;
mod delete;
mod endpoint;
pub mod entry;
pub mod fsck;
pub mod log_level;
mod management;
pub mod net;
pub mod netbench;
mod paths;
pub mod runs;
pub mod scrub;
pub mod storagebench;
pub mod targets;
pub mod view;

pub use admin::Admin;
pub use data::DataError;
