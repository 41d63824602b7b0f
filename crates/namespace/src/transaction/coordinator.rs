//! The side that decides.

use std::mem;

use kv::Kv;
use types::attr::Attr;
use types::error::Errno;
use types::id::{InodeId, SessionId, ShardId, TransactionId};

use crate::error::{Error, Result};
use crate::ops::rename::Whiteout;
use crate::schema::edge::Edge;
use crate::schema::session;
use crate::schema::transaction as record;
use crate::shard::Shard;
use crate::shard::changes::nameless;
use crate::transaction::part::{Part, Vote};
use crate::transaction::plan::{Consequences, Operation, Plan, Step};
use crate::transaction::{Decided, Ending, Haste, Message, NOBODY, Outcome, Outgoing, Reply};
use crate::view::{Exactly, InodeView};

/// Participants that did not say that they have done it are told again after this.
const TELL_AFTER_MS: u64 = 1000;
/// Hops between shards on the way from a directory to root; more is a loop, so damage.
const HOPS_MAX: u32 = 1 << 16;

/// A transaction on its way to its decision.
pub(super) struct Running {
    exactly: Exactly,
    pub(super) plan: Plan,
    /// Locked here.
    local: Vec<Part>,
    /// May have promised something.
    asked: Vec<ShardId>,
    round: u8,
    /// Votes on what was asked for last, and who owes which of them.
    votes: Vec<Option<Vote>>,
    owing: Vec<(ShardId, Vec<usize>)>,
    climb: Option<Climb>,
    decided: bool,
    /// Something waits for it at a participant.
    pub(super) awaited: bool,
}

/// What one shard is asked for, and the places of its votes.
struct Request {
    of: ShardId,
    places: Vec<usize>,
    parts: Vec<Part>,
}

struct Climb {
    ancestor: InodeId,
    hops: u32,
}

impl<K: Kv> Shard<K> {
    /// Begins an operation; the request is `Blocked` by it, and finds its end when it is asked again. Or by another one, or
    /// `Again`, where it has to wait for those who wait for a directory that it concerns.
    pub(crate) fn start(&mut self, exactly: Exactly, operation: Operation) -> Result<()> {
        let id = TransactionId(self.namespace.new_id()?.0);
        for directory in operation.directories() {
            self.may_join(directory, id, false)?;
        }
        let mut running = Running {
            exactly,
            plan: Plan::new(operation),
            local: Vec::new(),
            asked: Vec::new(),
            round: 0,
            votes: Vec::new(),
            owing: Vec::new(),
            climb: None,
            decided: false,
            awaited: false,
        };
        if let Some((directory, _)) = running.plan.divides() {
            self.transactions.dividing.begin(id, directory);
        }
        let step = running.plan.next(&[]);
        self.transactions.by_change.insert((exactly.session, exactly.sequence), id);
        self.transactions.running.insert(id, Box::new(running));
        self.go_on(id, step);
        Err(Error::Blocked(id))
    }

    /// What a request finds that comes again: where its transaction ended, or that it is still under way.
    pub(crate) fn under_way(&mut self, exactly: Exactly) -> Result<()> {
        let change = (exactly.session, exactly.sequence);
        match self.transactions.endings.remove(&change) {
            Some(Ending::Refused(errno)) => return Err(errno.into()),
            Some(Ending::Again) => return Err(Error::Again),
            Some(Ending::Made(_) | Ending::Removed(_)) | None => {}
        }
        self.transactions.by_change.get(&change).map_or(Ok(()), |id| Err(Error::Blocked(*id)))
    }

    /// The new inode as it was told at its decision, where nobody has asked yet.
    pub(crate) fn made_elsewhere(&mut self, exactly: Exactly) -> Option<InodeView> {
        match self.transactions.endings.remove(&(exactly.session, exactly.sequence)) {
            Some(Ending::Made(view)) => Some(*view),
            _ => None,
        }
    }

    /// What was at home in another shard, and was removed, in the same way.
    pub(crate) fn removed_elsewhere(&mut self, exactly: Exactly) -> Option<Box<Attr>> {
        match self.transactions.endings.remove(&(exactly.session, exactly.sequence)) {
            Some(Ending::Removed(attr)) => Some(attr),
            _ => None,
        }
    }

