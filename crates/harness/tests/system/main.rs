//! What users of a whole cluster rely on, a module for each matter. In one program, since most of these tests wait most of
//! the time (for a session to expire, a service to come back): so they wait side by side, and there is one program to link.
//!
//! What changes something of the whole process or machine (a umask, the kernel's caches), or measures it, is a program of
//! its own beside this one.

mod access_times;
mod appends;
mod beside_local;
mod checksums;
mod commands;
mod crash;
mod cut_off;
mod damage;
mod deletion;
mod drafts;
mod fail_points;
mod faults;
mod fencing;
mod file_flags;
mod growing;
mod inline;
mod interrupt;
mod killed;
mod large_directory;
mod list_ahead;
mod local;
mod locks;
mod lost_memory;
mod metrics;
mod paths;
mod placement;
mod plain_user;
mod programs;
mod services;
mod shards;
mod slow_sync;
mod splitting;
mod taking_up;
mod truncates;
mod verify;
mod versions;
mod write_back;
