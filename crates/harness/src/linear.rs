//! Whether what several clients saw could have come from one thing that does one operation after another.
//!
//! A history is *linearizable* (Herlihy and Wing, 1990) where each call can be given a moment between its beginning and
//! its end so that, in the order of these moments, all answers are right. The search for such an order is that of Wing
//! and Gong (1993): any call may come next that began before all others that are left have ended. It remembers where it
//! has been (Lowe, 2017): since each client does one thing at a time, a place is how far each has come, and the state.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

/// What one client asked for, and what it was answered.
#[derive(Clone, Debug)]
pub struct Call<O> {
    pub began: Instant,
    pub ended: Instant,
    /// The operation with its answer.
    pub operation: O,
}

/// What the operations are to.
pub trait Thing: Clone + Eq + Hash + Debug {
    type Operation: Debug;

    /// What it may be after the operation; nothing where this answer to it would be wrong.
    fn after(&self, client: usize, operation: &Self::Operation) -> impl IntoIterator<Item = Self>;
}

/// Finds an order for the calls of all clients, each of which did one after another.
///
/// # Errors
/// Where there is none: how far it goes at most, and what cannot come next, for people.
pub fn check<T: Thing>(start: &T, clients: &[Vec<Call<T::Operation>>]) -> Result<(), String>
where
    T::Operation: Clone,
{
    search(start, clients).map_err(|furthest| {
        let odd = match odd_one(start, clients) {
            Some(odd) => format!("\nWithout this call of client {} all others are right: {:?}", odd.0, odd.1),
            None => String::new(),
        };
        explain(&furthest, clients) + &odd
    })
}

/// One call without which there is an order for the rest, and whose it is.
fn odd_one<T: Thing>(start: &T, clients: &[Vec<Call<T::Operation>>]) -> Option<(usize, T::Operation)>
where
    T::Operation: Clone,
{
    let mut places =
        clients.iter().enumerate().flat_map(|(client, calls)| (0..calls.len()).map(move |at| (client, at)));
    let found = places.find(|&(client, at)| {
        let mut rest = clients.to_vec();
        rest[client].remove(at);
        search(start, &rest).is_ok()
    });
    found.map(|(client, at)| (client, clients[client][at].operation.clone()))
}

/// Where there is no order: how far it goes at most.
fn search<T: Thing>(start: &T, clients: &[Vec<Call<T::Operation>>]) -> Result<(), (Vec<usize>, T)> {
    let mut seen = HashSet::new();
    let mut open = vec![(vec![0; clients.len()], start.clone())];
    let mut furthest = open[0].clone();
    while let Some((done, thing)) = open.pop() {
        let next = |client: usize| clients[client].get(done[client]);
        if done.iter().sum::<usize>() > furthest.0.iter().sum() {
            furthest = (done.clone(), thing.clone());
        }
        let Some(first_end) = (0..clients.len()).filter_map(|client| next(client).map(|call| call.ended)).min() else {
            return Ok(());
        };
        for client in 0..clients.len() {
            let Some(call) = next(client).filter(|call| call.began <= first_end) else { continue };
            let mut done = done.clone();
            done[client] += 1;
            for after in thing.after(client, &call.operation) {
                let place = (done.clone(), after);
                if seen.insert(place.clone()) {
                    open.push(place);
                }
            }
        }
    }
    Err(furthest)
}

