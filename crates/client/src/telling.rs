//! What this client holds in a shard, told to it anew: after a restart the shard knows nothing of it.
//!
//! It may be more than one request can carry, so it goes in pieces. The shard counts it as told with the last of them.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use net::{Connection, To};
use tracing::{info, warn};
use types::id::ShardId;
use wire::v1::lock::HeldLock;
use wire::v1::session::{HeldOpen, SessionOpen, SessionOpened};

use crate::file::File;
use crate::looks::Looks;
use crate::mutex::lock;
use crate::retry::Failure;
use crate::router::{Client, failure_of_call};

/// Opens, and locks, of one piece. What comes back, which is the locks that are lost, has room as well; and the shard takes
/// up a piece in one turn, in which everybody else waits.
const PIECE_MAX: usize = 16 << 10;

/// Shards that some thread tells what is held.
#[derive(Default)]
pub(crate) struct Tellers(Mutex<BTreeSet<ShardId>>);

/// One of them, until it is dropped.
struct Teller<'a>(&'a Tellers, ShardId);

impl Tellers {
    fn shards(&self) -> MutexGuard<'_, BTreeSet<ShardId>> {
        lock(&self.0)
    }

    pub(crate) fn are_telling(&self, shard: ShardId) -> bool {
        self.shards().contains(&shard)
    }

    /// When no other thread tells this shard. Whoever does ends with its answer, or its connection.
    async fn turn(&self, shard: ShardId) -> Teller<'_> {
        let mut looks = Looks::default();
        while !self.shards().insert(shard) {
            looks.pause().await;
        }
        Teller(self, shard)
    }
}

impl Drop for Teller<'_> {
    fn drop(&mut self) {
        self.0.shards().remove(&self.1);
    }
}

impl Client {
    /// Tells the incarnation that has `opened` the session, and has restarted or forgotten this client, unless another thread
    /// has told it when this one may. What two looked up at different moments would contradict each other.
    pub(crate) async fn tell_in_turn(
        &self,
        connection: &Connection,
        to: To,
        shard: ShardId,
        opened: &SessionOpened,
    ) -> Result<(), Failure> {
        let &SessionOpened { incarnation, kept_since, .. } = opened;
        let _turn = self.shared.tellers.turn(shard).await;
        if self.shared.shards.has_restarted(shard, incarnation) {
            if self.shared.shard_lost(shard, kept_since) {
                warn!(%shard, "the shard has lost its memory: who syncs what it had answered is told");
            }
            let told = self.tell(connection, to, shard, incarnation).await;
            if !matches!(told, Err(Failure::Unreachable(_))) {
                self.shared.locks.told(shard, told.is_ok());
            }
            told?;
            self.shared.shards.saw_incarnation(shard, incarnation);
        }
        Ok(())
    }

    async fn tell(&self, connection: &Connection, to: To, shard: ShardId, incarnation: u64) -> Result<(), Failure> {
        self.shared.endings.tells();
        self.shared.change_files(shard, File::shard_restarted);
        let opens = self.shared.held_opens(shard);
        let mut locks = self.shared.locks.tell(shard);
        locks.extend(self.shared.held_ends(shard));
        info!(
            %shard,
            opens = opens.len(),
            locks = locks.len(),
            "the shard has restarted, or forgotten us: telling it what is held here"
        );
        let mut keeps_intents = true;
        for piece in pieces(&opens, &locks) {
            let request = piece.request(self.ask_for_session(), incarnation);
            let told = connection.call(to, &request).await.map_err(failure_of_call)?;
            self.shared.lost_locks(&told.lost);
            keeps_intents &= told.keeps_intents;
        }
        if !keeps_intents {
            self.shared.shards.was_forgotten(shard, ring::now());
            self.shared.lose_intents(shard);
        }
        Ok(())
    }
}

struct Piece<'a> {
    opens: &'a [HeldOpen],
    locks: &'a [HeldLock],
    more: bool,
}

