//! Locks on files. The shard that owns a file decides; here is what it takes to wait for it without end, to stop waiting
//! at once, and to know at any time what is held.

pub(crate) mod assurance;
mod chase;
mod cycles;
pub(crate) mod table;

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use tracing::{error, warn};
use types::cred::Credentials;
use types::error::Errno;
use types::id::{InodeId, ShardId};
use types::lock::{Held, LockKind, LockMode, LockRange, Wait};
use wire::op::{Call, Ping};
use wire::v1::lock;

use crate::caller::Caller;
use crate::locks::table::Key;
use crate::looks::Looks;
use crate::retry::{Failure, Ladder, Sent, Step};
use crate::router::{Client, Destination, Payloads};
use crate::shared::Shared;

/// How often a waiting request looks whether its caller still waits.
const INTERRUPT_CHECK: Duration = Duration::from_millis(50);
/// How long an interrupted request waits for the shard to say what became of it.
const CANCEL_PATIENCE: Duration = Duration::from_secs(1);
/// A request that must not wait is repeated so often for unlocks that happened meanwhile.
const CLOSES_MAX: u32 = 3;

/// Whose lock, and on what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockAsk {
    pub kind: LockKind,
    /// As the mount numbers processes and open file descriptions.
    pub owner: u64,
    pub range: LockRange,
    pub mode: LockMode,
    /// For people, and for `F_GETLK`.
    pub pid: u32,
    pub wait: Wait,
}

/// Who is in the way of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockHolder {
    pub held: Held,
    /// On this mount: its process number means something here.
    pub is_here: bool,
}

/// Why there is no answer of the shard but an error number.
pub(crate) enum Ended {
    Refused(Errno),
    /// The shard may have executed it, or may yet.
    Unknown(Errno),
}

impl LockAsk {
    fn key(&self) -> Key {
        (self.kind, self.owner)
    }

    fn wanted(&self) -> Held {
        Held { range: self.range, mode: self.mode, pid: self.pid }
    }
}

/// The request for a lock under this number.
pub(crate) fn lock_request(number: u64, inode: InodeId, (kind, owner): Key, wanted: Held, wait: Wait) -> lock::Lock {
    lock::Lock { number, inode, kind, owner, wanted, wait: wait.waits(), detect: wait.detects() }
}

impl Client {
    /// Locks a range of a file that is open under `handle`, and waits for it as `ask` says.
    ///
    /// `hear_of_closes` returns when [`Self::release_handle`] was begun for all that was closed on this mount before: without
    /// it, who must not wait could find the lock of an open file that is no more.
    ///
    /// # Errors
    /// `EAGAIN` where somebody is in the way of who does not wait; `EDEADLK`, `EINTR`; `ENOLCK` at a bound; `EIO` where
    /// the shard does not answer within the bound.
    pub async fn lock(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        handle: u64,
        ask: &LockAsk,
        hear_of_closes: impl AsyncFn(),
    ) -> Result<(), Errno> {
        let (key, table) = (ask.key(), &self.shared.locks);
        // The owner's own last try has to be over first, and what it is giving up.
        self.wait_here(caller, || table.is_settled(inode, key)).await?;
        table.ask(inode, key, handle, ask.wanted());
        let result = self.lock_until_sure(caller, inode, ask, hear_of_closes).await;
        table.asked(inode, key);
        result
    }

