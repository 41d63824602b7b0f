//! `weft bench --peers`: the same mixed work on Weft and on other file systems, side by side in one run.
//!
//! Each peer is a cluster on this machine alone, as its own documentation starts one, mounted by FUSE. All of them run for
//! the whole time and take turns, group of rows by group of rows; who waits has nothing to do. `docs/benchmarks.md` says
//! what the rows mean and how they can mislead.
//!
//! - [`kind`]: who there is, and what has to be installed. [`peer`]: one that runs; a file for each says how it starts.
//! - [`plan`]: the rows, and the steps that measure them, as data. [`runner`]: does them. [`report`]: the table.
//! - [`process`], [`mounted`]: daemons and mounts that do not outlive the run, and no wait without a bound.

mod glusterfs;
mod juicefs;
mod kind;
mod moosefs;
pub(crate) mod mounted;
mod passthrough;
mod peer;
mod plan;
mod process;
mod report;
mod runner;

pub use kind::Kind;
pub use report::{Figure, Line, Participant, Report};
pub use runner::run;