    /// What came of a message that was sent for this shard.
    ///
    /// # Errors
    /// Where the store fails; the message is sent again then, in time.
    pub fn replied(&mut self, from: ShardId, message: &Message, reply: Reply) -> Result<()> {
        let reply = self.not_yet_made_again(message, reply);
        match (message, reply) {
            (Message::Prepare { transaction, .. }, reply) => self.voted(*transaction, from, reply),
            (Message::Climb { transaction, .. }, reply) => self.climbed(*transaction, reply),
            // The clock asks again.
            (Message::Finish { .. }, Reply::Lost) | (Message::AskOutcome { .. }, _) if !self.takes_changes() => {}
            (Message::Finish { transaction, commit: true, .. }, Reply::Done) => self.done(*transaction, from),
            (Message::Finish { transaction, commit: true, .. }, Reply::Lost) => return self.make_again(*transaction),
            (Message::AskOutcome { transaction }, Reply::Outcome(Outcome::Commit)) => {
                return self.finish(*transaction, true, None).map(drop);
            }
            (Message::AskOutcome { transaction }, Reply::Outcome(Outcome::Abort)) => {
                return self.finish(*transaction, false, None).map(drop);
            }
            // Promises and decisions are looked after by the clock; a promise to be forgotten is asked about.
            (Message::Finish { .. } | Message::AskOutcome { .. }, _) => {}
        }
        Ok(())
    }

    /// Tells those again who have not answered for long.
    pub(crate) fn tell_participants(&mut self) {
        let now_ms = self.mono_ms;
        let due = |decided: &Decided| now_ms >= decided.told_ms.saturating_add(TELL_AFTER_MS);
        let late: Vec<TransactionId> =
            self.transactions.decided.iter().filter(|(_, decided)| due(decided)).map(|(id, _)| *id).collect();
        for id in late {
            self.tell(id, false);
        }
    }

    /// `awaited`: the participants, or what waits for them, are not to wait longer than the disk takes.
    pub(super) fn tell(&mut self, id: TransactionId, awaited: bool) {
        let Some(decided) = self.transactions.decided.get_mut(&id) else { return };
        decided.told_ms = self.mono_ms;
        let haste = match decided.made {
            _ if awaited => Haste::Now,
            // Its shard locks nothing meanwhile.
            Some(_) => Haste::WithNextSync,
            None => Haste::Soon,
        };
        for &to in &decided.participants {
            let message = Message::Finish { transaction: id, commit: true, made: decided.made };
            self.transactions.outbox.push(Outgoing { to, message, after_sync: true, haste });
        }
        if decided.participants.is_empty() && self.takes_changes() {
            self.forget(id);
        }
    }

    fn done(&mut self, id: TransactionId, by: ShardId) {
        if let Some(decided) = self.transactions.decided.get_mut(&id) {
            decided.participants.retain(|shard| *shard != by);
            // Where the store takes nothing, that is done by the clock.
            if decided.participants.is_empty() && self.takes_changes() {
                self.forget(id);
            }
        }
    }

    pub(super) fn forget(&mut self, id: TransactionId) {
        record::ser_key(&mut self.key, id);
        self.namespace.cold.delete(&self.key);
        if let Some(made) = self.transactions.decided.get(&id).and_then(|decided| decided.made) {
            // Of an attempt to make it again.
            self.transactions.endings.remove(&(NOBODY, made.0));
        }
        self.transactions.turn.forgotten.push(id);
    }

    fn voted(&mut self, id: TransactionId, from: ShardId, reply: Reply) {
        let running = self.transactions.running.get_mut(&id).filter(|running| !running.decided);
        // Given up meanwhile: who promised will be told, or ask.
        let Some(running) = running else { return };
        let owes = running.owing.iter().position(|(shard, _)| *shard == from);
        let owed = owes.map_or_else(Vec::new, |at| running.owing.swap_remove(at).1);
        match reply {
            Reply::Prepared(votes) if votes.len() == owed.len() => {
                for (at, vote) in owed.into_iter().zip(votes) {
                    running.votes[at] = Some(vote);
                }
            }
            Reply::Refused(errno) => return self.give_up(id, Ending::Refused(errno)),
            _ => return self.give_up(id, Ending::Again),
        }
        if let Some(votes) = running.votes.iter().cloned().collect::<Option<Vec<Vote>>>() {
            let step = running.plan.next(&votes);
            self.go_on(id, step);
        }
    }

