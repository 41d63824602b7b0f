//! `T` id: a transaction that this shard has decided to do, with the shards that have not yet said that they did it. Of one
//! that makes a directory, also how to make that again, should its shard lose it.
//! `T` id round: the session that asked for a transaction of another shard, and the parts that this one has promised to do.
//!
//! Parts and votes are written alike in records and in messages between shards.

use types::id::{InodeId, SessionId, ShardId, TransactionId};
use types::layout::LayoutPolicy;
use types::name::Name;
use types::name_hash::name_hash;
use types::parts::PartNumber;
use types::placement::Placement;
use types::time::Timestamp;

use types::attr::FileType;
use types::flags::FileFlags;
use types::id::PoolId;

use crate::acl::Acl;
use crate::error::Damage;
use crate::schema::edge::Edge;
use crate::schema::{Fields, attr};
use crate::transaction::part::{Conformed, Moved, NewDirectory, Part, Vote};
use tag::{part, vote};

mod tag;

pub const PREFIX: u8 = b'T';

const VERSION: u8 = 1;

pub fn ser_key(key: &mut Vec<u8>, transaction: TransactionId) {
    key.clear();
    key.push(PREFIX);
    key.extend_from_slice(&transaction.0.to_be_bytes());
}

pub fn ser_round_key(key: &mut Vec<u8>, transaction: TransactionId, round: u8) {
    ser_key(key, transaction);
    key.push(round);
}

/// The transaction, and the round where it is one of another shard.
///
/// # Errors
/// Where the key is no transaction's.
pub fn deser_key(key: &[u8]) -> Result<(TransactionId, Option<u8>), Damage> {
    let mut fields = Fields::new(key, key);
    fields.prefix(PREFIX)?;
    let id = TransactionId(fields.key_u64()?);
    let round = if fields.is_empty() { None } else { Some(fields.u8()?) };
    fields.finish()?;
    Ok((id, round))
}

/// What was decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// That have not yet said that they did it.
    pub participants: Vec<ShardId>,
    pub makes: Option<Making>,
}

/// A directory made at once, and the name that leads to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Making {
    pub parent: InodeId,
    pub name: Name,
    pub new: NewDirectory,
}

#[must_use]
pub fn ser_decision(participants: &[ShardId], makes: Option<&Making>) -> Vec<u8> {
    let mut value = vec![VERSION, u8::from(makes.is_some())];
    if let Some(Making { parent, name, new }) = makes {
        value.extend_from_slice(&parent.0.to_le_bytes());
        ser_name(&mut value, name);
        ser_new(&mut value, new);
    }
    for shard in participants {
        value.extend_from_slice(&shard.0.to_le_bytes());
    }
    value
}

/// # Errors
/// Where the value is no such record.
pub fn deser_decision(key: &[u8], value: &[u8]) -> Result<Decision, Damage> {
    let mut fields = Fields::new(value, key);
    fields.version(VERSION)?;
    let makes = match fields.u8()? {
        0 => None,
        1 => {
            let (parent, name) = (InodeId(fields.u64()?), deser_name(&mut fields)?);
            let new = deser_new(&mut fields)?;
            if new.id.0 == 0 {
                return Err(fields.damage("decision that makes no directory"));
            }
            Some(Making { parent, name, new })
        }
        _ => return Err(fields.damage("decision of an unknown kind")),
    };
    let mut participants = Vec::new();
    while !fields.is_empty() {
        participants.push(ShardId(fields.u16()?));
    }
    Ok(Decision { participants, makes })
}

#[must_use]
pub fn ser_parts(parts: &[Part]) -> Vec<u8> {
    let mut value = vec![VERSION];
    for part in parts {
        ser_part(&mut value, part);
    }
    value
}

/// What is promised in one round, for `session`.
#[must_use]
pub fn ser_round(session: SessionId, parts: &[Part]) -> Vec<u8> {
    let mut value = vec![VERSION];
    value.extend_from_slice(&session.0.to_le_bytes());
    for part in parts {
        ser_part(&mut value, part);
    }
    value
}

/// # Errors
/// Where the value is no such record.
pub fn deser_round(key: &[u8], value: &[u8]) -> Result<(SessionId, Vec<Part>), Damage> {
    let mut fields = Fields::new(value, key);
    fields.version(VERSION)?;
    let session = SessionId(fields.u64()?);
    Ok((session, deser_rest(&mut fields)?))
}

