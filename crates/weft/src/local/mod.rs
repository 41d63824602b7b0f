//! A cluster on this machine: its directory, its processes, its mounts.

pub(crate) mod backoff;
pub(crate) mod configs;
pub(crate) mod dir;
pub(crate) mod grow;
pub(crate) mod log;
pub(crate) mod mounts;
pub(crate) mod plan;
pub(crate) mod ready;
pub(crate) mod runstate;
pub(crate) mod state;
pub(crate) mod supervisor;
pub(crate) mod users;
