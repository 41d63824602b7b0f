//! Sizes: who knows them, asking the objects, and telling the shard.

use std::time::{Duration, Instant};

use layout::{file_size, object_size};
use types::attr::Attr;
use types::error::Errno;
use types::id::{GroupId, InodeId, ObjectId};
use types::layout::Layout;
use types::time::{Pauses, Timestamp};
use wire::v1::meta::{self, InodeReply, TimeChange};
use wire::v1::storage::{self, ObjectStat};

use crate::caller::Caller;
use crate::file::{File, Intent};
use crate::gather::Sweep;
use crate::parts::is_split;
use crate::router::{Client, Destination};

/// Attempts to settle a file that others write to; then it is left to the last of them.
const SETTLE_ATTEMPTS: usize = 3;

/// No number of intents. In a refusal: others intend to write the file. In a request: the objects were not asked.
const NO_INTENTS: u64 = 0;

/// When it is first looked again whether a truncate has ended; each further pause is twice as long, up to the longest.
const LOOK_IF_CUT: Duration = Duration::from_micros(500);
const LOOK_IF_CUT_MAX: Duration = Duration::from_millis(10);

/// What the objects of a file say together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gathered {
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    /// The time of the newest change; `None` where there is no object.
    pub(crate) mtime: Option<Timestamp>,
}

/// What asking the objects of an unsettled file came to.
enum Found {
    /// It is still unsettled, and this is what its objects said at one moment.
    Unsettled(Gathered),
    /// It was settled meanwhile, and these are its attributes.
    Settled(Attr),
}

/// Combines the objects' answers, in the order of the stripes.
pub(crate) fn combine(layout: &Layout, objects: &[ObjectStat]) -> Gathered {
    Gathered {
        size: file_size(layout, objects.iter().map(|object| object.size)),
        blocks: objects.iter().map(|object| object.blocks).sum(),
        mtime: objects.iter().filter(|object| object.exists).map(|object| object.mtime).max(),
    }
}

/// The modification time where the objects have the say: a write counts if it came after it was set explicitly.
fn effective_mtime(attr: &Attr, written: Option<Timestamp>, written_after: Option<Timestamp>) -> Timestamp {
    written.filter(|&written| written > written_after.unwrap_or(attr.ctime)).unwrap_or(attr.mtime)
}

/// What is known here of the size of a file that this session alone writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SizeKnown {
    /// The size, and how much space it takes.
    WithBlocks,
    Alone,
    /// The objects may have more: a change that makes the file longer is under way.
    Grows,
}

impl File {
    fn size_known(&self) -> SizeKnown {
        match self.estimated_blocks() {
            _ if self.is_growing() => SizeKnown::Grows,
            Some(_) => SizeKnown::WithBlocks,
            None => SizeKnown::Alone,
        }
    }
}

impl Client {
    /// The attributes as they are now, with the help of whoever knows the size.
    pub(crate) async fn attr_of(&self, caller: &Caller<'_>, reply: Box<InodeReply>) -> Result<Attr, Errno> {
        self.attr_asked_at(caller, reply, None).await
    }

    /// The attributes as they are now, from a reply to what was asked `at` this moment: the reply may not know of reads
    /// of which the shard was told since.
    pub(crate) async fn attr_asked_at(
        &self,
        caller: &Caller<'_>,
        reply: Box<InodeReply>,
        at: Option<Instant>,
    ) -> Result<Attr, Errno> {
        if is_split(&reply) {
            return self.attr_of_split(caller, reply.attr).await;
        }
        let mut reply = self.after_cuts(caller, reply).await?;
        let mut attr = reply.attr;
        if !self.complete(&reply, &mut attr, true, at) {
            let inode = attr.inode;
            let again = self.call(caller, Destination::home(inode), &meta::GetAttr { inode }).await?;
            reply = self.after_cuts(caller, again).await?;
            attr = reply.attr;
            self.complete(&reply, &mut attr, false, None);
        }
        if !reply.unsettled {
            return Ok(attr);
        }
        if reply.exclusive {
            let known = self.shared.in_file(attr.inode, |file| {
                // An answer from before our own grant knows nothing of it.
                file.completes_exclusive().then(|| file.overlay(&mut attr)).map(|()| file.size_known())
            });
            match known {
                Some(SizeKnown::WithBlocks) => return Ok(attr),
                Some(SizeKnown::Alone) => {
                    attr.blocks = self.gather(caller, attr.inode, &checked_layout(&reply)?).await?.blocks;
                    return Ok(attr);
                }
                Some(SizeKnown::Grows) => {
                    let gathered = self.sweep(caller, attr.inode, &checked_layout(&reply)?).await?;
                    attr.mtime = attr.mtime.max(effective_mtime(&attr, gathered.mtime, reply.written_after));
                    (attr.size, attr.ctime) = (attr.size.max(gathered.size), attr.ctime.max(attr.mtime));
                    attr.blocks = gathered.blocks;
                    return Ok(attr);
                }
                None => {}
            }
        }
        if let Err(Errno::EINTR) = self.write_out(caller, attr.inode).await {
            return Err(Errno::EINTR);
        }
        let written_after = reply.written_after;
        let gathered = match self.gather_between_cuts(caller, reply).await? {
            Found::Unsettled(gathered) => gathered,
            Found::Settled(attr) => return Ok(attr),
        };
        attr.size = gathered.size;
        attr.blocks = gathered.blocks;
        let mtime = effective_mtime(&attr, gathered.mtime, written_after);
        attr.ctime = attr.ctime.max(mtime);
        attr.mtime = mtime;
        Ok(attr)
    }

