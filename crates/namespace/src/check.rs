//! What must hold of a whole store after every commit. Reads all of it into memory: for tests, and for small stores.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;

use kv::Kv;
use types::attr::FileType;
use types::id::{InodeId, SessionId, ShardId};
use types::name_hash::name_hash;
use types::parts::{HASH_END, PartNumber};

use crate::error::{Damage, Result};
use crate::ops::scan::{self, Raw};
use crate::ops::xattr::flag_of;
use crate::schema::inode::{
    Body, HAS_ACCESS_ACL, HAS_CAPABILITY, HAS_DEFAULT_ACL, HAS_OBJECTS, HAS_XATTRS, Inode, Role, UNSETTLED,
};
use crate::schema::meta::{self, Counts};
use crate::schema::{contents, deletion, edge, inode, layout, orphan, parts, session, symlink, transaction, xattr};
use crate::view::Deletion;

/// Something that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    pub what: &'static str,
    /// Of what; 0 where it concerns the whole store.
    pub inode: InodeId,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {}: {}", self.inode, self.what)
    }
}

/// All problems of the store of a shard that is alone, in a stable order.
///
/// # Errors
/// `Damaged` for the first record that cannot be read at all, `Store` where the store fails.
pub fn check<K: Kv>(kv: &K, shard: ShardId) -> Result<Vec<Problem>> {
    check_all(&[(shard, kv)])
}

/// All problems of the stores of all shards while no transaction is under way.
///
/// # Errors
/// As [`check`].
pub fn check_all<K: Kv>(stores: &[(ShardId, &K)]) -> Result<Vec<Problem>> {
    let mut all = Records::default();
    let mut found = Found(Vec::new());
    for &(shard, kv) in stores {
        let own = read(kv, shard)?;
        own.check_store(shard, &mut found);
        all.join(own);
    }
    all.problems(&mut found);
    Ok(found.0)
}

fn read<K: Kv>(kv: &K, shard: ShardId) -> Result<Records> {
    let mut records = Records::default();
    let mut damage = None;
    kv.scan(b"", b"\xff", |key, value| match records.take(key, value, shard) {
        Ok(()) => ControlFlow::Continue(()),
        Err(found) => {
            damage = Some(found);
            ControlFlow::Break(())
        }
    })?;
    match damage {
        Some(damage) => Err(damage.into()),
        None => Ok(records),
    }
}

/// A store's records by family.
#[derive(Default)]
struct Records {
    formatted: bool,
    ids: u64,
    counts: Counts,
    inodes: BTreeMap<InodeId, Inode>,
    /// By child: parent and kind of each.
    edges: BTreeMap<InodeId, Vec<(InodeId, FileType)>>,
    /// By parent: entries, and directories among them.
    entries: BTreeMap<InodeId, (u64, u32)>,
    /// Number of groups.
    layouts: BTreeMap<InodeId, usize>,
    /// Of split directories.
    parts: BTreeMap<InodeId, Vec<InodeId>>,
    /// By parent: hashes of the names.
    hashes: BTreeMap<InodeId, Vec<u64>>,
    /// Length of the target.
    symlinks: BTreeMap<InodeId, u64>,
    /// Length of what is in the metadata.
    contents: BTreeMap<InodeId, u64>,
    /// The marks that the attributes' names ask for.
    attributes: BTreeMap<InodeId, u16>,
    orphans: BTreeMap<InodeId, Vec<SessionId>>,
    sessions: BTreeSet<SessionId>,
    deletions: Vec<Deletion>,
    transactions: usize,
}

impl Records {
    fn join(&mut self, other: Records) {
        self.inodes.extend(other.inodes);
        for (child, edges) in other.edges {
            self.edges.entry(child).or_default().extend(edges);
        }
        self.entries.extend(other.entries);
        self.layouts.extend(other.layouts);
        self.parts.extend(other.parts);
        self.hashes.extend(other.hashes);
        self.symlinks.extend(other.symlinks);
        self.contents.extend(other.contents);
        self.attributes.extend(other.attributes);
        self.orphans.extend(other.orphans);
        self.sessions.extend(other.sessions);
        self.deletions.extend(other.deletions);
    }

