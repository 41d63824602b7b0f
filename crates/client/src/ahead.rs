//! Reading ahead for who reads a file piece after piece: what follows is asked for while what was read is on its way to the
//! program, so that disk, network and program work at the same time. Only under a lease that tells of every change
//! ([`crate::contents`]). The threads of a mount have what was asked for in common, since the kernel gives the reads of a
//! program now to one of them, now to another.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ring::buf::{Common, Slice};
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;

use crate::caller::Caller;
use crate::contents::Content;
use crate::data::{Piece, assemble};
use crate::file::File;
use crate::metrics::Bytes;
use crate::promise::{Errand, Promise};
use crate::retry::Ladder;
use crate::router::{Client, until_ending};
use crate::shared::Shared;
use crate::streams::{KEEP, Run};

/// What was asked for, and comes.
#[derive(Debug)]
pub(crate) struct Fetch {
    promise: Arc<Promise<Outcome>>,
    len: usize,
    /// Counts what was read ahead of all files.
    total: Bytes,
}

#[derive(Clone, Default, Debug)]
struct Outcome {
    /// `None`: an error, which is the reader's to find.
    parts: Option<Vec<Common>>,
    /// No object had less than was asked for.
    is_full: bool,
}

impl Fetch {
    fn new(len: usize, total: &Bytes) -> Self {
        total.change(0, len);
        Self { promise: Arc::default(), len, total: total.clone() }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.total.change(self.len, 0);
    }
}

/// A range of a file that is to be asked for.
pub(crate) type Asked = (Range<u64>, Arc<Fetch>);

/// Somebody looks after what nobody comes for.
#[derive(Default)]
pub(crate) struct Tidied(AtomicBool);

/// The task that does.
struct Tidying(Arc<Shared>);

impl Tidying {
    /// `None` where there is one.
    fn begin(shared: &Arc<Shared>) -> Option<Self> {
        let tidied = &shared.tidied.0;
        // Who jumps about asks with each read, and is not to take the flag from the others.
        let is_first = !tidied.load(Ordering::Acquire) && !tidied.swap(true, Ordering::AcqRel);
        is_first.then(|| Self(Arc::clone(shared)))
    }

    async fn run(mut self) {
        let shared = Arc::clone(&self.0);
        loop {
            ring::sleep(KEEP).await;
            if shared.has_ended() {
                return;
            }
            if shared.tidy_streams(ring::now()) {
                continue;
            }
            drop(self);
            // Who asked for something in between, or jumps about, has seen this task, and relies on it.
            if !shared.tidy_streams(ring::now()) {
                return;
            }
            let Some(next) = Self::begin(&shared) else { return };
            self = next;
        }
    }
}

impl Drop for Tidying {
    fn drop(&mut self) {
        self.0.tidied.0.store(false, Ordering::Release);
    }
}

impl Client {
    /// `piece` of what the lease tells of, where it was asked for before; and asks for what follows. `None`: the servers are to
    /// be asked for it.
    ///
    /// # Errors
    /// `EINTR`.
    pub(crate) async fn read_ahead(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        content: &Content,
        piece: Range<u64>,
    ) -> Result<Option<Vec<Slice>>, Errno> {
        let mut asked = Vec::new();
        let look = |file: &mut File| self.find_runs(file, (content.number, content.size), piece.clone(), &mut asked);
        let runs = self.shared.with_file(inode, look).unwrap_or_default();
        self.fetch_all(inode, content.size, asked);
        // A hole, unless the lease has ended: then it may have been cut.
        self.read_runs(caller, runs, piece, || self.still_knows(inode, content)).await
    }

    /// What has all of `piece` of this open file, of the content of this number and size, or nothing; and what is to be asked
    /// for now.
    pub(crate) fn find_runs(
        &self,
        file: &mut File,
        (number, size): (u64, u64),
        piece: Range<u64>,
        asked: &mut Vec<Asked>,
    ) -> Vec<Run<Arc<Fetch>>> {
        let (total, room) = (&self.shared.metrics.ahead, self.shared.config.data_cache);
        let File { streams, unwritten, .. } = file;
        let ask = |wanted: Range<u64>| {
            let may_ask = total.get() < room && !unwritten.has_some_of(&wanted);
            may_ask.then(|| {
                let fetch = Arc::new(Fetch::new((wanted.end - wanted.start) as usize, total));
                asked.push((wanted, Arc::clone(&fetch)));
                fetch
            })
        };
        let found = streams.read(number, piece, size, ring::now(), ask);
        if streams.are_many() {
            self.see_to_tidying();
        }
        found
    }

    fn see_to_tidying(&self) {
        if let Some(tidying) = Tidying::begin(&self.shared) {
            ring::spawn(tidying.run());
        }
    }

