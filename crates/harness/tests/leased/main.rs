//! What mounts and kernels keep under leases: it needs no server, and it is never wrong.

mod coherence;
mod contents;
mod leases;
mod lists;
mod own;
