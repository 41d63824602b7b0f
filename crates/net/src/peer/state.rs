//! What a peer's rails and connections are at the moment.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::connection::{ConnectError, Connection};
use crate::fences::Id;
use crate::interfaces;
use crate::pairs::{Pair, Selector, pairs, select};
use crate::rails::Rails;
use crate::way::Way;

/// For so long an address at which another node was met is not tried beside rails that work.
const STRANGER_PAUSE: Duration = Duration::from_secs(10);

pub(super) struct State {
    /// UUID of the node that is meant; empty: whoever answers.
    pub(super) node: String,
    addresses: Vec<SocketAddr>,
    pairs: Vec<Pair>,
    /// One per pair.
    pub(super) rails: Rails,
    /// One per pair.
    links: Vec<Option<Connection>>,
    /// Counted modulo the rails of the best rank: the one that was begun with.
    start: usize,
    /// On rails that are none any more, with requests under way, or in the hands of who may have some yet.
    retired: Vec<Connection>,
    /// Lost with requests under way, and the incarnation of the other side then.
    lost: Vec<Lost>,
    /// Addresses at which another node was met, and until when they are passed by.
    strangers: Vec<(SocketAddr, Instant)>,
    /// A connection has ended because nobody used it: nobody needs to look after the others.
    rests: bool,
    /// Outcome of the last failed attempt, and how many of those there were.
    pub(super) error: ConnectError,
    pub(super) attempts: u64,
}

impl State {
    pub(super) fn new(addresses: Vec<SocketAddr>, selectors: &[Selector], start: usize) -> Self {
        let pairs = find_pairs(&addresses, selectors);
        let rails = Rails::new(pairs.iter().map(|pair| pair.rank)).starting_at(start);
        let links = pairs.iter().map(|_| None).collect();
        let (node, retired, lost, strangers) = (String::new(), Vec::new(), Vec::new(), Vec::new());
        let error = ConnectError::NoAddress;
        let (rests, attempts) = (false, 0);
        Self { node, addresses, pairs, rails, links, start, retired, lost, strangers, rests, error, attempts }
    }

    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub(super) fn set_addresses(&mut self, addresses: Vec<SocketAddr>, selectors: &[Selector]) {
        if addresses != self.addresses {
            self.addresses = addresses;
            self.pair_again(selectors);
            self.leave_former();
        }
    }

    /// A pair is the same where only the peer's port is another one. But whoever is at the former one now may be somebody
    /// else: services that start again take any free ports.
    fn leave_former(&mut self) {
        let Self { links, addresses, retired, .. } = self;
        let is_former = |connection: &mut Connection| !addresses.contains(&connection.address());
        retired.extend(links.iter_mut().filter_map(|link| link.take_if(is_former)));
    }

    /// Interfaces may have come and gone.
    pub(super) fn pair_again(&mut self, selectors: &[Selector]) {
        let now = find_pairs(&self.addresses, selectors);
        if now == self.pairs {
            return;
        }
        let same =
            |one: &Pair, other: &Pair| (&one.local, one.tied, one.remote) == (&other.local, other.tied, other.remote);
        let old = |pair: &Pair| self.pairs.iter().position(|other| same(pair, other));
        let kept: Vec<Option<usize>> = now.iter().map(old).collect();
        self.rails.change(now.iter().map(|pair| pair.rank).zip(kept.iter().copied()));
        let mut links = std::mem::take(&mut self.links);
        self.links = kept.iter().map(|old| old.and_then(|old| links[old].take())).collect();
        self.retired.extend(links.into_iter().flatten());
        self.pairs = now;
        let several = self.has_several();
        self.links.iter().flatten().for_each(|connection| connection.set_several(several));
    }

    pub(super) fn pair(&self, rail: usize) -> &Pair {
        &self.pairs[rail]
    }

    /// The peer's on this rail. An IP address that it has more than once stands for its addresses in turn.
    pub(super) fn address(&self, rail: usize) -> SocketAddr {
        let Pair { local, remote, .. } = &self.pairs[rail];
        let before = self.pairs[..rail].iter().filter(|pair| (&pair.local, pair.remote) == (local, *remote)).count();
        let mut addresses = self.addresses.iter().filter(|address| address.ip() == *remote).cycle();
        *addresses.nth(before).expect("pairs are made of the addresses")
    }