    /// Puts what is kept back here over what the shard says, and takes the rest over. False where the shard says that it is a
    /// draft (`may_be_old`), and it is none any more: another thread has told it since, and this is from before that. The same
    /// where it was told of a read since it was asked, `at` this moment.
    fn complete(&self, reply: &InodeReply, attr: &mut Attr, may_be_old: bool, at: Option<Instant>) -> bool {
        let inode = attr.inode;
        let lacks_read = || at.is_some_and(|at| self.shared.may_lack_read(inode, at));
        let completed = self.shared.with_file(inode, |file| {
            if lacks_read() {
                return false;
            }
            if !reply.draft {
                // Others were told of it, or it has been told: what was not changed by then is as the shard says.
                file.draft.take_if(|draft| !draft.is_changed() && draft.is_free());
            }
            if !reply.draft || !file.overlay_draft(attr) {
                if reply.draft && may_be_old {
                    return false;
                }
                file.meets(attr, reply.written_after);
            }
            file.inline_limit = file.inline_limit.min(reply.inline_limit);
            true
        });
        completed.unwrap_or_else(|| (!reply.draft || !may_be_old) && !lacks_read())
    }

    /// Asks the objects for the size at one moment. Each is asked by itself: where a truncate has begun meanwhile, of
    /// what they say some is from before it, and some from after, and it is asked anew, unless the file is settled when
    /// that is over.
    async fn gather_between_cuts(&self, caller: &Caller<'_>, mut reply: Box<InodeReply>) -> Result<Found, Errno> {
        let inode = reply.attr.inode;
        loop {
            let layout = checked_layout(&reply)?;
            let gathered = self.sweep(caller, inode, &layout).await?;
            if layout.groups.len() == 1 {
                return Ok(Found::Unsettled(gathered));
            }
            let again = self.call(caller, Destination::home(inode), &meta::GetAttr { inode }).await?;
            if again.cuts == reply.cuts {
                return Ok(Found::Unsettled(gathered));
            }
            reply = self.after_cuts(caller, again).await?;
            if !reply.unsettled {
                return Ok(Found::Settled(reply.attr));
            }
            if caller.is_ending() {
                return Err(Errno::EINTR);
            }
        }
    }

    /// While somebody truncates a file, its objects say nothing that may be told: waits for the end of it, which is at the
    /// latest that of the truncating client's session.
    pub(crate) async fn after_cuts(
        &self,
        caller: &Caller<'_>,
        mut reply: Box<InodeReply>,
    ) -> Result<Box<InodeReply>, Errno> {
        let mut pauses = Pauses::new(LOOK_IF_CUT, LOOK_IF_CUT_MAX);
        while reply.cutting {
            if caller.is_ending() {
                return Err(Errno::EINTR);
            }
            ring::sleep(pauses.take()).await;
            let inode = reply.attr.inode;
            reply = self.call(caller, Destination::home(inode), &meta::GetAttr { inode }).await?;
        }
        Ok(reply)
    }

