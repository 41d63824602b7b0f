//! Opening: the shard knows which files a session holds open, once however many handles there are. How that ends:
//! [`crate::close`].

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use types::attr::{Attr, FileType};
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;
use wire::op::Call;
use wire::v1::meta::{self, InodeReply};

use crate::caller::Caller;
use crate::file::{File, Intent};
use crate::given_up::Concerned;
use crate::lease::{Lease, Subject, Ticket};
use crate::names::{Entry, Named};
use crate::retry::{Attempts, Sent};
use crate::router::{Client, Destination, Payloads};
use crate::shards::NumberedChange;
use crate::shared::{Before, Shared};

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
        self.wait_while_closing(caller, inode).await?;
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
        let again = match self.wait_while_closing(caller, inode).await {
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
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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

    /// While the answer to an open is on its way, another thread opens and closes the file.
    #[test]
    fn an_open_that_a_close_has_overtaken_is_asked_for_again() {
        let file = InodeId(77);
        test_client::run(async |client| {
            let (shared, reply) = (&client.shared, test_client::reply(file));
            let before = shared.endings.now();
            assert_eq!(client.add_handle(&reply, false, &before), Ok(true));
            assert!(client.open_again(file, false));
            client.drop_handle(file, false);
            client.drop_handle(file, false);
            assert!(shared.forget_closed(file, shared.endings.tellings()));
            assert_eq!(client.add_handle(&reply, false, &before), Ok(false));
            assert!(!client.open_again(file, false), "on the word of that answer");
            assert_eq!(client.add_handle(&reply, false, &shared.endings.now()), Ok(true));
            assert!(client.open_again(file, false));
        });
    }
}
