//! Renews leases on files that are read again and again, many in one request, before they are over: so that who comes back
//! to them need not ask the shard for each. What nobody reads any more is let go.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use types::id::{InodeId, ShardId};
use wire::v1::session::{RENEWED_MAX, Renew};

use crate::lease::{Lease, Subject};
use crate::retry::Sent;
use crate::router::{Client, Destination, Payloads};

/// Between two looks for leases that are to be renewed: a small part of the half of a term in which they are.
const LOOK: Duration = Duration::from_secs(1);
/// A file that was not read for so long is let go. Longer makes writers elsewhere take back leases that nobody uses.
const USED_WITHIN: Duration = Duration::from_secs(300);

/// Until it is dropped. One task per process, on the thread that obeys recalls.
pub(crate) async fn renew_leases(client: Rc<Client>) {
    let under_way: Rc<RefCell<BTreeSet<ShardId>>> = Rc::default();
    loop {
        ring::sleep(LOOK).await;
        for (shard, inodes) in client.to_be_renewed(Instant::now()) {
            // Each by itself: one that does not answer holds up no others.
            if !under_way.borrow_mut().insert(shard) {
                continue;
            }
            let (client, under_way) = (Rc::clone(&client), Rc::clone(&under_way));
            ring::spawn(async move {
                for inodes in inodes.chunks(RENEWED_MAX) {
                    client.renew(shard, inodes).await;
                }
                under_way.borrow_mut().remove(&shard);
            });
        }
    }
}

impl Client {
    fn to_be_renewed(&self, now: Instant) -> BTreeMap<ShardId, Vec<InodeId>> {
        let mut of_shards = BTreeMap::<_, Vec<_>>::new();
        for inode in self.shared.contents.to_be_renewed(&self.shared.board, now, USED_WITHIN) {
            of_shards.entry(inode.home()).or_default().push(inode);
        }
        of_shards
    }

    /// What cannot be renewed is asked for by who needs it next.
    async fn renew(&self, shard: ShardId, inodes: &[InodeId]) {
        let (ticket, request) = (self.shared.board.ticket(), Renew { inodes: inodes.to_vec() });
        let answer = self.attempt(Destination::Shard(shard), &request, Payloads::NONE, &Sent::default()).await;
        let Ok(answer) = answer else { return };
        let now = Instant::now();
        for (&inode, lease_ms) in inodes.iter().zip(answer.message.lease_ms) {
            let lease = Lease::granted(ticket, Subject::inode(inode), lease_ms);
            self.shared.contents.extend(&self.shared.board, inode, lease, now);
        }
    }
}
