//! Names looked up one after the other in one request: how many, and how that ends.

use std::ops::Deref;

use crate::id::InodeId;
use crate::name::Name;

/// Longest path, in bytes (Linux `PATH_MAX` less the terminating zero).
pub const PATH_MAX: usize = 4095;
/// Names of one walk. A client has about as many lookups in flight where it looks up many: a shard is kept busy by one walk
/// for no longer than by these, and its answer takes some 16 KiB. Deeper paths, which are rare, take a request more.
pub const WALK_NAMES_MAX: usize = 64;

/// The names of one walk: 1 to [`WALK_NAMES_MAX`], and as a path no longer than [`PATH_MAX`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalkNames(Vec<Name>);

impl WalkNames {
    /// `None` for no names, too many, or too long ones.
    #[must_use]
    pub fn new(names: Vec<Name>) -> Option<Self> {
        let fits = !names.is_empty() && Self::fitting(&names) == names.len();
        fits.then_some(Self(names))
    }

    /// How many of `names`, from the first on, fit into one walk. At least one, if there is any.
    pub fn fitting<'a>(names: impl IntoIterator<Item = &'a Name>) -> usize {
        let mut bytes = 0;
        let fits = |name: &&Name| {
            // With a slash before all but the first.
            bytes += usize::from(bytes > 0) + name.len();
            bytes <= PATH_MAX
        };
        names.into_iter().take(WALK_NAMES_MAX).take_while(fits).count()
    }
}

impl Deref for WalkNames {
    type Target = [Name];
    fn deref(&self) -> &[Name] {
        &self.0
    }
}

/// How a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalkEnd {
    /// All names were found.
    Found,
    /// The next name is for another shard to look up, in this directory or part of one.
    GoOn(InodeId),
    /// The next name is not there.
    Absent,
    /// What was found last is neither a directory nor a symbolic link, and there are names left.
    NotDirectory,
    /// What was found last is a symbolic link, and there are names left.
    Symlink,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize, len: usize) -> Vec<Name> {
        vec![Name::new(&vec![b'x'; len]).expect("a name"); count]
    }

    #[test]
    fn names_of_a_walk_are_bounded() {
        assert_eq!(WalkNames::new(Vec::new()), None);
        assert!(WalkNames::new(names(WALK_NAMES_MAX, 1)).is_some());
        assert_eq!(WalkNames::new(names(WALK_NAMES_MAX + 1, 1)), None);
        // 16 names of 255 bytes with the slashes between them are as long as a path may be.
        assert!(WalkNames::new(names(16, 255)).is_some());
        assert_eq!(WalkNames::new([names(16, 255), names(1, 1)].concat()), None);
    }

    #[test]
    fn as_many_are_taken_as_fit() {
        let fitting = |names: &[Name]| WalkNames::fitting(names);
        assert_eq!((fitting(&[]), fitting(&names(1, 255)), fitting(&names(100, 1))), (0, 1, WALK_NAMES_MAX));
        assert_eq!((fitting(&names(16, 255)), fitting(&names(17, 255))), (16, 16));
    }
}
