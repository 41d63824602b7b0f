//! Requests that wait for something to end, as a transaction, in the order of their arrival. Bounded.

use std::collections::BTreeMap;

/// More are answered with `Busy`.
const PARKED_MAX: usize = 16 << 10;

pub(crate) struct Parking<K, T> {
    waiting: BTreeMap<K, Vec<T>>,
    count: usize,
    bytes: usize,
}

/// What waits takes up memory.
pub(crate) trait Weighed {
    fn bytes(&self) -> usize;
}

impl<K, T> Default for Parking<K, T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), count: 0, bytes: 0 }
    }
}

impl<K: Copy + Ord, T: Weighed> Parking<K, T> {
    /// Gives it back where there is no room.
    pub(crate) fn park(&mut self, awaited: K, one: T) -> Result<(), T> {
        if self.count >= PARKED_MAX {
            return Err(one);
        }
        self.park_anyway(awaited, one);
        Ok(())
    }

    /// One that does not stay, or whose room is bounded elsewhere.
    pub(crate) fn park_anyway(&mut self, awaited: K, one: T) {
        self.count += 1;
        self.bytes += one.bytes();
        self.waiting.entry(awaited).or_default().push(one);
    }

    /// Those that waited for these.
    pub(crate) fn leave(&mut self, ended: &[K]) -> Vec<T> {
        let mut left = Vec::new();
        for awaited in ended {
            left.extend(self.waiting.remove(awaited).unwrap_or_default());
        }
        self.lose(left.iter());
        left
    }

    /// Takes those out that `is_gone`, each with what it waited for.
    pub(crate) fn remove_if(&mut self, is_gone: impl Fn(&T) -> bool) -> Vec<(K, T)> {
        let mut gone = Vec::new();
        for (awaited, waiting) in &mut self.waiting {
            gone.extend(waiting.extract_if(.., |one| is_gone(one)).map(|one| (*awaited, one)));
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
        self.lose(gone.iter().map(|(_, one)| one));
        gone
    }

    fn lose<'a>(&mut self, lost: impl Iterator<Item = &'a T>)
    where
        T: 'a,
    {
        for one in lost {
            self.count -= 1;
            self.bytes -= one.bytes();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes all out, each with what it waited for.
    pub(crate) fn clear(&mut self) -> Vec<(K, T)> {
        self.remove_if(|_| true)
    }
}

#[cfg(test)]
mod tests {
    use types::id::TransactionId;

    use super::*;

    impl Weighed for usize {
        fn bytes(&self) -> usize {
            self % 2
        }
    }

    #[test]
    fn is_bounded_and_keeps_the_order() {
        let mut parking = Parking::default();
        for n in 0..PARKED_MAX {
            parking.park(TransactionId(n as u64 % 2), n).expect("room");
        }
        assert_eq!(parking.park(TransactionId(9), 7), Err(7));
        let left = parking.leave(&[TransactionId(1), TransactionId(3)]);
        assert_eq!((left.len(), left[0], left[1], parking.bytes()), (PARKED_MAX / 2, 1, 3, 0));
        parking.park(TransactionId(9), 7).expect("room again");
        let gone = [(0, 0), (0, 2), (0, 4), (0, 6), (9, 7)].map(|(transaction, one)| (TransactionId(transaction), one));
        assert_eq!(parking.bytes(), 1);
        assert_eq!(parking.remove_if(|one| *one < 8), gone);
        assert_eq!((parking.len(), parking.bytes()), (PARKED_MAX / 2 - 4, 0));
        assert_eq!(parking.clear().len(), PARKED_MAX / 2 - 4);
    }
}