/// # Errors
/// Where the value is no such list.
pub fn deser_parts(key: &[u8], value: &[u8]) -> Result<Vec<Part>, Damage> {
    let mut fields = Fields::new(value, key);
    fields.version(VERSION)?;
    deser_rest(&mut fields)
}

fn deser_rest(fields: &mut Fields<'_>) -> Result<Vec<Part>, Damage> {
    let mut parts = Vec::new();
    while !fields.is_empty() {
        parts.push(deser_part(fields)?);
    }
    Ok(parts)
}

#[must_use]
pub fn ser_votes(votes: &[Vote]) -> Vec<u8> {
    let mut value = vec![VERSION];
    for vote in votes {
        match vote {
            Vote::Entry(edge) => {
                value.push(vote::ENTRY);
                ser_edge(&mut value, *edge);
            }
            Vote::Made(inode) => {
                value.push(vote::MADE);
                value.extend_from_slice(&inode.0.to_le_bytes());
            }
            Vote::Inode(kind) => value.extend_from_slice(&[vote::INODE, *kind as u8]),
            Vote::Token => value.push(vote::TOKEN),
            Vote::EntryOfPart { there, of } => {
                ser_inode(&mut value, vote::ENTRY_OF_PART, *of);
                ser_edge(&mut value, *there);
            }
            Vote::Parts(parts) => {
                value.push(vote::PARTS);
                ser_inodes(&mut value, parts);
            }
            Vote::Last(attr) => {
                value.push(vote::LAST);
                attr::ser(&mut value, attr);
            }
        }
    }
    value
}

/// # Errors
/// Where the value is no such list.
pub fn deser_votes(value: &[u8]) -> Result<Vec<Vote>, Damage> {
    let mut fields = Fields::new(value, &[PREFIX]);
    fields.version(VERSION)?;
    let mut votes = Vec::new();
    while !fields.is_empty() {
        votes.push(match fields.u8()? {
            vote::ENTRY => Vote::Entry(deser_edge(&mut fields)?),
            vote::MADE => Vote::Made(InodeId(fields.u64()?)),
            vote::INODE => Vote::Inode(deser_kind(&mut fields)?),
            vote::TOKEN => Vote::Token,
            vote::ENTRY_OF_PART => {
                let of = InodeId(fields.u64()?);
                Vote::EntryOfPart { there: deser_edge(&mut fields)?, of }
            }
            vote::PARTS => Vote::Parts(deser_inodes(&mut fields)?),
            vote::LAST => Vote::Last(Box::new(attr::deser(&mut fields)?)),
            _ => return Err(fields.damage("vote of an unknown kind")),
        });
    }
    Ok(votes)
}

fn ser_part(value: &mut Vec<u8>, part: &Part) {
    match part {
        Part::Entry { parent, name, becomes } => {
            value.push(part::ENTRY);
            value.extend_from_slice(&parent.0.to_le_bytes());
            ser_name(value, name);
            ser_edge(value, *becomes);
        }
        Part::Make(new) => {
            value.push(part::MAKE);
            ser_new(value, new);
        }
        Part::Link { inode, parent } => {
            ser_inode(value, part::LINK, *inode);
            value.extend_from_slice(&parent.0.to_le_bytes());
        }
        Part::Unlink(inode) => ser_inode(value, part::UNLINK, *inode),
        Part::Rmdir(inode) => ser_inode(value, part::RMDIR, *inode),
        Part::Move { inode, parent } => {
            ser_inode(value, part::MOVE, *inode);
            value.extend_from_slice(&parent.0.to_le_bytes());
        }
        Part::By { user, part } => {
            value.push(part::BY);
            value.extend_from_slice(&user.to_le_bytes());
            ser_part(value, part);
        }
        Part::Token => value.push(part::TOKEN),
        Part::Divide { inode, parts } => {
            ser_inode(value, part::DIVIDE, *inode);
            ser_inodes(value, parts);
        }
        Part::Hold(inode) => ser_inode(value, part::HOLD, *inode),
        Part::Conform(conformed) => {
            value.push(part::CONFORM);
            ser_conformed(value, conformed);
        }
        Part::Give { directory, moved } => {
            ser_inode(value, part::GIVE, *directory);
            ser_moved(value, moved);
        }
        Part::Take { part, moved } => {
            ser_inode(value, part::TAKE, *part);
            ser_moved(value, moved);
        }
    }
}

