//! Truncating: the objects first, under a write intent, then the inode.
//!
//! For others it is one moment. The shard tells them that it is under way, so that they wait for its end before they believe
//! an object that has less than they expect (`data.rs`), or the sizes of the objects (`settle.rs`). Who reads only what is
//! not cut yet, reads what was before; who has asked for sizes before it began finds the old size or the new one.

use std::time::Duration;

use layout::{FILE_SIZE_MAX, last_stripe, object_size};
use tracing::warn;
use types::attr::{Attr, SetAttr, SetTime};
use types::cred::Credentials;
use types::error::Errno;
use types::id::{GroupId, InodeId, ObjectId};
use types::layout::Layout;
use wire::v1::meta::{self, InodeReply};
use wire::v1::storage;

use crate::caller::Caller;
use crate::end::Turn;
use crate::file::{File, Intent};
use crate::intent::Purpose;
use crate::router::{Client, Destination};
use crate::shared::Shared;
use crate::unwritten::taken::Taken;

/// Between two attempts to tell a shard that does not answer.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// What became of a truncate.
enum Cut {
    Whole(Box<InodeReply>),
    /// Another session has got a write intent since this one was alone, or this one has lost its own since, and others
    /// may have written. This one is not exclusive any more.
    Raced,
}

impl Client {
    pub(crate) async fn truncate(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        size: u64,
        change: SetAttr,
    ) -> Result<Attr, Errno> {
        if size > FILE_SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        // A path may be truncated that nobody has open here, or that whoever has closes meanwhile.
        self.open(caller, inode, true).await?;
        let result = self.truncate_open(caller, inode, size, change).await;
        // Settles the size, unless somebody else has the file open for writing.
        self.close_now(caller, inode, true).await;
        result
    }

    async fn truncate_open(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        size: u64,
        change: SetAttr,
    ) -> Result<Attr, Errno> {
        // Before any object is cut: the shard asks as well, in the end.
        self.may_be_written(caller, inode, false).await?;
        self.publish(caller, inode).await?;
        if let Some(attr) = self.truncate_inline(caller, inode, size, change).await? {
            return Ok(attr);
        }
        let taken = self.write_out_or_take(caller, inode, size).await?;
        let cut = self.truncate_written(caller, inode, size, change).await;
        match (taken, &cut) {
            (None, _) => {}
            (Some(_), Ok(_)) => self.forget_cut_off(inode),
            // Whoever wrote it was told that it is there.
            (Some(taken), Err(_)) => self.put_back_unwritten(inode, &taken),
        }
        self.attr_of(caller, cut?).await
    }

    /// Writes what is kept back. Where that cannot be, as it may be for want of the room that a truncate is to make, what would
    /// be cut off is taken out, and the rest is written.
    async fn write_out_or_take(&self, caller: &Caller<'_>, inode: InodeId, size: u64) -> Result<Option<Taken>, Errno> {
        match self.write_out(caller, inode).await {
            Ok(()) => return Ok(None),
            Err(Errno::EINTR) => return Err(Errno::EINTR),
            Err(_) => {}
        }
        let taken = self.cut_unwritten(inode, size);
        if let Err(errno) = self.write_out(caller, inode).await {
            self.put_back_unwritten(inode, &taken);
            return Err(errno);
        }
        // As long as it is out, the objects tell.
        self.shared.with_file(inode, File::lose_exclusivity);
        Ok(Some(taken))
    }

    /// Truncates a file of which nothing that is to stay is kept back.
    async fn truncate_written(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        size: u64,
        change: SetAttr,
    ) -> Result<Box<InodeReply>, Errno> {
        let change = SetAttr { size: Some(size), ..change };
        let intends = self.shared.with_file(inode, |file| file.intent != Intent::None).ok_or(Errno::EBADF)?;
        let has_objects = intends || size > 0 || {
            let reply = self.call(caller, Destination::home(inode), &meta::GetAttr { inode }).await?;
            reply.has_objects
        };
        if !has_objects {
            match self.set_at_shard(caller, inode, change, false).await {
                // Somebody has begun to write since.
                Err(Errno::EOPNOTSUPP) => {}
                set => return set,
            }
        }
        let turn = self.turn_at_end(caller, inode).await?;
        let unannounced = self.cut_unannounced(caller, inode, size, change).await.transpose();
        let is_announced = unannounced.is_none();
        let cut = match unannounced {
            Some(cut) => cut,
            None => self.cut_announced(caller, inode, size, change).await,
        };
        match cut {
            Err(_) if is_announced => self.end_announcement(inode, turn),
            Ok(_) | Err(_) => self.leave_end(turn, false),
        }
        cut
    }

