//! Closing: the last handle that can write settles the file's size with the shard, and the last of all ends the open there.
//!
//! In brackets are the marks of a [`File`] between its last handle and its end; `closes` counts how often the last handle
//! went, so that a task which comes late sees that the file was open in between.
//!
//! ```text
//!                 last handle                  a lease tells all there is to know
//!   open         ------------->  left          --------------------------------->  lingering
//!   [handles > 0]                [none]                                            [lingers]
//!        ^                         |                                                 |  recalled, over, too many,
//!        |  opened again, where    |  its task comes                                 |  or forgotten by the kernel
//!        |  a lease allows it      v                                                 |
//!        +---- left, lingering   closing       <-------------------------------------+
//!                                [closing]
//!                                  |   |  no answer
//!                        answered  |   +--------------> in doubt [lingers]: closing again after some seconds
//!                                  v
//!                                gone, or open where it got a handle meanwhile
//! ```
//!
//! `lingers` and `closing` exclude each other. Who opens a file that is closing waits for the end of that, and asks the
//! shard. An open that the shard had answered before gets its handle all the same; it is `unconfirmed`, and asks once more
//! when the closing is over, since it may have ended this open, too.

use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ring::sync::oneshot;
use tracing::warn;
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;
use wire::v1::meta;

use crate::caller::Caller;
use crate::file::{File, Intent, ReadTold};
use crate::router::{Client, Destination};
use crate::settle::Settling;

/// From a close that the shard has not answered to the next attempt.
const CLOSE_AGAIN: Duration = Duration::from_secs(5);
/// How often one that waits for a close looks whether its caller has ended.
const LOOK_FOR_END: Duration = Duration::from_millis(50);

/// What is left to do when a handle was given back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rest {
    /// The last one that could write: there are others.
    Settle,
    /// The last one of all: the close of this number.
    Close(u64),
    /// The last one of all, after which the file may stay open at the shard, where a lease allows it.
    Leave,
}

impl File {
    /// The shard is not to hear of the close before what the last who could write is telling: the objects would have to be
    /// asked then. Nor is anything to be written of a file that nobody has open: where the intent was lost, no settling waits
    /// for that.
    fn is_held_up(&self) -> bool {
        self.settling || self.unwritten.is_flying()
    }
}

impl Client {
    /// Gives a handle back. The last writable one settles the file's size with the shard; the last of all ends the open.
    /// Nobody waits for that, and whoever opens the file again before it goes out takes it over.
    pub fn close(self: &Rc<Self>, credentials: Credentials, inode: InodeId, writable: bool) {
        match self.drop_handle(inode, writable) {
            None => {}
            Some(Rest::Close(_)) if self.linger(inode) => {}
            Some(Rest::Close(_)) => self.finish_later(credentials, inode, Rest::Leave),
            Some(rest) => self.finish_later(credentials, inode, rest),
        }
    }

    /// Does what was left to do in a task of its own, which nobody waits for.
    fn finish_later(self: &Rc<Self>, credentials: Credentials, inode: InodeId, rest: Rest) {
        let (client, under_way) = (Rc::clone(self), self.later.begin());
        ring::spawn(async move {
            if matches!(rest, Rest::Leave | Rest::Close(_)) {
                client.later.moment().await;
            }
            client.finish(&Caller::patient(credentials), inode, rest).await;
            drop(under_way);
        });
    }

    /// Lets a file linger whose last handle went, if the shard has to be told of nothing but that. False where it does not.
    fn linger(self: &Rc<Self>, inode: InodeId) -> bool {
        let may = self.may_linger(inode);
        let lingers = self.shared.file_is(inode, |file| {
            file.lingers = may && file.is_left() && file.read_at.is_none();
            file.lingers
        });
        if !lingers {
            return false;
        }
        if let Some(oldest) = self.shared.lingering.leave(inode, Instant::now()) {
            self.end_lingering(oldest);
        }
        true
    }

    /// Where the shard has to be told of a read and of nothing else: tells that alone, and then the file lingers. Otherwise the
    /// number of the close that it has to be told.
    async fn linger_when_told(self: &Rc<Self>, caller: &Caller<'_>, inode: InodeId) -> Option<u64> {
        if self.may_linger(inode) {
            // Where another task is telling it, that one sees to the rest.
            let ReadTold::Here(mut next) = self.shared.with_file(inode, File::begin_telling_read)? else { return None };
            while let Some(read) = next {
                if self.was_read(caller, inode, read).await.is_err() {
                    self.shared.with_file(inode, |file| file.telling_read = None);
                    break;
                }
                next = self.shared.in_file(inode, File::tell_of_read);
            }
            if self.linger(inode) {
                return None;
            }
        }
        self.shared.with_file(inode, |file| file.closes)
    }

    /// A lease tells what there is to know of the file, and nobody here has locks on it.
    fn may_linger(&self, inode: InodeId) -> bool {
        self.shared.contents.knows(&self.shared.board, inode, Instant::now()) && !self.shared.locks.are_on(inode)
    }

