//! What goes to one shard in one request: messages that left the shard together are mostly for the same one.

use std::collections::BTreeMap;
use std::mem;

use namespace::schema::transaction::{deser_votes, ser_parts};
use namespace::transaction::part::Part;
use namespace::transaction::{Message, Outgoing, Reply};
use types::id::ShardId;
use wire::codec::Bytes;
use wire::v1::transaction::{Ending, Finish, Prepare, Promise, Transact, Transacted};

/// Messages of one request, and the bytes of their parts from which on no more are added: the others need not wait until so
/// much is executed.
const MESSAGES_MAX: usize = 128;
const PARTS_BYTES_MAX: usize = 64 << 10;

/// A request to another shard.
pub(super) enum Parcel {
    Alone(Message),
    Bundle(Bundle),
}

/// `Prepare` and `Finish` for one shard. What is in one bundle happens before what is in the next, but within one all `Finish`
/// come first: whose transaction begins in it must not end in it. What waits for no disk does not go with what does.
pub(super) struct Bundle {
    finishes: Vec<Message>,
    prepares: Vec<Message>,
    request: Transact,
    parts_bytes: usize,
}

/// What came of one message of a bundle.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Replied(Message, Reply),
    /// It has to be sent again, alone.
    Waits(Message),
}

/// The requests that these messages become, in the order in which they are to leave.
pub(super) fn pack(messages: Vec<Outgoing>) -> Vec<(ShardId, Parcel)> {
    let mut parcels = Vec::new();
    let mut open: BTreeMap<(ShardId, Waits), Bundle> = BTreeMap::new();
    for Outgoing { to, message, .. } in messages {
        let waits = match &message {
            Message::Prepare { parts, .. } if parts.iter().all(Part::is_done_at_once) => Waits::ForNothing,
            Message::Prepare { .. } | Message::Finish { .. } => Waits::ForDisk,
            Message::AskOutcome { .. } | Message::Climb { .. } => {
                parcels.push((to, Parcel::Alone(message)));
                continue;
            }
        };
        for kind in [Waits::ForNothing, Waits::ForDisk] {
            if let Some(bundle) = open.get_mut(&(to, kind))
                && (bundle.takes_back(&message) || kind == waits && bundle.is_full())
            {
                parcels.push((to, mem::take(bundle).close()));
            }
        }
        open.entry((to, waits)).or_default().add(message);
    }
    let left = open.into_iter().filter(|(_, bundle)| !bundle.is_empty());
    parcels.extend(left.map(|((to, _), bundle)| (to, bundle.close())));
    parcels
}

/// What the answers of a bundle wait for, in the order in which bundles for one shard leave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Waits {
    ForNothing,
    ForDisk,
}

impl Default for Bundle {
    fn default() -> Self {
        let request = Transact { finishes: Vec::new(), prepares: Vec::new() };
        Self { finishes: Vec::new(), prepares: Vec::new(), request, parts_bytes: 0 }
    }
}

impl Bundle {
    fn is_empty(&self) -> bool {
        self.finishes.is_empty() && self.prepares.is_empty()
    }

    fn is_full(&self) -> bool {
        self.finishes.len() + self.prepares.len() >= MESSAGES_MAX || self.parts_bytes >= PARTS_BYTES_MAX
    }

    /// It ends what the bundle would only begin after it.
    fn takes_back(&self, message: &Message) -> bool {
        let Message::Finish { transaction: ended, commit: false, .. } = message else { return false };
        self.request.prepares.iter().any(|prepare| prepare.transaction == *ended)
    }

    fn add(&mut self, message: Message) {
        match &message {
            Message::Prepare { session, transaction, round, parts } => {
                let parts = Bytes(ser_parts(parts));
                self.parts_bytes += parts.0.len();
                let prepare = Prepare { session: *session, transaction: *transaction, round: *round, parts };
                self.request.prepares.push(prepare);
                self.prepares.push(message);
            }
            Message::Finish { transaction, commit, made } => {
                let finish = Finish { transaction: *transaction, commit: *commit, made: *made };
                self.request.finishes.push(finish);
                self.finishes.push(message);
            }
            Message::AskOutcome { .. } | Message::Climb { .. } => {}
        }
    }