    fn take(&mut self, key: &[u8], value: &[u8], shard: ShardId) -> std::result::Result<(), Damage> {
        match key.first() {
            Some(&(contents::PREFIX | edge::PREFIX | deletion::PREFIX | inode::PREFIX)) => {
                match scan::deser(key, value)? {
                    Raw::Inode(id, inode) => drop(self.inodes.insert(id, inode)),
                    Raw::Deletion(deletion) => self.deletions.push(deletion),
                    Raw::Contents(id, length) => drop(self.contents.insert(id, length.into())),
                    Raw::Damaged(damaged) => return Err(damaged.damage),
                    Raw::Edge { parent, name, child, kind } => {
                        self.hashes.entry(parent).or_default().push(name_hash(&name));
                        self.edges.entry(child).or_default().push((parent, kind));
                        let (entries, subdirs) = self.entries.entry(parent).or_default();
                        *entries += 1;
                        *subdirs += u32::from(kind == FileType::Directory);
                    }
                }
            }
            Some(&layout::PREFIX) => {
                self.layouts.insert(layout::deser_key(key)?, layout::deser_value(key, value)?.len());
            }
            Some(&parts::PREFIX) => {
                self.parts.insert(parts::deser_key(key)?, parts::deser_value(key, value)?);
            }
            Some(&symlink::PREFIX) => {
                let target = symlink::deser_value(key, value)?;
                self.symlinks.insert(symlink::deser_key(key)?, target.len() as u64);
            }
            Some(&xattr::PREFIX) => {
                let (inode, name) = xattr::deser_key(key)?;
                *self.attributes.entry(inode).or_default() |= HAS_XATTRS | flag_of(name);
            }
            Some(&orphan::PREFIX) => {
                orphan::deser_value(key, value)?;
                let (inode, session) = orphan::deser_key(key)?;
                self.orphans.entry(inode).or_default().push(session);
            }
            Some(&session::PREFIX) => match session::deser_key(key)? {
                (id, session::SELF) => drop(self.sessions.insert(id)),
                _ => self.counts = self.counts.max(session::deser_value(key, value)?.counts),
            },
            Some(&meta::PREFIX) => self.take_meta(key, value, shard)?,
            Some(&transaction::PREFIX) => {
                transaction::deser_key(key)?;
                self.transactions += 1;
            }
            _ => return Err(Damage::new("a record of an unknown family", key)),
        }
        Ok(())
    }

    fn take_meta(&mut self, key: &[u8], value: &[u8], shard: ShardId) -> std::result::Result<(), Damage> {
        match key {
            meta::SUPERBLOCK => {
                meta::check_superblock(value, shard)?;
                self.formatted = true;
            }
            meta::IDS => self.ids = meta::deser_number(key, value)?,
            meta::IDS_AT | meta::INCARNATION | meta::KEPT_SINCE | meta::LEASE_TERM | meta::SESSION_EXPIRY => {
                meta::deser_number(key, value)?;
            }
            meta::COUNTS => self.counts = self.counts.max(meta::deser_counts(key, value)?),
            _ => return Err(Damage::new("a record of an unknown family", key)),
        }
        Ok(())
    }

    /// What concerns one store alone.
    fn check_store(&self, shard: ShardId, found: &mut Found) {
        found.unless(self.formatted, InodeId(0), "there is no superblock");
        found.unless(self.counts.inodes == self.inodes.len() as u64, InodeId(0), "the count of inodes is wrong");
        found.unless(self.transactions == 0, InodeId(0), "a transaction has not ended");
        if shard == InodeId::ROOT.home() {
            found.unless(self.inodes.contains_key(&InodeId::ROOT), InodeId::ROOT, "there is no root");
        }
        for (&id, inode) in &self.inodes {
            self.check_identity(id, inode, shard, found);
        }
        for &(parent, _) in self.edges.values().flatten() {
            found.unless(parent.home() == shard, parent, "its entries are in another shard");
        }
    }

    fn problems(&self, found: &mut Found) {
        for (&id, inode) in &self.inodes {
            self.check_names(id, inode, found);
            self.check_parts(id, inode, found);
            if inode.is_dir() {
                self.check_directory(id, inode, found);
                self.check_role(id, inode, found);
            }
        }
        self.check_leftovers(found);
    }

    fn check_identity(&self, id: InodeId, inode: &Inode, shard: ShardId, found: &mut Found) {
        found.unless(id.home() == shard, id, "its home is another shard");
        found.unless(id == InodeId::ROOT || id.counter() < self.ids, id, "its id is not reserved");
        found.unless(!inode.has(UNSETTLED) || inode.has(HAS_OBJECTS), id, "it is unsettled but has no objects");
        let settled = inode.inline_limit().is_none() || !inode.has(UNSETTLED);
        found.unless(settled, id, "it is unsettled but its contents are in the metadata");
        let orphan = inode.nlink == 0;
        found.unless(orphan == self.orphans.contains_key(&id), id, "orphan records do not go with its links");
    }

    fn check_names(&self, id: InodeId, inode: &Inode, found: &mut Found) {
        let edges = self.edges.get(&id).map_or(&[][..], Vec::as_slice);
        found.unless(edges.iter().all(|&(_, kind)| kind == inode.kind), id, "an edge has another kind");
        let names = match (inode.is_dir(), inode.nlink) {
            _ if id == InodeId::ROOT || inode.is_part() => 0,
            (_, 0) => 0,
            (true, _) => 1,
            (false, nlink) => nlink as usize,
        };
        found.unless(edges.len() == names, id, "it has another number of edges than links");
        if names > 0 && (inode.is_dir() || inode.parent != InodeId(0)) {
            let visible = |parent| self.inodes.get(&parent).map_or(parent, |directory| directory.visible(parent));
            let right = edges.iter().all(|&(parent, _)| visible(parent) == inode.parent);
            found.unless(right && edges.len() == 1, id, "its parent is not the directory that has its edge");
        }
    }

