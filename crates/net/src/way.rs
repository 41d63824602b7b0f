//! How one connection is made and to whom, and what goes over it: bytes counted per rail, and load shared by all that use one
//! interface.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::connection::ConnectError;
use crate::handshake::Established;
use crate::pairs::Pair;

/// Where a connection goes out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Way {
    /// Bound to this address, and to this device.
    pub(crate) from: Option<IpAddr>,
    pub(crate) device: Option<String>,
    /// The peer has other rails: this connection is watched closely and takes its share.
    pub(crate) several: bool,
}

impl Way {
    pub(crate) fn of(pair: &Pair, several: bool) -> Self {
        let local = pair.local.as_ref().filter(|_| several);
        Self {
            from: local.map(|local| local.address),
            device: local.filter(|_| pair.tied).map(|local| local.name.clone()),
            several,
        }
    }
}

/// Who is to be at the other side of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Whom<'a> {
    pub(crate) address: SocketAddr,
    /// UUID of the node; empty: whoever it is.
    pub(crate) node: &'a str,
}

impl Whom<'_> {
    /// Where one side does not know which node is meant, it is the right one.
    ///
    /// # Errors
    /// Where another one answers.
    pub(crate) fn check(&self, established: &Established) -> Result<(), ConnectError> {
        let (found, wanted) = (&established.peer.node, self.node);
        if found.is_empty() || wanted.is_empty() || found == wanted {
            return Ok(());
        }
        Err(ConnectError::Stranger { address: self.address, found: found.clone(), wanted: wanted.to_owned() })
    }
}

/// Bytes under way at one end: an interface of ours, or of a peer's.
type End = Arc<AtomicUsize>;

/// Bytes under way at each end, for all threads: what one has under way is in the way of the others.
static ENDS: Mutex<BTreeMap<IpAddr, End>> = Mutex::new(BTreeMap::new());

/// Bytes under way between two ends.
#[derive(Debug)]
pub(crate) struct Load {
    ours: End,
    theirs: End,
}

impl Load {
    pub(crate) fn between(ours: IpAddr, theirs: IpAddr) -> Self {
        // The map is whole at every moment.
        let mut ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut end = |address| Arc::clone(ends.entry(address).or_default());
        Self { ours: end(ours), theirs: end(theirs) }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.ours.load(Ordering::Relaxed) + self.theirs.load(Ordering::Relaxed)
    }

    /// `bytes` more, until what is returned is dropped.
    pub(crate) fn take(&self, bytes: usize) -> Share<'_> {
        self.ours.fetch_add(bytes, Ordering::Relaxed);
        self.theirs.fetch_add(bytes, Ordering::Relaxed);
        Share { load: self, bytes }
    }
}

/// A request's part of the load.
pub(crate) struct Share<'a> {
    load: &'a Load,
    bytes: usize,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.load.ours.fetch_sub(self.bytes, Ordering::Relaxed);
        self.load.theirs.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_that_of_both_ends_and_goes_with_the_request() {
        let ip = |last| IpAddr::from([192, 0, 2, last]);
        let (one, other, apart) =
            (Load::between(ip(1), ip(2)), Load::between(ip(1), ip(3)), Load::between(ip(4), ip(5)));
        let share = one.take(10);
        assert_eq!((one.bytes(), other.bytes(), apart.bytes()), (20, 10, 0));
        drop(share);
        assert_eq!((one.bytes(), other.bytes()), (0, 0));
    }
}