    /// Whether this client knows size and blocks of an unsettled file without asking anybody.
    pub(crate) fn knows_size(&self, reply: &InodeReply) -> bool {
        let knows = |file: &mut File| file.completes_exclusive() && file.size_known() == SizeKnown::WithBlocks;
        reply.exclusive && self.shared.file_is(reply.attr.inode, knows)
    }

    /// Asks all objects of a file, each once: the size is right where nobody writes meanwhile.
    pub(crate) async fn gather(&self, caller: &Caller<'_>, inode: InodeId, layout: &Layout) -> Result<Gathered, Errno> {
        Ok(combine(layout, &self.objects(caller, inode, layout).await?))
    }

    /// Asks the objects for the size at one moment, while others may write: see [`crate::gather`].
    async fn sweep(&self, caller: &Caller<'_>, inode: InodeId, layout: &Layout) -> Result<Gathered, Errno> {
        let mut sweep = Sweep::new(layout);
        loop {
            let wanted = sweep.wanted();
            if wanted.is_empty() {
                return Ok(combine(layout, &sweep.into_objects()));
            }
            sweep.saw(self.some_objects(caller, inode, layout, wanted).await?);
        }
    }

    /// What all objects of a file say, in the order of the stripes.
    pub(crate) async fn objects(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        layout: &Layout,
    ) -> Result<Vec<ObjectStat>, Errno> {
        self.some_objects(caller, inode, layout, 0..layout.groups.len() as u32).await
    }

    async fn some_objects(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        layout: &Layout,
        stripes: impl IntoIterator<Item = u32>,
    ) -> Result<Vec<ObjectStat>, Errno> {
        let asked = stripes
            .into_iter()
            .map(async |stripe| self.object(caller, layout.groups[stripe as usize], ObjectId { inode, stripe }).await);
        ring::join_all(asked).await.into_iter().collect()
    }

    pub(crate) async fn object(
        &self,
        caller: &Caller<'_>,
        group: GroupId,
        object: ObjectId,
    ) -> Result<ObjectStat, Errno> {
        let request = storage::Stat { objects: vec![object] };
        let reply = self.call(caller, Destination::Object(group, object), &request).await?;
        reply.objects.into_iter().next().ok_or(Errno::EIO)
    }

    /// Tells the shard what the writes came to, and ends the write intent: with [`Settling::Release`] unless somebody has the
    /// file open for writing by now, whose writes may be on their way under that intent, and whose close will settle it. False
    /// where nothing was told, since there is no intent any more: then a close has still to be told as well.
    pub(crate) async fn settle(&self, caller: &Caller<'_>, inode: InodeId, how: Settling) -> Result<bool, Errno> {
        loop {
            self.wait_while_settling(caller, inode).await?;
            match self.shared.with_file(inode, |file| file.begin_settling(how)) {
                Some(Begun::Ours) => break,
                // Another thread has begun one meanwhile.
                Some(Begun::UnderWay) => {}
                Some(Begun::LeftToWriters) | None => return Ok(false),
            }
        }
        let result = self.settle_until_accepted(caller, inode, how).await;
        if result.is_err() {
            self.shared.unsettled.failed(inode);
        }
        self.shared.contents.forget(inode);
        self.shared.with_file(inode, |file| {
            (file.settling, file.settles_exactly) = (false, false);
            file.done.wake();
        });
        result
    }