fn ser_moved(value: &mut Vec<u8>, Moved { from, to, entries }: &Moved) {
    value.extend_from_slice(&from.to_le_bytes());
    value.extend_from_slice(&to.to_le_bytes());
    value.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    for (name, edge) in entries {
        ser_name(value, name);
        ser_edge(value, Some(*edge));
    }
}

fn deser_moved(fields: &mut Fields<'_>) -> Result<Moved, Damage> {
    let (from, to, count) = (fields.u64()?, fields.u64()?, fields.u32()?);
    if from >= to {
        return Err(fields.damage("transaction that moves names of no range"));
    }
    let mut entries = Vec::new();
    for _ in 0..count {
        let name = deser_name(fields)?;
        let edge = deser_edge(fields)?.filter(|_| (from..to).contains(&name_hash(&name)));
        entries.push((name, edge.ok_or_else(|| fields.damage("transaction that moves an impossible name"))?));
    }
    Ok(Moved { from, to, entries })
}

fn ser_name(value: &mut Vec<u8>, name: &Name) {
    value.push(name.len() as u8);
    value.extend_from_slice(name);
}

fn deser_name(fields: &mut Fields<'_>) -> Result<Name, Damage> {
    let length = usize::from(fields.u8()?);
    let name = Name::new(fields.bytes(length)?);
    name.map_err(|_| fields.damage("transaction with an impossible name"))
}

fn ser_inodes(value: &mut Vec<u8>, inodes: &[InodeId]) {
    value.extend_from_slice(&(inodes.len() as u16).to_le_bytes());
    inodes.iter().for_each(|inode| value.extend_from_slice(&inode.0.to_le_bytes()));
}

fn deser_inodes(fields: &mut Fields<'_>) -> Result<Vec<InodeId>, Damage> {
    let count = fields.u16()?;
    (0..count).map(|_| fields.u64().map(InodeId)).collect()
}

fn ser_policy(value: &mut Vec<u8>, policy: &LayoutPolicy) {
    value.extend_from_slice(&policy.chunk_size.to_le_bytes());
    value.extend_from_slice(&policy.stripe_count.to_le_bytes());
    value.extend_from_slice(&policy.pool.0.to_le_bytes());
    value.extend_from_slice(&policy.directories.to_u32().to_le_bytes());
    value.extend_from_slice(&policy.inline_limit.to_le_bytes());
}

/// Of a directory with this mode.
fn deser_policy(fields: &mut Fields<'_>, mode: u16) -> Result<LayoutPolicy, Damage> {
    let (chunk_size, stripe_count, pool) = (fields.u32()?, fields.u16()?, PoolId(fields.u32()?));
    let (directories, inline_limit) = (Placement::from_u32(fields.u32()?), fields.u32()?);
    let directories = directories.ok_or_else(|| fields.damage("transaction with an unknown placement"))?;
    let policy = LayoutPolicy { chunk_size, stripe_count, pool, directories, inline_limit };
    if policy.validate().is_err() || u32::from(mode) & !types::attr::PERMISSION_BITS != 0 {
        return Err(fields.damage("transaction with an impossible directory"));
    }
    Ok(policy)
}

fn deser_flags(fields: &mut Fields<'_>) -> Result<FileFlags, Damage> {
    let flags = FileFlags::from_bits(fields.u8()?.into());
    flags.ok_or_else(|| fields.damage("transaction with unknown flags"))
}

fn ser_conformed(value: &mut Vec<u8>, conformed: &Conformed) {
    let Conformed { part, mode, uid, gid, flags, policy, default, mtime } = conformed;
    value.extend_from_slice(&part.0.to_le_bytes());
    value.extend_from_slice(&mode.to_le_bytes());
    value.extend_from_slice(&uid.to_le_bytes());
    value.extend_from_slice(&gid.to_le_bytes());
    value.extend_from_slice(&[flags.bits(), u8::from(mtime.is_some())]);
    value.extend_from_slice(&mtime.map_or(0, |mtime| mtime.0).to_le_bytes());
    ser_policy(value, policy);
    ser_acl(value, default.as_deref());
}

