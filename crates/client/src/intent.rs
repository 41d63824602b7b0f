//! Write intents: getting one before the first change of a file's data, and again where the session may have lost it.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tracing::warn;
use types::cred::Credentials;
use types::error::Errno;
use types::id::{InodeId, ObjectId};
use types::layout::Layout;
use wire::op::Ping;
use wire::v1::meta::{self, InodeReply};

use crate::caller::Caller;
use crate::file::Intent;
use crate::locks::assurance::Sending;
use crate::router::{Client, Destination};
use crate::settle::checked_layout;
use crate::shared::Before;

/// How long who has made a new connection to storage waits for what the shard says.
const ASK_MAX: Duration = Duration::from_secs(1);
/// Between two attempts to hear of an intent that nobody waits for.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What a write intent is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// To write to the objects. It also ends a truncate that this session has announced.
    Write,
    /// To truncate the objects: until the size is set, or the next intent is asked for, who wants to know the size
    /// waits.
    Truncate,
    /// To write to the objects of a file that stays a draft.
    KeepDraft,
}

impl Client {
    /// Gets this session's write intent, if it has none yet; before each change of data.
    pub(crate) async fn ensure_intent(&self, caller: &Caller<'_>, inode: InodeId) -> Result<Layout, Errno> {
        self.about_to_change(caller, inode).await?;
        let known = self.shared.in_file(inode, |file| (file.intent != Intent::None).then(|| file.layout.clone()));
        match known {
            Some(layout) => Ok(layout),
            None => self.get_intent(caller, inode).await,
        }
    }

    /// As far as this client knows without asking, the shard still keeps others from believing that nobody writes the file
    /// of this object, and ends this connection, made at `connected`, before it does so no more.
    pub(crate) fn may_change(&self, object: Destination, connected: Instant) -> bool {
        let Destination::Object(_, ObjectId { inode, .. }) = object else { return true };
        let holds = self.shared.with_file(inode, |file| file.intent != Intent::None && !file.has_lost_lock);
        holds != Some(false) && self.shared.assurances.covers(inode.home(), connected, ring::now())
    }

    /// Where that is in doubt: asks the shard whether it has kept the session, and for the intent if it has not. A client
    /// that stood still, or was cut off, so long that it lost them does no harm, since it goes through here first.
    ///
    /// # Errors
    /// `EIO` where a lock was lost, or the shard cannot be asked; `ESTALE` where the file is gone.
    pub(crate) async fn regain(&self, caller: &Caller<'_>, object: Destination) -> Result<(), Errno> {
        let Destination::Object(_, ObjectId { inode, .. }) = object else { return Ok(()) };
        let (shard, begun) = (inode.home(), Sending::now());
        // Boxed: what asks objects asks a shard within.
        let ask = async || Box::pin(self.call(caller, Destination::Shard(shard), &Ping {})).await;
        let was_sure = self.shared.assurances.is_sure(shard, begun.at);
        if !was_sure {
            self.reopen_session(shard);
            ask().await?;
        }
        match self.shared.with_file(inode, |file| (file.has_lost_lock, file.intent == Intent::None)) {
            Some((true, _)) => Err(Errno::EIO),
            // What was kept back under the one that is lost; and a settling may wait for it, which would be waited for here.
            Some((false, true)) | None if caller.needs_held_intent() => Err(Errno::EIO),
            Some((false, true)) => Box::pin(self.get_intent(caller, inode)).await.map(drop),
            // The connection is younger than what the shard has said.
            Some((false, false)) | None if was_sure => {
                let asked = ring::timeout(ASK_MAX, ask()).await;
                if asked.is_err() && self.shared.assurances.excuse(shard, ring::now()) {
                    return Ok(());
                }
                match asked {
                    Ok(answer) => answer?,
                    Err(_) => ask().await?,
                };
                self.shared.assurances.heard(shard, begun);
                Ok(())
            }
            Some((false, false)) | None => Ok(()),
        }
    }

    /// Gets the write intent, also where it is held, and tells the shard with it that this session is going to truncate
    /// the objects.
    pub(crate) async fn announce_truncate(&self, caller: &Caller<'_>, inode: InodeId) -> Result<Layout, Errno> {
        self.about_to_change(caller, inode).await?;
        self.ask_for_intent(caller, inode, Purpose::Truncate).await
    }

