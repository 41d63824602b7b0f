//! Names of extended attributes.

use crate::error::Errno;

/// Bytes, as in `<linux/limits.h>`.
pub const NAME_MAX: usize = 255;
pub const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
pub const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";
/// Beside the flags of `setxattr(2)`: an access ACL from one who is not in the file's group, so set-group-id goes.
pub const KILL_SGID: u32 = 0x100;
/// What a program file may do beyond its caller's rights.
pub const CAPABILITY: &[u8] = b"security.capability";
/// Begins the names of those that a privileged program keeps to itself (`CAP_SYS_ADMIN`).
pub const TRUSTED: &[u8] = b"trusted.";
/// A label of SELinux. A kernel in which that is active keeps the labels of a FUSE file system to itself: who asks us for one
/// runs where they mean nothing.
pub const LABEL: &[u8] = b"security.selinux";

/// Whether Weft has attributes of such a name: in the name spaces `user`, `trusted` and `security`, and ACLs.
///
/// # Errors
/// `ERANGE` (its length), `EOPNOTSUPP` (its name space), `EINVAL` (nothing after the prefix, or a zero byte).
pub fn check_name(name: &[u8]) -> Result<(), Errno> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Errno::ERANGE);
    }
    if name == ACCESS_ACL || name == DEFAULT_ACL {
        return Ok(());
    }
    let spaces: [&[u8]; 3] = [b"user.", TRUSTED, b"security."];
    match spaces.iter().find_map(|space| name.strip_prefix(*space)) {
        None => Err(Errno::EOPNOTSUPP),
        Some([]) => Err(Errno::EINVAL),
        Some(rest) if rest.contains(&0) => Err(Errno::EINVAL),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_a_known_space_and_not_too_long() {
        let long = [b"user.".as_slice(), &[b'x'; NAME_MAX - 5]].concat();
        for good in [b"user.a".as_slice(), b"trusted.b", CAPABILITY, ACCESS_ACL, DEFAULT_ACL, &long] {
            assert_eq!(check_name(good), Ok(()));
        }
        let longer = [long, vec![b'x']].concat();
        assert_eq!(check_name(&longer), Err(Errno::ERANGE));
        assert_eq!(check_name(b""), Err(Errno::ERANGE));
        assert_eq!(check_name(b"system.other"), Err(Errno::EOPNOTSUPP));
        assert_eq!(check_name(b"user."), Err(Errno::EINVAL));
        assert_eq!(check_name(b"user.a\0b"), Err(Errno::EINVAL));
    }
}
