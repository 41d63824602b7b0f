//! Appending: each write goes to the end of the file as it is then, whole, and never over what somebody else wrote.
//!
//! Two things see to that. Among those who append and cut, the holder of the end (see [`crate::end`]) is alone: it finds
//! where the end is and writes there. And each piece is written under the version that its object had when the end was
//! seen: an object that was changed meanwhile refuses it. That covers ordinary writes beyond the end, which nobody asks to
//! hold anything, a client that was stopped for so long that others hold the end by now, and requests that arrive after
//! their sender gave up.
//!
//! What fits into the metadata is appended there ([`crate::inline`]), by the shard.
//!
//! The piece where the record begins goes first, and alone: as long as it is not there, nothing is. Once it is sent the
//! program is not told `EINTR` any more, since it would write the record again.

use std::collections::BTreeMap;
use std::time::Instant;

use layout::{Extent, FILE_SIZE_MAX, extents};
use ring::buf::{Buf, Slice};
use types::error::Errno;
use types::id::{InodeId, ObjectId};
use types::layout::Layout;
use types::time::Timestamp;
use wire::v1::meta;
use wire::v1::storage::{self, ObjectStat};

use crate::caller::Caller;
use crate::end::Place;
use crate::file::File;
use crate::lease::{Lease, Subject};
use crate::retry::Sent;
use crate::router::{Client, Destination, Payloads};
use crate::settle::combine;
use crate::shared::Shared;

/// How often the first piece is tried again where it was refused for changes before it.
const TRIES: u32 = 16;

/// What became of a piece, or of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Put {
    Done,
    /// The end is elsewhere by now.
    Taken,
}

/// What an object that has changed says about a piece that is to begin at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Room {
    Free,
    /// So many bytes are where it goes: perhaps its own, from an attempt whose answer was lost. Where there was none, they are
    /// somebody else's, if they are the same ones.
    Filled(u32),
    /// Others have made it longer, or shorter.
    Taken,
}

/// `sent`: the attempts to write the piece there.
fn room(layout: &Layout, extent: &Extent, size: u64, sent: &Sent) -> Room {
    let Extent { object_offset: begin, len, .. } = *extent;
    // Where a chunk begins, the object before this one has the end, and this one may lack earlier chunks.
    let begins_chunk = begin.is_multiple_of(u64::from(layout.chunk_size));
    match size.checked_sub(begin) {
        Some(0) => Room::Free,
        None if begins_chunk => Room::Free,
        Some(more) if more <= u64::from(len) && sent.unanswered_since().is_some() => Room::Filled(more as u32),
        Some(_) | None => Room::Taken,
    }
}

impl Client {
    /// Writes all of `data` at the end of the file as it is when it is written, after those who have a `place` before its own.
    /// The file is open for writing. Nobody else's comes between this and the rest of the same write, if that follows soon:
    /// `unfinished`.
    ///
    /// # Errors
    /// `EBADF` where it is not open here, `EFBIG`, `EINTR` before anything is written, `EIO` where a lock on it was lost or
    /// a server does not answer, `ENOSPC`, and those of the storage: some of the bytes may have been written then.
    pub async fn append(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        place: Place,
        data: &Slice,
        unfinished: bool,
    ) -> Result<(), Errno> {
        if data.is_empty() {
            return Ok(());
        }
        self.first_at_end(caller, &place).await?;
        if self.write_draft(caller, inode, None, data).await? || self.write_inline(caller, inode, 0, data, true).await?
        {
            return Ok(());
        }
        let layout = self.ensure_intent(caller, inode).await?;
        self.write_out(caller, inode).await?;
        let turn = self.turn_of(caller, place).await?;
        let result = self.append_in_turn(caller, inode, &layout, data).await;
        if result.is_err() {
            // A part may be there: what the objects say goes.
            self.shared.with_file(inode, |file| {
                file.lose_exclusivity();
                file.end.doubt();
            });
        }
        self.leave_end(turn, unfinished && result.is_ok());
        result
    }

