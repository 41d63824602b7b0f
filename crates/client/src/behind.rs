//! Which directories a change takes or moves that is made by several shards: none of these knows it of all of them, so that the
//! answer does not tell.
//!
//! What the names lead to is looked up before. That still holds when the change is answered where nobody can have changed the
//! names since: no other client, as the leases on them say, which are still held; and nobody here, where no own change of their
//! directories was under way. Else everything has to be forgotten.

use std::time::Instant;

use types::attr::{Attr, FileType};
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;
use wire::v1::meta;

use crate::caller::Caller;
use crate::lease::{Lease, Subject};
use crate::names::LOOKS_MAX;
use crate::router::{Client, Destination};
use crate::shared::Shared;

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
    /// On the name, or on the directory, where that is known not to have it.
    lease: Lease,
    /// That it leads to.
    directory: Option<InodeId>,
    /// Of that, where they were asked for.
    attr: Option<Attr>,
}

impl Behind {
    /// What the only name led to, if that was a directory whose attributes were asked for.
    pub(crate) fn attr(&self) -> Option<Attr> {
        match self {
            Self::Seen(seen) => seen.first().and_then(|seen| seen.attr),
            Self::Files | Self::Unknown => None,
        }
    }
}

impl Client {
    /// Before a change that takes these names; `Unknown` where that cannot be told of one. `attributes`: those of directories
    /// are to be told as well.
    pub(crate) async fn look_behind(
        &self,
        caller: &Caller<'_>,
        names: &[&(InodeId, Name)],
        attributes: bool,
    ) -> Behind {
        self.shared.look_for_sleep();
        let looks =
            names.iter().map(async |(parent, name)| self.look_behind_one(caller, *parent, name, attributes).await);
        let seen: Option<Vec<Seen>> = ring::join_all(looks).await.into_iter().collect();
        seen.map_or(Behind::Unknown, Behind::Seen)
    }

    async fn look_behind_one(
        &self,
        caller: &Caller<'_>,
        parent: InodeId,
        name: &Name,
        attributes: bool,
    ) -> Option<Seen> {
        let look = async |part: InodeId| self.look_behind_in(caller, (parent, part), name, attributes).await;
        self.in_part(caller, parent, name, look).await.ok()
    }

    /// In the `part` of `parent` that has the name. It asks nobody about a file: the storage of one that is being written may
    /// be away, and a change of names does not wait for that.
    async fn look_behind_in(
        &self,
        caller: &Caller<'_>,
        (parent, part): (InodeId, InodeId),
        name: &Name,
        attributes: bool,
    ) -> Result<Seen, Errno> {
        let Shared { listings, kept, board, .. } = &*self.shared;
        let (changes, is_still) = (listings.changes(part), kept.makings(part) == 0);
        let seen = |lease, directory| {
            // Who only wants to know what was there is told.
            let lease = if is_still { lease } else { Lease::NONE };
            Seen { part, changes, lease, directory, attr: None }
        };
        if let Some(lease) = kept.absent(board, part, name, Instant::now()) {
            return Ok(seen(lease, None));
        }
        let (subject, request) = (Subject::name(parent, name), meta::Lookup { parent: part, name: name.clone() });
        for _ in 0..LOOKS_MAX {
            let ticket = board.ticket();
            let reply = self.call(caller, Destination::home(part), &request).await?;
            let Some(found) = reply.found else {
                return Ok(seen(Lease::granted(ticket, subject, reply.absent_lease_ms), None));
            };
            // Also the shard of the name knows what it leads to.
            let directory = (found.attr.kind == FileType::Directory).then_some(found.attr.inode);
            let seen = seen(Lease::granted(ticket, subject, found.name_lease_ms), directory);
            if directory.is_none() || !attributes {
                return Ok(seen);
            }
            match self.named(caller, ticket, subject, found).await {
                // It went between the two questions: the name says what is there now.
                Err(Errno::ESTALE) => {}
                named => return Ok(Seen { attr: Some(named?.attr), ..seen }),
            }
        }
        Err(Errno::ESTALE)
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
        let directories = seen.iter().filter_map(|seen| seen.directory);
        Some(directories.flat_map(|directory| self.with_parts(directory)).collect())
    }

