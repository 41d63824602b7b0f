//! What is kept back on its way to the objects, each of which takes it only if nobody else has changed it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use layout::{Extent, extents};
use ring::buf::Slice;
use types::error::Errno;
use types::id::{InodeId, ObjectId};
use types::layout::Layout;
use types::time::Timestamp;
use wire::v1::storage;

use super::runs::{Run, Runs};
use super::{TRY_AGAIN, Unwritten, give_up};
use crate::caller::Caller;
use crate::file::File;
use crate::router::{Client, Destination};
use crate::shared::Shared;

/// Runs on their way. Unless they have landed, they come back.
pub(super) struct Flight {
    pub(super) shared: Arc<Shared>,
    pub(super) inode: InodeId,
    pub(super) runs: Arc<Runs>,
    /// See [`Unwritten::at`].
    pub(super) at: Timestamp,
    /// How many writes were kept back before it, where these are all.
    pub(super) kept: Option<u64>,
    pub(super) landed: bool,
}

impl Drop for Flight {
    fn drop(&mut self) {
        let now = Instant::now();
        let change = self.shared.with_file(self.inode, |file| {
            let unwritten = &mut file.unwritten;
            let before = unwritten.weight();
            unwritten.flights = unwritten.flights.saturating_sub(1);
            unwritten.in_time = None;
            match unwritten.flying.take_if(|flying| Arc::ptr_eq(flying, &self.runs)) {
                Some(_) if self.landed => unwritten.written = self.kept.unwrap_or(unwritten.written),
                Some(flown) => {
                    let mut all = Runs::default();
                    all.put_all(&flown);
                    all.put_all(&unwritten.waiting);
                    unwritten.waiting = all;
                    unwritten.try_at = Some(now + TRY_AGAIN);
                }
                None => {}
            }
            file.done.wake();
            (before, file.unwritten.weight())
        });
        if let Some((before, after)) = change {
            self.shared.metrics.unwritten.change(before, after);
        }
    }
}

impl Client {
    pub(super) async fn fly(&self, caller: &Caller<'_>, mut flight: Flight, layout: &Layout) -> Result<(), Errno> {
        let caller = &caller.under_held_intent();
        let mut of_objects: BTreeMap<u32, Vec<(Extent, u64, &Run)>> = BTreeMap::new();
        for (offset, run) in flight.runs.iter() {
            for piece in extents(layout, offset, run.bytes().len() as u64) {
                of_objects.entry(piece.stripe).or_default().push((piece, offset, run));
            }
        }
        // One after the other in each object: its version tells whether somebody else was there.
        let writes = of_objects.values().map(async |pieces| {
            for &(piece, offset, run) in pieces {
                let begin = (piece.file_offset - offset) as usize;
                let data = run.slice(begin..begin + piece.len as usize);
                self.write_unless_changed(caller, &flight, piece, (data, pieces.len() == 1)).await?;
            }
            Ok(())
        });
        let outcome: Result<(), Errno> = ring::join_all(writes).await.into_iter().collect();
        drop(of_objects);
        // Of an object that is gone nothing can be written any more.
        let is_gone = outcome == Err(Errno::ESTALE);
        let (shared, inode) = (Arc::clone(&self.shared), flight.inode);
        flight.landed = outcome.is_ok();
        drop(flight);
        if is_gone {
            shared.with_file(inode, |file| give_up(&shared, inode, file, "an object of the file is gone"));
        }
        outcome
    }

    /// A version such that no change of the object that came before is newer, unless it was made by this client.
    async fn version_before(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        piece: Extent,
        was_refused: bool,
    ) -> Result<u64, Errno> {
        let object = ObjectId { inode, stripe: piece.stripe };
        let of_lane = self.version_of_lane(piece.group, object);
        let known = self.shared.with_file(inode, |file| {
            let known = file.unwritten.versions.get(&piece.stripe).copied();
            known.or(file.unwritten.fresh.then_some(of_lane))
        });
        match known.flatten().filter(|&version| version != 0 && !was_refused) {
            Some(version) => Ok(version),
            None => self.object(caller, piece.group, object).await.map(|found| found.version),
        }
    }

    /// Writes where the object is as it was while the lease was held. `is_only`: there is no other piece for this object.
    async fn write_unless_changed(
        &self,
        caller: &Caller<'_>,
        &Flight { inode, at, .. }: &Flight,
        piece: Extent,
        (data, is_only): (Slice, bool),
    ) -> Result<(), Errno> {
        let object = ObjectId { inode, stripe: piece.stripe };
        let destination = Destination::Object(piece.group, object);
        let mut refused = None;
        loop {
            let unchanged_since = self.version_before(caller, inode, piece, refused.is_some()).await?;
            if refused == Some(unchanged_since) {
                // Not for its version: the object is being removed.
                return Err(Errno::ESTALE);
            }
            // Asked after the version was: nobody else has changed the object before.
            let may_write = |file: &mut File| {
                let Unwritten { lease, lost, .. } = &file.unwritten;
                let is_left = !lost && !lease.rest(Instant::now()).is_zero();
                is_left.then(|| (file.expects_sync(piece.stripe), file.counts_from()))
            };
            let may = self.shared.with_file(inode, may_write).flatten();
            let (expects_sync, not_before) = may.ok_or(Errno::EIO)?;
            let durable = expects_sync && is_only;
            let offset = piece.object_offset;
            let request = storage::Write { object, offset, unchanged_since, at, not_before, durable };
            let passage = self.shared.landings.passage(piece.group, data.len());
            let written = self.call_payload(caller, destination, &request, std::slice::from_ref(&data), 0).await;
            if let Ok(answer) = &written {
                passage.has_landed();
                self.saw_version(piece.group, object, answer.message.version);
            }
            self.shared.with_file(inode, |file| match &written {
                Ok(answer) => {
                    file.unwritten.versions.insert(piece.stripe, answer.message.version);
                    file.unsynced.written(piece.stripe, &answer.message);
                }
                Err(_) => drop(file.unwritten.versions.remove(&piece.stripe)),
            });
            match written {
                Ok(_) => return Ok(()),
                Err(Errno::ESTALE) => refused = Some(unchanged_since),
                Err(errno) => return Err(errno),
            }
        }
    }
}