/// There is always one: also that nothing is held has to be told.
fn pieces<'a>(opens: &'a [HeldOpen], locks: &'a [HeldLock]) -> impl Iterator<Item = Piece<'a>> {
    let count = opens.len().max(locks.len()).div_ceil(PIECE_MAX).max(1);
    (0..count).map(move |n| Piece { opens: nth(opens, n), locks: nth(locks, n), more: n + 1 < count })
}

fn nth<T>(all: &[T], n: usize) -> &[T] {
    all.chunks(PIECE_MAX).nth(n).unwrap_or_default()
}

impl Piece<'_> {
    fn request(&self, asking: SessionOpen, incarnation: u64) -> SessionOpen {
        let (opens, locks) = (self.opens.to_vec(), self.locks.to_vec());
        SessionOpen { tells: true, more: self.more, incarnation, opens, locks, ..asking }
    }
}

#[cfg(test)]
mod tests {
    use types::cred::Credentials;
    use types::error::Errno;
    use types::id::{InodeId, SessionId};
    use types::lock::{Held, LockKind, LockMode, LockRange, Wait};
    use wire::codec::{Wire, decode_body};
    use wire::frame::BODY_MAX;
    use wire::op::{Op, Ping};

    use super::*;
    use crate::Durability;
    use crate::LockAsk;
    use crate::caller::Caller;
    use crate::router::Destination;
    use crate::test_client;
    use crate::test_cluster::{self, SHARD, join};

    fn open(n: u64) -> HeldOpen {
        HeldOpen { inode: InodeId(n), write_intent: false, draft: false }
    }

    fn lock(n: u64) -> HeldLock {
        let range = LockRange::new(n, n).expect("a range");
        let held = Held { range, mode: LockMode::Exclusive, pid: 1 };
        HeldLock { inode: InodeId(n), kind: LockKind::Posix, owner: n, held }
    }

    /// As many as the shard lets a session have.
    #[test]
    fn all_that_can_be_held_fits_into_requests_and_replies() {
        let opens: Vec<_> = (0..1 << 20).map(open).collect();
        let locks: Vec<_> = (0..1 << 16).map(lock).collect();
        let asking = || SessionOpen::asking(SessionId(1), vec![b'x'; 4096], 1, 1);
        let requests: Vec<_> = pieces(&opens, &locks).map(|piece| piece.request(asking(), 7)).collect();
        for request in &requests {
            let mut bytes = Vec::new();
            request.encode(&mut bytes);
            assert!(bytes.len() < BODY_MAX, "{} bytes", bytes.len());
            // What is lost is named in parts, at most once more as many.
            let lost = [&request.locks[..], &request.locks].concat();
            bytes.clear();
            SessionOpened { incarnation: 7, kept_since: 0, expiry_ms: 1, lost, keeps_intents: true }.encode(&mut bytes);
            assert!(bytes.len() < BODY_MAX, "{} bytes", bytes.len());
        }
        let (last, others) = requests.split_last().expect("some");
        assert!(!last.more && others.iter().all(|request| request.more));
        assert!(requests.iter().all(|request| request.tells && request.incarnation == 7));
        assert_eq!(requests.iter().flat_map(|request| request.opens.clone()).collect::<Vec<_>>(), opens);
        assert_eq!(requests.iter().flat_map(|request| request.locks.clone()).collect::<Vec<_>>(), locks);
    }

    /// Of two threads that find at the same time that the shard has restarted one tells it; the other one goes on then.
    #[test]
    fn what_is_held_is_told_once() {
        test_cluster::run(async |shard, [one, other]| {
            let caller = Caller::patient(Credentials::default());
            let asks = async |client: &Client| {
                client.reopen_session(SHARD);
                assert!(client.call(&caller, Destination::Shard(SHARD), &Ping {}).await.is_ok());
            };
            let answers = async |incarnation| {
                shard.opens_session(incarnation).await;
                shard.opens_session(incarnation).await;
                if incarnation == 2 {
                    let telling = shard.next(Op::SessionOpen).await;
                    shard.nothing_comes().await;
                    test_cluster::opened(telling, incarnation);
                }
                shard.does_both(Op::Ping, Op::Ping).await;
            };
            for incarnation in [1, 2] {
                join(join(asks(&one), asks(&other)), answers(incarnation)).await;
            }
        });
    }

