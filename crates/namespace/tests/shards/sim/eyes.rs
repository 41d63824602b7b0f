//! What a client sees of directories that are, or are being, split.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use kv::Kv;
use namespace::acl::DEFAULT;
use namespace::schema::{inode, parts, xattr};
use namespace::transaction::Message;
use namespace::transaction::part::Part;
use namespace::view::DirEntry;
use types::attr::{Attr, FileType};
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;
use types::name_hash::name_hash;
use types::parts::{HASH_END, PartNumber, cookie_before, hash_after};

use super::{Answer, Op, Packet, ROOT, Sim};
use crate::node::{Body, Node};

/// How often all parts are asked, as real clients do it.
const LOOKS_MAX: usize = 16;

impl Sim {
    /// The part of a directory that has this name, as far as clients know.
    pub(super) fn part(&self, parent: InodeId, name: &Name) -> InodeId {
        self.part_at(parent, name_hash(name)).map_or(parent, |(part, _)| part)
    }

    /// The part of a directory that has the names of this hash, as far as clients know; `None` where the directory
    /// itself has them.
    fn part_at(&self, parent: InodeId, hash: u64) -> Option<(InodeId, PartNumber)> {
        let (parts, cursor) = self.splits.get(&parent).filter(|(parts, _)| !parts.is_empty())?;
        let number = PartNumber::of_hash(hash, parts.len() as u16);
        (*cursor == 0 || hash < *cursor).then(|| (parts[usize::from(number.index)], number))
    }

    /// A directory has turned out to be split: clients learn its parts. They never change, but the cursor does.
    pub(crate) fn learn_parts(&mut self, inode: InodeId) {
        let home = usize::from(inode.home().0);
        let Ok(found) = self.nodes[home].shard.parts(inode) else { return };
        // A client is going to rely on them for good, so it is told when they are on disk.
        let known = self.splits.insert(inode, (found.parts.clone(), found.cursor));
        if known.is_none_or(|(parts, _)| parts != found.parts) {
            self.sync(home);
        }
    }

    /// What a client is told it may believe; of a walk, what it is told of each name as if it had looked that up.
    pub(super) fn believe(&mut self, client: u64, answer: &Answer) {
        let (Op::Walk { start, names, .. }, Answer::Walked(walked)) = (self.sent[&client].clone(), answer) else {
            return self.beliefs.told(client, &self.sent[&client], answer);
        };
        let mut directory = start;
        for (name, view) in names.iter().zip(&walked.steps) {
            let op = match self.keeper(directory, name) {
                Some(parent) => Op::Lookup { parent, name: name.clone() },
                None => Op::Stat { inode: view.attr.inode },
            };
            self.beliefs.told(client, &op, &Answer::Inode(view.clone()));
            directory = view.attr.inode;
        }
    }

    /// The directory or part that has this name, which bears no lease where that changes; `None` where it cannot be told.
    fn keeper(&mut self, directory: InodeId, name: &Name) -> Option<InodeId> {
        let found = self.nodes[usize::from(directory.home().0)].shard.parts(directory).ok()?;
        let hash = name_hash(name);
        let number = PartNumber::of_hash(hash, found.parts.len() as u16);
        let has_come = found.cursor == 0 || hash < found.cursor;
        Some(found.parts.get(usize::from(number.index)).copied().filter(|_| has_come).unwrap_or(directory))
    }

    pub(crate) fn parts_of(&self, inode: InodeId) -> Vec<InodeId> {
        self.splits.get(&inode).map(|(parts, _)| parts.clone()).unwrap_or_default()
    }

    /// The split directories whose parts do not have what is made in them have from the directory.
    pub(crate) fn unlike_parts(&self) -> Vec<InodeId> {
        let get = |id: InodeId, name: &[u8]| {
            let kv = &self.nodes[usize::from(id.home().0)].kv;
            let (mut key, mut default) = (Vec::new(), Vec::new());
            inode::ser_key(&mut key, id);
            xattr::ser_key(&mut default, id, name);
            let found = kv.get(&key, |value| value.map(|value| inode::deser_value(&key, value).expect("an inode")));
            let default = kv.get(&default, |value| value.map(<[u8]>::to_vec)).expect("readable");
            found.expect("readable").map(|it| {
                let inode::Body::Directory { policy, .. } = it.body else { panic!("{id}") };
                (it.uid, it.gid, it.mode & 0o2000, it.file_flags, policy, default)
            })
        };
        let mut unlike = Vec::new();
        for node in &self.nodes {
            let visit = |key: &[u8], value: &[u8]| {
                let id = parts::deser_key(key).expect("a key");
                let whole = get(id, DEFAULT);
                for part in parts::deser_value(key, value).expect("a list") {
                    if get(part, DEFAULT) != whole {
                        unlike.push(part);
                    }
                }
                ControlFlow::Continue(())
            };
            node.kv.scan(b"P", b"Q", visit).expect("readable");
        }
        unlike
    }

    /// Some of its names have yet to go to its parts, as far as clients know.
    pub(crate) fn is_being_split(&self, inode: InodeId) -> bool {
        self.splits.get(&inode).is_some_and(|(_, cursor)| *cursor != 0)
    }