    /// Where the file only gets longer nobody has to know that this is under way: one object tells. `None` where it may not.
    async fn cut_unannounced(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        size: u64,
        change: SetAttr,
    ) -> Result<Option<Box<InodeReply>>, Errno> {
        if size == 0 {
            return Ok(None);
        }
        let layout = self.ensure_intent(caller, inode).await?;
        let grows = || self.shared.with_file(inode, |file| file.grows_by_one_object(size)).ok_or(Errno::EBADF);
        // Others may have got an intent since ours was granted, and have made it longer.
        if !grows()? || self.size_alone(caller, inode).await?.is_none() || !grows()? {
            return Ok(None);
        }
        let (_, _growth) = self.change_begins(inode, size)?;
        match self.cut(caller, inode, &layout, size, change).await? {
            Cut::Whole(reply) => Ok(Some(reply)),
            Cut::Raced => Ok(None),
        }
    }

    /// Cuts objects and inode. The shard tells others that this is under way, who wait where it concerns them.
    async fn cut_announced(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        size: u64,
        change: SetAttr,
    ) -> Result<Box<InodeReply>, Errno> {
        loop {
            self.shared.with_file(inode, File::cut_is_announced);
            let layout = self.announce_truncate(caller, inode).await?;
            if let Cut::Whole(reply) = self.cut(caller, inode, &layout, size, change).await? {
                return Ok(reply);
            }
        }
    }

    /// A truncate failed, which the shard may have been told of: as long as it is not told of the end, others wait. The caller,
    /// who may have been killed, does not wait for that. Until then the file stays open here, so that its close, which ends the
    /// intent, does not come first.
    ///
    /// Each time that is told it is this task's turn: told while the next truncate is under way, it would end the announcement
    /// of that. Between two times it is anybody's, so that who comes while the shard is away hears of that as well.
    fn end_announcement(&self, inode: InodeId, mut turn: Turn) {
        let announced = self.shared.with_file(inode, |file| {
            // The truncate has it open.
            file.add_handle(true);
            file.cuts_announced()
        });
        self.in_background(async move |client| {
            let caller = Caller::patient(Credentials::default());
            loop {
                let told = client.ask_for_intent(&caller, inode, Purpose::Write).await;
                client.leave_end_as_found(turn);
                if !matches!(told, Err(Errno::EIO)) || client.shared.has_ended() {
                    break;
                }
                warn!(%inode, "the shard cannot be told of the end of a truncate that failed: it is tried again");
                ring::sleep(TELL_AGAIN).await;
                match client.turn_at_end(&caller, inode).await {
                    // Of a later one the shard hears the end by itself.
                    Ok(next) if client.shared.with_file(inode, |file| file.cuts_announced()) == announced => {
                        turn = next
                    }
                    Ok(_) | Err(_) => break,
                }
            }
            client.close_now(&caller, inode, true).await;
        });
    }

    /// Cuts objects and inode. Where others may write, nobody may append meanwhile: a record half of which is cut off
    /// would be left. Who alone has a write intent needs not hold the end for that, unless others came meanwhile: then the cut
    /// is raced, and made again, so that what they have appended is cut off as well.
    async fn cut(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        layout: &Layout,
        size: u64,
        change: SetAttr,
    ) -> Result<Cut, Errno> {
        self.shared.with_file(inode, File::cut_begins);
        let cut = self.cut_objects_first(caller, inode, layout, size, change).await;
        self.shared.with_file(inode, File::cut_ended);
        cut
    }

