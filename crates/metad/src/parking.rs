//! Requests that wait for a transaction to end, in the order of their arrival. Bounded.

use std::collections::BTreeMap;

use types::id::TransactionId;

/// More are answered with `Busy`.
const PARKED_MAX: usize = 16 << 10;

pub(crate) struct Parking<T> {
    waiting: BTreeMap<TransactionId, Vec<T>>,
    count: usize,
}

impl<T> Default for Parking<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), count: 0 }
    }
}

impl<T> Parking<T> {
    /// Gives it back where there is no room.
    pub(crate) fn park(&mut self, transaction: TransactionId, one: T) -> Result<(), T> {
        if self.count >= PARKED_MAX {
            return Err(one);
        }
        self.count += 1;
        self.waiting.entry(transaction).or_default().push(one);
        Ok(())
    }

    /// Those that waited for these.
    pub(crate) fn leave(&mut self, ended: &[TransactionId]) -> Vec<T> {
        let mut left = Vec::new();
        for transaction in ended {
            left.extend(self.waiting.remove(transaction).unwrap_or_default());
        }
        self.count -= left.len();
        left
    }

    pub(crate) fn clear(&mut self) -> Vec<T> {
        self.count = 0;
        std::mem::take(&mut self.waiting).into_values().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_bounded_and_keeps_the_order() {
        let mut parking = Parking::default();
        for n in 0..PARKED_MAX {
            parking.park(TransactionId(n as u64 % 2), n).expect("room");
        }
        assert_eq!(parking.park(TransactionId(9), 7), Err(7));
        let left = parking.leave(&[TransactionId(1), TransactionId(3)]);
        assert_eq!((left.len(), left[0], left[1]), (PARKED_MAX / 2, 1, 3));
        parking.park(TransactionId(9), 7).expect("room again");
        assert_eq!(parking.clear().len(), PARKED_MAX / 2 + 1);
    }
}