    /// A lone promise is asked for as such: it may wait for others there, since nothing waits with it.
    fn close(mut self) -> Parcel {
        let is_alone = self.finishes.is_empty() && self.prepares.len() == 1;
        let alone = if is_alone { self.prepares.pop() } else { None };
        alone.map_or_else(|| Parcel::Bundle(self), Parcel::Alone)
    }

    pub(super) fn asks_for_promises(&self) -> bool {
        !self.prepares.is_empty()
    }

    pub(super) fn request(&self) -> &Transact {
        &self.request
    }

    /// All of it came to this.
    pub(super) fn failed(self, reply: &Reply) -> Vec<Fate> {
        self.finishes.into_iter().chain(self.prepares).map(|message| Fate::Replied(message, reply.clone())).collect()
    }

    pub(super) fn answered(self, answer: Transacted) -> Vec<Fate> {
        let Transacted { endings, promises } = answer;
        if endings.len() != self.finishes.len() || promises.len() != self.prepares.len() {
            return self.failed(&Reply::Failed);
        }
        let endings = endings.into_iter().map(reply_of);
        let finished = self.finishes.into_iter().zip(endings).map(|(message, reply)| Fate::Replied(message, reply));
        let promised = self.prepares.into_iter().zip(promises).map(|(message, promise)| match promise {
            Promise::Given(votes) => {
                Fate::Replied(message, deser_votes(&votes.0).map_or(Reply::Failed, Reply::Prepared))
            }
            Promise::Refused(errno) => Fate::Replied(message, Reply::Refused(errno)),
            Promise::Again => Fate::Replied(message, Reply::Failed),
            Promise::Waits => Fate::Waits(message),
        });
        finished.chain(promised).collect()
    }
}