    pub(super) fn find(&self, way: &Way, address: SocketAddr) -> Option<usize> {
        let several = self.has_several();
        (0..self.pairs.len()).find(|&rail| {
            let found = Way::of(&self.pairs[rail], several);
            (found.from, found.device, self.address(rail)) == (way.from, way.device.clone(), address)
        })
    }

    /// There are rails to choose from.
    pub(super) fn has_several(&self) -> bool {
        self.pairs.len() > 1
    }

    pub(super) fn joined(&mut self, rail: usize, connection: Connection) {
        self.rails.on_success(rail);
        // Two may have connected at once.
        if let Some(other) = self.links[rail].replace(connection) {
            self.retired.push(other);
        }
    }

    /// It was made over what was a rail when that began.
    pub(super) fn joined_late(&mut self, connection: Connection) {
        self.retired.push(connection);
    }

    /// Takes note of connections that have ended.
    pub(super) fn sweep(&mut self) {
        let (mut unused, mut lost, now) = (false, false, ring::now());
        for (rail, link) in self.links.iter_mut().enumerate() {
            let Some(ended) = link.take_if(|connection| connection.is_closed()) else { continue };
            if ended.was_unused() {
                unused = true;
                self.rails.on_disuse(rail);
            } else {
                lost = true;
                match ended.lived() {
                    Some(lived) => self.rails.on_fault(rail, &lived, now),
                    None => self.rails.on_loss(rail),
                }
                note(&mut self.lost, &ended);
            }
        }
        if lost && self.links.iter().all(Option::is_none) {
            self.rails.on_loss_of_all(now);
        }
        if unused {
            self.rests = true;
            self.rails.begin_at(self.home());
        }
        if !self.retired.is_empty() {
            self.retired.retain(|connection| {
                if connection.is_closed() {
                    note(&mut self.lost, connection);
                }
                // Who was given it may ask something yet.
                !connection.is_closed() && (connection.in_flight() > 0 || connection.is_shared())
            });
        }
    }

    /// Ends those whose rail is deaf. What counts is what another one was asked since, and has answered: of a service that
    /// stands still bytes go on coming, those that its kernel has.
    pub(super) fn end_deaf(&self) {
        let live = || self.links.iter().flatten().filter(|link| !link.is_within_host());
        let answered: Vec<_> = live().map(|link| (link, link.answered())).collect();
        for link in live().filter(|link| link.mute().is_some()) {
            let is_other = |other: &Connection| other.id() != link.id() && other.incarnation() == link.incarnation();
            let others = answered.iter().filter(|(other, _)| is_other(other));
            if !link.end_if_deaf(others.clone().filter_map(|&(_, answered)| answered).max()) {
                others.for_each(|(other, _)| other.ask());
            }
        }
    }

    pub(super) fn pick(&mut self) -> Option<Connection> {
        self.sweep();
        if !self.lost.is_empty() {
            return None;
        }
        if let [only] = &self.links[..] {
            return only.clone();
        }
        let links = &self.links;
        let rail = self.rails.pick(|rail| links[rail].as_ref().map(Connection::load))?;
        links[rail].clone()
    }

    /// Whether some connection has ended, since this was asked last, because nobody used it.
    pub(super) fn takes_rest(&mut self) -> bool {
        std::mem::take(&mut self.rests)
    }

    /// For who stays with one.
    pub(super) fn current(&self) -> Option<Connection> {
        let home = self.home();
        let mut live = self.links[home..].iter().chain(&self.links[..home]).flatten();
        live.find(|connection| !connection.is_closed()).cloned()
    }

    /// The rail that was begun with.
    fn home(&self) -> usize {
        let best = self.pairs.iter().filter(|pair| pair.rank == 0).count();
        self.start % best.max(1)
    }

    /// Where the rail that was begun with has no connection and another one has: the former, and the connection.
    pub(super) fn away(&self) -> Option<(usize, Connection)> {
        let (home, used) = (self.home(), self.current()?);
        let is_away = self.has_several() && self.links[home].is_none() && !used.is_within_host();
        is_away.then_some((home, used))
    }

    /// A rail beside that of `connection`, the best one for `nth` 0.
    pub(super) fn beside(&self, connection: &Connection, nth: usize) -> Option<usize> {
        let is_its = |link: &Option<Connection>| link.as_ref().is_some_and(|link| link.id() == connection.id());
        self.rails.beside(self.links.iter().position(is_its)?, nth)
    }

    /// Ends `connection` for another one: its rail is as good as before.
    pub(super) fn leave(&mut self, connection: &Connection) {
        connection.end("its peer is reached by another rail");
        for link in &mut self.links {
            if let Some(left) = link.take_if(|link| link.id() == connection.id()) {
                note(&mut self.lost, &left);
            }
        }
    }

