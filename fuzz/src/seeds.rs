//! The seeds that can be made from the code. They are committed in `corpus/`, so that `cargo fuzz` finds them, and a test
//! keeps them as they are made here: `cargo test --manifest-path fuzz/Cargo.toml --test corpus -- --ignored` writes them.

mod control;
mod kernel;
mod messages;

pub use control::CLUSTER;
pub use messages::messages;

/// One file of a corpus.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seed {
    /// Name of the target that takes it.
    pub target: &'static str,
    pub name: String,
    pub bytes: Vec<u8>,
}

impl Seed {
    fn new(target: &'static str, name: impl Into<String>, bytes: Vec<u8>) -> Self {
        Self { target, name: name.into(), bytes }
    }
}

/// Those of all targets.
#[must_use]
pub fn all() -> Vec<Seed> {
    [messages(), control::places(), control::control(), control::records(), kernel::kernel()].concat()
}