fn reply_of(ending: Ending) -> Reply {
    match ending {
        Ending::Done => Reply::Done,
        Ending::Lost => Reply::Lost,
        Ending::Later => Reply::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use namespace::schema::transaction::ser_votes;
    use namespace::transaction::Haste;
    use namespace::transaction::part::{NewDirectory, Vote};
    use types::error::Errno;
    use types::flags::FileFlags;
    use types::id::{InodeId, SessionId, TransactionId};
    use types::layout::LayoutPolicy;
    use types::time::Timestamp;

    fn prepare(id: u64) -> Message {
        let (session, transaction) = (SessionId(7), TransactionId(id));
        Message::Prepare { session, transaction, round: 0, parts: vec![Part::Unlink(InodeId(id))] }
    }

    fn finish(id: u64, commit: bool) -> Message {
        Message::Finish { transaction: TransactionId(id), commit, made: None }
    }

    fn climb(id: u64) -> Message {
        Message::Climb { transaction: TransactionId(id), inode: InodeId(1), until: InodeId(2) }
    }

    fn packed(messages: Vec<(u16, Message)>) -> Vec<(u16, Vec<Message>)> {
        let outgoing =
            |(to, message)| Outgoing { to: ShardId(to), message, after_sync: false, haste: Haste::WithNextSync };
        let parcels = pack(messages.into_iter().map(outgoing).collect());
        let messages = |parcel: Parcel| match parcel {
            Parcel::Alone(message) => vec![message],
            Parcel::Bundle(bundle) => {
                assert_eq!(bundle.request.finishes.len(), bundle.finishes.len());
                assert_eq!(bundle.request.prepares.len(), bundle.prepares.len());
                bundle.finishes.into_iter().chain(bundle.prepares).collect()
            }
        };
        parcels.into_iter().map(|(to, parcel)| (to.0, messages(parcel))).collect()
    }

    #[test]
    fn what_is_for_one_shard_goes_together() {
        let messages = vec![(1, prepare(1)), (2, prepare(2)), (1, climb(3)), (1, finish(4, true)), (1, prepare(5))];
        let parcels = packed(messages);
        let together = vec![finish(4, true), prepare(1), prepare(5)];
        assert_eq!(parcels, [(1, vec![climb(3)]), (1, together), (2, vec![prepare(2)])]);
    }

    #[test]
    fn a_promise_alone_may_wait_and_an_end_does_not() {
        let outgoing = |message| Outgoing { to: ShardId(1), message, after_sync: false, haste: Haste::WithNextSync };
        let parcel = |message| pack(vec![outgoing(message)]).remove(0).1;
        assert!(matches!(parcel(prepare(1)), Parcel::Alone(message) if message == prepare(1)));
        assert!(matches!(parcel(finish(1, true)), Parcel::Bundle(bundle) if bundle.request.finishes.len() == 1));
    }

    #[test]
    fn what_takes_a_message_back_comes_after_it() {
        let messages = vec![(1, prepare(1)), (1, prepare(2)), (1, finish(3, false)), (1, finish(2, false))];
        let first = vec![finish(3, false), prepare(1), prepare(2)];
        assert_eq!(packed(messages), [(1, first), (1, vec![finish(2, false)])]);
    }

    #[test]
    fn what_waits_for_no_disk_goes_alone_and_first() {
        let make = |id| {
            let (flags, policy, time) = (FileFlags::NONE, LayoutPolicy::default(), Timestamp(1));
            let (access, default, part, fills, at_once) = (None, None, None, false, true);
            let (id_of, parent, mode, uid, gid) = (InodeId(0), InodeId(1), 0o755, 0, 0);
            let new = NewDirectory {
                id: id_of,
                parent,
                mode,
                uid,
                gid,
                flags,
                time,
                policy,
                access,
                default,
                part,
                fills,
                at_once,
            };
            let (session, transaction) = (SessionId(7), TransactionId(id));
            Message::Prepare { session, transaction, round: 0, parts: vec![Part::Make(new)] }
        };
        let messages = vec![(1, prepare(1)), (1, make(2)), (1, finish(3, true)), (1, make(4))];
        assert_eq!(packed(messages), [(1, vec![make(2), make(4)]), (1, vec![finish(3, true), prepare(1)])]);
        let messages = vec![(1, make(2)), (1, make(3)), (1, finish(2, false)), (1, make(4))];
        assert_eq!(packed(messages), [(1, vec![make(2), make(3)]), (1, vec![make(4)]), (1, vec![finish(2, false)])]);
    }

    #[test]
    fn bundles_are_bounded() {
        let parcels = packed((0..2 * MESSAGES_MAX as u64 + 1).map(|id| (1, prepare(id))).collect());
        let counts: Vec<usize> = parcels.iter().map(|(_, messages)| messages.len()).collect();
        assert_eq!(counts, [MESSAGES_MAX, MESSAGES_MAX, 1]);
        let long = |id| Message::Prepare {
            session: SessionId(7),
            transaction: TransactionId(id),
            round: 0,
            parts: vec![Part::Divide { inode: InodeId(1), parts: vec![InodeId(2); PARTS_BYTES_MAX / 16] }],
        };
        let parcels = packed((0..5).map(|id| (1, long(id))).collect());
        let counts: Vec<usize> = parcels.iter().map(|(_, messages)| messages.len()).collect();
        assert_eq!(counts, [2, 2, 1]);
    }

    #[test]
    fn each_message_gets_its_own_reply() {
        let made = |count: u64| {
            let mut bundle = Bundle::default();
            bundle.add(finish(10, true));
            bundle.add(finish(11, true));
            bundle.add(finish(12, true));
            (0..count).for_each(|id| bundle.add(prepare(id)));
            bundle
        };
        let votes = vec![Vote::Made(InodeId(9))];
        let given = || Promise::Given(Bytes(ser_votes(&votes)));
        let spoilt = Promise::Given(Bytes(vec![99]));
        let promises = vec![given(), Promise::Refused(Errno::EMLINK), Promise::Again, Promise::Waits, spoilt];
        let fates = made(5).answered(Transacted { endings: vec![Ending::Done, Ending::Lost, Ending::Later], promises });
        let replied = |message, reply| Fate::Replied(message, reply);
        let expected = [
            replied(finish(10, true), Reply::Done),
            replied(finish(11, true), Reply::Lost),
            replied(finish(12, true), Reply::Failed),
            replied(prepare(0), Reply::Prepared(votes.clone())),
            replied(prepare(1), Reply::Refused(Errno::EMLINK)),
            replied(prepare(2), Reply::Failed),
            Fate::Waits(prepare(3)),
            replied(prepare(4), Reply::Failed),
        ];
        assert_eq!(fates, expected);
        // An answer to something else.
        for (count, promises) in [(2, vec![given()]), (3, vec![]), (3, vec![given(), given()])] {
            let fates = made(1).answered(Transacted { endings: vec![Ending::Done; count], promises });
            assert!(fates.iter().all(|fate| matches!(fate, Fate::Replied(_, Reply::Failed))) && fates.len() == 4);
        }
    }
}