    /// What a client sees of an inode, with the help of its parts if it has some.
    pub(crate) fn stat(&mut self, client: u64, inode: InodeId) -> Answer {
        let Answer::Inode(mut view) = self.run(client, Op::Stat { inode }) else {
            return Answer::Refused(Errno::ESTALE);
        };
        for look in 1.. {
            if !view.unsettled || view.attr.kind != FileType::Directory {
                break;
            }
            self.learn_parts(inode);
            let parts: Vec<Attr> = self.parts_of(inode).into_iter().map(|part| self.attr_of(client, part)).collect();
            // What is moved between them changes both.
            let Answer::Inode(mut after) = self.run(client, Op::Stat { inode }) else {
                return Answer::Refused(Errno::ESTALE);
            };
            if look >= LOOKS_MAX || differs_by_names(&view.attr, &after.attr) {
                for part in parts {
                    after.attr.nlink += part.nlink - 2;
                    after.attr.mtime = after.attr.mtime.max(part.mtime);
                    after.attr.ctime = after.attr.ctime.max(part.ctime);
                }
                return Answer::Inode(after);
            }
            view = after;
        }
        Answer::Inode(view)
    }

    fn attr_of(&mut self, client: u64, inode: InodeId) -> Attr {
        let Answer::Inode(found) = self.run(client, Op::Stat { inode }) else { panic!("no part {inode}") };
        found.attr
    }

    /// How many transactions of this shard have asked for the token, and have no answer yet.
    pub(crate) fn asking_for_token(&self, shard: usize) -> usize {
        let is_one = |body: &&Body| {
            let Some((from, Message::Prepare { parts, .. })) = body.caller() else { return false };
            from == shard && parts == [Part::Token]
        };
        let waiting = |node: &Node| {
            let bodies = node.queue.iter().chain(node.parked.values().flatten());
            bodies.filter(is_one).count()
        };
        let packet = |packet: &&Packet| matches!(packet, Packet::Request { body, .. } if is_one(&body));
        self.nodes.iter().map(waiting).sum::<usize>() + self.packets.iter().filter(packet).count()
    }

    /// The entries of a directory, also those that are in its parts, page by page.
    pub(crate) fn list(&mut self, client: u64, inode: InodeId) -> Vec<DirEntry> {
        self.list_while(client, inode, |_| ())
    }

    /// As `list`, and `between` its pages something else.
    pub(crate) fn list_while(
        &mut self,
        client: u64,
        inode: InodeId,
        mut between: impl FnMut(&mut Self),
    ) -> Vec<DirEntry> {
        let (mut listed, mut cookie) = (Vec::new(), 0);
        for _ in 0..10_000 {
            between(self);
            let part = self.part_at(inode, hash_after(cookie));
            let cursor = self.splits.get(&inode).map_or(0, |(_, cursor)| *cursor);
            let place = part.map_or(inode, |(part, _)| part);
            let (page, end) = match self.run(client, Op::List { inode: place, cookie }) {
                Answer::Names(page, end) => (page, end),
                Answer::Refused(Errno::EREMOTE) => {
                    self.learn_parts(inode);
                    continue;
                }
                other => panic!("{inode}: {other:?}"),
            };
            let is_empty = page.is_empty();
            cookie = page.last().map_or(cookie, |last| last.cookie);
            listed.extend(page);
            match part {
                None if end => return listed,
                Some((_, number)) if end && number.end() == HASH_END => return listed,
                Some((_, number)) if end => cookie = cookie_before(number.end()),
                Some(_) if is_empty => {
                    cookie = cookie.max(cookie_before(cursor.max(1)));
                    self.learn_parts(inode);
                }
                None | Some(_) => {}
            }
        }
        panic!("{inode} is listed without an end");
    }

    /// All names of the tree with what they lead to, as a client sees them.
    pub(crate) fn tree(&mut self, client: u64) -> BTreeMap<String, InodeId> {
        let mut tree = BTreeMap::new();
        let mut directories = vec![(String::new(), ROOT)];
        let mut seen = BTreeSet::from([ROOT]);
        while let Some((path, inode)) = directories.pop() {
            let names = self.list(client, inode);
            assert!(names.is_sorted_by(|one, next| one.cookie < next.cookie), "{path}");
            for DirEntry { name, inode: child, .. } in names {
                let path = format!("{path}/{name}");
                let stat = self.run(client, Op::Stat { inode: child });
                let Answer::Inode(view) = stat else { panic!("{path} ({child}): {stat:?}") };
                if view.attr.kind == FileType::Directory {
                    assert!(seen.insert(child), "{path} is there twice");
                    directories.push((path.clone(), child));
                }
                tree.insert(path, child);
            }
        }
        tree
    }
}

/// As for real clients: what was set, and links, make them look again.
fn differs_by_names(before: &Attr, after: &Attr) -> bool {
    let is_by_names = after.mtime == after.ctime && before.mtime <= after.mtime;
    let Attr { atime, mtime, ctime, .. } = *after;
    Attr { atime, mtime, ctime, ..*before } == *after && (before.mtime == after.mtime || is_by_names)
}