    async fn settle_until_accepted(&self, caller: &Caller<'_>, inode: InodeId, how: Settling) -> Result<bool, Errno> {
        if !self.write_out_for_good(caller, inode).await {
            // The objects tell what there is.
            self.shared.with_file(inode, File::lose_exclusivity);
        }
        // The intent ends with the first request, whatever its answer: a write from here on gets a new one, which the
        // shard notices by the number of intents.
        let state = self.shared.in_file(inode, |file| {
            if how == Settling::Release && file.writers > 0 {
                return None;
            }
            let outcome = Outcome::of(file);
            file.settles_exactly = file.is_exclusive();
            file.end.given_up();
            file.intent_ended();
            self.shared.gives_up(inode);
            Some((outcome, std::mem::replace(&mut file.intent, Intent::None)))
        });
        let Some((outcome, Intent::Held { exclusive, .. })) = state else { return Ok(false) };
        // Where others write too, the end of each one's intent makes what another has asked its objects count for nothing. They
        // are asked by who is told that it was the last one.
        let mut gathered = (!exclusive).then_some(NO_INTENTS);
        for attempt in 0..SETTLE_ATTEMPTS {
            match self.settle_once(caller, inode, &outcome, gathered, how).await {
                Ok(settled) => {
                    self.shared.unsettled.ended(inode);
                    let Some(intents) = settled else { return Ok(true) };
                    gathered = Some(intents);
                }
                // The attempt before has ended our open, and with it the file, which had no name any more.
                Err(Errno::ESTALE) if attempt > 0 && how == Settling::Close => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        // Others write on: the last of them settles it, and until then everyone asks the objects.
        Ok(true)
    }

    /// `None` where there is nothing more to settle, or others will do so; else the number of intents under which to ask the
    /// objects.
    async fn settle_once(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        outcome: &Outcome,
        gathered: Option<u64>,
        how: Settling,
    ) -> Result<Option<u64>, Errno> {
        let request = self.settle_request(caller, inode, outcome, gathered, how).await?;
        let reply = self.call(caller, Destination::home(inode), &request.message).await?;
        self.shared.has_told_of_read(inode, request.message.read.as_ref());
        if !reply.settled {
            return Ok(Some(reply.intents).filter(|&intents| intents != NO_INTENTS));
        }
        self.shared.with_file(inode, |file| {
            file.settled(request.message.mtime);
            file.unsynced.record_changed();
        });
        Ok(None)
    }

    /// `gathered`: the number of intents under which the objects have to be asked, or [`NO_INTENTS`]; `None` where this client
    /// knows.
    async fn settle_request(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        outcome: &Outcome,
        gathered: Option<u64>,
        how: Settling,
    ) -> Result<SettleRequest, Errno> {
        let (mut size, mut blocks, mut mtime) = (outcome.size, outcome.blocks.unwrap_or(0), outcome.mtime.clone());
        if gathered == Some(NO_INTENTS) {
            // Of a file that is settled after all, others have told it.
            mtime = None;
        } else if gathered.is_some() || outcome.blocks.is_none() {
            let objects = self.gather(caller, inode, &outcome.layout).await?;
            blocks = objects.blocks;
            if gathered.is_some() {
                size = objects.size;
                let current = self.call(caller, Destination::home(inode), &meta::GetAttr { inode }).await?;
                let written = effective_mtime(&current.attr, objects.mtime, current.written_after);
                let before = current.attr.mtime;
                mtime = (written != before).then_some(TimeChange { at: written, before });
            }
        }
        // Not before: until it is answered, the shard keeps the answers to all that follow.
        let numbered = self.shared.begin_change(inode.home());
        let message = meta::Settle {
            exactly: numbered.exactly.clone(),
            inode,
            size,
            blocks,
            mtime,
            gathered,
            release: true,
            close: how == Settling::Close,
            untouched: outcome.untouched && gathered.is_none(),
            read: outcome.read.clone(),
            drafted: None,
        };
        Ok(SettleRequest { message, _numbered: numbered })
    }

    /// How many of the layout's objects a file of this size can have: those that a sync or truncate concerns.
    pub(crate) fn stripes_in_use(layout: &Layout, size: u64) -> impl Iterator<Item = u32> + '_ {
        (0..layout.groups.len() as u32).filter(move |&stripe| object_size(layout, stripe, size) > 0)
    }
}

impl File {
    /// Marks the file as being settled, where it is for the caller to settle it.
    fn begin_settling(&mut self, how: Settling) -> Begun {
        if self.settling {
            return Begun::UnderWay;
        }
        if how == Settling::Release && self.writers > 0 {
            return Begun::LeftToWriters;
        }
        self.settling = true;
        Begun::Ours
    }
}

/// Who settles a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Begun {
    /// A settling is under way already. Of two, the one that is told late would end an intent that was got after the
    /// other.
    UnderWay,
    /// Those who have it open for writing: the last of them will, when it closes the file.
    LeftToWriters,
    /// Who has asked.
    Ours,
}

/// What ends with a settling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Settling {
    /// The write intent.
    Release,
    /// The write intent and the open.
    Close,
}

/// What the writes under an intent came to, taken in the moment in which it ends: from then on others of this client may be
/// told of the file what the shard knew before.
struct Outcome {
    layout: Layout,
    size: u64,
    blocks: Option<u64>,
    mtime: Option<TimeChange>,
    untouched: bool,
    read: Option<TimeChange>,
}