    /// Nothing that was asked on lost connections can happen any more.
    pub(super) fn is_fenced(&self) -> bool {
        self.lost.is_empty()
    }

    /// One that is to be fenced by a peer of this incarnation.
    pub(super) fn lost(&self, incarnation: u64) -> Option<Id> {
        self.lost.iter().find(|lost| lost.incarnation == incarnation).map(|lost| lost.id)
    }

    /// The peer was started again since this connection was made: one that was made later has met its next incarnation, which
    /// may yet do what was asked of it.
    pub(super) fn is_outdated(&self, connection: &Connection) -> bool {
        self.lost.iter().any(|lost| lost.is_of_later(connection.incarnation(), connection.begun()))
    }

    /// A peer of a later incarnation knows nothing of what was asked.
    pub(super) fn all_fenced(&mut self) {
        self.lost.clear();
    }

    pub(super) fn fenced(&mut self, id: Id) {
        self.lost.retain(|lost| lost.id != id);
    }

    pub(super) fn width(&self) -> usize {
        let connected = |rail: &usize| self.links[*rail].is_some() && self.rails.rank(*rail) == 0;
        (0..self.links.len()).filter(connected).count().max(1)
    }

    /// Rails to connect now.
    pub(super) fn due(&self, now: Instant) -> Vec<usize> {
        let mut due = self.rails.due(now, |rail| self.links[rail].is_some());
        let is_passed_by = |address| self.strangers.iter().any(|&(met, until)| met == address && now < until);
        due.retain(|&rail| !is_passed_by(self.address(rail)));
        due
    }

    pub(super) fn met_stranger(&mut self, address: SocketAddr, now: Instant) {
        self.strangers.retain(|&(met, until)| met != address && now < until);
        self.strangers.push((address, now + STRANGER_PAUSE));
    }
}

/// A connection that ended with requests unanswered.
struct Lost {
    id: Id,
    incarnation: u64,
    begun: Instant,
}

impl Lost {
    /// It was made later than one to another incarnation.
    fn is_of_later(&self, incarnation: u64, begun: Instant) -> bool {
        self.incarnation != incarnation && self.begun > begun
    }
}

fn note(lost: &mut Vec<Lost>, ended: &Connection) {
    if ended.left_requests() {
        lost.push(Lost { id: ended.id(), incarnation: ended.incarnation(), begun: ended.begun() });
    }
}

fn find_pairs(addresses: &[SocketAddr], selectors: &[Selector]) -> Vec<Pair> {
    let found = interfaces::lately(ring::now());
    let remotes: Vec<IpAddr> = addresses.iter().map(SocketAddr::ip).collect();
    pairs(&select(&found, selectors), &found, &remotes)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ring::{Config, Ring};

    use super::*;

    #[test]
    fn an_address_at_which_another_node_was_met_is_passed_by_for_a_while() {
        let mut ring = Ring::new(&Config::default()).expect("a ring");
        ring.run(async {
            let now = Instant::now();
            let addresses = ["127.0.0.2:7", "127.0.0.3:7"].map(|address| address.parse().expect("an address"));
            let mut state = State::new(addresses.to_vec(), &[], 0);
            let due = |state: &State, now| state.due(now).into_iter().map(|at| state.address(at)).collect::<Vec<_>>();
            assert_eq!(due(&state, now), addresses);
            state.met_stranger(addresses[0], now);
            assert_eq!(due(&state, now + STRANGER_PAUSE / 2), [addresses[1]]);
            assert_eq!(due(&state, now + STRANGER_PAUSE), addresses);
            // Each time anew.
            state.met_stranger(addresses[0], now + STRANGER_PAUSE);
            state.met_stranger(addresses[1], now + STRANGER_PAUSE * 3 / 2);
            assert_eq!(due(&state, now + STRANGER_PAUSE * 3 / 2), [addresses[0]; 0]);
            assert_eq!(due(&state, now + STRANGER_PAUSE * 2), [addresses[0]]);
        });
    }

    #[test]
    fn a_connection_to_an_earlier_incarnation_does_not_speak_for_a_later_one() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let lost = Lost { id: Id::default(), incarnation: 7, begun: after(5) };
        assert!(lost.is_of_later(9, after(4)), "whatever their numbers are");
        assert!(!lost.is_of_later(6, after(6)) && !lost.is_of_later(7, after(4)));
    }
}
