//! The yard: what the tests of the whole system share. Real processes, real mounts, real disks that fill up.
//!
//! A [`cluster::Cluster`] is a directory with a running `weft up` in it. Whatever a test does to it, and however the test
//! ends, nothing is left: no process, no mount, no loop device, no directory.
//!
//! What these tests never do: wait without a bound, or reach into a service other than by a signal, its files, or the
//! commands that users have.

pub mod aio;
pub mod binary;
pub mod checkout;
pub mod cluster;
pub mod dice;
pub mod file_flags;
mod guard;
pub mod hosts;
pub mod io_limit;
pub mod linear;
pub mod load;
pub mod loop_disk;
pub mod memory;
pub mod metrics;
pub mod mounts;
pub mod own_metad;
pub mod ports;
pub mod preload;
pub mod process;
pub mod reset;
pub mod run;
pub mod syscall;
pub mod terminal;
pub mod tree;
pub mod wait;
