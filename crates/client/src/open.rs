//! Opening and closing: the shard knows which files a session holds open, once however many handles there are.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ring::sync::oneshot;
use tracing::warn;
use types::attr::{Attr, FileType};
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;
use wire::op::Call;
use wire::v1::meta::{self, InodeReply};

use crate::caller::Caller;
use crate::file::{File, Intent, ReadTold};
use crate::given_up::Concerned;
use crate::lease::{Lease, Subject, Ticket};
use crate::looks::Looks;
use crate::names::{Entry, Named};
use crate::retry::{Attempts, Sent};
use crate::router::{Client, Destination, Payloads};
use crate::settle::Settling;
use crate::shared::{Before, NumberedChange, Shared};

/// From a close that the shard has not answered to the next attempt.
const CLOSE_AGAIN: Duration = Duration::from_secs(5);
/// How often one that waits for a close looks whether its caller has ended.
const LOOK_FOR_END: Duration = Duration::from_millis(50);

/// What is left to do when a handle was given back.
#[derive(Clone, Copy, Debug)]
enum Rest {
    /// The last one that could write: there are others.
    Settle,
    /// The last one of all: the close of this number.
    Close(u64),
    /// The last one of all, after which the file may stay open at the shard, where a lease allows it.
    Leave,
}

/// The making and opening of a file that nobody waits for any more.
struct GivenUp {
    /// The one that it was asked of.
    directory: InodeId,
    concerned: Concerned,
    writable: bool,
    sent: Attempts,
}

impl Client {
    /// Makes a regular file that is not there, and opens it.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`, `ENOTDIR`, `ENOSPC`.
    pub async fn create(
        &self,
        caller: &Caller<'_>,
        parent: InodeId,
        name: Name,
        mode: u32,
        writable: bool,
    ) -> Result<Named, Errno> {
        let (renamed, doubt) = (self.shared.contents.renames(), Cell::new(None));
        let before = self.shared.endings.now();
        let caller = &caller.noting(&doubt);
        let make = async |part: InodeId| {
            let numbered = self.shared.begin_change(part.home());
            let request = meta::Create {
                exactly: numbered.exactly.clone(),
                parent: part,
                name: name.clone(),
                kind: FileType::Regular,
                mode,
                rdev: 0,
                cred: caller.cred,
                open: true,
                write_intent: writable,
                exclusive: true,
                draft: self.shared.config.write_back > 0,
            };
            let entry = Entry { parent, part, name: &name };
            let made = self.make(caller, entry, &numbered, &request).await;
            if let (Err(_), Some(sent)) = (&made, doubt.get()) {
                let given_up = GivenUp { directory: part, concerned: Concerned::entry(entry), writable, sent };
                self.made_in_doubt(given_up, request, numbered);
            }
            made
        };
        let (named, reply) = self.in_part(caller, parent, &name, make).await?;
        if self.made_and_opened(&reply, writable, true, &before)? {
            self.begin_draft(&reply, named.lease, renamed);
        } else {
            self.open_once_more(caller, reply.attr.inode, writable).await?;
        }
        Ok(named)
    }

    /// Counts a handle of a file that was made for it, with the write intent that came along. `first`: nobody can have written
    /// to it yet. True as of [`Client::add_handle`]: else there is no intent.
    fn made_and_opened(&self, reply: &InodeReply, writable: bool, first: bool, before: &Before) -> Result<bool, Errno> {
        if !self.add_handle(reply, writable, before)? {
            return Ok(false);
        }
        // With its contents in the metadata it needs no intent.
        if writable && reply.inline_limit == 0 {
            self.shared.with_file(reply.attr.inode, |file| {
                file.untouched |= first && file.handles == 1 && file.intent == Intent::None;
                file.granted(reply);
            });
        }
        Ok(true)
    }

    /// Makes a regular file without a name that a file in `parent` would be like, and opens it.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOSPC`.
    pub async fn tmpfile(
        &self,
        caller: &Caller<'_>,
        parent: InodeId,
        mode: u32,
        writable: bool,
    ) -> Result<Attr, Errno> {
        let numbered = self.shared.begin_change(parent.home());
        let exactly = numbered.exactly.clone();
        let request = meta::TmpFile { exactly, parent, mode, cred: caller.cred, write_intent: writable };
        let (doubt, before) = (Cell::new(None), self.shared.endings.now());
        match self.call(&caller.noting(&doubt), Destination::home(parent), &request).await {
            Ok(reply) => {
                if !self.made_and_opened(&reply, writable, true, &before)? {
                    self.open_once_more(caller, reply.attr.inode, writable).await?;
                }
                Ok(reply.attr)
            }
            Err(errno) => {
                if let Some(sent) = doubt.get() {
                    let given_up = GivenUp { directory: parent, concerned: Concerned::default(), writable, sent };
                    self.made_in_doubt(given_up, request, numbered);
                }
                Err(errno)
            }
        }
    }