    async fn about_to_change(&self, caller: &Caller<'_>, inode: InodeId) -> Result<(), Errno> {
        self.must_have_kept_locks(caller, inode).await?;
        self.end_contents_in_draft(caller, inode).await?;
        self.shared.with_file(inode, |file| file.untouched = false);
        Ok(())
    }

    /// Asks the shard for the write intent until it gives one that has not ended meanwhile, and notes it in the open
    /// file. Where that is given up, and the shard may give it yet, it is ended in the background.
    async fn get_intent(&self, caller: &Caller<'_>, inode: InodeId) -> Result<Layout, Errno> {
        let doubt = Cell::new(None);
        let asked = self.ask_for_intent(&caller.noting(&doubt), inode, Purpose::Write).await;
        if asked.is_err() && doubt.get().is_some() {
            self.end_intent_in_doubt(inode);
        }
        asked
    }

    /// The shard may give a write intent that nobody waits for any more, also after the file's close: then it would last as
    /// long as the session, and nobody else could settle the file. So the file stays open here until the shard has answered
    /// once more. The close that follows ends the intent. One task of this thread sees to all such requests for a file.
    fn end_intent_in_doubt(&self, inode: InodeId) {
        let requests = || *self.intents_in_doubt.borrow_mut().entry(inode).and_modify(|count| *count += 1).or_insert(1);
        if requests() > 1 {
            return;
        }
        // Whoever asked has it open.
        if self.shared.with_file(inode, |file| file.add_handle(true)).is_none() {
            self.intents_in_doubt.borrow_mut().remove(&inode);
            return;
        }
        self.in_background(async move |client| {
            let caller = Caller::patient(Credentials::default());
            while !client.shared.has_ended() && !client.has_ended_doubt(&caller, inode).await {
                ring::sleep(ASK_AGAIN).await;
            }
            client.intents_in_doubt.borrow_mut().remove(&inode);
            client.close_now(&caller, inode, true).await;
        });
    }

    /// Whether the shard has answered after all that was asked for before. It is this task's turn at the end of the file
    /// meanwhile: asked during a truncate, it would end the announcement of that.
    async fn has_ended_doubt(&self, caller: &Caller<'_>, inode: InodeId) -> bool {
        let requests = || self.intents_in_doubt.borrow().get(&inode).copied();
        let (before, doubt) = (requests(), Cell::new(None));
        let Ok(turn) = self.turn_at_end(caller, inode).await else { return false };
        let asked = self.ask_for_intent(&caller.noting(&doubt), inode, Purpose::Write).await;
        self.leave_end_as_found(turn);
        let is_answered = asked.is_ok() || doubt.get().is_none();
        if !is_answered {
            warn!(%inode, "cannot ask whether a write intent was given that nobody waits for: it is tried again");
        }
        is_answered && requests() == before
    }

    /// Asks the shard for the write intent until it gives one that has not ended meanwhile, and notes it in the open
    /// file. A caller who gives up sees to it that one which is given all the same ends.
    pub(crate) async fn ask_for_intent(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        purpose: Purpose,
    ) -> Result<Layout, Errno> {
        loop {
            let (before, reply) = self.write_intent(caller, inode, purpose).await?;
            let layout = checked_layout(&reply)?;
            if self.shared.granted(inode, &reply, &before) {
                return Ok(layout);
            }
            if caller.is_ending() {
                return Err(Errno::EINTR);
            }
        }
    }

    /// Asks the shard for the write intent once; the answer is for the caller to note. The moment before it was asked
    /// tells whether the answer was overtaken by the end of an intent.
    pub(crate) async fn write_intent(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        purpose: Purpose,
    ) -> Result<(Before, Box<InodeReply>), Errno> {
        let before = self.shared.endings.now();
        // A settling under way ends the intent, also one that the shard would give us before it.
        self.wait_while_settling(caller, inode).await?;
        let numbered = self.shared.begin_change(inode.home());
        let request = meta::WriteIntent {
            exactly: numbered.exactly.clone(),
            inode,
            cuts: purpose == Purpose::Truncate,
            draft: purpose == Purpose::KeepDraft,
        };
        Ok((before, self.call(caller, Destination::home(inode), &request).await?))
    }
}

