//! The benches as commands: what they say, what they leave behind, and how they fail. They drop the kernel's caches, which is
//! why those who hold leases there are in another program.

mod bench;
mod io500;
mod netbench;
mod peers;
mod storagebench;