/// Calls around the place where it goes no further.
fn explain<T: Thing>((done, thing): &(Vec<usize>, T), clients: &[Vec<Call<T::Operation>>]) -> String {
    const BEFORE: usize = 6;
    const AFTER: usize = 6;
    let origin = clients.iter().flatten().map(|call| call.began).min();
    let mut lines =
        vec![format!("no order of these calls is right; one goes as far as {thing:?}, where none may come next of")];
    for (client, calls) in clients.iter().enumerate() {
        for (at, call) in calls.iter().enumerate().skip(done[client].saturating_sub(BEFORE)).take(BEFORE + AFTER) {
            let [began, ended] =
                [call.began, call.ended].map(|at| origin.map_or(0, |origin| (at - origin).as_micros()));
            let mark = if at < done[client] { "     " } else { "next?" };
            lines.push(format!("{mark} client {client}, {began:>9} to {ended:>9} us: {:?}", call.operation));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A number.
    #[derive(Clone, PartialEq, Eq, Hash, Debug)]
    struct Register(u64);

    #[derive(Clone, Debug)]
    enum Access {
        Write(u64),
        Read(u64),
    }
    use Access::{Read, Write};

    impl Thing for Register {
        type Operation = Access;

        fn after(&self, _client: usize, operation: &Access) -> impl IntoIterator<Item = Self> {
            match operation {
                Write(value) => Some(Self(*value)),
                Read(value) => (*value == self.0).then(|| self.clone()),
            }
        }
    }

    /// Of each client: when a call began and ended, in any unit, and what it was.
    fn is_linearizable(clients: &[&[(u64, u64, Access)]]) -> bool {
        let origin = Instant::now();
        let at = |time: u64| origin + Duration::from_secs(time);
        let call = |(began, ended, operation): &(u64, u64, Access)| Call {
            began: at(*began),
            ended: at(*ended),
            operation: operation.clone(),
        };
        let clients: Vec<Vec<_>> = clients.iter().map(|calls| calls.iter().map(call).collect()).collect();
        check(&Register(0), &clients).is_ok()
    }

    #[test]
    fn one_after_another() {
        assert!(is_linearizable(&[&[(1, 2, Write(1))], &[(3, 4, Read(1))]]));
        assert!(!is_linearizable(&[&[(1, 2, Write(1))], &[(3, 4, Read(0))]]));
        assert!(!is_linearizable(&[&[(1, 2, Read(1))], &[(3, 4, Write(1))]]));
    }

    #[test]
    fn at_the_same_time_either_comes_first() {
        for seen in [0, 1] {
            assert!(is_linearizable(&[&[(1, 5, Write(1))], &[(2, 3, Read(seen))]]));
        }
        assert!(!is_linearizable(&[&[(1, 5, Write(1))], &[(2, 3, Read(2))]]));
    }

    /// Once somebody has seen it, everybody does.
    #[test]
    fn what_was_seen_is_not_unseen() {
        let write = [(1, 9, Write(1))];
        assert!(is_linearizable(&[&write, &[(2, 3, Read(0))], &[(4, 5, Read(1))]]));
        assert!(!is_linearizable(&[&write, &[(2, 3, Read(1))], &[(4, 5, Read(0))]]));
        // They overlap: the second may have looked first.
        assert!(is_linearizable(&[&write, &[(2, 5, Read(1))], &[(4, 6, Read(0))]]));
    }

    #[test]
    fn two_writers_are_seen_in_one_order() {
        let writers = [vec![(1, 4, Write(1))], vec![(1, 4, Write(2))]];
        let readers = |second: [u64; 2]| {
            let reads = |seen: [u64; 2]| vec![(5, 6, Read(seen[0])), (7, 8, Read(seen[1]))];
            let all = [writers[0].clone(), writers[1].clone(), reads([2, 2]), reads(second)];
            is_linearizable(&all.iter().map(Vec::as_slice).collect::<Vec<_>>())
        };
        assert!(readers([2, 2]));
        assert!(!readers([1, 2]) && !readers([2, 1]) && !readers([1, 1]));
    }

    #[test]
    fn a_failure_is_explained() {
        let now = Instant::now();
        let calls = vec![Call { began: now, ended: now, operation: Read(3) }];
        let text = check(&Register(0), &[calls]).expect_err("never written");
        assert!(text.contains("Register(0)") && text.contains("next? client 0") && text.contains("Read(3)"), "{text}");
        assert!(text.contains("Without this call of client 0 all others are right: Read(3)"), "{text}");
    }
}
