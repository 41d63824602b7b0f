//! Who in this shard waits for the token, which another shard gives. That keeps the requests of all who wait there, and of
//! those in flight from one shard there is a bound: beyond it, the word that the token is free again would not get through. So
//! one transaction asks at a time, and the others wait here, in their order.

use std::collections::VecDeque;

use types::id::TransactionId;

#[derive(Default)]
pub(super) struct TokenQueue {
    /// Asks for the token, or has it.
    first: Option<TransactionId>,
    others: VecDeque<TransactionId>,
}

impl TokenQueue {
    /// It can ask for the token now, or has it already. Else it is its turn when [`Self::leave`] says so.
    pub(super) fn enter(&mut self, transaction: TransactionId) -> bool {
        if *self.first.get_or_insert(transaction) == transaction {
            return true;
        }
        self.others.push_back(transaction);
        false
    }

    /// It has ended, whether it waited or not: whose turn it is by that.
    pub(super) fn leave(&mut self, transaction: TransactionId) -> Option<TransactionId> {
        if self.first == Some(transaction) {
            self.first = self.others.pop_front();
            return self.first;
        }
        if !self.others.is_empty() {
            self.others.retain(|other| *other != transaction);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_asks_at_a_time_and_the_others_in_their_order() {
        let [first, second, third, fourth] = [1, 2, 3, 4].map(TransactionId);
        let mut queue = TokenQueue::default();
        assert!(queue.enter(first) && queue.enter(first));
        assert!([second, third, fourth].into_iter().all(|other| !queue.enter(other)));
        assert_eq!(queue.leave(TransactionId(9)), None, "it never asked");
        assert_eq!(queue.leave(third), None, "it gave up while it waited");
        assert_eq!(queue.leave(first), Some(second));
        assert_eq!(queue.leave(second), Some(fourth));
        assert_eq!(queue.leave(fourth), None);
        assert!(queue.enter(third));
    }
}
