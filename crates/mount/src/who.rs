//! Who asks, as far as a change depends on it: the kernel tells user and group with a request, and shows the rest in `/proc`.

use std::fs;

use client::{Right, Standing};
use fuse::Context;

/// Of `<linux/capability.h>`: gives away what belongs to others.
const CAP_CHOWN: u32 = 0;
/// Changes what belongs to others.
const CAP_FOWNER: u32 = 3;
/// Sets and clears the flags that keep a file as it is.
const CAP_LINUX_IMMUTABLE: u32 = 9;
/// Sees and changes attributes of `trusted.`.
const CAP_SYS_ADMIN: u32 = 21;
/// Leaves set-user-id and set-group-id as they are.
const CAP_FSETID: u32 = 4;

/// The caller of one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    uid: u32,
    gid: u32,
    thread: u32,
    /// The kernel says that it has no privilege.
    is_unprivileged: bool,
}

impl Who {
    /// `is_unprivileged`: where the kernel says so with the request.
    pub(crate) fn of(context: &Context, is_unprivileged: bool) -> Self {
        Self { uid: context.uid, gid: context.gid, thread: context.pid, is_unprivileged }
    }

    /// `None` where it cannot be seen, as from another PID namespace.
    fn status(self) -> Option<String> {
        fs::read_to_string(format!("/proc/{}/status", self.thread)).ok()
    }

    /// Somebody else acts for it (an overlay does, for who has mounted it): the kernel alone knows what that one may.
    fn acts_for_another(self, status: &str) -> bool {
        line(status, "Uid").nth(3).is_none_or(|own| own.parse() != Ok(self.uid))
    }

    /// Attributes of `trusted.` are listed for it; who reads one, the kernel looks. For root without the privilege too: an
    /// overlay acts in the thread of whoever changes a file, and what is not listed for that one is lost in the copy.
    pub(crate) fn is_trusted(self) -> bool {
        self.uid == 0 || self.status().is_some_and(|status| self.is_privileged_by(&status))
    }

    /// A capability that counts outside of user namespaces alone.
    fn is_privileged_by(self, status: &str) -> bool {
        !self.acts_for_another(status) && has_capability(status, CAP_SYS_ADMIN) && self.is_in_our_user_namespace()
    }

    /// Others have their capabilities over what belongs to their own user namespace.
    fn is_in_our_user_namespace(self) -> bool {
        let paths =
            |file: &str| ["/proc/self".into(), format!("/proc/{}", self.thread)].map(|of| format!("{of}/{file}"));
        let links = paths("ns/user").map(|path| fs::read_link(path).ok());
        are_same(links).or_else(|| are_same(paths("uid_map").map(|path| fs::read(path).ok()))).unwrap_or(false)
    }
}

impl Standing for Who {
    fn uid(&self) -> u32 {
        self.uid
    }

    fn is_privileged(&self) -> bool {
        if self.is_unprivileged {
            return false;
        }
        let is_root = self.uid == 0;
        match self.status() {
            Some(status) => has_capability(&status, CAP_FSETID) && (is_root || self.is_in_our_user_namespace()),
            None => is_root,
        }
    }

    /// A capability that counts outside of user namespaces alone.
    fn may_fix(&self) -> bool {
        let Some(status) = self.status() else { return true };
        self.acts_for_another(&status)
            || has_capability(&status, CAP_LINUX_IMMUTABLE) && self.is_in_our_user_namespace()
    }

    /// In a user namespace of its own it has capabilities over what belongs to the users there, and for some to the groups.
    fn has_over(&self, uid: u32, gid: u32, right: Right) -> bool {
        let Some(status) = self.status() else { return true };
        if self.acts_for_another(&status) {
            return true;
        }
        let is_there = |map: &str, id| {
            let map = fs::read_to_string(format!("/proc/{}/{map}", self.thread));
            map.is_ok_and(|map| is_in_map(&map, id))
        };
        let (capability, counts_group) = match right {
            Right::Own => (CAP_FOWNER, false),
            Right::Chown => (CAP_CHOWN, true),
            Right::SetGroupId => (CAP_FSETID, true),
        };
        let is_over_both = || is_there("uid_map", uid) && (!counts_group || is_there("gid_map", gid));
        has_capability(&status, capability) && (self.is_in_our_user_namespace() || is_over_both())
    }

    /// It is in the group `gid`. Of a process that cannot be seen, only the group by which it makes files is known.
    fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.status().is_some_and(|status| has_group(&status, gid))
    }
}