    async fn append_in_turn(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        layout: &Layout,
        data: &Slice,
    ) -> Result<(), Errno> {
        let deadline = ring::now() + self.shared.config.retry_timeout;
        loop {
            self.hold_end(caller, inode).await?;
            let end = self.find_end(caller, inode, layout).await?;
            let len = data.len() as u64;
            if end.saturating_add(len) > FILE_SIZE_MAX {
                return Err(Errno::EFBIG);
            }
            let (_, _growth) = self.change_begins(inode, end + len)?;
            if self.append_at(inode, layout, end, data, deadline).await? == Put::Done {
                self.shared.with_file(inode, |file| file.wrote(end, len, Shared::wall_clock()));
                return Ok(());
            }
            // Somebody who does not hold the end writes as well, or it is not held any more.
            self.shared.with_file(inode, |file| {
                file.lose_exclusivity();
                file.end.given_up();
            });
            if caller.is_ending() {
                return Err(Errno::EINTR);
            }
            if ring::now() >= deadline {
                return Err(Errno::EIO);
            }
        }
    }

    /// Where the file ends now. What this client knows counts as long as no other has a write intent.
    async fn find_end(&self, caller: &Caller<'_>, inode: InodeId, layout: &Layout) -> Result<u64, Errno> {
        match self.size_alone(caller, inode).await? {
            Some(size) => Ok(size),
            None => self.gather_end(caller, inode, layout).await,
        }
    }

    /// The size of an open file that no other has a write intent for; `None` where others have, and while a change by this
    /// client makes it longer: then only the objects know.
    pub(crate) async fn size_alone(&self, caller: &Caller<'_>, inode: InodeId) -> Result<Option<u64>, Errno> {
        let is_known = |file: &File| file.is_exclusive() && !file.is_growing();
        let known = |file: &mut File| is_known(file).then_some((file.size, file.end.alone));
        let Some((size, alone)) = self.shared.with_file(inode, known).ok_or(Errno::EBADF)? else { return Ok(None) };
        if self.shared.board.holds(alone, Instant::now()) {
            return Ok(Some(size));
        }
        let ticket = self.shared.board.ticket();
        let reply = self.call(caller, Destination::home(inode), &meta::GetAttr { inode }).await?;
        let lease = Lease::granted(ticket, Subject::inode(inode), reply.lease_ms);
        let size = self.shared.with_file(inode, |file| {
            if !reply.exclusive {
                file.lose_exclusivity();
            }
            file.end.alone = lease;
            is_known(file).then_some(file.size)
        });
        size.ok_or(Errno::EBADF)
    }

    async fn gather_end(&self, caller: &Caller<'_>, inode: InodeId, layout: &Layout) -> Result<u64, Errno> {
        let objects = self.objects(caller, inode, layout).await?;
        let versions = (0u32..).zip(&objects).map(|(stripe, object)| (stripe, object.version)).collect();
        self.shared.with_file(inode, |file| file.end.versions = versions);
        Ok(combine(layout, &objects).size)
    }