    async fn cut_objects_first(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        layout: &Layout,
        size: u64,
        change: SetAttr,
    ) -> Result<Cut, Errno> {
        let state = self.shared.with_file(inode, |file| (file.is_exclusive(), file.uneven, file.size));
        let (alone, uneven, known_size) = state.ok_or(Errno::EBADF)?;
        let told_before = self.shared.locks.tellings(inode.home());
        let old_size = if alone {
            known_size
        } else {
            self.hold_end(caller, inode).await?;
            self.gather(caller, inode, layout).await?.size
        };
        // Who asks the objects for their sizes meanwhile finds the old one or the new one, which one object decides.
        let deciding = last_stripe(layout, old_size);
        let (last, others): (Vec<_>, Vec<_>) = objects_to_cut(layout, old_size, size, uneven || !alone)
            .partition(|&(stripe, ..)| Some(stripe) == deciding);
        for objects in [others, last] {
            if let Err(errno) = self.truncate_objects(caller, inode, objects).await {
                // Some may be cut: the objects tell.
                self.shared.with_file(inode, File::lose_exclusivity);
                return Err(errno);
            }
        }
        // A shard, or a session, that began anew meanwhile knows nothing of who else has written to the end.
        if self.shared.locks.tellings(inode.home()) != told_before {
            return Ok(self.cut_again(inode));
        }
        let now = SetAttr { mtime: Some(SetTime::Now), ..change };
        self.shared.with_file(inode, |file| {
            file.truncated(size);
            file.end.versions.clear();
            // The shard sets the times of a truncate.
            file.times_are_set(&now);
        });
        let told = self.set_at_shard(caller, inode, change, false).await;
        self.shared.with_file(inode, |file| {
            file.times_were_set(&now);
            file.times_are_set_no_more();
            if told.is_err() {
                // Cut it is all the same.
                file.mtime = file.mtime.or(Some(Shared::wall_clock()));
            }
        });
        let is_raced = match &told {
            Ok(reply) => alone && !reply.exclusive,
            // The session had ended, and with it the intent; or others, who waited too long for the end, have it.
            Err(errno) => *errno == Errno::EOPNOTSUPP,
        };
        if is_raced {
            return Ok(self.cut_again(inode));
        }
        told.map(Cut::Whole)
    }

    /// What this client held while it cut is over, or not sure.
    fn cut_again(&self, inode: InodeId) -> Cut {
        self.shared.with_file(inode, |file| {
            file.lose_exclusivity();
            file.end.given_up();
        });
        Cut::Raced
    }

    async fn truncate_objects(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        cut: impl IntoIterator<Item = (u32, GroupId, u64)>,
    ) -> Result<(), Errno> {
        let cuts = cut.into_iter().map(async |(stripe, group, size)| {
            let object = ObjectId { inode, stripe };
            let request = storage::Truncate { object, size, unchanged_since: 0 };
            let reply = self.call(caller, Destination::Object(group, object), &request).await?;
            self.changed(object, reply.version);
            Ok(())
        });
        ring::join_all(cuts).await.into_iter().collect()
    }
}

