//! Reading of a file that this mount alone writes: as long as it holds the lease under which it keeps back what was written
//! (`unwritten.rs`), it knows the file as well as who holds a lease on one that nobody writes. What is kept back is read from
//! there, and what the objects have is read without writing that first, and read ahead.
//!
//! What was read ahead is what the file has: nothing is asked for of what is kept back, whoever changes the file forgets what
//! was asked for of that range before he is answered (`file.rs`), and all of it goes when the lease is no longer held, or
//! what became of a change is not known.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use ring::buf::Slice;
use types::error::Errno;
use types::id::InodeId;

use crate::ahead::Fetch;
use crate::caller::Caller;
use crate::file::File;
use crate::router::Client;
use crate::streams::Run;

/// In place of the numbers of `contents.rs`, which count from 0 on.
const NUMBER: u64 = u64::MAX;

/// Where a range of a file is to be read.
pub(crate) enum Own {
    /// Here it is.
    Known(Vec<Slice>),
    /// The objects have all of it up to `end`, where it ends or the file; and so have `runs`, or these are none.
    Objects { runs: Vec<Run<Arc<Fetch>>>, end: u64 },
    /// All that is kept back has to be written first.
    Unknown,
}

impl Client {
    pub(crate) fn look_at_own(&self, inode: InodeId, range: Range<u64>, direct: bool) -> Own {
        if direct {
            return Own::Unknown;
        }
        let (mut asked, mut size, mut ask_for_lease, now) = (Vec::new(), 0, false, Instant::now());
        let look = |file: &mut File| {
            let is_in_draft = file.draft.as_ref().is_some_and(|draft| draft.contents().is_some());
            if !file.is_exclusive() || file.settling || file.has_lost_lock || is_in_draft {
                return Own::Unknown;
            }
            let (contents, board, lease) = (&self.shared.contents, &self.shared.board, file.unwritten.lease());
            let is_known = contents.holds(board, lease, now);
            ask_for_lease = match is_known {
                true => !board.holds_long(lease, now) && file.patience.may_ask(now),
                false => file.patience.goes_without(now),
            };
            let reaches_growth = range.end > file.size && file.is_growing();
            let range = range.start..range.end.min(file.size);
            if !is_known || reaches_growth {
                return Own::Unknown;
            }
            if range.is_empty() {
                return Own::Known(Vec::new());
            }
            if let Some(bytes) = file.unwritten.find(&range) {
                return Own::Known(vec![bytes]);
            }
            if file.unwritten.has_some_of(&range) {
                return Own::Unknown;
            }
            let end = range.end;
            size = file.size;
            Own::Objects { runs: self.find_runs(file, (NUMBER, size), range, &mut asked), end }
        };
        let own = self.shared.with_file(inode, look).unwrap_or(Own::Unknown);
        self.fetch_all(inode, size, asked);
        // What is written under it is kept back, which takes room.
        if ask_for_lease && self.has_room(inode) {
            self.ask_if_alone(inode);
        }
        own
    }

