//! Where the files of this repository are while a test runs.

use std::path::PathBuf;

/// `path` in this crate's folder. Told by `cargo test` at run time: one build may serve several checkouts, and the one
/// that it was compiled in may be gone.
///
/// # Panics
/// Without `CARGO_MANIFEST_DIR` in the environment.
#[must_use]
pub fn file(path: &str) -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").expect("CARGO_MANIFEST_DIR: `cargo test` sets it");
    PathBuf::from(manifest).join(path)
}
