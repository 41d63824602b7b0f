//! What clients believe because they were told so, held against the truth.

use std::collections::{BTreeMap, BTreeSet};

use kv::memory::MemoryKv;
use namespace::error::Error;
use namespace::shard::Shard;
use namespace::transaction::part::Part;
use namespace::view::{DirectoryView, InodeView, Looked, Recall, Standing};
use types::attr::{Attr, FileType};
use types::error::Errno;
use types::id::{InodeId, SessionId, ShardId};
use types::name::Name;

use crate::sim::{Answer, Op};

/// Looks at the truth, and never gets a lease.
const WITNESS: SessionId = SessionId(99);

type Place = (InodeId, Name);

#[derive(Default)]
pub(crate) struct Beliefs {
    clients: BTreeMap<u64, Client>,
    pub(crate) learned: u64,
    pub(crate) recalled: u64,
    pub(crate) renewed: u64,
}

/// Each belief with the time at which it ends.
#[derive(Default)]
struct Client {
    names: BTreeMap<Place, (Option<InodeId>, u64)>,
    inodes: BTreeMap<InodeId, (Attr, u64)>,
    /// Of directories without entries.
    empty: BTreeMap<InodeId, u64>,
    /// Of the names that are being moved: the kernel moves what it knows of them, with the term of that.
    moving: BTreeMap<Place, (Option<InodeId>, u64)>,
    /// Shards that answered: these know the client.
    met: BTreeSet<ShardId>,
    /// Recalls so far, and the last one of each subject.
    recalls: u64,
    noted: BTreeMap<(InodeId, Option<Name>), u64>,
    /// When the request under way was sent: recalls by then, and the time.
    ticket: (u64, u64),
}

impl Beliefs {
    /// A client sends a request. What it changes itself it forgets by itself.
    pub(crate) fn asking(&mut self, client: u64, op: &Op, now_ms: u64) {
        let client = self.clients.entry(client).or_default();
        client.ticket = (client.recalls, now_ms);
        if let Op::Rename { from, to, .. } = op {
            let known = [from, to].into_iter().filter_map(|name| client.names.remove_entry(name));
            client.moving.extend(known.filter(|(_, (child, _))| child.is_some()));
        }
        if op.is_change() {
            client.names.clear();
            client.inodes.clear();
            client.empty.clear();
        }
    }

    /// A client was killed.
    pub(crate) fn forget(&mut self, client: u64) {
        self.clients.remove(&client);
    }

    pub(crate) fn recalled(&mut self, client: u64, recalls: &[Recall]) {
        let client = self.clients.entry(client).or_default();
        for recall in recalls {
            self.recalled += 1;
            client.recalls += 1;
            client.noted.insert((recall.inode, recall.name.clone()), client.recalls);
            match &recall.name {
                Some(name) => drop(client.names.remove(&(recall.inode, name.clone()))),
                None => {
                    client.inodes.remove(&recall.inode);
                    client.empty.remove(&recall.inode);
                }
            }
        }
    }

    /// An answer has come.
    pub(crate) fn told(&mut self, client: u64, op: &Op, answer: &Answer) {
        let before = self.learned;
        let client = self.clients.entry(client).or_default();
        let mut learned = 0;
        client.met.insert(op.home());
        let moving = std::mem::take(&mut client.moving);
        match (op, answer) {
            (_, Answer::Changed(changed)) => {
                if let Op::Rename { from, to, flags } = op {
                    client.moved(&moving, from, to);
                    if *flags == namespace::view::RENAME_EXCHANGE {
                        client.moved(&moving, to, from);
                    }
                }
                let directories = [&changed.parent, &changed.target];
                learned += directories.into_iter().map(|view| client.learn_directory(view.as_deref())).sum::<u64>();
            }
            (
                Op::Lookup { parent, name } | Op::Create { parent, name } | Op::Mkdir { parent, name },
                Answer::Inode(view),
            ) => {
                learned += client.learn_name(*parent, name, view) + client.learn_directory(view.parent.as_deref());
            }
            (Op::Link { .. }, Answer::Inode(view)) => learned += client.learn_directory(view.parent.as_deref()),
            (Op::Lookup { parent, name }, Answer::Absent(lease_ms)) => {
                learned += client.believe_name(*parent, name, None, *lease_ms);
            }
            (Op::Stat { .. } | Op::Open { .. }, Answer::Inode(view)) => learned += client.learn(view),
            (Op::Renew { inode }, Answer::Renewed(lease_ms)) => self.renewed += client.renew(*inode, *lease_ms),
            (Op::List { inode, .. }, Answer::Names(entries, _)) => {
                for entry in entries {
                    learned += entry.attributes.as_ref().map_or(0, |v| client.learn_name(*inode, &entry.name, v));
                }
            }
            _ => {}
        }
        self.learned = before + learned;
    }