    async fn lock_until_sure(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        ask: &LockAsk,
        hear_of_closes: impl AsyncFn(),
    ) -> Result<(), Errno> {
        let (key, table) = (ask.key(), &self.shared.locks);
        let (mut closes, mut has_heard) = (0, false);
        loop {
            let number = table.number();
            let (stamp, unlocks) = (table.stamp(inode, key), table.unlocks(inode));
            let request = lock_request(number, inode, key, ask.wanted(), ask.wait);
            let answer = if ask.wait.detects() && self.shared.map().shards.len() > 1 {
                self.unless_in_a_cycle(caller, inode.home(), &request).await
            } else {
                self.ask_for_lock(caller, inode.home(), number, &request).await
            };
            match answer {
                Ok(_) if table.got(inode, key, ask.wanted(), stamp) => return Ok(()),
                Ok(_) => {
                    let settled = self.wait_here(caller, || table.is_settled(inode, key)).await;
                    if let Err(errno) = settled {
                        self.resolve(inode, key, None, ask.range);
                        return Err(errno);
                    }
                }
                Err(Ended::Refused(Errno::EAGAIN)) => {
                    // Looked for before unlocks are: who is not in the way any more is seen there.
                    if !has_heard && table.is_in_the_way(inode, key, ask.wanted()) {
                        has_heard = true;
                        closes = 0;
                        hear_of_closes().await;
                    }
                    // Meanwhile somebody on this mount has closed a file: perhaps it was that.
                    let has_closed = unlocks.is_none() || table.unlocks(inode) != unlocks;
                    if !has_closed || closes == CLOSES_MAX {
                        return Err(Errno::EAGAIN);
                    }
                    closes += 1;
                    self.wait_here(caller, || table.unlocks(inode).is_some()).await?;
                }
                Err(Ended::Refused(errno)) => {
                    // A shard that could not decide yet has left the old lock, which the table has not any more.
                    if ask.kind == LockKind::Flock {
                        self.resolve(inode, key, None, LockRange::ALL);
                    }
                    return Err(errno);
                }
                Err(Ended::Unknown(errno)) => {
                    self.resolve(inode, key, Some(number), ask.range);
                    return Err(errno);
                }
            }
            if caller.gives_up() {
                self.resolve(inode, key, None, ask.range);
                return Err(Errno::EINTR);
            }
        }
    }

    /// Waits until what other threads of this mount are about makes `condition` true.
    async fn wait_here(&self, caller: &Caller<'_>, condition: impl Fn() -> bool) -> Result<(), Errno> {
        let (deadline, mut looks) = (ring::now() + self.shared.config.retry_timeout, Looks::default());
        while !condition() {
            if caller.gives_up() {
                return Err(Errno::EINTR);
            }
            if ring::now() >= deadline {
                return Err(Errno::EIO);
            }
            looks.pause().await;
        }
        Ok(())
    }

    /// Gives up what the owner holds of a range. It is given up when this returns, or when the shard can be reached again.
    pub async fn unlock(&self, caller: &Caller<'_>, inode: InodeId, kind: LockKind, owner: u64, range: LockRange) {
        if self.shared.locks.begin_unlock(inode, (kind, owner), range) {
            self.tell_of_unlock(caller, inode, (kind, owner), range).await;
        }
    }

    async fn tell_of_unlock(&self, caller: &Caller<'_>, inode: InodeId, key: Key, range: LockRange) {
        let (kind, owner) = key;
        let request = lock::Unlock { inode, kind, owner, range };
        self.after_tellings(inode.home());
        let done = self.call(caller, Destination::home(inode), &request).await;
        if let Err(error) = done {
            warn!(%inode, "could not tell the shard of an unlock: {error}; trying on");
            self.resolve(inode, key, None, range);
        }
        self.shared.locks.end_unlock(inode, key);
    }

    /// What this thread asks next comes to the shard after what it is being told, which may have what was given up since: the
    /// session is opened anew for it, and who opens it waits for that.
    fn after_tellings(&self, shard: ShardId) {
        if self.shared.locks.is_being_told(shard) {
            self.reopen_session(shard);
        }
    }

    /// Who would be in the way of the lock, if anybody. `hear_of_closes`: as in [`Self::lock`].
    ///
    /// # Errors
    /// `EINTR`, `EIO` where the shard does not answer within the bound.
    pub async fn get_lock(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        ask: &LockAsk,
        hear_of_closes: impl AsyncFn(),
    ) -> Result<Option<LockHolder>, Errno> {
        let holder = self.find_holder(caller, inode, ask).await?;
        if !holder.is_some_and(|holder| holder.is_here) {
            return Ok(holder);
        }
        hear_of_closes().await;
        self.wait_here(caller, || self.shared.locks.unlocks(inode).is_some()).await?;
        self.find_holder(caller, inode, ask).await
    }

    async fn find_holder(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        ask: &LockAsk,
    ) -> Result<Option<LockHolder>, Errno> {
        let number = self.shared.locks.number();
        let LockAsk { kind, owner, range, mode, .. } = *ask;
        let request = lock::GetLock { number, inode, kind, owner, range, mode };
        match self.ask_for_lock(caller, inode.home(), number, &request).await {
            Ok(reply) => Ok(reply
                .holder
                .map(|holder| LockHolder { held: holder.held, is_here: holder.session == self.shared.session })),
            Err(Ended::Refused(errno)) => Err(errno),
            Err(Ended::Unknown(errno)) => {
                // Only an answer that nobody waits for any more.
                self.cancel(inode.home(), number);
                Err(errno)
            }
        }
    }