    fn climbed(&mut self, id: TransactionId, reply: Reply) {
        if self.transactions.running.get(&id).is_none_or(|running| running.climb.is_none()) {
            return;
        }
        self.transactions.turn.touched.push(id);
        match reply {
            Reply::Climbed(at) => match self.climb_on(id, at) {
                Ok(Some(step)) => self.go_on(id, step),
                Ok(None) => {}
                Err(error) => self.give_up(id, ending(error)),
            },
            Reply::Refused(_) => self.give_up(id, Ending::Refused(Errno::EIO)),
            _ => self.give_up(id, Ending::Again),
        }
    }

    /// Carries out steps until one waits for others.
    pub(super) fn go_on(&mut self, id: TransactionId, mut step: Step) {
        self.transactions.turn.touched.push(id);
        loop {
            let next = match step {
                Step::Ask(parts) if self.waits_for_token(id, &parts) => return,
                Step::Ask(parts) => self.ask(id, parts),
                Step::Climb { from, ancestor } => {
                    if let Some(running) = self.transactions.running.get_mut(&id) {
                        running.climb = Some(Climb { ancestor, hops: 0 });
                    }
                    self.climb_on(id, from)
                }
                Step::Divide => self.divide(id),
                Step::Decide(becomes) => self.decide(id, becomes).map(|()| None),
                Step::Nothing => return self.nothing(id),
                Step::Refuse(errno) => return self.give_up(id, Ending::Refused(errno)),
                Step::Again => return self.give_up(id, Ending::Again),
            };
            match next {
                Ok(Some(next)) => step = next,
                Ok(None) => return,
                Err(error) => return self.give_up(id, ending(error)),
            }
        }
    }

    /// Another transaction of this shard asks another one for the token, or has it: `end` goes on with this one then.
    fn waits_for_token(&mut self, id: TransactionId, parts: &[(ShardId, Part)]) -> bool {
        let asks = matches!(parts, [(shard, Part::Token)] if *shard != self.config.shard);
        asks && !self.transactions.token_queue.enter(id)
    }

    /// Prepares what is here, and asks the others for the rest. The next step where nobody had to be asked.
    pub(super) fn ask(&mut self, id: TransactionId, parts: Vec<(ShardId, Part)>) -> Result<Option<Step>> {
        let mut votes = Vec::with_capacity(parts.len());
        let mut remote: Vec<Request> = Vec::new();
        let mut local = Vec::new();
        for (at, (shard, mut part)) in parts.into_iter().enumerate() {
            if shard != self.config.shard {
                votes.push(None);
                match remote.iter_mut().find(|request| request.of == shard) {
                    Some(request) => {
                        request.places.push(at);
                        request.parts.push(part);
                    }
                    None => remote.push(Request { of: shard, places: vec![at], parts: vec![part] }),
                }
                continue;
            }
            self.must_not_be_full(part.plain())?;
            self.transactions.locks.may_lock(id, false, &part)?;
            part = self.as_given(part)?;
            votes.push(Some(self.check_part(&mut part)?));
            local.push(part);
        }
        let Some(running) = self.transactions.running.get(&id) else { return Ok(None) };
        let session = running.exactly.session;
        // What makes a directory again changes nothing here: who believes that its name leads to it is right.
        if running.plan.first().is_none() {
            let touched: Vec<_> = local.iter().flat_map(Part::touches).collect();
            self.take_back(session, &touched)?;
        }
        for part in &local {
            self.transactions.locks.lock(id, false, part);
        }
        let Some(running) = self.transactions.running.get_mut(&id) else { return Ok(None) };
        running.local.extend(local);
        if let Some(votes) = votes.iter().cloned().collect::<Option<Vec<Vote>>>() {
            return Ok(Some(running.plan.next(&votes)));
        }
        running.votes = votes;
        let round = running.round;
        running.round += 1;
        for Request { of: to, places, parts } in remote {
            if !running.asked.contains(&to) {
                running.asked.push(to);
            }
            running.owing.push((to, places));
            let message = Message::Prepare { session, transaction: id, round, parts };
            self.transactions.outbox.push(Outgoing::at_once(to, message));
        }
        Ok(None)
    }