    /// The client knows what the name leads to, unless its time is over.
    pub(crate) fn in_name(&self, client: u64, parent: InodeId, name: &Name) -> bool {
        self.clients.get(&client).is_some_and(|client| client.names.contains_key(&(parent, name.clone())))
    }

    /// All that is believed of what is at home in this shard is true, and is not about to change as another shard has
    /// decided.
    pub(crate) fn check(
        &self,
        home: ShardId,
        shard: &mut Shard<MemoryKv>,
        doubtful: &[(SessionId, Part)],
        now_ms: u64,
    ) {
        for (number, client) in &self.clients {
            // What it asked for itself was decided before it had the answer, and it believes nothing until then: a promise
            // that was asked for late is going to be taken back.
            let (own, of_others): (Vec<_>, Vec<_>) = doubtful.iter().partition(|(session, _)| session.0 == *number);
            let is_in_doubt = |parts: &[&(SessionId, Part)], changes: &dyn Fn(&Part) -> bool| {
                parts.iter().any(|(_, part)| changes(part))
            };
            let names =
                client.names.iter().filter(|((parent, _), (_, until))| parent.home() == home && *until > now_ms);
            for ((parent, name), (believed, _)) in names {
                // Who has moved something to the name knows what the others have promised.
                let changes = |part: &Part| match part {
                    Part::Entry { parent: p, name: n, becomes } => {
                        p == parent && n == name && (becomes.is_none() || becomes.map(|edge| edge.child) != *believed)
                    }
                    Part::Give { directory: p, moved } | Part::Take { part: p, moved } => {
                        p == parent && moved.entries.iter().any(|(n, _)| n == name)
                    }
                    _ => false,
                };
                assert!(
                    !is_in_doubt(&of_others, &changes),
                    "client {number} believes in {parent} {name}: it is in doubt"
                );
                let truth = match shard.lookup(WITNESS, *parent, name) {
                    Ok(Looked::Found(view)) => Some(view.attr.inode),
                    Ok(Looked::Absent { .. }) | Err(Error::Refused(_)) => None,
                    // The inode or the directory itself is in doubt.
                    Err(Error::Blocked(_)) => continue,
                    Err(error) => panic!("{error}"),
                };
                assert_eq!(truth, *believed, "client {number} believes in {parent} {name}");
            }
            for (inode, _) in client.empty.iter().filter(|(inode, until)| inode.home() == home && **until > now_ms) {
                match shard.readdir(WITNESS, *inode, 0, 1, false) {
                    Ok(page) => assert_eq!(page.entries, [], "client {number} believes that {inode} is empty"),
                    Err(Error::Blocked(_) | Error::Refused(Errno::ESTALE)) => {}
                    Err(error) => panic!("client {number} believes that {inode} is empty: {error}"),
                }
            }
            let inodes = client.inodes.iter().filter(|(inode, (_, until))| inode.home() == home && *until > now_ms);
            for (inode, (believed, _)) in inodes {
                assert!(
                    !is_in_doubt(&of_others, &|part| changes(part, *inode)),
                    "client {number} believes in {inode}: it is in doubt"
                );
                let truth = shard.getattr(WITNESS, *inode).map(|view| view.attr);
                if matches!(truth, Err(Error::Blocked(_))) && is_in_doubt(&own, &|part| changes(part, *inode)) {
                    continue;
                }
                // An orphan goes with its last holder: who knows that it has no name expects no more of it.
                if truth == Err(Error::Refused(Errno::ESTALE)) && believed.nlink == 0 {
                    continue;
                }
                assert_eq!(truth.as_ref(), Ok(believed), "client {number} believes in {inode}");
            }
        }
    }
}

