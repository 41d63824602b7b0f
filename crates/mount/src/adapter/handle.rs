//! The handle of an open file: what the kernel gives back with each operation on it.

use client::Durability;

/// The flags of `open` as they come with FUSE requests.
pub(super) mod o_flags {
    pub(crate) const ACCMODE: u32 = libc::O_ACCMODE as u32;
    pub(crate) const RDONLY: u32 = libc::O_RDONLY as u32;
    pub(crate) const EXCL: u32 = libc::O_EXCL as u32;
    pub(crate) const APPEND: u32 = libc::O_APPEND as u32;
    pub(crate) const DIRECT: u32 = libc::O_DIRECT as u32;
    pub(crate) const NOATIME: u32 = libc::O_NOATIME as u32;
    /// `O_SYNC` has it, too; and so have writes that ask for it by themselves (`RWF_DSYNC`).
    pub(crate) const DSYNC: u32 = libc::O_DSYNC as u32;
    /// What `O_SYNC` has beside that.
    pub(crate) const FULL_SYNC: u32 = (libc::O_SYNC & !libc::O_DSYNC) as u32;
}

/// The file was opened to be written, with these flags of `open`.
pub(super) fn is_writable(flags: u32) -> bool {
    flags & o_flags::ACCMODE != o_flags::RDONLY
}

const WRITES: u64 = 1;
const LEAVES_ATIME: u64 = 2;
const SYNCS_DATA: u64 = 4;
const SYNCS_ALL: u64 = 8;
/// The number of the open file is above these bits.
const NUMBER_SHIFT: u32 = 4;

/// Says what the open was for, and is no other open file's: locks belong to it. All else is kept per inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileHandle(pub(super) u64);

impl FileHandle {
    /// The handle of the open file of this `number`, which was opened with `flags`.
    pub(super) fn new(number: u64, flags: u32) -> Self {
        let bit = |on: bool, bit: u64| if on { bit } else { 0 };
        Self(
            number << NUMBER_SHIFT
                | bit(is_writable(flags), WRITES)
                | bit(flags & o_flags::NOATIME != 0, LEAVES_ATIME)
                | bit(flags & o_flags::DSYNC != 0, SYNCS_DATA)
                | bit(flags & o_flags::FULL_SYNC != 0, SYNCS_ALL),
        )
    }

    /// Which open file it is: see [`client::Client::number_open_file`].
    pub(super) fn number(self) -> u64 {
        self.0 >> NUMBER_SHIFT
    }

    /// The file may be written through it.
    pub(super) fn writes(self) -> bool {
        self.0 & WRITES != 0
    }

    /// It was opened with `O_NOATIME`: to read through it leaves the access time as it is, where the request does not say
    /// otherwise.
    pub(super) fn leaves_atime(self) -> bool {
        self.0 & LEAVES_ATIME != 0
    }

    /// How durable a change through it has to be when it is answered, where a write also says so by its own `flags`; `None`:
    /// not at all. What the open asked for (`O_DSYNC`, `O_SYNC`) stays as it is for as long as the file is open.
    pub(super) fn syncs(self, flags: u32) -> Option<Durability> {
        if self.0 & SYNCS_DATA == 0 && flags & o_flags::DSYNC == 0 {
            return None;
        }
        let all = self.0 & SYNCS_ALL != 0 || flags & o_flags::FULL_SYNC != 0;
        Some(if all { Durability::All } else { Durability::Data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const O_SYNC: u32 = libc::O_SYNC as u32;

    #[test]
    fn a_handle_says_which_open_file_it_is_and_what_the_open_asked_for() {
        let all = libc::O_RDWR | libc::O_NOATIME | libc::O_SYNC;
        for number in [0, 1, u64::MAX >> NUMBER_SHIFT] {
            let (plain, full) = (FileHandle::new(number, 0), FileHandle::new(number, all as u32));
            assert_eq!((plain.number(), full.number()), (number, number));
            assert!(!plain.writes() && !plain.leaves_atime());
            assert!(full.writes() && full.leaves_atime());
        }
        assert!(FileHandle::new(1, libc::O_WRONLY as u32).writes());
        let one = |flags: i32| FileHandle::new(1, flags as u32);
        assert!(one(libc::O_NOATIME).leaves_atime() && !one(!libc::O_NOATIME).leaves_atime());
    }

    #[test]
    fn open_and_write_both_say_how_durable_a_change_has_to_be() {
        for (opened, written, durability) in [
            (0, 0, None),
            (o_flags::DSYNC, 0, Some(Durability::Data)),
            (0, o_flags::DSYNC, Some(Durability::Data)),
            (O_SYNC, 0, Some(Durability::All)),
            (0, O_SYNC, Some(Durability::All)),
            (O_SYNC, o_flags::DSYNC, Some(Durability::All)),
            (o_flags::DSYNC, O_SYNC, Some(Durability::All)),
        ] {
            assert_eq!(FileHandle::new(1, opened).syncs(written), durability, "{opened:o} {written:o}");
        }
    }
}