    /// Writes `data` at `end`, a piece for each extent of it; pieces that are refused are tried again until `deadline`.
    async fn append_at(
        &self,
        inode: InodeId,
        layout: &Layout,
        end: u64,
        data: &Slice,
        deadline: Instant,
    ) -> Result<Put, Errno> {
        let part = |extent: &Extent| {
            let begin = (extent.file_offset - end) as usize;
            data.slice(begin..begin + extent.len as usize)
        };
        let mut pieces = extents(layout, end, data.len() as u64);
        let Some(first) = pieces.next() else { return Ok(Put::Done) };
        // Who has written nothing yet may look for the end anew, or end.
        if self.put(inode, layout, first, part(&first), None).await? == Put::Taken {
            return Ok(Put::Taken);
        }
        // One after the other in each object: a later piece that overtook an earlier one would look like somebody else's.
        let mut rest: BTreeMap<u32, Vec<Extent>> = BTreeMap::new();
        pieces.for_each(|extent| rest.entry(extent.stripe).or_default().push(extent));
        let puts = rest.values().map(async |extents| {
            let mut done = Vec::new();
            for extent in extents {
                if self.put(inode, layout, *extent, part(extent), Some(deadline)).await? == Put::Taken {
                    return Ok((Put::Taken, done));
                }
                done.push(*extent);
            }
            Ok((Put::Done, done))
        });
        let puts: Vec<(Put, Vec<Extent>)> = ring::join_all(puts).await.into_iter().collect::<Result<_, Errno>>()?;
        if puts.iter().all(|(put, _)| *put == Put::Done) {
            return Ok(Put::Done);
        }
        // Somebody wrote beyond the end meanwhile. What lies before that was never written by anybody, and reads as zeros.
        let done = puts.into_iter().flat_map(|(_, done)| done);
        for extent in std::iter::once(first).chain(done) {
            let zeros = Buf::zeroed(extent.len as usize).freeze();
            self.try_put(inode, extent, zeros, &Sent::default()).await?;
        }
        Ok(Put::Taken)
    }

    /// Writes one piece where its object ends. While somebody changes what comes before that, it is refused, and tried
    /// again: until a deadline, or a few times.
    async fn put(
        &self,
        inode: InodeId,
        layout: &Layout,
        extent: Extent,
        data: Slice,
        deadline: Option<Instant>,
    ) -> Result<Put, Errno> {
        let (mut tries, sent) = (0, Sent::default());
        loop {
            if self.version(inode, extent.stripe).is_none() {
                match self.look(inode, layout, &extent, &data, &sent).await? {
                    (Put::Taken, _) => return Ok(Put::Taken),
                    (Put::Done, object) => self.saw(inode, extent.stripe, object.version),
                }
            }
            let tried = self.version(inode, extent.stripe);
            if self.try_put(inode, extent, data.clone(), &sent).await? == Put::Done {
                return Ok(Put::Done);
            }
            let (put, object) = self.look(inode, layout, &extent, &data, &sent).await?;
            if tried == Some(object.version) {
                // Refused not for its version: the object is being removed.
                return Err(Errno::ESTALE);
            }
            if put == Put::Taken {
                return Ok(Put::Taken);
            }
            self.saw(inode, extent.stripe, object.version);
            match deadline {
                Some(deadline) if ring::now() >= deadline => return Err(Errno::EIO),
                // Where some of it is there it has to be written to its end.
                None if tries >= TRIES && room(layout, &extent, object.size, &sent) == Room::Free => {
                    return Ok(Put::Taken);
                }
                _ => tries += 1,
            }
        }
    }

    /// Under the version that is known.
    async fn try_put(&self, inode: InodeId, extent: Extent, data: Slice, sent: &Sent) -> Result<Put, Errno> {
        let object = ObjectId { inode, stripe: extent.stripe };
        let Some(unchanged_since) = self.version(inode, extent.stripe) else { return Ok(Put::Taken) };
        let not_before = self.shared.with_file(inode, |file| file.counts_from()).unwrap_or(Timestamp(0));
        let (offset, at) = (extent.object_offset, Timestamp(0));
        let request = storage::Write { object, offset, unchanged_since, at, not_before, durable: false };
        let destination = Destination::Object(extent.group, object);
        match self
            .call_noting(&Caller::appending(), destination, &request, Payloads { sent: &[data], room: 0 }, sent)
            .await
        {
            Ok(answer) => {
                self.saw(inode, extent.stripe, answer.message.version);
                self.changed(object, answer.message.version);
                Ok(Put::Done)
            }
            Err(Errno::ESTALE) => Ok(Put::Taken),
            Err(errno) => Err(errno),
        }
    }