    /// A process has closed some descriptor of the file: as POSIX wants it, all its `fcntl` locks there are gone.
    pub async fn release_owner(&self, caller: &Caller<'_>, inode: InodeId, owner: u64) {
        self.unlock(caller, inode, LockKind::Posix, owner, LockRange::ALL).await;
    }

    /// The last descriptor of an open file is gone, and what was locked through it: `flock` locks, and those of
    /// `F_OFD_SETLK`, whose owner the open file is. (Of `fcntl` locks none is left: each of their owners has closed it.)
    pub async fn release_handle(&self, caller: &Caller<'_>, inode: InodeId, handle: u64) {
        let table = &self.shared.locks;
        let mut keys = table.end_handle(inode, handle);
        // All at once: who waits for unlocks that are under way waits for each of these.
        keys.retain(|&key| table.begin_unlock(inode, key, LockRange::ALL));
        for key in keys {
            self.tell_of_unlock(caller, inode, key, LockRange::ALL).await;
        }
    }

    /// Data of the file may be read and written: what this mount has locked of it is still locked. Where the shard has not
    /// heard of us for so long that it may have given our locks to others, it is asked first.
    ///
    /// # Errors
    /// `EIO` where a lock was lost, or the shard cannot be asked; `EINTR`.
    pub(crate) async fn must_have_kept_locks(&self, caller: &Caller<'_>, inode: InodeId) -> Result<(), Errno> {
        let (shard, locks) = (inode.home(), &self.shared.locks);
        if locks.are_on(inode) && !self.shared.assurances.is_sure(shard, ring::now()) {
            self.reopen_session(shard);
            self.call(caller, Destination::Shard(shard), &Ping {}).await?;
        }
        let has_lost = self.shared.file_is(inode, |file| file.has_lost_lock);
        if has_lost { Err(Errno::EIO) } else { Ok(()) }
    }

    /// Asks until the shard has decided, however long that takes. The bound of other calls counts only while the shard
    /// cannot be reached.
    pub(crate) async fn ask_for_lock<C: Call>(
        &self,
        caller: &Caller<'_>,
        shard: ShardId,
        number: u64,
        request: &C,
    ) -> Result<C::Reply, Ended> {
        let destination = Destination::Shard(shard);
        let mut ladder = Ladder::new(ring::now(), self.shared.config.retry_timeout);
        loop {
            let sent = Sent::default();
            let attempt = pin!(self.attempt_patiently(destination, request, &sent));
            let failure = match self.until_cancelled(caller, (shard, number), attempt).await {
                Some(Ok(reply)) => return Ok(reply),
                Some(Err(Failure::Errno(errno))) => return Err(Ended::Refused(errno)),
                Some(Err(failure)) => failure,
                None => return Err(Ended::Unknown(Errno::EINTR)),
            };
            ladder.has_waited(ring::now(), &sent, &failure);
            match ladder.after(ring::now(), &failure) {
                Step::GiveUp => {
                    error!(op = C::OP.name(), "giving up on shard {shard}: {failure}");
                    return Err(Ended::Unknown(Errno::EIO));
                }
                Step::Again { after, report } => {
                    if report {
                        warn!(op = C::OP.name(), "waiting for shard {shard}: {failure}");
                    }
                    if caller.gives_up() {
                        return Err(Ended::Unknown(Errno::EINTR));
                    }
                    ring::sleep(after).await;
                }
            }
        }
    }

    /// Waits for `attempt`. Where the caller gives up, the shard is asked to end the wait, and so to answer; `None`
    /// where it does not.
    async fn until_cancelled<F: Future>(
        &self,
        caller: &Caller<'_>,
        (shard, number): (ShardId, u64),
        mut attempt: Pin<&mut F>,
    ) -> Option<F::Output> {
        let mut check: Option<ring::Sleep> = None;
        let mut cancelled: Option<Instant> = None;
        std::future::poll_fn(move |cx| {
            if let Poll::Ready(output) = attempt.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            loop {
                let sleep = check.get_or_insert_with(|| ring::sleep(INTERRUPT_CHECK));
                if Pin::new(sleep).poll(cx).is_pending() {
                    return Poll::Pending;
                }
                check = None;
                match cancelled {
                    Some(since) if since.elapsed() >= CANCEL_PATIENCE => return Poll::Ready(None),
                    Some(_) => {}
                    None if caller.gives_up() => {
                        cancelled = Some(Instant::now());
                        self.cancel(shard, number);
                    }
                    None => {}
                }
            }
        })
        .await
    }