    /// The keeper of answers has forgotten `inode`, or is about to: what is kept of it goes.
    pub fn forgotten(self: &Rc<Self>, inode: InodeId) {
        self.shared.contents.forget(inode);
        self.end_lingering(inode);
    }

    /// The keeper of answers uses `inode` no more: what is remembered for it of a removed directory goes.
    pub fn unused(&self, inode: InodeId) {
        self.shared.graves.close(inode);
        self.shared.listings.unused(inode);
    }

    /// What may be known of `inode` goes: if it lingers, it is closed.
    pub(crate) fn end_lingering(self: &Rc<Self>, inode: InodeId) {
        let close = self.shared.with_file(inode, |file| (file.lingers && file.handles == 0).then_some(file.closes));
        if let Some(close) = close.flatten() {
            self.finish_later(Credentials::default(), inode, Rest::Close(close));
        }
    }

    /// Closes what lingers without a lease. To be called again and again.
    pub(crate) fn end_lingering_of_old(self: &Rc<Self>) {
        let now = Instant::now();
        let (lingering, contents) = (&self.shared.lingering, &self.shared.contents);
        for inode in lingering.due(now) {
            if !self.shared.file_is(inode, |file| file.lingers) {
                continue;
            }
            let overdue = match contents.knows(&self.shared.board, inode, now) {
                true => lingering.leave(inode, now),
                false => Some(inode),
            };
            if let Some(overdue) = overdue {
                self.end_lingering(overdue);
            }
        }
    }

    /// Gives a handle back, and waits until the shard knows, unless the caller ends first: the shard is told all the
    /// same.
    pub(crate) async fn close_now(&self, caller: &Caller<'_>, inode: InodeId, writable: bool) {
        let (Some(rest), Some(client)) = (self.drop_handle(inode, writable), self.itself()) else { return };
        let (finished, patient, under_way) = (oneshot(), Caller::patient(caller.cred), self.later.begin());
        ring::spawn(async move {
            client.finish(&patient, inode, rest).await;
            finished.0.send(());
            drop(under_way);
        });
        let mut finished = pin!(finished.1);
        while ring::timeout(LOOK_FOR_END, finished.as_mut()).await.is_err() && !caller.is_ending() {}
    }

    /// Gives a handle back, and tells what is left to do: by [`Self::finish`].
    pub(crate) fn drop_handle(&self, inode: InodeId, writable: bool) -> Option<Rest> {
        self.shared.in_file(inode, |file| {
            file.handles -= 1;
            file.writers -= u32::from(writable);
            if file.handles == 0 {
                file.closes += 1;
                file.streams.clear();
                return Some(Rest::Close(file.closes));
            }
            (writable && file.writers == 0 && file.intent != Intent::None).then_some(Rest::Settle)
        })
    }

    /// Does what was left to do when a handle was given back.
    async fn finish(self: &Rc<Self>, caller: &Caller<'_>, inode: InodeId, rest: Rest) {
        match rest {
            Rest::Settle => {
                // What is settled is not known to a draft.
                if let Err(error) = self.publish(caller, inode).await {
                    warn!(%inode, "could not tell what was kept back of a new file: {error}");
                }
                self.try_settle(caller, inode, Settling::Release).await;
            }
            Rest::Close(number) => self.close_if_left(caller, inode, number).await,
            Rest::Leave => {
                if let Some(number) = self.linger_when_told(caller, inode).await {
                    self.close_if_left(caller, inode, number).await;
                }
            }
        }
    }

    /// Closes the file at the shard, unless somebody has opened it again since the close of this number.
    async fn close_if_left(&self, caller: &Caller<'_>, inode: InodeId, number: u64) {
        let due = self.shared.file_is(inode, |file| {
            let due = file.handles == 0 && !file.closing && file.closes == number;
            file.closing |= due;
            file.lingers &= !due;
            due
        });
        if due {
            self.close_at_shard(caller, inode).await;
        }
    }

    /// Tells the shard of all that it does not know of the file, and then of the close. The file is marked as `closing`.
    async fn close_at_shard(&self, caller: &Caller<'_>, inode: InodeId) {
        let closable = |file: &mut File| (!file.is_held_up() && !file.kept_back().draft).then_some(file.intent);
        let intent = match self.shared.in_file(inode, closable) {
            Some(intent) => Some(intent),
            None => {
                if let Err(error) = self.publish_changes(caller, inode).await {
                    warn!(%inode, "could not tell what was kept back of a new file at its close: {error}");
                }
                let _ = self.wait_while(caller, inode, |file| file.is_held_up()).await;
                // To tell it may have taken one.
                self.shared.with_file(inode, |file| file.intent)
            }
        };
        let intends = intent.is_some_and(|intent| intent != Intent::None);
        let tellings = self.before_close(inode);
        let is_told = intends && self.try_settle(caller, inode, Settling::Close).await;
        if is_told && self.shared.forget_closed(inode, tellings) {
            return;
        }
        if self.tell_of_read(caller, inode).await == Err(Errno::EIO) {
            warn!(%inode, "the shard does not answer: it is told of a read, and of the close, again later");
            return self.close_again(inode);
        }
        loop {
            let tellings = self.before_close(inode);
            match self.call(caller, Destination::home(inode), &meta::Close { inode, read: None }).await {
                Err(Errno::EIO) => {
                    warn!(%inode, "the shard does not answer: it is told of the close again later");
                    return self.close_again(inode);
                }
                Ok(_) | Err(Errno::ESTALE) => self.shared.unsettled.ended(inode),
                Err(error) => warn!(%inode, "could not tell the shard of the close: {error}; it ends with the session"),
            }
            if self.shared.forget_closed(inode, tellings) {
                return;
            }
            // It is told of the close once more, when it has heard what it is being told.
        }
    }