fn deser_conformed(fields: &mut Fields<'_>) -> Result<Conformed, Damage> {
    let (part, mode, uid, gid) = (InodeId(fields.u64()?), fields.u16()?, fields.u32()?, fields.u32()?);
    let (flags, is_set, mtime) = (deser_flags(fields)?, fields.u8()?, Timestamp(fields.i64()?));
    if is_set > 1 {
        return Err(fields.damage("transaction with an impossible part of a directory"));
    }
    let (policy, default) = (deser_policy(fields, mode)?, deser_acl(fields)?);
    Ok(Conformed { part, mode, uid, gid, flags, policy, default, mtime: (is_set == 1).then_some(mtime) })
}

fn deser_part(fields: &mut Fields<'_>) -> Result<Part, Damage> {
    match fields.u8()? {
        part::BY => {
            let (user, tag) = (fields.u32()?, fields.u8()?);
            match deser_plain(tag, fields)? {
                part @ (Part::Entry { .. } | Part::Unlink(_) | Part::Rmdir(_) | Part::Move { .. }) => {
                    Ok(part.by(Some(user)))
                }
                _ => Err(fields.damage("transaction with an impossible part of a user")),
            }
        }
        tag => deser_plain(tag, fields),
    }
}

/// A part that is nobody's.
fn deser_plain(tag: u8, fields: &mut Fields<'_>) -> Result<Part, Damage> {
    Ok(match tag {
        part::ENTRY => {
            let parent = InodeId(fields.u64()?);
            let name = deser_name(fields)?;
            Part::Entry { parent, name, becomes: deser_edge(fields)? }
        }
        part::MAKE => Part::Make(deser_new(fields)?),
        part::LINK => Part::Link { inode: InodeId(fields.u64()?), parent: InodeId(fields.u64()?) },
        part::UNLINK => Part::Unlink(InodeId(fields.u64()?)),
        part::RMDIR => Part::Rmdir(InodeId(fields.u64()?)),
        part::MOVE => Part::Move { inode: InodeId(fields.u64()?), parent: InodeId(fields.u64()?) },
        part::TOKEN => Part::Token,
        part::DIVIDE => Part::Divide { inode: InodeId(fields.u64()?), parts: deser_inodes(fields)? },
        part::HOLD => Part::Hold(InodeId(fields.u64()?)),
        part::CONFORM => Part::Conform(deser_conformed(fields)?),
        part::GIVE => Part::Give { directory: InodeId(fields.u64()?), moved: deser_moved(fields)? },
        part::TAKE => Part::Take { part: InodeId(fields.u64()?), moved: deser_moved(fields)? },
        _ => return Err(fields.damage("transaction with an unknown part")),
    })
}

fn ser_inode(value: &mut Vec<u8>, tag: u8, inode: InodeId) {
    value.push(tag);
    value.extend_from_slice(&inode.0.to_le_bytes());
}

/// Inode 0 stands for no entry.
fn ser_edge(value: &mut Vec<u8>, edge: Option<Edge>) {
    value.extend_from_slice(&edge.map_or(0, |edge| edge.child.0).to_le_bytes());
    value.push(edge.map_or(0, |edge| edge.kind as u8));
}

fn deser_edge(fields: &mut Fields<'_>) -> Result<Option<Edge>, Damage> {
    let child = InodeId(fields.u64()?);
    if child.0 == 0 {
        fields.u8()?;
        return Ok(None);
    }
    Ok(Some(Edge { child, kind: deser_kind(fields)? }))
}

pub(super) fn deser_kind(fields: &mut Fields<'_>) -> Result<FileType, Damage> {
    FileType::from_u8(fields.u8()?).ok_or_else(|| fields.damage("transaction with an unknown kind"))
}

/// Number 0 of 0 stands for no part of its parent.
fn ser_new(value: &mut Vec<u8>, new: &NewDirectory) {
    let PartNumber { index, count } = new.part.unwrap_or(PartNumber { index: 0, count: 0 });
    value.extend_from_slice(&new.id.0.to_le_bytes());
    value.extend_from_slice(&new.parent.0.to_le_bytes());
    value.extend_from_slice(&new.mode.to_le_bytes());
    value.extend_from_slice(&new.uid.to_le_bytes());
    value.extend_from_slice(&new.gid.to_le_bytes());
    value.extend_from_slice(&[new.flags.bits(), u8::from(new.fills), u8::from(new.at_once)]);
    value.extend_from_slice(&index.to_le_bytes());
    value.extend_from_slice(&count.to_le_bytes());
    value.extend_from_slice(&new.time.0.to_le_bytes());
    ser_policy(value, &new.policy);
    ser_acl(value, new.access.as_deref());
    ser_acl(value, new.default.as_deref());
}