    pub(crate) fn fetch_all(&self, inode: InodeId, size: u64, asked: Vec<Asked>) {
        if !asked.is_empty() {
            self.see_to_tidying();
        }
        for (wanted, fetch) in asked {
            self.fetch(inode, wanted, size, fetch);
        }
    }

    /// `piece`, when all of `runs` are here; `None` where there are none, where one did not come, and where an object had less
    /// than was asked for and that is no hole.
    ///
    /// # Errors
    /// `EINTR`.
    pub(crate) async fn read_runs(
        &self,
        caller: &Caller<'_>,
        runs: Vec<Run<Arc<Fetch>>>,
        piece: Range<u64>,
        is_hole: impl Fn() -> bool,
    ) -> Result<Option<Vec<Slice>>, Errno> {
        let mut found = Vec::with_capacity(runs.len());
        for run in runs {
            let ladder = Ladder::new(ring::now(), self.shared.config.retry_timeout);
            let outcome = until_ending(caller, &ladder, pin!(run.what.promise.outcome()), || {}).await?;
            let Some(Outcome { parts: Some(parts), is_full }) = outcome else { return Ok(None) };
            if !is_full && !is_hole() {
                return Ok(None);
            }
            found.extend(cut(&parts, run.begin, piece.clone()));
        }
        Ok((!found.is_empty()).then_some(found))
    }

    /// Begins when the caller waits for something.
    fn fetch(&self, inode: InodeId, range: Range<u64>, size: u64, fetch: Arc<Fetch>) {
        let errand = Errand::new(&fetch.promise);
        self.in_background(async move |client| {
            let caller = Caller::patient(Credentials::default());
            let layout = client.shared.with_file(inode, |file| file.layout.clone());
            let pieces = match &layout {
                Some(layout) => client.read_pieces(&caller, inode, layout, range.start, range.end).await.ok(),
                None => None,
            };
            let is_full = pieces.as_ref().is_some_and(|pieces| pieces.iter().all(Piece::is_full));
            let parts = pieces.map(|pieces| assemble(pieces, range.start, size));
            let parts = parts.map(|parts| parts.into_iter().map(Slice::into_common).collect());
            errand.ends(Outcome { parts, is_full });
            // It counts until it is here, and as long as anybody has it.
            drop(fetch);
        });
    }
}

/// Of `parts`, which lie one behind the other from `begin` on, those bytes that are in `range`.
fn cut(parts: &[Common], begin: u64, range: Range<u64>) -> impl Iterator<Item = Slice> {
    let mut next = begin;
    parts.iter().filter_map(move |part| {
        let at = next;
        next += part.len() as u64;
        let (from, to) = (range.start.max(at), range.end.min(next));
        (from < to).then(|| Slice::from_common(part).slice((from - at) as usize..(to - at) as usize))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_client;

    #[test]
    fn who_jumps_about_is_seen_to_though_nothing_is_asked_for() {
        const FILE: InodeId = InodeId(77);
        test_client::run(async |client| {
            client.shared.with_new_file(FILE, || test_client::file(FILE), |file| file.add_handle(true));
            let mut asked = Vec::new();
            let mut reads_at = |place: u64| {
                let piece = place << 30..(place << 30) + 4096;
                client.shared.with_file(FILE, |file| client.find_runs(file, (1, 1 << 40), piece, &mut asked));
                client.shared.tidied.0.load(Ordering::Relaxed)
            };
            assert!(!(1..5).any(&mut reads_at), "few streams may stay");
            assert!((5..20).any(&mut reads_at));
            assert!(asked.is_empty());
        });
    }

    #[test]
    fn bytes_that_are_kept_are_counted_until_nobody_has_them() {
        let total = Bytes::default();
        let fetch = Arc::new(Fetch::new(1000, &total));
        let other = Arc::clone(&fetch);
        drop(fetch);
        assert_eq!(total.get(), 1000);
        drop(other);
        assert_eq!(total.get(), 0);
    }

    proptest! {
        #[test]
        fn a_cut_has_the_bytes_of_its_range(lens in prop::collection::vec(1usize..20, 1..6), at in 0u64..60, len in 1u64..40) {
            let begin = 1000;
            let bytes: Vec<u8> = (0..lens.iter().sum::<usize>()).map(|byte| byte as u8).collect();
            let mut rest = &bytes[..];
            let parts: Vec<Common> = lens.iter().map(|&len| {
                let (front, back) = rest.split_at(len);
                rest = back;
                Slice::from_vec(front.to_vec()).into_common()
            }).collect();
            let found: Vec<u8> =
                cut(&parts, begin, begin + at..begin + at + len).flat_map(|part| part.to_vec()).collect();
            let range = (at as usize).min(bytes.len())..((at + len) as usize).min(bytes.len());
            prop_assert_eq!(&found[..], &bytes[range]);
        }
    }
}