    /// Asks the shard once to answer a request that waits. Where that cannot be, the request is over anyway.
    fn cancel(&self, shard: ShardId, number: u64) {
        self.in_background(async move |client| {
            let request = lock::CancelLock { number };
            if let Err(failure) =
                client.attempt(Destination::Shard(shard), &request, Payloads::NONE, &Sent::default()).await
            {
                tracing::debug!(%shard, %failure, "could not cancel a wait for a lock");
            }
        });
    }

    /// Makes the shard agree with the table about a range, in a task of its own: the application has its answer already.
    /// `number`: of a request that may still wait there.
    fn resolve(&self, inode: InodeId, key: Key, number: Option<u64>, range: LockRange) {
        self.shared.locks.doubt(inode, key);
        self.in_background(async move |client| {
            if let Some(number) = number {
                client.insist(inode, &lock::CancelLock { number }).await;
            }
            let table = &client.shared.locks;
            loop {
                let pieces = table.pieces(inode, key, range);
                client.restore(inode, key, &pieces.held, &pieces.free).await;
                if table.resolve(inode, key, &pieces) || client.shared.has_ended() {
                    return;
                }
            }
        });
    }

    async fn restore(&self, inode: InodeId, (kind, owner): Key, held: &[Held], free: &[LockRange]) {
        for &wanted in held {
            // At most weaker than what is there, so that nobody can be in the way.
            let number = self.shared.locks.number();
            self.insist(inode, &lock_request(number, inode, (kind, owner), wanted, Wait::No)).await;
        }
        self.after_tellings(inode.home());
        for &range in free {
            self.insist(inode, &lock::Unlock { inode, kind, owner, range }).await;
        }
    }

    /// Until the shard answers, or nobody needs it any more.
    pub(crate) async fn insist<C: Call>(&self, inode: InodeId, request: &C) {
        let caller = Caller::patient(Credentials::default());
        while let Err(Errno::EIO) = self.call(&caller, Destination::home(inode), request).await {
            if self.shared.has_ended() {
                return;
            }
        }
    }
}

impl Shared {
    /// The shard has given locks of ours to others, since it had not heard of us for too long. Who relied on them must
    /// not go on as if nothing had happened.
    pub(crate) fn lost_locks(&self, lost: &[lock::HeldLock]) {
        for lock in lost {
            if lock.kind == LockKind::End {
                self.with_file(lock.inode, |file| file.end.given_up());
                continue;
            }
            // In one: who finds no lock any more, and then asks whether it was lost, has to hear so.
            let lost = self.with_file(lock.inode, |file| {
                let lost = self.locks.lose(lock);
                file.has_lost_lock |= lost;
                lost
            });
            if lost.unwrap_or_else(|| self.locks.lose(lock)) {
                let (inode, pid) = (lock.inode, lock.held.pid);
                error!(%inode, pid, "a lock is lost: the session had expired, and somebody else has got it since");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;
    use crate::test_client;

    /// Over io_uring the kernel may forget to tell of a signal: the caller is looked at.
    #[test]
    fn who_ends_waits_for_no_lock_though_nobody_has_told_of_a_signal() {
        test_client::run(async |client| {
            let (interrupted, ending) = (|| false, || true);
            let caller = Caller::interruptible(Credentials::default(), &interrupted, &ending);
            let soon = Duration::from_millis(10);
            let waiting = ring::timeout(soon, client.wait_here(&caller, || false)).await;
            assert_eq!(waiting.expect("it ends"), Err(Errno::EINTR));
            let asking = pin!(pending::<()>());
            let cancelled = client.until_cancelled(&caller, (ShardId(0), 1), asking);
            let cancelled = ring::timeout(CANCEL_PATIENCE * 2, cancelled).await;
            assert!(cancelled.expect("it ends").is_none());
        });
    }
}