    fn with_parts(&self, directory: InodeId) -> Vec<InodeId> {
        let split = self.shared.splits.get(directory);
        let parts = split.iter().flat_map(|split| split.parts.iter().copied());
        std::iter::once(directory).chain(parts).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use types::cred::Credentials;
    use wire::op::{Op, Ping};
    use wire::v1::meta::{InodeReply, LookupReply, Standing};

    use super::*;
    use crate::splits::Split;
    use crate::test_client;
    use crate::test_cluster::{self, SHARD, Script, join};

    const FROM: InodeId = InodeId(7);
    const TO: InodeId = InodeId(8);
    const MOVED: InodeId = InodeId(77);

    fn name() -> Name {
        Name::new(&b"x"[..]).expect("a name")
    }

    fn seen(client: &Client, part: InodeId, directory: Option<InodeId>) -> Seen {
        let subject = Subject::name(part, &name());
        let lease = Lease::granted(client.shared.board.ticket(), subject, 10_000);
        Seen { part, changes: client.shared.listings.changes(part), lease, directory, attr: None }
    }

    #[test]
    fn directories_behind_names_are_known_and_what_they_are_split_into() {
        test_client::run(async |client| {
            let both = Behind::Seen(vec![seen(&client, FROM, Some(MOVED)), seen(&client, TO, None)]);
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
            let look = || Behind::Seen(vec![seen(&client, FROM, Some(MOVED))]);
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

    /// As in a directory that was made here.
    #[test]
    fn a_name_that_is_known_to_be_absent_is_so_under_the_lease_on_its_directory() {
        test_client::run(async |client| {
            let (shared, caller) = (&client.shared, Caller::patient(Credentials::default()));
            let place = (TO, name());
            let names = [&place];
            shared.kept.enable();
            let learn = |order| {
                let lease = Lease::granted(shared.board.ticket(), Subject::inode(TO), 10_000);
                let (attr, standing) = (test_client::reply(TO).attr, Standing { order, empty: true });
                shared.kept.learn(&shared.board, attr, &standing, lease, Instant::now());
            };
            learn(1);
            // Nobody answers.
            let seen = client.look_behind(&caller, &names, false).await;
            let known = |making| client.behind(&seen, [TO; 2], making);
            let own = shared.kept.making(&shared.board, TO, &name());
            assert_eq!((known(1), known(0)), (Some(Vec::new()), None));
            drop(own);
            shared.board.recall([Subject::inode(TO)].into_iter());
            assert_eq!(known(0), None, "by another client");
            learn(2);
            let own = shared.kept.making(&shared.board, TO, &Name::new(&b"y"[..]).expect("a name"));
            let seen = client.look_behind(&caller, &names, false).await;
            drop(own);
            assert_eq!(client.behind(&seen, [TO; 2], 0), None, "a change was under way");
        });
    }

    /// Looks behind the name, of which the shard says what it has `found`, and where it is `asked` for the attributes, this.
    async fn look(
        client: &Client,
        shard: &Script,
        attributes: bool,
        found: InodeReply,
        asked: Option<&InodeReply>,
    ) -> Seen {
        let (caller, place) = (Caller::patient(Credentials::default()), (FROM, name()));
        let mut seen = None;
        let looks = async {
            let names = [&place];
            let look = client.look_behind(&caller, &names, attributes);
            let behind = ring::timeout(Duration::from_secs(5), look).await.expect("no other question");
            let Behind::Seen(all) = behind else { panic!("it is known") };
            seen = all.into_iter().next();
        };
        let answers = async {
            let found = Some(Box::new(found));
            shard.next(Op::Lookup).await.responder.reply(&LookupReply { found, absent_lease_ms: 0 });
            if let Some(asked) = asked {
                shard.next(Op::GetAttr).await.responder.reply(asked);
            }
        };
        join(looks, answers).await;
        seen.expect("one name")
    }

    /// Its objects know its size, and their storage may be away.
    #[test]
    fn nothing_is_asked_about_what_a_name_leads_to_but_the_attributes_of_a_removed_directory() {
        test_cluster::run(async |shard, [client, _]| {
            let caller = Caller::patient(Credentials::default());
            let comes = async { assert!(client.call(&caller, Destination::Shard(SHARD), &Ping {}).await.is_ok()) };
            let opens = async {
                shard.opens_session(1).await;
                shard.does(Op::Ping).await;
            };
            join(comes, opens).await;
            let file = InodeReply { unsettled: true, name_lease_ms: 10_000, ..test_client::reply(MOVED) };
            for attributes in [false, true] {
                let seen = look(&client, shard, attributes, file.clone(), None).await;
                assert!(seen.directory.is_none() && seen.attr.is_none());
                assert!(client.shared.board.holds(seen.lease, Instant::now()));
            }
            let attr = Attr { kind: FileType::Directory, ..test_client::reply(MOVED).attr };
            let told = InodeReply { attr, ..test_client::reply(MOVED) };
            let elsewhere = InodeReply { elsewhere: true, ..told.clone() };
            let seen = look(&client, shard, false, elsewhere.clone(), None).await;
            assert_eq!((seen.directory, seen.attr), (Some(MOVED), None));
            let seen = look(&client, shard, true, elsewhere, Some(&told)).await;
            assert_eq!((seen.directory, seen.attr), (Some(MOVED), Some(attr)));
        });
    }
}