impl Outcome {
    fn of(file: &File) -> Self {
        Self {
            layout: file.layout.clone(),
            size: file.size,
            blocks: file.estimated_blocks(),
            mtime: file.write_time(),
            untouched: file.untouched,
            read: file.read_time(),
        }
    }
}

/// A settling with its number, which stays taken until the answer.
struct SettleRequest {
    message: meta::Settle,
    _numbered: crate::shards::NumberedChange,
}

pub(crate) fn checked_layout(reply: &InodeReply) -> Result<Layout, Errno> {
    let layout = reply.layout.clone().ok_or(Errno::EIO)?;
    layout::validate(&layout).map_err(|_| Errno::EIO)?;
    Ok(layout)
}

#[cfg(test)]
mod tests {

    use types::cred::Credentials;
    use wire::op::Op;

    use super::*;
    use crate::{test_client, test_cluster};

    const FILE: InodeId = InodeId(77);

    fn object(size: u64, mtime: i64) -> ObjectStat {
        ObjectStat { exists: size > 0, version: 1, size, blocks: size.div_ceil(512), mtime: Timestamp(mtime) }
    }

    #[test]
    fn the_objects_tell_size_blocks_and_newest_change() {
        let layout = Layout { chunk_size: 4096, groups: vec![GroupId(1), GroupId(2)] };
        let gathered = combine(&layout, &[object(4096, 7), object(100, 9)]);
        assert_eq!(gathered, Gathered { size: 4196, blocks: 9, mtime: Some(Timestamp(9)) });
        let nothing = combine(&layout, &[object(0, 7), object(0, 9)]);
        assert_eq!(nothing, Gathered { size: 0, blocks: 0, mtime: None });
    }

    /// On two threads both may find that none is under way.
    #[test]
    fn of_two_settlings_of_a_file_the_second_waits_for_the_first() {
        let mut file = test_client::file(FILE);
        file.add_handle(true);
        assert_eq!(file.begin_settling(Settling::Release), Begun::LeftToWriters, "it is being written");
        assert_eq!(file.begin_settling(Settling::Close), Begun::Ours);
        assert_eq!(file.begin_settling(Settling::Close), Begun::UnderWay);
        assert_eq!(file.begin_settling(Settling::Release), Begun::UnderWay);
        (file.settling, file.writers) = (false, 0);
        assert_eq!(file.begin_settling(Settling::Release), Begun::Ours);
    }

    #[test]
    fn an_answer_from_before_a_draft_was_told_is_asked_for_again() {
        let caller = Caller::patient(Credentials::default());
        let answered = test_client::run(async |client| {
            client.shared.with_new_file(
                FILE,
                || test_client::file(FILE),
                |file| file.told_times(Timestamp(8), Timestamp(9)),
            );
            let reply = InodeReply { draft: true, ..test_client::reply(FILE) };
            let answered = client.attr_of(&caller, Box::new(reply)).await;
            let known = client.shared.with_file(FILE, |file| file.atime);
            (answered, known)
        });
        assert_eq!(answered, (Err(Errno::EIO), Some(Timestamp(8))), "nobody answers");
    }

    /// The answer to an open that was on its way when the last writer closed the file: it may come while that is being told,
    /// on any thread.
    #[test]
    fn what_is_settled_is_what_was_known_when_the_intent_ended() {
        let caller = Caller::patient(Credentials::default());
        let settled = test_client::run(async |client| {
            let reply = InodeReply { unsettled: true, exclusive: true, ..test_client::reply(FILE) };
            client.shared.with_new_file(FILE, || test_client::file(FILE), |file| file.add_handle(true));
            client.shared.granted(FILE, &reply, &client.shared.endings.now());
            let ended = client.shared.with_file(FILE, |file| {
                file.wrote(0, 8192, Timestamp(9));
                let outcome = Outcome::of(file);
                file.intent = Intent::None;
                outcome
            });
            let outcome = ended.expect("it is open");
            client.shared.with_file(FILE, |file| file.told_size(&reply.attr));
            client.settle_request(&caller, FILE, &outcome, None, Settling::Close).await.map(|request| request.message)
        });
        assert_eq!(settled.map(|message| (message.size, message.blocks, message.gathered)), Ok((8192, 16, None)));
    }