    /// Nobody waits for `request` any more, which was sent to a directory, but it may make a file, with the name that
    /// is concerned or none, and open it. The same request, which is carried out once, tells which one has to be
    /// closed.
    fn made_in_doubt<C: Call<Reply = Box<InodeReply>> + 'static>(
        &self,
        GivenUp { directory, concerned, writable, sent }: GivenUp,
        request: C,
        numbered: NumberedChange,
    ) {
        self.in_background(async move |client| {
            let (caller, before) = (Caller::patient(Credentials::default()), client.shared.endings.now());
            let destination = Destination::home(directory);
            if client.has_forgotten_since(destination, sent.first) {
                // It ended with the session, and would be carried out anew.
                return;
            }
            let Ok(reply) = client.call_to_make(&caller, destination, &concerned, &request, sent).await else { return };
            let inode = reply.attr.inode;
            let Ok(is_open) = client.made_and_opened(&reply, writable, false, &before) else { return };
            if !is_open && client.open_once_more(&caller, inode, writable).await.is_err() {
                return;
            }
            drop(numbered);
            client.close(caller.cred, inode, writable);
        });
    }

    /// It may take longer than a directory is left in doubt: until it is over, the name may be there.
    async fn call_to_make<C: Call<Reply = Box<InodeReply>>>(
        self: &Rc<Self>,
        caller: &Caller<'_>,
        destination: Destination,
        concerned: &Concerned,
        request: &C,
        sent: Attempts,
    ) -> Result<Box<InodeReply>, Errno> {
        let Shared { kept, board, listings, .. } = &*self.shared;
        // Where the session ends before it is answered, it is not sent again.
        let sent = Sent::already(sent);
        let call = async || {
            let answer = self.call_noting(caller, destination, request, Payloads::NONE, &sent).await;
            answer.map(|answer| answer.message)
        };
        let Some((parent, name)) = concerned.names.first() else {
            return call().await;
        };
        let _making = kept.making(board, *parent, name);
        let made = self.in_doubt(concerned, call()).await;
        listings.changed(*parent);
        kept.changed(board, *parent, &made, Instant::now());
        made
    }

    /// Opens a regular file; every handle is closed once with [`Client::close`].
    ///
    /// # Errors
    /// `ENOENT`, `ESTALE`, `EISDIR`.
    pub async fn open(&self, caller: &Caller<'_>, inode: InodeId, writable: bool) -> Result<(), Errno> {
        self.shared.look_for_sleep();
        let doubt = Cell::new(None);
        let opened = self.try_open(&caller.noting(&doubt), inode, writable).await;
        if opened.is_err() && doubt.get().is_some() {
            // Nobody waits for it any more, but the shard may open it: once more then, to be closed.
            self.in_background(async move |client| {
                let caller = Caller::patient(Credentials::default());
                if client.open_anew(&caller, inode, false).await.is_ok() {
                    client.close(caller.cred, inode, false);
                }
            });
        }
        opened
    }

    async fn try_open(&self, caller: &Caller<'_>, inode: InodeId, writable: bool) -> Result<(), Errno> {
        self.while_closing(caller, inode).await?;
        if !self.open_again(inode, writable) {
            let asked = self.shared.contents.asks(inode);
            let (ticket, reply) = self.open_anew(caller, inode, writable).await?;
            if !reply.unsettled {
                let lease = Lease::granted(ticket, Subject::inode(inode), reply.lease_ms);
                let bytes = reply.contents.filter(|bytes| bytes.0.len() as u64 == reply.attr.size);
                self.shared.learn(asked, lease, reply.attr, bytes.map(|bytes| bytes.0.into()));
            }
        }
        Ok(())
    }

    /// Counts a handle of a file that is open here.
    pub(crate) fn open_again(&self, inode: InodeId, writable: bool) -> bool {
        let is_known = self.shared.contents.knows(&self.shared.board, inode, Instant::now());
        self.shared.file_is(inode, |file| {
            if !file.may_be_opened_again(is_known) {
                return false;
            }
            file.lingers = false;
            file.add_handle(writable);
            true
        })
    }

    async fn open_anew(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        writable: bool,
    ) -> Result<(Ticket, Box<InodeReply>), Errno> {
        let before = self.shared.endings.now();
        let asked = self.ask_to_open(caller, inode, writable).await?;
        let is_open = self.shared.file_is(inode, |file| file.handles > 0);
        let is_noted = self.add_handle(&asked.1, writable, &before)?;
        // By a handle, before the close of the last who had it open here has gone out: it is as good as gone.
        if asked.1.attr.nlink == 0 && !is_open {
            self.close_now(caller, inode, writable).await;
            return Err(Errno::ESTALE);
        }
        if is_noted { Ok(asked) } else { self.open_once_more(caller, inode, writable).await }
    }

    async fn ask_to_open(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        writable: bool,
    ) -> Result<(Ticket, Box<InodeReply>), Errno> {
        let ticket = self.shared.board.ticket();
        // They come to nothing where they cannot be kept.
        let contents = !writable && self.shared.contents.is_small(1);
        let request = meta::Open { inode, contents };
        Ok((ticket, self.call(caller, Destination::home(inode), &request).await?))
    }

    /// The file has a handle of the caller's, and the shard may not have it open (any more). Where it cannot be opened, the
    /// handle goes.
    async fn open_once_more(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        writable: bool,
    ) -> Result<(Ticket, Box<InodeReply>), Errno> {
        let again = match self.while_closing(caller, inode).await {
            Ok(()) => self.ask_to_open(caller, inode, writable).await,
            Err(errno) => Err(errno),
        };
        match (&again, self.itself()) {
            (Ok((_, reply)), _) => drop(self.shared.with_file(inode, |file| file.confirmed(reply))),
            (Err(_), Some(client)) => {
                caller.note_doubt(Attempts::once(Instant::now()));
                client.close(caller.cred, inode, writable);
            }
            (Err(_), None) => {}
        }
        again
    }

    /// Counts a handle that the shard has noted in answer to what was asked at `before`. False where that may be undone since,
    /// so that the shard has to be asked again.
    fn add_handle(&self, reply: &InodeReply, writable: bool, before: &Before) -> Result<bool, Errno> {
        let layout = reply.layout.clone().ok_or(Errno::EIO)?;
        layout::validate(&layout).map_err(|_| Errno::EIO)?;
        let inode = reply.attr.inode;
        let is_noted = self.shared.with_new_file(
            inode,
            || File::new(reply, layout.clone()),
            |file| {
                if file.lingers {
                    // What it says is of no lease that is held.
                    file.renew(reply, layout.clone());
                }
                file.add_handle(writable);
                file.opened(reply);
                file.unconfirmed = file.closing || self.shared.may_be_gone(inode, before);
                !file.unconfirmed
            },
        );
        Ok(is_noted)
    }

    /// Gives a handle back. The last writable one settles the file's size with the shard; the last of all ends the open.
    /// Nobody waits for that, and whoever opens the file again before it goes out takes it over.
    pub fn close(self: &Rc<Self>, credentials: Credentials, inode: InodeId, writable: bool) {
        match self.give_back(inode, writable) {
            None => {}
            Some(Rest::Close(_)) if self.linger(inode) => {}
            Some(Rest::Close(_)) => self.finish_later(credentials, inode, Rest::Leave),
            Some(rest) => self.finish_later(credentials, inode, rest),
        }
    }

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

    /// The last handle went, and there is nothing to tell the shard but that.
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

    /// As long as a lease tells what there is to know of the file.
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
        let (Some(rest), Some(client)) = (self.give_back(inode, writable), self.itself()) else { return };
        let (finished, patient, under_way) = (oneshot(), Caller::patient(caller.cred), self.later.begin());
        ring::spawn(async move {
            client.finish(&patient, inode, rest).await;
            finished.0.send(());
            drop(under_way);
        });
        let mut finished = pin!(finished.1);
        while ring::timeout(LOOK_FOR_END, finished.as_mut()).await.is_err() && !caller.is_ending() {}
    }

    fn give_back(&self, inode: InodeId, writable: bool) -> Option<Rest> {
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

    async fn finish(self: &Rc<Self>, caller: &Caller<'_>, inode: InodeId, rest: Rest) {
        match rest {
            Rest::Settle => {
                // What is settled is not known to a draft.
                if let Err(error) = self.publish(caller, inode).await {
                    warn!(%inode, "could not tell what was kept back of a new file: {error}");
                }
                self.try_settle(caller, inode, Settling::Release).await;
            }
            Rest::Close(number) => self.end_open_of(caller, inode, number).await,
            Rest::Leave => {
                if let Some(number) = self.linger_when_told(caller, inode).await {
                    self.end_open_of(caller, inode, number).await;
                }
            }
        }
    }

    /// Unless somebody has opened it again since the close of this number.
    async fn end_open_of(&self, caller: &Caller<'_>, inode: InodeId, number: u64) {
        let due = self.shared.file_is(inode, |file| {
            let due = file.handles == 0 && !file.closing && file.closes == number;
            file.closing |= due;
            file.lingers &= !due;
            due
        });
        if due {
            self.end_open(caller, inode).await;
        }
    }

    async fn end_open(&self, caller: &Caller<'_>, inode: InodeId) {
        if let Err(error) = self.publish_changes(caller, inode).await {
            warn!(%inode, "could not tell what was kept back of a new file at its close: {error}");
        }
        // To tell it may have taken one. And the shard is not to hear of the close before what the last who could write is
        // telling: the objects would have to be asked then.
        let _ = self.while_settling(caller, inode).await;
        // Nor is anything to be written of a file that nobody has open: where the intent was lost, no settling waits for that.
        let _ = self.while_flying(caller, inode).await;
        let intends = self.shared.file_is(inode, |file| file.intent != Intent::None);
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

    /// False where the shard was not told.
    async fn try_settle(&self, caller: &Caller<'_>, inode: InodeId, how: Settling) -> bool {
        let settled = self.settle(caller, inode, how).await;
        if let Err(error) = &settled {
            // The objects hold the truth: whoever looks next asks them.
            warn!(%inode, "could not settle the size at close: {error}");
        }
        settled.unwrap_or(false)
    }

    /// # Errors
    /// `EINTR`.
    async fn while_closing(&self, caller: &Caller<'_>, inode: InodeId) -> Result<(), Errno> {
        self.while_so(caller, inode, |file| file.closing).await
    }

    /// # Errors
    /// `EINTR`.
    pub(crate) async fn while_settling(&self, caller: &Caller<'_>, inode: InodeId) -> Result<(), Errno> {
        self.while_so(caller, inode, |file| file.settling).await
    }

    pub(crate) async fn while_so(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        is_so: impl Fn(&mut File) -> bool,
    ) -> Result<(), Errno> {
        let mut looks = Looks::default();
        while self.shared.file_is(inode, &is_so) {
            if caller.is_ending() {
                return Err(Errno::EINTR);
            }
            looks.pause().await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::test_client;

    /// With a `retry_timeout` that is longer than a directory stays in doubt.
    #[test]
    fn a_name_whose_making_is_in_doubt_is_not_absent_until_that_is_over() {
        let (parent, name) = (InodeId(7), Name::new(b"late").expect("a name"));
        test_client::run(async |client| {
            let Shared { kept, board, .. } = &*client.shared;
            kept.enable();
            let learn = |order: u64| {
                let lease = Lease::granted(board.ticket(), Subject::inode(parent), 100_000);
                let standing = meta::Standing { order, empty: true };
                kept.learn(board, test_client::reply(parent).attr, &standing, lease, Instant::now());
            };
            let is_absent = || kept.is_absent(board, parent, &name, Instant::now());
            learn(1);
            assert!(is_absent());
            let numbered = client.shared.begin_change(parent.home());
            let request = meta::Create {
                exactly: numbered.exactly.clone(),
                parent,
                name: name.clone(),
                kind: FileType::Regular,
                mode: 0o644,
                rdev: 0,
                cred: Credentials::default(),
                open: true,
                write_intent: false,
                exclusive: true,
                draft: false,
            };
            let concerned = Concerned::entry(Entry { parent, part: parent, name: &name });
            let (writable, sent) = (false, Attempts::once(Instant::now()));
            client.made_in_doubt(GivenUp { directory: parent, concerned, writable, sent }, request, numbered);
            ring::sleep(Duration::from_millis(1)).await;
            learn(2);
            assert!(!is_absent());
            while kept.attr(board, parent, Instant::now()).is_some() {
                ring::sleep(Duration::from_millis(5)).await;
            }
            learn(3);
            assert!(!is_absent(), "nobody has answered: in doubt again");
        });
    }

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
            assert!(client.may_linger(file) && client.give_back(file, false).is_some());
            client.finish(&Caller::patient(Credentials::default()), file, Rest::Leave).await;
            let left = |open: &mut File| (open.handles, open.closing, open.lingers, open.telling_read);
            assert_eq!(shared.with_file(file, left), Some((0, false, true, None)), "its close is to be told");
            assert!(!client.open_again(file, false), "it may be closed at the shard");
        });
    }

    /// While the answer to an open is on its way, another thread opens and closes the file.
    #[test]
    fn an_open_that_a_close_has_overtaken_is_asked_for_again() {
        let file = InodeId(77);
        test_client::run(async |client| {
            let (shared, reply) = (&client.shared, test_client::reply(file));
            let before = shared.endings.now();
            assert_eq!(client.add_handle(&reply, false, &before), Ok(true));
            assert!(client.open_again(file, false));
            client.give_back(file, false);
            client.give_back(file, false);
            assert!(shared.forget_closed(file, shared.endings.tellings()));
            assert_eq!(client.add_handle(&reply, false, &before), Ok(false));
            assert!(!client.open_again(file, false), "on the word of that answer");
            assert_eq!(client.add_handle(&reply, false, &shared.endings.now()), Ok(true));
            assert!(client.open_again(file, false));
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