    fn check_directory(&self, id: InodeId, inode: &Inode, found: &mut Found) {
        let (entries, subdirs) = self.entries.get(&id).copied().unwrap_or_default();
        found.unless(inode.entries() == entries, id, "its count of entries is wrong");
        let nlink = if inode.nlink == 0 { 0 } else { 2 + subdirs };
        found.unless(inode.nlink == nlink, id, "its links are not two and its subdirectories");
        found.unless(inode.nlink != 0 || entries == 0, id, "it is removed but has entries");
        let (mut at, mut steps) = (id, 0);
        while at != InodeId::ROOT && steps <= self.inodes.len() {
            at = self.inodes.get(&at).map_or(InodeId::ROOT, |inode| inode.parent);
            steps += 1;
        }
        found.unless(at == InodeId::ROOT, id, "it lies in a loop");
    }

    /// Split directories have all their parts, and these are in one; each name is where its hash says.
    fn check_role(&self, id: InodeId, inode: &Inode, found: &mut Found) {
        let parts = self.parts.get(&id).map_or(&[][..], Vec::as_slice);
        let (count, cursor) = match inode.role() {
            Role::Split(count) => (count, HASH_END),
            Role::Splitting { count, cursor } => (count, cursor),
            Role::Whole | Role::Part(_) | Role::Filling { .. } => (0, 0),
        };
        found.unless(parts.len() == usize::from(count), id, "its record of parts is wrong");
        for (index, part) in (0..).zip(parts) {
            let number = PartNumber { index, count };
            let filled = Role::Filling { part: number, until: number.begin() };
            let role = if cursor < number.begin() { filled } else { filled.moved_to(cursor) };
            let is_it = |inode: &Inode| inode.parent == id && inode.role() == role;
            found.unless(
                self.inodes.get(part).is_some_and(is_it),
                *part,
                "it is not the part that its directory has it for",
            );
        }
        let is_home = |hash: u64| match inode.role() {
            Role::Whole => true,
            Role::Split(_) => false,
            Role::Splitting { cursor, .. } => hash >= cursor,
            Role::Part(part) => PartNumber::of_hash(hash, part.count) == part,
            Role::Filling { part, until } => PartNumber::of_hash(hash, part.count) == part && hash < until,
        };
        let hashes = self.hashes.get(&id).map_or(&[][..], Vec::as_slice);
        found.unless(hashes.iter().all(|&hash| is_home(hash)), id, "it has names that belong elsewhere");
        if let Role::Part(part) | Role::Filling { part, .. } = inode.role() {
            let of = self.parts.get(&inode.parent).and_then(|parts| parts.get(usize::from(part.index)));
            // One that was removed while somebody may have it open goes by itself.
            found.unless(inode.nlink == 0 || of == Some(&id), id, "it is a part that no directory has");
        }
    }

    /// The records beside the inode.
    fn check_parts(&self, id: InodeId, inode: &Inode, found: &mut Found) {
        let wide = match &inode.body {
            Body::File(striping) if striping.inline().is_none() => Some(usize::from(striping.stripes)),
            Body::File(_) | Body::Directory { .. } | Body::Other => None,
        };
        found.unless(self.layouts.get(&id).copied() == wide, id, "its layout record is wrong");
        let target = (inode.kind == FileType::Symlink).then_some(inode.size);
        found.unless(self.symlinks.get(&id).copied() == target, id, "its target is not of its size");
        let length = inode.inline_limit().map(|_| inode.size).filter(|&size| size > 0);
        found.unless(self.contents.get(&id).copied() == length, id, "its contents are not of its size");
        let marks = inode.flags & (HAS_XATTRS | HAS_ACCESS_ACL | HAS_DEFAULT_ACL | HAS_CAPABILITY);
        let attributes = self.attributes.get(&id).copied().unwrap_or(0);
        found.unless(attributes == marks, id, "its attributes go without its flags");
    }

    /// Records of what is not there.
    fn check_leftovers(&self, found: &mut Found) {
        for (&child, edges) in &self.edges {
            found.unless(self.inodes.contains_key(&child), child, "an edge leads to it, but it is not there");
            for &(parent, _) in edges {
                let is_dir = self.inodes.get(&parent).is_some_and(Inode::is_dir);
                found.unless(is_dir, parent, "it has entries but is no directory");
            }
        }
        let records =
            self.layouts.keys().chain(self.symlinks.keys()).chain(self.parts.keys()).chain(self.attributes.keys());
        for &id in records.chain(self.contents.keys()) {
            found.unless(self.inodes.contains_key(&id), id, "it has records but is not there");
        }
        for (&id, holders) in &self.orphans {
            found.unless(self.inodes.contains_key(&id), id, "it has orphan records but is not there");
            let known = holders.iter().all(|session| *session == SessionId(0) || self.sessions.contains(session));
            found.unless(known, id, "a session that is not there holds it");
        }
        for deletion in &self.deletions {
            let gone = !self.inodes.contains_key(&deletion.inode);
            found.unless(gone, deletion.inode, "an object is to be removed, but it is there");
        }
    }
}

struct Found(Vec<Problem>);

impl Found {
    fn unless(&mut self, holds: bool, inode: InodeId, what: &'static str) {
        if !holds {
            self.0.push(Problem { what, inode });
        }
    }
}
