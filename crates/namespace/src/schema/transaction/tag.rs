//! The numbers that stand before the parts of a transaction and before the votes on them, in records and in messages.
//! `docs/formats.md` says which fields follow each part. None may ever get another meaning.

/// Before a part.
pub(super) mod part {
    pub(crate) const ENTRY: u8 = 1;
    pub(crate) const MAKE: u8 = 2;
    pub(crate) const LINK: u8 = 3;
    pub(crate) const UNLINK: u8 = 4;
    pub(crate) const RMDIR: u8 = 5;
    pub(crate) const MOVE: u8 = 6;
    pub(crate) const TOKEN: u8 = 7;
    pub(crate) const DIVIDE: u8 = 8;
    pub(crate) const HOLD: u8 = 9;
    pub(crate) const CONFORM: u8 = 10;
    pub(crate) const GIVE: u8 = 11;
    pub(crate) const TAKE: u8 = 12;
    /// Before the number of an entry, of an inode that loses a name, or whose name is moved, and followed by a user. In
    /// messages alone.
    pub(crate) const BY: u8 = 13;
}

/// Before a vote.
pub(super) mod vote {
    /// What the entry leads to.
    pub(crate) const ENTRY: u8 = 1;
    /// The inode of the new directory.
    pub(crate) const MADE: u8 = 2;
    /// The kind of the inode.
    pub(crate) const INODE: u8 = 3;
    /// Nothing.
    pub(crate) const TOKEN: u8 = 4;
    /// The part of a split directory that has the entry, then what that leads to.
    pub(crate) const ENTRY_OF_PART: u8 = 5;
    /// The parts of the split directory: their number (2 bytes), then each (8 bytes).
    pub(crate) const PARTS: u8 = 6;
    /// The attributes of what loses its last name.
    pub(crate) const LAST: u8 = 7;
}
