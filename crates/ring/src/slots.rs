//! What a stretch of memory is given out in.

/// Bytes of a slot.
pub(crate) const SLOT: usize = 64 << 10;

/// Which slots are taken. Always gives the first range that fits: what was used a moment ago is still in the CPU's
/// cache, and pages at the end are never touched without need.
pub(crate) struct Slots {
    taken: Vec<bool>,
}

impl Slots {
    pub(crate) fn new(count: usize) -> Self {
        Self { taken: vec![false; count] }
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<usize> {
        let mut first = 0;
        while first + count <= self.taken.len() {
            match self.taken[first..first + count].iter().rposition(|&taken| taken) {
                Some(last_taken) => first += last_taken + 1,
                None => {
                    self.taken[first..first + count].fill(true);
                    return Some(first);
                }
            }
        }
        None
    }

    pub(crate) fn put_back(&mut self, first: usize, count: usize) {
        self.taken[first..first + count].fill(false);
    }

    pub(crate) fn are_all_free(&self) -> bool {
        !self.taken.contains(&true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_given_once_and_the_first_that_fit() {
        let mut slots = Slots::new(10);
        assert_eq!((slots.take(3), slots.take(3), slots.take(3)), (Some(0), Some(3), Some(6)));
        assert_eq!((slots.take(2), slots.take(1), slots.take(1)), (None, Some(9), None));
        slots.put_back(3, 3);
        assert_eq!((slots.take(4), slots.take(2), slots.take(1), slots.take(1)), (None, Some(3), Some(5), None));
        slots.put_back(0, 3);
        slots.put_back(3, 2);
        assert_eq!(slots.take(5), Some(0));
        assert!(!slots.are_all_free());
        slots.put_back(0, 10);
        assert!(slots.are_all_free());
    }
}
