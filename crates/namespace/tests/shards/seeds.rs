//! Which runs the tests try. Each is decided by its seed alone.

use std::ops::Range;

/// The seeds that a test tries, from `first` on: as many as it wants, or as `WEFT_NAMESPACE_SEEDS` says; or the one that
/// `WEFT_NAMESPACE_SEED` names, of which all messages are printed if it finds a fault.
pub(crate) fn seeds(first: u64, count: u64) -> Range<u64> {
    match (alone(), number("WEFT_NAMESPACE_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count_instead) => first..first + count_instead.unwrap_or(count),
    }
}

/// The only seed that is wanted.
pub(crate) fn alone() -> Option<u64> {
    number("WEFT_NAMESPACE_SEED")
}

#[expect(clippy::disallowed_methods, reason = "which runs a test tries is the caller's choice")]
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}