fn changes(part: &Part, inode: InodeId) -> bool {
    match part {
        Part::Entry { parent, .. } => *parent == inode,
        Part::Link { inode: id, .. } | Part::Unlink(id) | Part::Rmdir(id) | Part::Move { inode: id, .. } => {
            *id == inode
        }
        Part::By { part, .. } => changes(part, inode),
        Part::Divide { inode: id, .. } | Part::Hold(id) => *id == inode,
        Part::Conform(conformed) => conformed.part == inode,
        // Its links.
        Part::Give { directory: id, moved } | Part::Take { part: id, moved } => {
            *id == inode && moved.entries.iter().any(|(_, edge)| edge.kind == FileType::Directory)
        }
        Part::Make(_) | Part::Token => false,
    }
}

impl Client {
    /// Only in a directory of which its shard has told the client.
    fn moved(&mut self, moving: &BTreeMap<Place, (Option<InodeId>, u64)>, from: &Place, to: &Place) {
        if self.met.contains(&to.0.home())
            && let Some(belief) = moving.get(from)
        {
            self.names.insert(to.clone(), *belief);
        }
    }

    /// How many leases there were.
    fn learn_name(&mut self, parent: InodeId, name: &Name, view: &InodeView) -> u64 {
        self.believe_name(parent, name, Some(view.attr.inode), view.name_lease_ms) + self.learn(view)
    }

    fn believe_name(&mut self, parent: InodeId, name: &Name, child: Option<InodeId>, lease_ms: u32) -> u64 {
        let subject = (parent, Some(name.clone()));
        let until = self.until(&subject, lease_ms);
        until.map_or(0, |until| {
            self.names.insert((parent, name.clone()), (child, until));
            1
        })
    }

    fn learn(&mut self, view: &InodeView) -> u64 {
        let until = self.until(&(view.attr.inode, None), view.lease_ms);
        until.map_or(0, |until| {
            assert!(!view.elsewhere, "its own shard tells of it");
            self.inodes.insert(view.attr.inode, (view.attr, until));
            self.learn_empty(view.attr.inode, view.standing.as_ref(), until);
            1
        })
    }

    /// What it has believed until now it may go on believing.
    fn renew(&mut self, inode: InodeId, lease_ms: u32) -> u64 {
        let (until, (_, sent_ms)) = (self.until(&(inode, None), lease_ms), self.ticket);
        let known = self.inodes.get_mut(&inode).filter(|(_, ends)| *ends > sent_ms);
        let Some(((_, ends), until)) = known.zip(until) else { return 0 };
        *ends = until.max(*ends);
        1
    }

    /// What its own change has made of a directory.
    fn learn_directory(&mut self, view: Option<&DirectoryView>) -> u64 {
        let Some(DirectoryView { attr, standing, lease_ms }) = view else { return 0 };
        let until = self.until(&(attr.inode, None), *lease_ms);
        until.map_or(0, |until| {
            self.inodes.insert(attr.inode, (*attr, until));
            self.learn_empty(attr.inode, Some(standing), until);
            1
        })
    }

    /// What is made there by others takes the lease back.
    fn learn_empty(&mut self, directory: InodeId, standing: Option<&Standing>, until: u64) {
        if standing.is_some_and(|standing| standing.empty) {
            self.empty.insert(directory, until);
        } else {
            self.empty.remove(&directory);
        }
    }

    /// When a lease that was just told ends; `None` where there is none, or it was recalled since it was asked for.
    fn until(&self, subject: &(InodeId, Option<Name>), lease_ms: u32) -> Option<u64> {
        let (recalls, sent_ms) = self.ticket;
        let recalled = self.noted.get(subject).is_some_and(|recall| *recall > recalls);
        (lease_ms > 0 && !recalled).then(|| sent_ms + u64::from(lease_ms))
    }
}