    /// `range`, as far as it goes, from `runs`; `None` where the objects are to be asked.
    ///
    /// # Errors
    /// `EINTR`.
    pub(crate) async fn read_own_ahead(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        runs: Vec<Run<Arc<Fetch>>>,
        range: Range<u64>,
    ) -> Result<Option<Vec<Slice>>, Errno> {
        if runs.is_empty() {
            return Ok(None);
        }
        // An object that has less may have a hole there, or is just being cut.
        let found = self.read_runs(caller, runs, range, || false).await?;
        if found.is_none() {
            // It takes a few reads until holes are read ahead of again.
            self.shared.with_file(inode, |file| file.streams.clear());
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use types::id::ObjectId;
    use types::time::Timestamp;

    use super::*;
    use crate::file::Intent;
    use crate::lease::{Lease, Subject};
    use crate::router::Destination;
    use crate::test_client;

    const FILE: InodeId = InodeId(77);
    const SIZE: u64 = 1 << 20;
    const PIECE: u64 = 64 << 10;

    fn leased(client: &Client) -> Lease {
        Lease::granted(client.shared.board.ticket(), Subject::inode(FILE), 100_000)
    }

    /// A file that its client alone writes.
    fn write_alone(client: &Client) {
        let lease = leased(client);
        client.shared.with_new_file(
            FILE,
            || test_client::file(FILE),
            |file| {
                file.add_handle(true);
                file.intent = Intent::Held { exclusive: true, recorded: false, synced: 0, intents: 1 };
                file.size = SIZE;
                file.know_objects_anew(lease);
            },
        );
    }

    /// How many runs have the last of a few pieces that are read one after the other; `None`: it has to be asked for when all
    /// is written.
    fn read_on(client: &Client) -> Option<usize> {
        let look = |at: u64| match client.look_at_own(FILE, at * PIECE..(at + 1) * PIECE, false) {
            Own::Objects { runs, end } => {
                assert_eq!(end, (at + 1) * PIECE);
                Some(runs.len())
            }
            Own::Known(_) => panic!("nothing is kept back"),
            Own::Unknown => None,
        };
        (0..6).map(look).last().flatten()
    }

    #[test]
    fn who_writes_alone_reads_ahead_until_others_may_write() {
        test_client::run(async |client| {
            write_alone(&client);
            assert_eq!(read_on(&client), Some(1));
            client.shared.board.note(Subject::inode(FILE));
            assert_eq!(read_on(&client), None, "the lease is taken back");
            client.shared.with_file(FILE, |file| file.know_objects_anew(leased(&client)));
            let again = client.look_at_own(FILE, 5 * PIECE..6 * PIECE, false);
            assert!(
                matches!(again, Own::Objects { runs, .. } if runs.is_empty()),
                "it was asked for under another one"
            );
            assert_eq!(read_on(&client), Some(1));
            client.shared.with_file(FILE, File::lose_exclusivity);
            assert_eq!(read_on(&client), None);
        });
    }

    #[test]
    fn nothing_that_was_read_ahead_outlives_a_change() {
        let at = Timestamp(9);
        let object = Destination::Object(test_client::layout().groups[0], ObjectId { inode: FILE, stripe: 0 });
        let change = |client: &Client, change: &dyn Fn(&mut File)| client.shared.with_file(FILE, change).unwrap_or(());
        let changes: [&dyn Fn(&Client); 5] = [
            &|client| change(client, &|file| file.wrote(5 * PIECE + 9, 1, at)),
            &|client| change(client, &|file| file.respaced(0, at)),
            &|client| change(client, &|file| file.truncated(SIZE)),
            &|client| change(client, &|file| file.know_objects_anew(file.unwritten.lease())),
            // Somebody was killed who wrote, and it may happen yet.
            &|client| client.doubt(object),
        ];
        for (number, change) in changes.iter().enumerate() {
            test_client::run(async |client| {
                write_alone(&client);
                let runs = || match client.look_at_own(FILE, 5 * PIECE..6 * PIECE, false) {
                    Own::Objects { runs, .. } => runs.len(),
                    Own::Known(_) | Own::Unknown => panic!("the objects have it"),
                };
                assert_eq!(read_on(&client), Some(1));
                assert_eq!(runs(), 1);
                change(&client);
                assert_eq!(runs(), 0, "change {number}");
            });
        }
    }

    #[test]
    fn what_is_kept_back_is_read_from_there_and_not_asked_for() {
        test_client::run(async |client| {
            write_alone(&client);
            let keep_back = |offset: u64, bytes: &[u8]| {
                let kept = client.shared.with_file(FILE, |file| {
                    file.unwritten.keep_for_test(offset, bytes);
                    file.wrote(offset, bytes.len() as u64, Timestamp(9));
                });
                assert!(kept.is_some());
            };
            keep_back(8 * PIECE, b"some");
            keep_back(SIZE - 2, b"more");
            let look = |range| client.look_at_own(FILE, range, false);
            let is = |own: Own, bytes: &[u8]| matches!(own, Own::Known(parts) if crate::data::joined(&parts) == bytes);
            assert!(is(look(8 * PIECE + 1..8 * PIECE + 3), b"om"));
            assert!(is(look(SIZE..SIZE + 100), b"re"), "up to the end");
            assert!(is(look(SIZE + 2..SIZE + 100), b""));
            assert!(matches!(look(8 * PIECE..9 * PIECE), Own::Unknown), "in part");
            assert!(
                matches!(client.look_at_own(FILE, 8 * PIECE..8 * PIECE + 1, true), Own::Unknown),
                "past what is kept"
            );
            assert_eq!(read_on(&client), Some(1));
            let reaches = client.shared.with_file(FILE, |file| file.streams.reaches());
            assert!(reaches.is_some_and(|end| end <= 8 * PIECE), "{reaches:?}");
        });
    }

    /// It cannot be written, and nobody knows yet whether it will be cut off.
    #[test]
    fn what_is_to_be_cut_off_is_not_read_from_the_objects() {
        test_client::run(async |client| {
            write_alone(&client);
            let kept = client.shared.with_file(FILE, |file| {
                file.unwritten.keep_for_test(8 * PIECE, b"some");
                file.wrote(8 * PIECE, 4, Timestamp(9));
            });
            assert!(kept.is_some());
            let range = 8 * PIECE..8 * PIECE + 4;
            let look = || client.look_at_own(FILE, range.clone(), false);
            let taken = client.cut_unwritten(FILE, 8 * PIECE);
            assert!(matches!(look(), Own::Unknown));
            client.put_back_unwritten(FILE, &taken);
            assert!(matches!(look(), Own::Known(parts) if crate::data::joined(&parts) == b"some"));
        });
    }
}
