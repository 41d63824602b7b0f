//! What clients draw.

use rand::seq::IndexedRandom;
use types::id::InodeId;
use types::name::Name;

use super::{Sim, name};

impl Sim {
    pub(crate) fn inodes_of<const N: usize>(&mut self, known: &[InodeId]) -> [InodeId; N] {
        std::array::from_fn(|_| *known.choose(&mut self.rng).expect("root is known"))
    }

    pub(crate) fn words_of<const N: usize>(&mut self, names: &[&str]) -> [Name; N] {
        std::array::from_fn(|_| name(names.choose(&mut self.rng).expect("some")))
    }
}