/// Every object that could reach beyond its share of `size` is cut, and the one with the last byte is made exactly as
/// long as it must be, so that the objects' sizes tell the file's. Where space may be reserved beyond the objects' ends
/// (`uneven`) all are cut, since a truncate gives that back. Stripes with their new lengths in bytes.
fn objects_to_cut(
    layout: &Layout,
    old_size: u64,
    size: u64,
    uneven: bool,
) -> impl Iterator<Item = (u32, GroupId, u64)> + '_ {
    let last = last_stripe(layout, size);
    (0u32..).zip(&layout.groups).filter_map(move |(stripe, &group)| {
        let length = object_size(layout, stripe, size);
        let shrinks = object_size(layout, stripe, old_size) > length;
        (shrinks || uneven || last == Some(stripe)).then_some((stripe, group, length))
    })
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::task::Poll;

    use ring::buf::Slice;
    use types::time::Timestamp;

    use wire::codec::decode_body;
    use wire::frame::Status;
    use wire::op::Op;
    use wire::v1::storage::ObjectStat;

    use super::*;
    use crate::{test_client, test_cluster};

    #[test]
    fn what_a_truncate_cuts() {
        let layout = Layout { chunk_size: 4096, groups: vec![GroupId(1), GroupId(2), GroupId(3)] };
        let cut = |old_size, size, uneven| {
            objects_to_cut(&layout, old_size, size, uneven).map(|(stripe, _, len)| (stripe, len)).collect::<Vec<_>>()
        };
        assert_eq!(cut(10_000, 5000, false), [(1, 904), (2, 0)]);
        assert_eq!(cut(100, 5000, false), [(1, 904)], "longer: the last one alone");
        assert_eq!(cut(100, 0, false), [(0, 0)]);
        assert_eq!(cut(100, 0, true), [(0, 0), (1, 0), (2, 0)], "space may be reserved in each");
    }

    /// So long nobody's turn lasts here, with a bound of some milliseconds.
    const LONG: Duration = Duration::from_secs(20);

    async fn truncate(client: &Client, inode: InodeId, size: u64) -> Option<Result<Attr, Errno>> {
        let caller = Caller::patient(Credentials::default());
        ring::timeout(LONG, client.truncate(&caller, inode, size, SetAttr::default())).await.ok()
    }

    /// A file that its client alone writes, with what `change` makes of it.
    fn with_intent(shared: &Shared, inode: InodeId, change: impl FnOnce(&mut File)) {
        let intent = Intent::Held { exclusive: true, recorded: false, synced: 0, intents: 1 };
        shared.with_new_file(inode, || test_client::file(inode), |file| file.intent = intent);
        shared.with_file(inode, change);
    }

    /// Another mount has got an intent since and made it longer: object by object, its end would be lost in the middle.
    #[test]
    fn who_makes_a_file_longer_unannounced_asks_whether_it_is_alone_still() {
        let (file, caller) = (InodeId(77), Caller::patient(Credentials::default()));
        test_cluster::run(async |shard, [client, _]| {
            with_intent(&client.shared, file, |file| file.size = 100);
            let cuts = async || {
                let cut = client.cut_unannounced(&caller, file, 8192, SetAttr::default()).await;
                assert!(matches!(cut, Ok(None)), "{:?}", cut.err());
            };
            let answers = async || {
                shard.opens_session(1).await;
                shard.next(Op::GetAttr).await.responder.reply(&test_client::reply(file));
                shard.nothing_comes().await;
            };
            test_cluster::join(cuts(), answers()).await;
        });
    }

    /// Between the two questions another mount has begun to write it.
    #[test]
    fn what_is_refused_without_an_intent_is_cut_under_one() {
        let (file, caller) = (InodeId(77), Caller::patient(Credentials::default()));
        test_cluster::run(async |shard, [client, _]| {
            client.shared.with_new_file(file, || test_client::file(file), |file| file.add_handle(true));
            let cuts = async {
                let cut = client.truncate_written(&caller, file, 0, SetAttr::default()).await;
                assert_eq!(cut.err(), Some(Errno::ESTALE));
            };
            let answers = async {
                shard.opens_session(1).await;
                let reply = InodeReply { has_objects: false, ..test_client::reply(file) };
                shard.next(Op::GetAttr).await.responder.reply(&reply);
                shard.refuses(Op::Set, Errno::EOPNOTSUPP).await;
                let asked = shard.next(Op::WriteIntent).await;
                let message: meta::WriteIntent = decode_body(&asked.body).expect("for an intent");
                assert!(message.cuts);
                asked.responder.fail(Status::Errno(Errno::ESTALE));
            };
            test_cluster::join(cuts, answers).await;
        });
    }

    /// It stood still between the cut and that, and others have written since: its intent is gone, or the end that it held.
    #[test]
    fn a_truncate_that_lost_what_it_held_before_the_shard_was_told_begins_anew() {
        let (file, caller) = (InodeId(77), Caller::patient(Credentials::default()));
        test_cluster::run(async |shard, [client, _]| {
            with_intent(&client.shared, file, |_| {});
            let cuts = async {
                client.hold_end(&caller, file).await.expect("it is granted");
                let cut = client.cut(&caller, file, &test_client::layout(), 0, SetAttr::default()).await;
                assert!(matches!(cut, Ok(Cut::Raced)), "{:?}", cut.err());
            };
            let answers = async {
                shard.opens_session(1).await;
                shard.does(Op::Lock).await;
                shard.refuses(Op::Set, Errno::EOPNOTSUPP).await;
            };
            test_cluster::join(cuts, answers).await;
            let holds = client.shared.with_file(file, |file| (file.is_exclusive(), file.end.is_held()));
            assert_eq!(holds, Some((false, false)), "all is asked for again");
        });
    }

    /// The shard has begun anew, and was told that the end is held: it may have been another's in between.
    #[test]
    fn a_truncate_during_which_the_shard_began_anew_is_made_again_before_the_size_is_set() {
        let (file, caller) = (InodeId(77), Caller::patient(Credentials::default()));
        test_cluster::run(async |shard, [client, _]| {
            with_intent(&client.shared, file, File::lose_exclusivity);
            let cuts = async {
                let cut = client.cut(&caller, file, &test_client::layout(), 0, SetAttr::default()).await;
                assert!(matches!(cut, Ok(Cut::Raced)), "{:?}", cut.err());
            };
            let answers = async {
                shard.opens_session(1).await;
                shard.does(Op::Lock).await;
                let stat = shard.next(Op::Stat).await;
                drop(client.shared.locks.tell(file.home()));
                let objects = vec![ObjectStat { exists: false, version: 1, size: 0, blocks: 0, mtime: Timestamp(0) }];
                stat.responder.reply(&storage::StatReply { objects });
                shard.does(Op::Ping).await;
                shard.next(Op::Truncate).await.responder.reply(&storage::ObjectReply { version: 2, size: 0 });
                shard.nothing_comes().await;
            };
            test_cluster::join(cuts, answers).await;
            assert_eq!(client.shared.with_file(file, |file| file.end.is_held()), Some(false));
        });
    }

    #[test]
    fn who_comes_after_a_truncate_that_has_not_begun_hears_of_the_error_too() {
        let file = InodeId(77);
        test_client::run(async |client| {
            let state = |file: &mut File| (file.handles, file.writers);
            client.shared.with_new_file(file, || test_client::file(file), |file| file.add_handle(true));
            for _ in 0..2 {
                assert_eq!(truncate(&client, file, 8192).await, Some(Err(Errno::EIO)), "nobody grants an intent");
                assert_eq!(client.shared.with_file(file, state), Some((1, 1)), "there is nothing to be told");
            }
        });
    }

    #[test]
    fn who_comes_after_a_truncate_whose_end_cannot_be_told_hears_of_the_error_too() {
        let (file, caller) = (InodeId(77), Caller::patient(Credentials::default()));
        test_client::run(async |client| {
            let shared = &client.shared;
            with_intent(shared, file, |file| file.add_handle(true));
            for _ in 0..2 {
                assert_eq!(truncate(&client, file, 0).await, Some(Err(Errno::EIO)));
            }
            let record = Slice::from_vec(vec![7]);
            let appended = client.append(&caller, file, client.place_to_append(file, 0), &record, false);
            assert_eq!(ring::timeout(LONG, appended).await.ok(), Some(Err(Errno::EIO)));
            // Only the last one's end is still to be told.
            let one_is_left = async || {
                while shared.with_file(file, |file| file.handles) != Some(2) {
                    ring::sleep(TELL_AGAIN / 10).await;
                }
            };
            assert!(ring::timeout(LONG, one_is_left()).await.is_ok());
        });
    }

    #[test]
    fn who_looks_while_a_file_is_truncated_sees_the_last_write() {
        let (file, caller) = (InodeId(77), Caller::patient(Credentials::default()));
        test_client::run(async |client| {
            let shared = &client.shared;
            with_intent(shared, file, |file| file.wrote(0, 0, Timestamp(9)));
            let (layout, seen) = (test_client::layout(), || shared.in_file(file, |file| file.mtime));
            // No object is as long, so that nothing is asked but the shard.
            let mut cutting = pin!(client.cut(&caller, file, &layout, 0, SetAttr::default()));
            assert!(poll_fn(|context| Poll::Ready(cutting.as_mut().poll(context).is_pending())).await);
            assert_eq!(seen(), Some(Timestamp(9)));
            assert_eq!(cutting.await.err(), Some(Errno::EIO), "nobody answers");
            assert!(seen() > Some(Timestamp(9)), "the objects are cut");
        });
    }
}
