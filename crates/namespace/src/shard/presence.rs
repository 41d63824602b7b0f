//! Sessions and what they hold open.

use kv::Kv;
use types::attr::FileType;
use types::error::Errno;
use types::id::{InodeId, SessionId};

use crate::error::{Error, Result};
use crate::leases::{Subject, Touched};
use crate::shard::ending::AT_ONCE;
use crate::shard::replies::Replies;
use crate::shard::{ABSENT, Config, Session, Shard, Stage};
use crate::view::{HeldOpen, InodeView, Retold, SessionOpened, Telling, TimeChange};

/// What of a session's description is kept, in bytes.
const DESCRIPTION_MAX: usize = 1024;

impl<K: Kv> Shard<K> {
    /// Registers `session`, or takes it up again. After a restart of the shard, it is waited for until it tells what it
    /// holds.
    ///
    /// # Errors
    /// `EINVAL` for session 0, `EBUSY` with too many sessions.
    pub fn session_open(&mut self, session: SessionId, description: &[u8]) -> Result<SessionOpened> {
        self.enroll(session, description)
    }

    /// As `session_open`, and the session tells all that it holds. The first telling counts: what comes late by a
    /// second one may have been closed and unlocked since. What `opens` names is added to what it is known to have
    /// open; nothing is taken away. Inodes that are gone are passed over, and so are those that cannot be read. Write
    /// intents and drafts count only where the session has not ended since it got them: else others may believe that
    /// nobody writes; nor where one is on a file whose contents a power cut has brought back, and others have changed
    /// since. What comes in pieces counts as told with the last.
    ///
    /// # Errors
    /// `EINVAL` for session 0, `EBUSY` with too many sessions or opens, `ENOTCONN` where another incarnation was told before.
    pub fn session_tell(&mut self, session: SessionId, description: &[u8], telling: &Telling<'_>) -> Result<Retold> {
        let birth = self.sessions.get(&session).map(|known| known.birth);
        if telling.incarnation != 0 && birth != Some(telling.incarnation) {
            return Err(Errno::ENOTCONN.into());
        }
        let mut opened = self.enroll(session, description)?;
        opened.keeps_intents &= self.may_reclaim_intents(telling);
        let has_told = self.sessions.get(&session).is_some_and(|known| known.stage == Stage::Told);
        let mut unreadable = Vec::new();
        for open in telling.opens.iter().filter(|_| !has_told) {
            let (write_intent, draft) = (open.write_intent && opened.keeps_intents, open.draft && opened.keeps_intents);
            match self.reclaim(session, &HeldOpen { write_intent, draft, ..*open }) {
                // Nobody can use it, and the session can use the others.
                Err(error) if error.is_unreadable() => unreadable.push(error),
                reclaimed => reclaimed?,
            }
        }
        let lost = self.reclaim_locks(session, telling);
        if !telling.more {
            self.enter(session, Stage::Told);
        }
        Ok(Retold { opened, lost, unreadable })
    }