/// Which namespace it is, the kernel shows of another process only to who may trace it; by which users it has, to all.
fn are_same<T: PartialEq>([ours, its]: [Option<T>; 2]) -> Option<bool> {
    Some(ours? == its?)
}

/// The words of the line `name` of `/proc/PID/status`.
fn line<'a>(status: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().split_ascii_whitespace()
}

fn has_capability(status: &str, capability: u32) -> bool {
    let set = line(status, "CapEff").next().and_then(|hex| u64::from_str_radix(hex, 16).ok());
    set.is_some_and(|set| set >> capability & 1 != 0)
}

/// Whether one of the ranges has it, each a line of its beginning there, its beginning here, and its length.
fn is_in_map(map: &str, id: u32) -> bool {
    map.lines().any(|range| {
        let mut numbers = range.split_ascii_whitespace().skip(1).map(|number| number.parse::<u32>().ok());
        let [Some(Some(begin)), Some(Some(length))] = [numbers.next(), numbers.next()] else { return false };
        id.checked_sub(begin).is_some_and(|at| at < length)
    })
}

fn has_group(status: &str, gid: u32) -> bool {
    line(status, "Groups").any(|group| group.parse() == Ok(gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str =
        "Name:\tsh\nGid:\t7\t7\t7\t7\nGroups:\t8 3000 \nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000000010\n";

    #[test]
    fn groups_and_capabilities_are_read() {
        assert!(has_group(STATUS, 8) && has_group(STATUS, 3000));
        assert!(!has_group(STATUS, 7) && !has_group(STATUS, 300) && !has_group("", 0));
        assert!(has_capability(STATUS, CAP_FSETID) && !has_capability(STATUS, CAP_FOWNER));
        assert!(!has_capability(STATUS, CAP_LINUX_IMMUTABLE));
        assert!(!has_capability("CapEff:\tnone", CAP_FSETID));
    }

    #[test]
    fn ranges_of_a_namespace_are_those_outside() {
        let map = "         0     100000      65536\n     65536       1000          1\n";
        assert!(is_in_map(map, 100_000) && is_in_map(map, 165_535) && is_in_map(map, 1000));
        assert!(!is_in_map(map, 0) && !is_in_map(map, 165_536) && !is_in_map(map, 1001) && !is_in_map("", 0));
    }

    #[test]
    fn who_cannot_be_seen_has_what_the_request_says() {
        let who = |uid| Who { uid, gid: 5, thread: 0, is_unprivileged: false };
        assert!(who(0).is_privileged() && !who(1).is_privileged());
        assert!(who(1).is_in_group(5) && !who(1).is_in_group(6));
        assert!(!Who { is_unprivileged: true, ..who(0) }.is_privileged());
        assert!(who(0).is_trusted() && !who(1).is_trusted());
        assert!(who(0).may_fix() && who(1).may_fix(), "by the word of the kernel");
        assert!(who(1).has_over(2, 6, Right::SetGroupId), "by the word of the kernel");
    }

    #[test]
    fn trusted_are_root_and_who_has_the_privilege_itself() {
        let who = Who { uid: 7, gid: 5, thread: std::process::id(), is_unprivileged: false };
        let may = |user: u32, capabilities: u64| {
            who.is_privileged_by(&format!("Uid:\t8\t8\t8\t{user}\nCapEff:\t{capabilities:016x}\n"))
        };
        assert!(may(7, 1 << CAP_SYS_ADMIN));
        assert!(!may(7, !(1 << CAP_SYS_ADMIN)));
        assert!(!may(8, 1 << CAP_SYS_ADMIN), "another one acts");
        assert!(Who { uid: 0, ..who }.is_trusted(), "whatever the thread may");
    }

    #[test]
    fn a_namespace_that_is_not_shown_is_another_one_where_its_users_are() {
        let of = |links, maps| are_same(links).or_else(|| are_same(maps));
        assert_eq!(of([Some(1), Some(1)], [None, None]), Some(true));
        assert_eq!(of([Some(1), Some(2)], [Some(7), Some(7)]), Some(false));
        assert_eq!(of([Some(1), None], [Some(7), Some(7)]), Some(true));
        assert_eq!(of([Some(1), None], [Some(7), Some(8)]), Some(false));
        assert_eq!(of([None, None], [Some(7), None]), None);
    }

    #[test]
    fn a_thread_is_seen() {
        let thread = std::process::id();
        assert!(Who { uid: 1, gid: 5, thread, is_unprivileged: false }.is_in_our_user_namespace());
        assert!(Who { uid: 1, gid: 5, thread, is_unprivileged: false }.status().is_some());
    }
}
