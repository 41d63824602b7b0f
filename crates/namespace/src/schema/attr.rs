//! Attributes of an inode that is at home in another shard, as votes carry them.

use types::attr::Attr;
use types::id::InodeId;
use types::time::Timestamp;

use crate::error::Damage;
use crate::schema::Fields;
use crate::schema::transaction::deser_kind;

pub(super) fn ser(value: &mut Vec<u8>, attr: &Attr) {
    let Attr { inode, kind, mode, uid, gid, nlink, rdev, size, blocks, atime, mtime, ctime, btime } = *attr;
    value.extend_from_slice(&inode.0.to_le_bytes());
    value.push(kind as u8);
    [mode, uid, gid, nlink, rdev].iter().for_each(|number| value.extend_from_slice(&number.to_le_bytes()));
    [size, blocks].iter().for_each(|number| value.extend_from_slice(&number.to_le_bytes()));
    [atime, mtime, ctime, btime].iter().for_each(|time| value.extend_from_slice(&time.0.to_le_bytes()));
}

/// # Errors
/// Where they are too short, or of an unknown kind.
pub(super) fn deser(fields: &mut Fields<'_>) -> Result<Attr, Damage> {
    Ok(Attr {
        inode: InodeId(fields.u64()?),
        kind: deser_kind(fields)?,
        mode: fields.u32()?,
        uid: fields.u32()?,
        gid: fields.u32()?,
        nlink: fields.u32()?,
        rdev: fields.u32()?,
        size: fields.u64()?,
        blocks: fields.u64()?,
        atime: Timestamp(fields.i64()?),
        mtime: Timestamp(fields.i64()?),
        ctime: Timestamp(fields.i64()?),
        btime: Timestamp(fields.i64()?),
    })
}