    /// Goes up as far as it goes here, and asks the next shard.
    fn climb_on(&mut self, id: TransactionId, from: InodeId) -> Result<Option<Step>> {
        let Some(climb) = self.transactions.running.get_mut(&id).and_then(|running| running.climb.as_mut()) else {
            return Ok(None);
        };
        climb.hops += 1;
        let (ancestor, hops) = (climb.ancestor, climb.hops);
        let at = self.climb(from, ancestor)?;
        if hops > HOPS_MAX {
            return Err(Errno::EIO.into());
        }
        if at != ancestor && at != InodeId::ROOT {
            let message = Message::Climb { transaction: id, inode: at, until: ancestor };
            self.transactions.outbox.push(Outgoing::at_once(at.home(), message));
            return Ok(None);
        }
        let Some(running) = self.transactions.running.get_mut(&id) else { return Ok(None) };
        running.climb = None;
        Ok(Some(running.plan.climbed(at == ancestor)))
    }

    /// All have promised: this shard's part, the reply for the client, and the decision go into the turn's batch, of
    /// which a crash leaves all or nothing. That the batch has all of them rests on the order here: what can fail comes
    /// first.
    fn decide(&mut self, id: TransactionId, becomes: Option<Edge>) -> Result<()> {
        // 1. What can fail, and changes nothing.
        let Some(running) = self.transactions.running.get_mut(&id) else { return Ok(()) };
        let whiteout = match running.plan.whiteout() {
            Some((parent, name, cred)) => {
                let place = self.namespace.place(parent, &name)?;
                self.namespace.whiteout(&place, Some(cred))?
            }
            None => None,
        };
        // 2. The parts, with what only the votes could say.
        let becomes = whiteout.as_ref().map(Whiteout::edge).or(becomes);
        let Some(running) = self.transactions.running.get_mut(&id) else { return Ok(()) };
        let (exactly, participants) = (running.exactly, running.asked.clone());
        let mut parts = mem::take(&mut running.local);
        complete(&mut parts, becomes, &running.plan);
        let votes: Vec<Vote> = mem::take(&mut running.votes).into_iter().flatten().collect();
        let Consequences { making, first, told, removed, change, moves, is_upkeep } = running.plan.consequences(&votes);
        let awaited = running.awaited || is_upkeep;
        // 3. This shard's part. All that can fail of it comes first; from `apply_loaded` on nothing fails.
        let mover = moves.then_some(exactly.session);
        let applied = self.load_parts(&parts).and_then(|loaded| {
            // Its parts are loaded: they may not be aborted once it has changed.
            change.map_or(Ok(()), |(directory, change)| self.change_directory(directory, &change))?;
            self.apply_loaded(loaded, &parts, mover);
            Ok(())
        });
        // 4. Decided or not, it has its parts again, whose locks go at its end. Who fails here is given up.
        if let Some(running) = self.transactions.running.get_mut(&id) {
            running.local = parts;
            running.decided = applied.is_ok();
        }
        applied?;
        if let Some(Whiteout { id, new }) = whiteout {
            self.namespace.add_new_inode(id, new);
        }
        // 5. What the client is told, also where it asks again.
        if let Some(making) = &making {
            let view = InodeView { elsewhere: false, ..self.view_of_new(exactly, &making.new) };
            self.keep_ending(exactly, Ending::Made(Box::new(view)));
        }
        if let Some(removed) = removed {
            self.keep_ending(exactly, Ending::Removed(nameless(*removed, self.namespace.now)));
        }
        let made = making.as_ref().map(|making| making.new.id);
        let outcome = made.or(told).map_or(session::Outcome::Done, session::Outcome::Inode);
        self.record(exactly, outcome);
        // 6. The decision itself, by which the participants are told until all have done their part.
        if let Some(first) = first {
            self.forget(first);
        }
        if !participants.is_empty() {
            let making = making.filter(|making| making.new.at_once);
            let made = making.as_ref().map(|making| making.new.id);
            record::ser_key(&mut self.key, id);
            self.namespace.cold.put(&self.key, &record::ser_decision(&participants, making.as_ref()));
            self.transactions.decided.insert(id, Decided { participants, made, told_ms: self.mono_ms });
            self.tell(id, awaited);
        }
        self.transactions.turn.decided.push(id);
        Ok(())
    }