    /// Whether the piece can still go to its place: nothing is there, or what an attempt of our own has left. The object as
    /// it was seen.
    async fn look(
        &self,
        inode: InodeId,
        layout: &Layout,
        extent: &Extent,
        data: &Slice,
        sent: &Sent,
    ) -> Result<(Put, ObjectStat), Errno> {
        let object = ObjectId { inode, stripe: extent.stripe };
        let stat = self.object(&Caller::appending(), extent.group, object).await?;
        let put = match room(layout, extent, stat.size, sent) {
            Room::Free => Put::Done,
            Room::Taken => Put::Taken,
            Room::Filled(len) => {
                let request = storage::Read { object, offset: extent.object_offset, length: len };
                let destination = Destination::Object(extent.group, object);
                let answer = self.call_payload(&Caller::appending(), destination, &request, &[], len as usize).await?;
                if data.starts_with(&answer.payload.freeze()) { Put::Done } else { Put::Taken }
            }
        };
        Ok((put, stat))
    }

    fn version(&self, inode: InodeId, stripe: u32) -> Option<u64> {
        self.shared.in_file(inode, |file| file.end.versions.get(&stripe).copied())
    }

    fn saw(&self, inode: InodeId, stripe: u32, version: u64) {
        self.shared.with_file(inode, |file| file.end.versions.insert(stripe, version));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::test_client;
    use types::id::GroupId;

    #[test]
    fn a_piece_goes_where_its_object_ends_or_its_own_beginning_is() {
        let layout = Layout { chunk_size: 4096, groups: vec![GroupId(1), GroupId(2)] };
        let within = extents(&layout, 100, 50).next().expect("a piece");
        let lost = Sent::default();
        lost.goes(Instant::now());
        for (size, expected) in [
            (100, Room::Free),
            (99, Room::Taken),
            (0, Room::Taken),
            (101, Room::Filled(1)),
            (150, Room::Filled(50)),
            (151, Room::Taken),
        ] {
            assert_eq!(room(&layout, &within, size, &lost), expected, "{size}");
        }
        // All attempts were answered, so none is there, whatever the bytes are.
        let answered = Sent::default();
        answered.answered(answered.goes(Instant::now()));
        for size in [101, 150] {
            assert_eq!(room(&layout, &within, size, &answered), Room::Taken, "{size}");
        }
        assert_eq!(room(&layout, &within, 100, &answered), Room::Free);
        // The third chunk is the second of its object, of which the first may be a hole.
        let border = extents(&layout, 8192, 10).next().expect("a piece");
        assert_eq!((border.stripe, border.object_offset), (0, 4096));
        for (size, expected) in [(4096, Room::Free), (0, Room::Free), (4097, Room::Filled(1)), (4107, Room::Taken)] {
            assert_eq!(room(&layout, &border, size, &lost), expected, "{size}");
        }
    }

    /// The first one may have to wait for objects, while the second would find room in the draft.
    #[test]
    fn who_appends_begins_when_those_before_have_their_turn_or_are_gone() {
        let caller = Caller::patient(types::cred::Credentials::default());
        let inode = InodeId(77);
        test_client::run(async |client| {
            client.shared.with_new_file(inode, || test_client::file(inode), |file| file.add_handle(true));
            let soon = async || {
                let place = client.place_to_append(inode, 0);
                let first = ring::timeout(Duration::from_millis(10), client.first_at_end(&caller, &place)).await;
                first.map(|first| first.map(|()| place))
            };
            let first = soon().await.expect("nobody is before").expect("no signal");
            assert!(soon().await.is_err());
            let turn = client.turn_of(&caller, first).await.expect("it is open");
            let second = soon().await.expect("the first has its turn").expect("no signal");
            let waits = ring::timeout(Duration::from_millis(10), client.turn_at_end(&caller, inode)).await;
            assert!(waits.is_err());
            drop(turn);
            drop(second);
            assert!(client.turn_at_end(&caller, inode).await.is_ok());
        });
    }
}