    /// Thousands may close it one after the other.
    #[test]
    fn who_settles_a_file_that_others_write_asks_its_objects_only_when_it_is_the_last_one() {
        let caller = Caller::patient(Credentials::default());
        test_client::run(async |client| {
            let mut file = test_client::file(FILE);
            file.wrote(0, 8192, Timestamp(9));
            let outcome = Outcome::of(&file);
            let request = async |gathered| {
                let request = client.settle_request(&caller, FILE, &outcome, Some(gathered), Settling::Close).await;
                request.map(|SettleRequest { message, .. }| (message.gathered, message.mtime, message.release))
            };
            assert_eq!(request(NO_INTENTS).await, Ok((Some(NO_INTENTS), None, true)));
            assert_eq!(request(7).await, Err(Errno::EIO), "no object answers");
        });
    }

    #[test]
    fn who_is_not_alone_asks_the_objects_when_the_shard_has_said_that_it_was_the_last_one() {
        let caller = Caller::patient(Credentials::default());
        test_cluster::run(async |shard, [client, _]| {
            let closes = async || {
                for result in [Ok(true), Err(Errno::EIO)] {
                    client.shared.with_new_file(FILE, || test_client::file(FILE), |file| file.add_handle(true));
                    let reply = InodeReply { unsettled: true, ..test_client::reply(FILE) };
                    client.shared.granted(FILE, &reply, &client.shared.endings.now());
                    assert_eq!(client.settle(&caller, FILE, Settling::Close).await, result);
                }
            };
            let answers = async || {
                shard.opens_session(1).await;
                for intents in [NO_INTENTS, 7] {
                    let refused = meta::SettleReply { settled: false, intents };
                    shard.next(Op::Settle).await.responder.reply(&refused);
                }
                shard.refuses(Op::Stat, Errno::EIO).await;
                shard.nothing_comes().await;
            };
            test_cluster::join(closes(), answers()).await;
        });
    }

    /// Others may have been told of what the objects have by then.
    #[test]
    fn while_a_change_makes_a_file_longer_its_objects_are_asked_for_the_size() {
        let caller = Caller::patient(Credentials::default());
        test_client::run(async |client| {
            let reply = || Box::new(InodeReply { unsettled: true, exclusive: true, ..test_client::reply(FILE) });
            client.shared.with_new_file(FILE, || test_client::file(FILE), |file| file.add_handle(true));
            client.shared.granted(FILE, &reply(), &client.shared.endings.now());
            client.shared.with_file(FILE, |file| file.wrote(0, 8192, Timestamp(9)));
            let size = async || client.attr_of(&caller, reply()).await.map(|attr| attr.size);
            let growing = client.change_begins(FILE, 8193).expect("it is open");
            assert_eq!(size().await, Err(Errno::EIO), "no object answers");
            assert!(!client.knows_size(&reply()));
            drop(growing);
            assert_eq!(size().await, Ok(8192));
        });
    }

    /// The shard may never have heard that the intent was to end, and say of the next one that it is the same.
    #[test]
    fn after_a_settling_that_failed_the_shard_is_not_believed_what_it_says_of_the_size() {
        let caller = Caller::patient(Credentials::default());
        test_client::run(async |client| {
            let reply = InodeReply { unsettled: true, exclusive: true, ..test_client::reply(FILE) };
            client.shared.with_new_file(FILE, || test_client::file(FILE), |file| file.add_handle(true));
            client.shared.granted(FILE, &reply, &client.shared.endings.now());
            let written = client.shared.with_file(FILE, |file| {
                file.wrote(8192, 10, Timestamp(9));
                file.writers = 0;
                file.is_exclusive()
            });
            assert_eq!(written, Some(true));
            let before = client.shared.endings.now();
            assert_eq!(client.settle(&caller, FILE, Settling::Release).await, Err(Errno::EIO));
            assert!(!client.shared.granted(FILE, &reply, &before), "that was the one that has ended");
            let intent = client.shared.with_file(FILE, |file| file.intent);
            assert_eq!(intent, Some(Intent::None));
            client.shared.granted(FILE, &reply, &client.shared.endings.now());
            assert_eq!(client.shared.with_file(FILE, |file| file.is_exclusive()), Some(false));
            client.shared.unsettled.ended(FILE);
            client.shared.with_file(FILE, File::lose_intent);
            client.shared.granted(FILE, &reply, &client.shared.endings.now());
            assert_eq!(client.shared.with_file(FILE, |file| file.is_exclusive()), Some(true));
        });
    }
}
