//! The order of the operations on one object: what overlaps runs one after the other, as it came.

use std::ops::Range;

use crate::sums::blocks::rounded;

/// How an operation touches its object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read {
        start: u64,
        end: u64,
    },
    Write {
        start: u64,
        end: u64,
    },
    /// Truncate and remove: alone on the object.
    Barrier,
}

impl Access {
    /// Needs only that the object is neither cut nor removed meanwhile.
    pub(crate) const PRESENT: Access = Access::Read { start: 0, end: 0 };

    /// Of these bytes: what has a checksum together is read together.
    pub(crate) fn read(start: u64, end: u64) -> Self {
        let Range { start, end } = rounded(start..end);
        Self::Read { start, end }
    }

    /// Of these bytes: what has a checksum together is changed together.
    pub(crate) fn write(start: u64, end: u64) -> Self {
        let Range { start, end } = rounded(start..end);
        Self::Write { start, end }
    }

    fn conflicts(self, other: Access) -> bool {
        let overlap = |a: (u64, u64), b: (u64, u64)| a.0 < b.1 && b.0 < a.1;
        match (self, other) {
            (Access::Barrier, _) | (_, Access::Barrier) => true,
            (Access::Read { .. }, Access::Read { .. }) => false,
            (
                Access::Read { start, end } | Access::Write { start, end },
                Access::Read { start: other_start, end: other_end }
                | Access::Write { start: other_start, end: other_end },
            ) => overlap((start, end), (other_start, other_end)),
        }
    }
}

/// Names an operation until [`Order::finish`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket(u64);

/// The operations of one object that run or wait, in the order in which they came. A new one runs at once unless it
/// conflicts with any before it, whether that one runs or waits (so nobody starves).
#[derive(Default)]
pub(crate) struct Order {
    operations: Vec<Operation>,
    next: u64,
}

struct Operation {
    ticket: Ticket,
    access: Access,
    running: bool,
}

impl Order {
    /// True where it may run now; else it may when a `finish` names it.
    pub(crate) fn begin(&mut self, access: Access) -> (Ticket, bool) {
        let ticket = Ticket(self.next);
        self.next += 1;
        let running = !self.operations.iter().any(|earlier| earlier.access.conflicts(access));
        self.operations.push(Operation { ticket, access, running });
        (ticket, running)
    }

    /// Ends an operation, whether it ran or gave up waiting. Calls `started` for each that may run now.
    pub(crate) fn finish(&mut self, ticket: Ticket, mut started: impl FnMut(Ticket)) {
        let Some(at) = self.operations.iter().position(|operation| operation.ticket == ticket) else { return };
        self.operations.remove(at);
        for index in at..self.operations.len() {
            let (earlier, rest) = self.operations.split_at_mut(index);
            let operation = &mut rest[0];
            if !operation.running && !earlier.iter().any(|before| before.access.conflicts(operation.access)) {
                operation.running = true;
                started(operation.ticket);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(start: u64, end: u64) -> Access {
        Access::Read { start, end }
    }

    fn write(start: u64, end: u64) -> Access {
        Access::Write { start, end }
    }

    fn finish(order: &mut Order, ticket: Ticket) -> Vec<Ticket> {
        let mut started = Vec::new();
        order.finish(ticket, |ticket| started.push(ticket));
        started
    }

    #[test]
    fn what_does_not_overlap_runs_together() {
        let mut order = Order::default();
        for access in [read(0, 10), read(5, 15), write(15, 20), write(20, 30), read(30, 31)] {
            assert!(order.begin(access).1, "{access:?}");
        }
    }

    #[test]
    fn overlapping_writes_run_in_order_of_arrival() {
        let mut order = Order::default();
        let (first, _) = order.begin(write(0, 10));
        let (second, ready) = order.begin(write(9, 20));
        assert!(!ready);
        let (third, ready) = order.begin(read(15, 16));
        assert!(!ready, "overtook a waiting write that it overlaps");
        assert_eq!(finish(&mut order, first), [second]);
        assert_eq!(finish(&mut order, second), [third]);
        assert!(finish(&mut order, third).is_empty());
        assert!(order.is_empty());
    }

    #[test]
    fn bytes_of_one_block_are_taken_together() {
        let mut order = Order::default();
        let (first, ready) = order.begin(Access::write(100, 200));
        assert!(ready && order.begin(Access::write(4096, 4097)).1);
        let (second, ready) = order.begin(Access::read(4000, 4096));
        assert!(!ready);
        assert_eq!(finish(&mut order, first), [second]);
    }

    #[test]
    fn presence_conflicts_with_barriers_alone() {
        let mut order = Order::default();
        assert!(order.begin(write(0, u64::MAX)).1);
        let (present, ready) = order.begin(Access::PRESENT);
        assert!(ready);
        assert!(!order.begin(Access::Barrier).1);
        assert!(finish(&mut order, present).is_empty(), "the write still runs");
    }

    #[test]
    fn a_barrier_waits_for_all_and_holds_up_all() {
        let mut order = Order::default();
        let (a, _) = order.begin(read(0, 1));
        let (b, _) = order.begin(write(5, 6));
        let (barrier, ready) = order.begin(Access::Barrier);
        assert!(!ready);
        let (late, ready) = order.begin(read(100, 101));
        let (later, ready_too) = order.begin(read(100, 101));
        assert!(!ready && !ready_too);
        assert!(finish(&mut order, a).is_empty());
        assert_eq!(finish(&mut order, b), [barrier]);
        assert_eq!(finish(&mut order, barrier), [late, later]);
    }

    #[test]
    fn one_that_gives_up_lets_the_next_go() {
        let mut order = Order::default();
        let (first, _) = order.begin(write(0, 10));
        let (second, _) = order.begin(Access::Barrier);
        let (third, ready) = order.begin(write(20, 30));
        assert!(!ready);
        assert_eq!(finish(&mut order, second), [third]);
        assert!(finish(&mut order, first).is_empty());
    }
}