    /// The next call comes to the shard after what that is being told now, which may have the file open. How often shards were
    /// told.
    fn before_close(&self, inode: InodeId) -> u64 {
        let tellings = self.shared.endings.tellings();
        let shard = inode.home();
        if self.shared.tellers.are_telling(shard) || self.shared.locks.is_being_told(shard) {
            self.reopen_session(shard);
        }
        tellings
    }

    /// Nobody knows whether the shard has heard of the close: it is told again, unless somebody opens the file before.
    fn close_again(&self, inode: InodeId) {
        self.shared.contents.forget(inode);
        let Some(number) = self.shared.closed_in_doubt(inode) else { return };
        self.in_background(async move |client| {
            ring::sleep(CLOSE_AGAIN).await;
            client.finish(&Caller::patient(Credentials::default()), inode, Rest::Close(number)).await;
        });
    }

    /// Settles the file as [`Self::settle`] does. A failure is logged, and is false as well: the shard was not told.
    async fn try_settle(&self, caller: &Caller<'_>, inode: InodeId, how: Settling) -> bool {
        let settled = self.settle(caller, inode, how).await;
        if let Err(error) = &settled {
            // The objects hold the truth: whoever looks next asks them.
            warn!(%inode, "could not settle the size at close: {error}");
        }
        settled.unwrap_or(false)
    }

    /// Waits until no close of the file is being told to the shard.
    ///
    /// # Errors
    /// `EINTR` where the caller ends.
    pub(crate) async fn wait_while_closing(&self, caller: &Caller<'_>, inode: InodeId) -> Result<(), Errno> {
        self.wait_while(caller, inode, |file| file.closing).await
    }

    /// Waits until no settling of the file is on its way to the shard.
    ///
    /// # Errors
    /// `EINTR` where the caller ends.
    pub(crate) async fn wait_while_settling(&self, caller: &Caller<'_>, inode: InodeId) -> Result<(), Errno> {
        self.wait_while(caller, inode, |file| file.settling).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::lease::{Lease, Subject};
    use crate::test_client;

    #[test]
    fn a_close_that_the_shard_has_not_heard_of_is_not_forgotten() {
        let file = InodeId(77);
        test_client::run(async |client| {
            client.shared.with_new_file(file, || test_client::file(file), |open| open.add_handle(false));
            client.close_now(&Caller::patient(Credentials::default()), file, false).await;
            let left = |file: &mut File| (file.handles, file.closing, file.lingers);
            assert_eq!(client.shared.with_file(file, left), Some((0, false, true)), "it is to be closed");
            assert!(!client.open_again(file, false), "it may be closed at the shard");
            assert_eq!(client.shared.held_opens(file.home()).len(), 1);
        });
    }

    #[test]
    fn a_file_is_closed_for_whose_reads_the_shard_has_no_ear() {
        let file = InodeId(77);
        test_client::run(async |client| {
            let (shared, reply) = (&client.shared, test_client::reply(file));
            shared.with_new_file(file, || test_client::file(file), |open| open.add_handle(false));
            let lease = Lease::granted(shared.board.ticket(), Subject::inode(file), 100_000);
            shared.learn(shared.contents.asks(file), lease, reply.attr, None);
            shared.with_file(file, |open| open.read_at = Some(types::time::Timestamp(i64::MAX)));
            assert!(client.may_linger(file) && client.drop_handle(file, false).is_some());
            client.finish(&Caller::patient(Credentials::default()), file, Rest::Leave).await;
            let left = |open: &mut File| (open.handles, open.closing, open.lingers, open.telling_read);
            assert_eq!(shared.with_file(file, left), Some((0, false, true, None)), "its close is to be told");
            assert!(!client.open_again(file, false), "it may be closed at the shard");
        });
    }

    /// The last who could write has closed it just before, and that is still being told.
    #[test]
    fn a_close_is_told_though_the_intent_was_ended_without_it() {
        let file = InodeId(77);
        test_client::run(async |client| {
            client.shared.with_new_file(
                file,
                || test_client::file(file),
                |open| {
                    open.add_handle(false);
                    open.granted(&test_client::reply(file));
                    open.settling = true;
                },
            );
            let shared = Arc::clone(&client.shared);
            ring::spawn(async move {
                ring::sleep(Duration::from_millis(5)).await;
                shared.with_file(file, |open| (open.intent, open.settling) = (Intent::None, false));
            });
            client.close_now(&Caller::patient(Credentials::default()), file, false).await;
            assert_eq!(client.shared.with_file(file, |open| open.lingers), Some(true), "nobody answers");
        });
    }
}