#[cfg(test)]
mod tests {
    use types::id::GroupId;
    use wire::op::Op;

    use super::*;
    use crate::{test_client, test_cluster};

    const FILE: InodeId = InodeId(77);

    /// For its program was killed, or the bound was over first.
    fn is_given_up(asked: Result<Layout, Errno>) -> bool {
        matches!(asked, Err(Errno::EINTR | Errno::EIO))
    }

    /// Its session ended while a flight was being tried again, for which the settling waits.
    #[test]
    fn a_flight_that_has_lost_its_intent_does_not_wait_for_the_settling() {
        let (caller, object) = (Caller::patient(Credentials::default()), ObjectId { inode: FILE, stripe: 0 });
        let regained = test_client::run(async |client| {
            client.shared.assurances.opened(FILE.home(), Sending::now(), Duration::from_secs(60));
            client.shared.with_new_file(FILE, || test_client::file(FILE), |file| file.settling = true);
            let destination = Destination::Object(GroupId(1), object);
            assert!(!client.may_change(destination, Instant::now()));
            ring::timeout(Duration::from_secs(5), client.regain(&caller.under_held_intent(), destination)).await
        });
        assert_eq!(regained.ok(), Some(Err(Errno::EIO)));
    }

    /// Then nobody would wait for it: others may have changed the object since.
    #[test]
    fn a_flight_does_not_outlive_its_file() {
        let (caller, object) = (Caller::patient(Credentials::default()), ObjectId { inode: FILE, stripe: 0 });
        let regained = test_client::run(async |client| {
            client.shared.assurances.opened(FILE.home(), Sending::now(), Duration::from_secs(60));
            let destination = Destination::Object(GroupId(1), object);
            ring::timeout(Duration::from_secs(5), client.regain(&caller.under_held_intent(), destination)).await
        });
        assert_eq!(regained.ok(), Some(Err(Errno::EIO)));
    }

    /// Its program is killed while the shard lets the request wait. A close that came before it would leave the intent behind.
    /// The announcement of a truncate that is under way would end with it.
    #[test]
    fn an_intent_that_nobody_waits_for_is_asked_for_in_turn_with_truncates() {
        let killed = Cell::new(false);
        let (interrupted, ending) = (|| false, || killed.get());
        let caller = Caller::interruptible(Credentials::default(), &interrupted, &ending);
        test_cluster::run(async |shard, [client, _]| {
            client.shared.with_new_file(FILE, || test_client::file(FILE), |file| file.add_handle(true));
            let truncates = client.turn_at_end(&Caller::patient(Credentials::default()), FILE).await.expect("its turn");
            let writes = async || {
                for _ in 0..2 {
                    assert!(is_given_up(client.ensure_intent(&caller, FILE).await));
                }
            };
            let answers = async || {
                shard.opens_session(1).await;
                let first = shard.next(Op::WriteIntent).await;
                killed.set(true);
                let second = shard.next(Op::WriteIntent).await;
                shard.nothing_comes().await;
                drop((first, second));
                client.leave_end(truncates, false);
                shard.next(Op::WriteIntent).await.responder.reply(&test_client::reply(FILE));
                shard.nothing_comes().await;
            };
            test_cluster::join(writes(), answers()).await;
        });
    }

    #[test]
    fn an_intent_that_nobody_waits_for_is_ended_after_it_was_given() {
        let killed = Cell::new(false);
        let (interrupted, ending) = (|| false, || killed.get());
        let caller = Caller::interruptible(Credentials::default(), &interrupted, &ending);
        test_cluster::run(async |shard, [client, _]| {
            client.shared.with_new_file(FILE, || test_client::file(FILE), |file| file.add_handle(true));
            let writes = async || {
                assert!(is_given_up(client.ensure_intent(&caller, FILE).await));
                client.close(caller.cred, FILE, true);
            };
            let answers = async || {
                shard.opens_session(1).await;
                let first = shard.next(Op::WriteIntent).await;
                killed.set(true);
                let again = shard.next(Op::WriteIntent).await;
                shard.nothing_comes().await;
                drop(first);
                again.responder.reply(&test_client::reply(FILE));
                // As where others may write as well: to settle the file ends the intent, before any object is asked.
                shard.next(Op::Settle).await;
            };
            test_cluster::join(writes(), answers()).await;
        });
    }
}