/// Length 0 stands for none.
fn ser_acl(value: &mut Vec<u8>, acl: Option<&[u8]>) {
    let acl = acl.unwrap_or(&[]);
    value.extend_from_slice(&(acl.len() as u32).to_le_bytes());
    value.extend_from_slice(acl);
}

fn deser_acl(fields: &mut Fields<'_>) -> Result<Option<Vec<u8>>, Damage> {
    let length = fields.u32()?;
    if length == 0 {
        return Ok(None);
    }
    let acl = fields.bytes(length as usize)?.to_vec();
    match Acl::parse(&acl) {
        Ok(_) => Ok(Some(acl)),
        Err(_) => Err(fields.damage("transaction with an impossible ACL")),
    }
}

fn deser_new(fields: &mut Fields<'_>) -> Result<NewDirectory, Damage> {
    let (id, parent) = (InodeId(fields.u64()?), InodeId(fields.u64()?));
    let (mode, uid, gid, flags) = (fields.u16()?, fields.u32()?, fields.u32()?, deser_flags(fields)?);
    let (fills, at_once) = (fields.u8()?, fields.u8()?);
    let number = PartNumber { index: fields.u16()?, count: fields.u16()? };
    let part = (number != PartNumber { index: 0, count: 0 }).then_some(number);
    // Names come to a part alone; and a part is not made at once.
    let (fills, at_once) = match (part, fills, at_once) {
        (None, 0, 0 | 1) => (false, at_once == 1),
        (Some(number), 0 | 1, 0) if number.is_possible() => (fills == 1, false),
        _ => return Err(fields.damage("transaction with an impossible new directory")),
    };
    let (time, policy) = (Timestamp(fields.i64()?), deser_policy(fields, mode)?);
    let (access, default) = (deser_acl(fields)?, deser_acl(fields)?);
    Ok(NewDirectory { id, parent, mode, uid, gid, flags, time, policy, access, default, part, fills, at_once })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use types::attr::Attr;
    use types::layout::INLINE_MAX;
    use types::name_hash::HASH_MAX;

    fn edges() -> impl Strategy<Value = Option<Edge>> {
        prop::option::of((1u64.., prop::sample::select(vec![FileType::Regular, FileType::Directory])))
            .prop_map(|edge| edge.map(|(child, kind)| Edge { child: InodeId(child), kind }))
    }

    fn acl(user: u32) -> Vec<u8> {
        let entries = [(1u16, u32::MAX), (2, user >> 1), (4, u32::MAX), (0x10, u32::MAX), (0x20, u32::MAX)];
        let entry = |(tag, id): (u16, u32)| [&tag.to_le_bytes()[..], &[7, 0], &id.to_le_bytes()].concat();
        [2u32.to_le_bytes().to_vec(), entries.map(entry).concat()].concat()
    }

    fn some_flags(number: u64) -> FileFlags {
        FileFlags::from_bits(number as u32 & 0xf0).expect("four bits")
    }

    fn parts() -> impl Strategy<Value = Part> {
        let names = prop::collection::vec(128u8.., 1..255).prop_map(|bytes| Name::new(&bytes).expect("a name"));
        prop_oneof![
            (any::<u64>(), names, edges()).prop_map(|(parent, name, becomes)| Part::Entry {
                parent: InodeId(parent),
                name,
                becomes
            }),
            any::<([u64; 2], [u32; 3], i64, (bool, bool))>().prop_map(|(n, m, time, acls)| Part::Make(NewDirectory {
                id: InodeId(n[0]),
                parent: InodeId(n[1]),
                mode: 0o1755,
                uid: m[0],
                gid: m[1],
                flags: some_flags(n[1]),
                time: Timestamp(time),
                policy: LayoutPolicy {
                    pool: PoolId(m[2]),
                    directories: Placement::Inherit,
                    inline_limit: if acls.0 { m[0] % INLINE_MAX } else { 0 },
                    ..LayoutPolicy::default()
                },
                access: acls.0.then(|| acl(m[0])),
                default: acls.1.then(|| acl(m[1])),
                part: (n[0] % 2 == 0).then_some(PartNumber { index: (n[1] % 7) as u16, count: 7 }),
                fills: n[0].is_multiple_of(4),
                at_once: n[0] % 2 == 1 && m[0] % 2 == 0,
            })),
            any::<(u64, [u32; 3], Option<i64>, bool)>().prop_map(|(part, m, mtime, acls)| Part::Conform(Conformed {
                part: InodeId(part),
                mode: 0o2755,
                uid: m[0],
                gid: m[1],
                flags: some_flags(part),
                policy: LayoutPolicy { pool: PoolId(m[2]), ..LayoutPolicy::default() },
                default: acls.then(|| acl(m[0])),
                mtime: mtime.map(Timestamp),
            })),
            (any::<u64>(), inodes()).prop_map(|(inode, parts)| Part::Divide { inode: InodeId(inode), parts }),
            any::<u64>().prop_map(|id| Part::Hold(InodeId(id))),
            (any::<u64>(), moved()).prop_map(|(id, moved)| Part::Give { directory: InodeId(id), moved }),
            (any::<u64>(), moved()).prop_map(|(id, moved)| Part::Take { part: InodeId(id), moved }),
            any::<[u64; 2]>().prop_map(|n| Part::Link { inode: InodeId(n[0]), parent: InodeId(n[1]) }),
            any::<u64>().prop_map(|id| Part::Unlink(InodeId(id))),
            any::<(u64, u32)>().prop_map(|(id, user)| Part::Rmdir(InodeId(id)).by(Some(user))),
            any::<u64>().prop_map(|id| Part::Rmdir(InodeId(id))),
            any::<[u64; 2]>().prop_map(|n| Part::Move { inode: InodeId(n[0]), parent: InodeId(n[1]) }),
            Just(Part::Token),
        ]
    }

    fn new_directory(part: Option<PartNumber>, fills: bool, at_once: bool) -> NewDirectory {
        NewDirectory {
            id: InodeId(5),
            parent: InodeId(6),
            mode: 0o755,
            uid: 1,
            gid: 2,
            flags: FileFlags::NODUMP,
            time: Timestamp(7),
            policy: LayoutPolicy::default(),
            access: None,
            default: None,
            part,
            fills,
            at_once,
        }
    }

    #[test]
    fn names_come_to_parts_alone_and_these_are_not_made_at_once() {
        let number = |index, count| Some(PartNumber { index, count });
        let is_read = |part, fills, at_once| {
            let parts = [Part::Make(new_directory(part, fills, at_once))];
            let read = deser_parts(b"T", &ser_parts(&parts));
            read.inspect(|read| assert_eq!(read[..], parts)).is_ok()
        };
        assert!(is_read(None, false, false) && is_read(None, false, true) && !is_read(None, true, false));
        assert!(is_read(number(1, 2), false, false) && is_read(number(1, 2), true, false));
        assert!(!is_read(number(1, 2), false, true) && !is_read(number(2, 2), false, false));
        assert!(!is_read(number(0, 1), false, false) && !is_read(number(1, 0), false, false));
    }

    #[test]
    fn what_is_never_written_is_damage() {
        // Behind version and number: inode, parent, permissions, user and group.
        const FLAGS: usize = 2 + 8 + 8 + 2 + 4 + 4;
        let made = ser_parts(&[Part::Make(new_directory(None, false, false))]);
        for (at, wrong) in [(0, 2), (1, 0), (1, part::BY), (FLAGS, 1), (FLAGS + 1, 2), (FLAGS + 2, 2)] {
            let value = [&made[..at], &[wrong], &made[at + 1..]].concat();
            assert!(deser_parts(b"T", &value).is_err(), "{wrong} at {at}");
        }
        let of_user = |part: &[u8]| deser_parts(b"T", &[&[VERSION, part::BY, 9, 0, 0, 0], part].concat());
        let unlink = ser_parts(&[Part::Unlink(InodeId(5))]);
        assert_eq!(of_user(&unlink[1..]), Ok(vec![Part::Unlink(InodeId(5)).by(Some(9))]));
        assert!(of_user(&made[1..]).is_err() && of_user(&[part::TOKEN]).is_err());
        assert!(of_user(&[&[part::BY, 9, 0, 0, 0], &unlink[1..]].concat()).is_err(), "of two users");
        let decided = ser_decision(&[ShardId(1)], None);
        assert!(deser_decision(b"T", &[&[VERSION, 2], &decided[2..]].concat()).is_err());
        let new = NewDirectory { id: InodeId(0), ..new_directory(None, false, true) };
        let nothing = Making { parent: InodeId(6), name: Name::new(b"n").expect("a name"), new };
        assert!(deser_decision(b"T", &ser_decision(&[ShardId(1)], Some(&nothing))).is_err());
    }

    fn moved() -> impl Strategy<Value = Moved> {
        let names = prop::collection::vec(128u8.., 1..9).prop_map(|bytes| Name::new(&bytes).expect("a name"));
        let entry = (names, edges().prop_filter_map("an entry", |edge| edge));
        prop::collection::vec(entry, 0..4).prop_map(|entries| Moved { from: 1, to: HASH_MAX + 1, entries })
    }

    #[test]
    fn names_are_moved_in_a_range() {
        let give = |from, to| {
            let part = Part::Give { directory: InodeId(5), moved: Moved { from, to, entries: Vec::new() } };
            deser_parts(b"T", &ser_parts(&[part])).is_ok()
        };
        assert_eq!([(1, 2), (2, 2), (2, 1)].map(|(from, to)| give(from, to)), [true, false, false]);
    }

    fn inodes() -> impl Strategy<Value = Vec<InodeId>> {
        prop::collection::vec(any::<u64>().prop_map(InodeId), 0..9)
    }

    fn attrs() -> impl Strategy<Value = Attr> {
        any::<([u64; 3], [u32; 5], [i64; 4])>().prop_map(|(long, short, times)| Attr {
            inode: InodeId(long[0]),
            kind: FileType::Socket,
            mode: short[0],
            uid: short[1],
            gid: short[2],
            nlink: short[3],
            rdev: short[4],
            size: long[1],
            blocks: long[2],
            atime: Timestamp(times[0]),
            mtime: Timestamp(times[1]),
            ctime: Timestamp(times[2]),
            btime: Timestamp(times[3]),
        })
    }

    fn votes() -> impl Strategy<Value = Vote> {
        prop_oneof![
            edges().prop_map(Vote::Entry),
            any::<u64>().prop_map(|id| Vote::Made(InodeId(id))),
            Just(Vote::Inode(FileType::Fifo)),
            Just(Vote::Token),
            (edges(), any::<u64>()).prop_map(|(there, of)| Vote::EntryOfPart { there, of: InodeId(of) }),
            inodes().prop_map(Vote::Parts),
            attrs().prop_map(|attr| Vote::Last(Box::new(attr))),
        ]
    }

    proptest! {
        #[test]
        fn round_trips(
            id: u64, round: u8, parts in prop::collection::vec(parts(), 0..5), votes in prop::collection::vec(votes(), 0..5),
            shards: Vec<u16>, cut in 1usize..9,
        ) {
            let mut key = Vec::new();
            ser_round_key(&mut key, TransactionId(id), round);
            prop_assert_eq!(deser_key(&key), Ok((TransactionId(id), Some(round))));
            ser_key(&mut key, TransactionId(id));
            prop_assert_eq!(deser_key(&key), Ok((TransactionId(id), None)));
            let value = ser_parts(&parts);
            prop_assert_eq!(deser_parts(&key, &value), Ok(parts.clone()));
            let session = SessionId(id ^ 5);
            prop_assert_eq!(deser_round(&key, &ser_round(session, &parts)), Ok((session, parts.clone())));
            // A part cut off anywhere is noticed, unless it is cut off whole.
            if let Ok(fewer) = deser_parts(&key, &value[..value.len().saturating_sub(cut)]) {
                prop_assert!(fewer.len() < parts.len());
            }
            prop_assert_eq!(deser_votes(&ser_votes(&votes)), Ok(votes));
            let shards: Vec<ShardId> = shards.into_iter().map(ShardId).collect();
            let making = |part| match part {
                Part::Make(new) if new.id.0 != 0 => Some(Making { parent: InodeId(id), name: Name::new(b"n").ok()?, new }),
                _ => None,
            };
            let makes = parts.into_iter().find_map(making);
            let value = ser_decision(&shards, makes.as_ref());
            prop_assert_eq!(deser_decision(&key, &value), Ok(Decision { participants: shards, makes }));
        }

        #[test]
        fn damage_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = deser_parts(b"T", &bytes);
            let _ = deser_round(b"T", &bytes);
            let _ = deser_votes(&bytes);
            let _ = deser_decision(b"T", &bytes);
            let _ = deser_decision(b"T", &[&[VERSION, 1], &bytes[..]].concat());
            prop_assert!(deser_parts(b"T", &[&[9], &bytes[..]].concat()).is_err());
        }
    }
}
