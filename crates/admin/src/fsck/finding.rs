//! What a check finds.

use serde::{Serialize, Serializer};
use types::id::InodeId;

/// Something that does not belong together.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Finding {
    pub kind: Kind,
    /// The inode concerned. In JSON hexadecimal, as logs and other commands write inode ids.
    #[serde(serialize_with = "as_text")]
    pub inode: InodeId,
    /// One line for people.
    pub text: String,
    /// From the root of the file system, by one of its names; `None` where none leads there.
    pub path: Option<String>,
    /// Of the inode when it was looked at, in nanoseconds since 1970; 0 where it is not there. A suspicion about an
    /// inode that has changed since is another suspicion.
    #[serde(skip)]
    pub(super) ctime: i64,
}

fn as_text<S: Serializer>(inode: &InodeId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(inode)
}

/// Which invariant does not hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A record of the metadata that cannot be read.
    DamagedRecord,
    /// A name of an inode that is not there.
    DanglingName,
    /// A name in something that is no directory.
    StrayName,
    /// A name in a part of a directory that is not the one for such names.
    MisplacedName,
    /// A part of a split directory that is not there, or is none.
    MissingPart,
    /// A name that says another type than its inode.
    WrongType,
    /// An inode without a name that nobody holds open.
    Unreachable,
    /// A directory that no path from the root leads to.
    Detached,
    /// A directory with several names.
    LinkedDirectory,
    /// The link count is not the number of names.
    WrongLinkCount,
    /// The root directory is not there.
    NoRoot,
    /// An object that belongs to no file and waits for no deletion.
    StrayObject,
    /// The object of a file that lies in another group than the file's layout says.
    MisplacedObject,
    /// A deletion is queued for an object of a file that is there.
    DoomedObject,
    /// The objects do not make up the file's size: bytes are missing or there are too many.
    WrongSize,
    /// An object is missing or too short, and the file takes less space than when it was written: no hole, but a loss.
    LostData,
    /// A file has objects but no layout that is possible.
    BadLayout,
    /// A file has, or may have, bytes on a target that could not be asked.
    OutOfReach,
    /// Contents in the metadata of a file that is not there, or has its contents in objects.
    StrayContents,
}
