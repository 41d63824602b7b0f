//! A metadata service: targets, on each a shard, and for each a thread that owns it.
//!
//! It owns: the shard's turn (which requests are executed together, and when they are answered), the durability of the
//! log, and the removal of objects whose file is gone. The rules of the namespace are crate `namespace`'s; nothing is
//! decided here about names, inodes or sessions.
//!
//! It promises: an answer leaves after the commit of the batch that it rests on, so a killed process loses nothing that
//! was answered; an answer to `Fsync` leaves after that is on disk; a batch that is refused answers all of its requests
//! with the error and changes nothing. Every queue has a bound: over it, requests are answered with `Busy`.
//!
//! It never: hands a request to another thread, locks on the request path, or blocks the shard's thread in a sync.
//!
//! - [`service`]: start, order of stopping; [`seat`] the place of one shard.
//! - [`shard`]: the thread; [`turn`] what happens in one turn; [`dispatch`] the protocol, [`call`] its messages.
//! - [`syncer`]: makes the log durable. [`tasks`]: what the shard does by itself, a file each.
//! - [`fail_points`]: where tests let the service crash.
//! - [`local`]: a shard in this process without management, for tests and benches.

mod answer;
mod call;
pub mod config;
mod connections;
mod convert;
mod descriptors;
mod dispatch;
mod fail_points;
pub mod local;
mod locking;
mod metrics;
mod parking;
mod pools;
mod seat;
pub mod service;
pub mod shard;
mod syncer;
mod tasks;
mod turn;
mod waiting;

use kv::rocks::Grouping;
use namespace::schema;

pub use config::Config;
pub use service::run;

/// What the filters of a shard's store are made for.
const GROUPING: Grouping = Grouping { name: schema::GROUPS, front: schema::group };