    fn view_of_new(&self, exactly: Exactly, new: &crate::transaction::part::NewDirectory) -> InodeView {
        self.view(exactly.session, new.id, &new.inode(), None)
    }

    /// Succeeds without a change: those who promised something forget it.
    fn nothing(&mut self, id: TransactionId) {
        let Some(running) = self.transactions.running.get_mut(&id) else { return };
        running.decided = true;
        let (exactly, asked, first) = (running.exactly, running.asked.clone(), running.plan.first());
        self.abort_at(id, asked);
        if let Some(first) = first {
            self.forget(first);
        }
        self.record(exactly, session::Outcome::Done);
        self.transactions.turn.decided.push(id);
    }

    /// Nothing happens. The request finds `ending` when it is asked again.
    pub(super) fn give_up(&mut self, id: TransactionId, ending: Ending) {
        let Some(running) = self.transactions.running.get(&id) else { return };
        let (exactly, asked) = (running.exactly, running.asked.clone());
        self.abort_at(id, asked);
        self.keep_ending(exactly, ending);
        self.end(id);
    }

    /// Until it is asked for, which nobody does of a session that has ended, or until that has given it up.
    fn keep_ending(&mut self, exactly: Exactly, ending: Ending) {
        if exactly.session == NOBODY || self.knows(exactly.session) {
            let change = (exactly.session, exactly.sequence);
            self.transactions.endings.insert(change, ending);
            self.transactions.turn.refused.push(change);
        }
    }

    /// Whether it carries out this change of the session, and has decided on it.
    #[must_use]
    pub fn has_decided(&self, id: TransactionId, session: SessionId, sequence: u64) -> Option<bool> {
        let running = self.transactions.running.get(&id)?;
        let is_it = (running.exactly.session, running.exactly.sequence) == (session, sequence);
        is_it.then_some(running.decided)
    }

    /// The client of `session` is gone that one of the requests waiting for it came from. Nothing happens where the session
    /// has asked for it, and where it is not decided; a request that comes again begins anew.
    pub fn abandon(&mut self, id: TransactionId, session: SessionId) {
        let Some(running) = self.transactions.running.get(&id) else { return };
        if running.exactly.session == session && !running.decided {
            let asked = running.asked.clone();
            self.abort_at(id, asked);
            self.end(id);
        }
    }

    fn abort_at(&mut self, id: TransactionId, asked: Vec<ShardId>) {
        for to in asked {
            let message = Message::Finish { transaction: id, commit: false, made: None };
            self.transactions.outbox.push(Outgoing::at_once(to, message));
        }
    }

    /// It is over here: what waits for it goes on.
    pub(super) fn end(&mut self, id: TransactionId) {
        let Some(running) = self.transactions.running.remove(&id) else { return };
        for part in &running.local {
            self.transactions.locks.unlock(id, part);
        }
        self.transactions.dividing.end(id);
        self.transactions.by_change.remove(&(running.exactly.session, running.exactly.sequence));
        self.transactions.ended.push(id);
        if let Some(next) = self.transactions.token_queue.leave(id) {
            self.go_on(next, Step::Ask(vec![(InodeId::ROOT.home(), Part::Token)]));
        }
    }
}

/// What the coordinator's own parts say that was not known when they were asked for: where the name leads, and which
/// parts of a directory were made.
fn complete(parts: &mut [Part], becomes: Option<Edge>, plan: &Plan) {
    let entry = parts.iter_mut().find_map(|part| match part {
        Part::Entry { becomes, .. } => Some(becomes),
        _ => None,
    });
    if let Some(entry) = entry {
        *entry = becomes;
    }
    for part in parts {
        if let Part::Divide { parts, .. } = part {
            *parts = plan.parts_made();
        }
    }
}

fn ending(error: Error) -> Ending {
    match error {
        Error::Blocked(_) | Error::Again | Error::Recalling => Ending::Again,
        error => Ending::Refused(error.errno()),
    }
}
