//! Repeatable randomness.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Replays a run: the seed that a failed test has printed.
const SEED: &str = "WEFT_TEST_SEED";

/// Random choices from a seed.
pub struct Dice(StdRng);

impl Dice {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// One of `0 .. sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0.random_range(0..sides)
    }

    /// One of `0 .. len`, as an index.
    pub fn index(&mut self, len: usize) -> usize {
        self.0.random_range(0..len)
    }

    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// `len` bytes; the same for the same state of the dice.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.fill(&mut bytes[..]);
        bytes
    }
}

/// The seed of this run: from the environment, or from the process id; it is printed, and so seen where a test fails.
#[must_use]
pub fn seed() -> u64 {
    let given = std::env::var(SEED).ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()));
    #[expect(clippy::print_stdout, reason = "shown with a test that failed")]
    {
        println!("{SEED}={seed}");
    }
    seed
}

/// A number from the environment, for runs by hand that are longer than those of continuous integration.
#[must_use]
pub fn scale(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