    /// Ends the session and releases what it held; where it may yet write to objects, when that is over: see
    /// [`super::Ticked::to_fence`]. Closing one that is not there is no error.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn session_close(&mut self, session: SessionId) -> Result<()> {
        let may_write = self.holds.has_intents(session);
        match self.sessions.get_mut(&session) {
            Some(known) if !known.is_over() && may_write => {
                known.closing = true;
                Ok(())
            }
            Some(known) if !known.is_over() => self.end_session(session, AT_ONCE),
            _ => Ok(()),
        }
    }

    /// Some request of `session` came in: it lives. False where it is not open here.
    pub fn touch(&mut self, session: SessionId) -> bool {
        match self.sessions.get_mut(&session) {
            Some(known) if known.is_open() => {
                known.last_seen_ms = self.mono_ms;
                true
            }
            _ => false,
        }
    }

    /// Registers that `session` has the inode open, once however many handles it has. With `contents`, these come along
    /// where they are in the metadata and the session may believe them for a while.
    ///
    /// # Errors
    /// `ESTALE` where the inode is gone, `ENOTCONN` without the session, `EBUSY` with too many opens; `Recalling` where
    /// another session alone writes it.
    pub fn open_inode(&mut self, session: SessionId, inode: InodeId, contents: bool) -> Result<InodeView> {
        self.must_be_open(session)?;
        self.may_read(inode)?;
        let found = self.namespace.existing(inode)?;
        self.take_back_unwritten(session, inode, &found)?;
        let layout = self.namespace.layout(inode, &found)?;
        self.may_hold(session, Some(inode))?;
        if found.nlink == 0 && !self.takes_changes() && !self.holds.has_open(session, inode) {
            // That it is kept has to be written.
            return Err(Errno::EIO.into());
        }
        let bytes = match found.inline_limit().filter(|_| contents) {
            Some(_) => Some(self.namespace.contents(inode, &found)?),
            None => None,
        };
        self.hold_open(session, inode, &found);
        let view = self.leased_view(session, inode, &found, layout);
        Ok(InodeView { contents: bytes.filter(|_| view.lease_ms > 0), ..view })
    }

    /// The session's last handle is gone; so is its write intent if it still had one. `read`: what its last read
    /// made of the access time. Harmless twice.
    ///
    /// # Errors
    /// Where the store fails; `EIO` where it takes nothing now: to be told again.
    pub fn close_inode(&mut self, session: SessionId, inode: InodeId, read: Option<TimeChange>) -> Result<()> {
        self.must_be_open(session)?;
        let is_kept = self.holds.is_orphan(inode) && self.holds.has_open(session, inode);
        if !self.takes_changes() && (is_kept || read.is_some()) {
            return Err(Errno::EIO.into());
        }
        self.locks.release_file(session, inode);
        if let Some(read) = read {
            self.was_read(session, inode, read)?;
        }
        self.release(session, inode)
    }

    /// The session has read a file that it goes on having open: as told at the close. Harmless twice.
    ///
    /// # Errors
    /// Where the store fails; `Recalling` where others believe the access time that there was.
    pub fn was_read(&mut self, session: SessionId, inode: InodeId, read: TimeChange) -> Result<()> {
        self.must_be_open(session)?;
        self.take_back(session, &[Touched::inode(inode)])?;
        self.namespace.was_read(inode, read)
    }

    /// The leases of the session on these inodes go on for another term, each as far as it holds one still: so nobody has
    /// changed anything of it since it got that. Milliseconds for each; 0 where it holds none.
    ///
    /// # Errors
    /// `ENOTCONN` without the session.
    pub fn renew(&mut self, session: SessionId, inodes: &[InodeId]) -> Result<Vec<u32>> {
        self.must_be_open(session)?;
        Ok(inodes.iter().map(|&inode| self.leases.renew(session, Subject::inode(inode))).collect())
    }

    /// The session asks for no change below `below` again, but for those that are `under_way`.
    ///
    /// # Errors
    /// `ENOTCONN` without the session.
    pub fn answered(&mut self, session: SessionId, below: u64, under_way: Vec<u64>) -> Result<()> {
        self.must_be_open(session)?;
        let under_way = under_way.into_iter().filter(|&sequence| sequence < below).collect();
        self.transactions.answered_but(session, below, &under_way);
        if let Some(known) = self.sessions.get_mut(&session) {
            known.replies.acknowledge_but(below, under_way);
        }
        Ok(())
    }

    /// The session is known, open or from before a restart.
    #[must_use]
    pub fn knows(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    pub(super) fn must_be_open(&self, session: SessionId) -> Result<()> {
        let open = self.sessions.get(&session).is_some_and(Session::is_open);
        if open { Ok(()) } else { Err(Errno::ENOTCONN.into()) }
    }

    /// One that comes back after a restart is waited for until it has told what it holds, or the grace is over: clients ask
    /// for the incarnation first, each of their threads for itself.
    fn enroll(&mut self, id: SessionId, description: &[u8]) -> Result<SessionOpened> {
        if id == ABSENT {
            return Err(Errno::EINVAL.into());
        }
        let mono_ms = self.mono_ms;
        if let Some(session) = self.sessions.get_mut(&id) {
            if session.is_over() {
                return Err(Errno::EBUSY.into());
            }
            session.last_seen_ms = mono_ms;
            let (opened, is_back) = (opened(session, &self.config, self.kept_since), session.stage == Stage::Known);
            if is_back {
                self.enter(id, Stage::Back);
            }
            return Ok(opened);
        }
        if self.sessions.len() >= self.config.limits.sessions {
            return Err(Errno::EBUSY.into());
        }
        self.birth += 1;
        let session = Session {
            last_seen_ms: mono_ms,
            assured_until_ms: 0,
            birth: self.birth,
            stage: Stage::Open,
            has_told_locks: false,
            reclaims: false,
            closing: false,
            fencing: false,
            fenced: false,
            replies: Replies::default(),
        };
        let opened = opened(&session, &self.config, self.kept_since);
        self.sessions.insert(id, session);
        self.turn.created.push(id);
        self.write_session(id, &description[..description.len().min(DESCRIPTION_MAX)]);
        Ok(opened)
    }

    /// As long as the turn's commit does not fail.
    pub(super) fn enter(&mut self, id: SessionId, stage: Stage) {
        if let Some(session) = self.sessions.get_mut(&id).filter(|session| session.stage != stage) {
            self.turn.stages.push((id, std::mem::replace(&mut session.stage, stage)));
        }
    }

    /// Sessions not heard of for too long.
    pub(super) fn overdue(&self) -> Vec<SessionId> {
        let (now, expiry_ms) = (self.mono_ms, self.config.session_expiry_ms);
        self.sessions.iter().filter(|(_, session)| session.is_overdue(now, expiry_ms)).map(|(id, _)| *id).collect()
    }

    /// Something that the session has asked of objects may still be on its way. Who has not come back since a restart may
    /// hold any intent.
    pub(super) fn may_write_objects(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_none_or(Session::has_yet_to_tell) || self.holds.has_intents(id)
    }

    /// The session, unless that is under way.
    pub(super) fn begin_fencing(&mut self, id: SessionId) -> Option<SessionId> {
        let session = self.sessions.get_mut(&id)?;
        (!std::mem::replace(&mut session.fencing, true)).then_some(id)
    }

    /// Sessions that have not told by the end of the grace what they hold: with it they lose that, so what they have asked of
    /// objects comes before it too.
    pub(super) fn fence_late(&mut self) -> Vec<SessionId> {
        let late = self.sessions.iter().filter(|(_, session)| session.has_yet_to_tell() && !session.fenced);
        let late: Vec<SessionId> = late.map(|(id, _)| *id).collect();
        late.into_iter().filter_map(|id| self.begin_fencing(id)).collect()
    }

    /// What [`super::Ticked::to_fence`] asked for is done: nothing that the session asked of objects before can happen any
    /// more. It ends, unless it was heard of meanwhile, or the store takes nothing, and then it is due again; true where it
    /// does.
    ///
    /// # Errors
    /// Where the store fails; then it is to be fenced again.
    pub fn session_fenced(&mut self, id: SessionId) -> Result<bool> {
        let (now, expiry_ms) = (self.mono_ms, self.config.session_expiry_ms);
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(false) };
        session.fenced = true;
        let is_due = std::mem::replace(&mut session.fencing, false) && session.is_overdue(now, expiry_ms);
        // Where the store takes nothing, it is due again when that is over.
        let ends = is_due && self.takes_changes();
        if ends {
            self.end_session(id, AT_ONCE)?;
        }
        Ok(ends)
    }

    fn reclaim(&mut self, session: SessionId, open: &HeldOpen) -> Result<()> {
        let Some(inode) = self.namespace.find(open.inode)? else {
            return Ok(());
        };
        self.may_hold(session, Some(open.inode))?;
        let is_draft = open.draft && self.may_reclaim_draft(open.inode, &inode);
        if is_draft {
            self.hold_open(session, open.inode, &inode);
            self.holds.draft(session, open.inode);
        }
        let is_written = open.write_intent && inode.kind == FileType::Regular;
        // Who believed that nobody else has it open, or writes it, hears of it; the session, which cannot wait for that, may
        // see what was before for a moment.
        let mut taken_back = self.take_back_unwritten(session, open.inode, &inode);
        if is_written && taken_back.is_ok() {
            taken_back = self.take_back(session, &[Touched::inode(open.inode)]);
        }
        match taken_back {
            Ok(()) | Err(Error::Recalling) => {}
            Err(error) => return Err(error),
        }
        self.hold_open(session, open.inode, &inode);
        if is_written {
            // Nobody knows what others did meanwhile: never exclusive.
            self.holds.intend(session, open.inode, false, self.namespace.writes_begin_after(&inode));
            // It got its intent when the contents had left the metadata: a power cut has taken that back here.
            let inode = self.namespace.leave_metadata(open.inode, inode);
            self.namespace.unsettle(open.inode, inode);
        }
        Ok(())
    }
}

fn opened(session: &Session, config: &Config, kept_since: u64) -> SessionOpened {
    SessionOpened {
        incarnation: session.birth,
        kept_since,
        expiry_ms: config.session_expiry_ms,
        keeps_intents: session.reclaims,
    }
}
