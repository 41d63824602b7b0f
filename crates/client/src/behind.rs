//! Which directories a change takes or moves that is made by several shards: none of these knows it of all of them, so that the
//! answer does not tell.
//!
//! What the names lead to is looked up before. That still holds when the change is answered where nobody can have changed the
//! names since: no other client, as the leases on them say, which are still held; and nobody here, where no own change of their
//! directories was under way. Else everything has to be forgotten.

use std::time::Instant;

use types::attr::{Attr, FileType};
use types::id::InodeId;
use types::name::Name;

use crate::caller::Caller;
use crate::lease::Lease;
use crate::names::Looked;
use crate::router::Client;

/// What is behind the names that a change takes.
#[derive(Debug)]
pub(crate) enum Behind {
    /// No directory.
    Files,
    Seen(Vec<Seen>),
    Unknown,
}

/// A name, as it was before.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The directory that has it, or the part of that.
    part: InodeId,
    /// Own changes there that had ended.
    changes: u64,
    /// On the name.
    lease: Lease,
    attr: Option<Attr>,
}

impl Behind {
    /// What the only name led to.
    pub(crate) fn attr(&self) -> Option<Attr> {
        match self {
            Self::Seen(seen) => seen.first().and_then(|seen| seen.attr),
            Self::Files | Self::Unknown => None,
        }
    }
}

impl Client {
    /// Before a change that takes these names; `Unknown` where that cannot be told of one.
    pub(crate) async fn look_behind(&self, caller: &Caller<'_>, names: &[&(InodeId, Name)]) -> Behind {
        let looks = names.iter().map(async |(parent, name)| self.look_behind_one(caller, *parent, name).await);
        let seen: Option<Vec<Seen>> = ring::join_all(looks).await.into_iter().collect();
        seen.map_or(Behind::Unknown, Behind::Seen)
    }

    async fn look_behind_one(&self, caller: &Caller<'_>, parent: InodeId, name: &Name) -> Option<Seen> {
        let part = self.shared.splits.part(parent, name);
        let changes = self.shared.listings.changes(part);
        let is_still = self.shared.kept.makings(part) == 0;
        let (lease, attr) = match self.lookup(caller, parent, name.clone()).await.ok()? {
            Looked::Found(named) => (named.name_lease, Some(named.attr)),
            Looked::Absent(lease) => (lease, None),
        };
        // Who only wants to know what was there is told.
        Some(Seen { part, changes, lease: if is_still { lease } else { Lease::NONE }, attr })
    }

    /// The change of these `directories` was answered, and is not noted as ended yet; of each it is itself `making` so many
    /// names. Which other directories it has made something else of; `None` where nobody knows.
    pub(crate) fn behind(&self, behind: &Behind, directories: [InodeId; 2], making: u32) -> Option<Vec<InodeId>> {
        let seen = match behind {
            Behind::Files => return Some(Vec::new()),
            Behind::Seen(seen) => seen,
            Behind::Unknown => return None,
        };
        let (kept, listings, now) = (&self.shared.kept, &self.shared.listings, Instant::now());
        let holds = |(seen, directory): (&Seen, InodeId)| {
            // In this order: one that ends is noted before it is under way no more.
            let is_alone = kept.makings(directory) == making && listings.changes(directory) == seen.changes;
            is_alone && seen.part == directory && self.shared.board.holds(seen.lease, now)
        };
        if !seen.iter().zip(directories).all(holds) {
            return None;
        }
        let attrs = seen.iter().filter_map(|seen| seen.attr).filter(|attr| attr.kind == FileType::Directory);
        Some(attrs.flat_map(|attr| self.with_parts(attr.inode)).collect())
    }

    fn with_parts(&self, directory: InodeId) -> Vec<InodeId> {
        let split = self.shared.splits.get(directory);
        let parts = split.iter().flat_map(|split| split.parts.iter().copied());
        std::iter::once(directory).chain(parts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Subject;
    use crate::splits::Split;
    use crate::test_client;

    const FROM: InodeId = InodeId(7);
    const TO: InodeId = InodeId(8);
    const MOVED: InodeId = InodeId(77);

    fn name() -> Name {
        Name::new(&b"x"[..]).expect("a name")
    }

    fn seen(client: &Client, part: InodeId, inode: InodeId, kind: FileType) -> Seen {
        let subject = Subject::name(part, &name());
        let lease = Lease::granted(client.shared.board.ticket(), subject, 10_000);
        let attr = Attr { kind, ..test_client::reply(inode).attr };
        Seen { part, changes: client.shared.listings.changes(part), lease, attr: Some(attr) }
    }

    #[test]
    fn directories_behind_names_are_known_and_what_they_are_split_into() {
        test_client::run(async |client| {
            let both =
                [seen(&client, FROM, MOVED, FileType::Directory), seen(&client, TO, InodeId(9), FileType::Regular)];
            let both = Behind::Seen(both.into());
            assert_eq!(client.behind(&both, [FROM, TO], 0), Some(vec![MOVED]));
            let split = Split { parts: vec![InodeId(100), InodeId(101)], cursor: 0, parent: FROM };
            client.shared.splits.learn(MOVED, split, || ());
            assert_eq!(client.behind(&both, [FROM, TO], 0), Some(vec![MOVED, InodeId(100), InodeId(101)]));
            assert_eq!(client.behind(&both, [FROM, InodeId(9)], 0), None, "it is in another part by now");
            assert_eq!(client.behind(&Behind::Files, [FROM, TO], 0), Some(Vec::new()));
            assert_eq!(client.behind(&Behind::Unknown, [FROM, TO], 0), None);
        });
    }

    #[test]
    fn names_that_may_have_been_changed_meanwhile_lead_nowhere() {
        test_client::run(async |client| {
            let shared = &client.shared;
            shared.kept.enable();
            let look = || Behind::Seen(vec![seen(&client, FROM, MOVED, FileType::Directory)]);
            let known = |behind: &Behind, making| client.behind(behind, [FROM; 2], making).is_some();
            let before = look();
            assert!(known(&before, 0));
            shared.board.recall([Subject::name(FROM, &name())].into_iter());
            assert!(!known(&before, 0), "by another client");
            let before = look();
            let own = shared.kept.making(&shared.board, FROM, &name());
            assert!(known(&before, 1));
            let other = shared.kept.making(&shared.board, FROM, &name());
            assert!(!known(&before, 1), "perhaps by another thread");
            drop(other);
            assert!(known(&before, 1), "that did nothing");
            drop(own);
            shared.listings.changed(FROM);
            assert!(!known(&before, 0), "by another thread");
            assert!(known(&look(), 0));
        });
    }
}
