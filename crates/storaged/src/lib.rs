//! The storage service: keeps the objects of files on storage targets.
//!
//! **Owns** the directories of its targets, locked while it runs, and everything below them. Each lane (a thread with
//! one event loop for sockets and files) owns a hash share of the objects of all targets: nothing is handed from thread
//! to thread, and nothing is locked.
//!
//! **Promises**: operations that overlap on an object take effect in the order in which they came. A write that was
//! answered survives the end of the process; after an answered `Sync` it survives the end of the machine, and an error
//! of data that was answered before is told to everyone who syncs the object. A removed object stays removed. Requests
//! that name another generation of a group than the cluster map are refused. A disk that is slow, or not there, holds up
//! its own target alone.
//!
//! **Never** interprets files: it knows no inode, size of a file or layout. Never blocks a lane for long in a disk call.
//! Never fills a directory that is not known to be its own.
//!
//! The seam between the rules (`served`) and the disk is `engine::ObjectStore`.

mod absent;
mod ahead;
mod bench;
mod bounded_map;
pub mod config;
mod direct;
mod dispatch;
mod durability;
mod engine;
mod epoch;
mod failures;
mod fault;
mod homes;
mod lane;
pub mod local;
mod losses;
mod memory;
mod metrics;
mod netbench;
mod object_table;
mod open_files;
mod order;
mod pace;
mod ports;
mod pulse;
mod queue;
mod readers;
mod record;
mod scrub;
mod served;
mod service;
mod silence;
mod streams;
mod sums;
mod syncer;
mod target;
mod threads;
mod watch;

pub use config::Config;
pub use service::run;
