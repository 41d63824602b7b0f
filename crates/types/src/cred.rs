//! Who asks.

use crate::flags::FileFlags;

/// The credentials under which an operation runs. Permission bits are checked by the caller's kernel
/// (`default_permissions`); the shard needs these for ownership of what it makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Credentials {
    pub uid: u32,
    pub gid: u32,
    /// Permission bits that new inodes do not get, unless their directory's default ACL says what they get.
    pub umask: u32,
}

/// What a change was permitted for. Whoever permits it, a kernel or a client, goes by what it was told, and that may be over
/// when the change comes to its shard. So the shard looks again in the moment of the change, and refuses with `ECANCELED`
/// where it is not so: who asks judges anew then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Conditions {
    /// The inode belongs to this user.
    pub owner: Option<u32>,
    /// It belongs to this group.
    pub group: Option<u32>,
    /// It has these of the flags that not every owner sets and clears: [`FileFlags::FIXED`].
    pub fixed: Option<FileFlags>,
    /// Whose name is taken away in a sticky directory belongs to this user, or the directory does.
    pub remover: Option<u32>,
}

impl Conditions {
    /// Of an inode of this user and group, with these flags.
    #[must_use]
    pub fn are_met(&self, uid: u32, gid: u32, flags: FileFlags) -> bool {
        self.owner.is_none_or(|owner| owner == uid)
            && self.group.is_none_or(|group| group == gid)
            && self.fixed.is_none_or(|fixed| fixed == flags.fixed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_is_one() {
        let flags = FileFlags::APPEND.with(FileFlags::NODUMP);
        let is_met = |given: Conditions| given.are_met(1, 2, flags);
        let none = Conditions::default();
        assert!(is_met(none));
        assert!(is_met(Conditions { owner: Some(1), group: Some(2), fixed: Some(FileFlags::APPEND), ..none }));
        assert!(!is_met(Conditions { owner: Some(2), ..none }));
        assert!(!is_met(Conditions { group: Some(1), ..none }));
        assert!(!is_met(Conditions { fixed: Some(FileFlags::NONE), ..none }));
        assert!(!is_met(Conditions { fixed: Some(FileFlags::FIXED), ..none }));
    }
}
