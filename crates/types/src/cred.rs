//! Who asks.

/// The credentials under which an operation runs. Permission bits are checked by the caller's kernel
/// (`default_permissions`); the shard needs these for ownership of what it makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Credentials {
    pub uid: u32,
    pub gid: u32,
    /// Permission bits that new inodes do not get, unless their directory's default ACL says what they get.
    pub umask: u32,
}