    /// The session had expired. One thread tells what is held, while another one, which has an older connection, unlocks.
    #[test]
    fn what_is_unlocked_while_the_shard_is_told_of_it_is_unlocked_there_after_that() {
        test_cluster::run(async |shard, [one, other]| {
            let caller = Caller::patient(Credentials::default());
            let (file, owner, range) = (InodeId(77), 7, LockRange::ALL);
            let ask =
                LockAsk { kind: LockKind::Posix, owner, range, mode: LockMode::Exclusive, pid: 1, wait: Wait::No };
            let locks = async || {
                let locked = other.lock(&caller, file, 1, &ask, async || ()).await;
                let is_told = one.call(&caller, Destination::Shard(SHARD), &Ping {}).await;
                assert!(locked.is_ok() && is_told.is_ok());
            };
            let grants = async || {
                for op in [Op::Lock, Op::Ping] {
                    shard.opens_session(1).await;
                    shard.does(op).await;
                }
            };
            join(locks(), grants()).await;

            one.shared.forget_incarnation(SHARD);
            one.reopen_session(SHARD);
            let tells = async || assert!(one.call(&caller, Destination::Shard(SHARD), &Ping {}).await.is_ok());
            let unlocks = async || {
                let mut looks = Looks::default();
                while !one.shared.locks.is_being_told(SHARD) {
                    looks.pause().await;
                }
                other.unlock(&caller, file, ask.kind, owner, range).await;
            };
            let hears = async || {
                shard.opens_session(2).await;
                let telling = shard.next(Op::SessionOpen).await;
                let told: SessionOpen = decode_body(&telling.body).expect("sound");
                assert!(told.tells && told.locks.len() == 1);
                shard.opens_session(2).await;
                shard.nothing_comes().await;
                test_cluster::opened(telling, 2);
                shard.does_both(Op::Ping, Op::Unlock).await;
            };
            join(join(tells(), unlocks()), hears()).await;
            assert!(!one.shared.locks.are_on(file));
        });
    }

    /// The power of its host was cut before the shard had synced what it had answered.
    #[test]
    fn who_syncs_what_a_shard_has_lost_is_told_once() {
        test_cluster::run(async |shard, [client, _]| {
            let (file, shared) = (InodeId(77), &client.shared);
            let caller = Caller::patient(Credentials::default());
            let in_metadata = || {
                let mut file = test_client::file(file);
                file.inline_limit = 4096;
                file.add_handle(true);
                file
            };
            let number = shared.number_open_file();
            shared.with_new_file(file, in_metadata, |_| ());
            let syncs = async |outcome: Result<(), Errno>| {
                assert_eq!(client.fsync_open_file(&caller, file, number, Durability::All).await, outcome);
            };
            let restarted = async |incarnation, kept_since, outcome| {
                client.reopen_session(SHARD);
                let answers = async || {
                    for _ in 0..2 {
                        test_cluster::opened_since(shard.next(Op::SessionOpen).await, incarnation, kept_since);
                    }
                    shard.does(Op::Fsync).await;
                };
                join(syncs(outcome), answers()).await;
            };
            shared.shards.saw_incarnation(SHARD, 1);
            // Nothing was changed, and then something is.
            restarted(2, 2, Ok(())).await;
            shared.with_file(file, |file| file.unsynced.record_changed());
            restarted(3, 3, Err(Errno::EIO)).await;
            join(syncs(Ok(())), shard.does(Op::Fsync)).await;
            // The service was killed alone.
            shared.with_file(file, |file| file.unsynced.record_changed());
            restarted(4, 3, Ok(())).await;
            // It was away over two power cuts, and what was synced is not lost.
            restarted(6, 5, Ok(())).await;
        });
    }

    #[test]
    fn nothing_is_told_in_one_piece() {
        let pieces: Vec<_> = pieces(&[], &[]).collect();
        assert!(pieces.len() == 1 && !pieces[0].more);
    }
}
