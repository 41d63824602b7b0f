//! Which space a range of a file takes: what `fallocate(2)` asks for.

use crate::error::Errno;

/// Bits of `fallocate`'s mode, as in `<linux/falloc.h>`, and as they go over the wire.
const KEEP_SIZE: u32 = 0x01;
const PUNCH_HOLE: u32 = 0x02;
const ZERO_RANGE: u32 = 0x10;

/// A change of the space of a range of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocation {
    /// Later writes to the range need no further space. What is there stays; what is not reads as zeros.
    Reserve {
        /// The size stays, also where the range goes beyond it.
        keep_size: bool,
    },
    /// The range reads as zeros and takes no space. The size stays.
    Punch,
    /// The range reads as zeros and has its space.
    Zero { keep_size: bool },
}

impl Allocation {
    /// # Errors
    /// `EOPNOTSUPP` for modes that Weft does not have (collapse, insert, unshare), and for combinations that are none.
    pub fn from_mode(mode: u32) -> Result<Self, Errno> {
        const PUNCH: u32 = PUNCH_HOLE | KEEP_SIZE;
        const ZERO_KEEP: u32 = ZERO_RANGE | KEEP_SIZE;
        match mode {
            0 => Ok(Self::Reserve { keep_size: false }),
            KEEP_SIZE => Ok(Self::Reserve { keep_size: true }),
            PUNCH => Ok(Self::Punch),
            ZERO_RANGE => Ok(Self::Zero { keep_size: false }),
            ZERO_KEEP => Ok(Self::Zero { keep_size: true }),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    #[must_use]
    pub fn mode(self) -> u32 {
        let keep = |keep_size: bool| if keep_size { KEEP_SIZE } else { 0 };
        match self {
            Self::Reserve { keep_size } => keep(keep_size),
            Self::Punch => PUNCH_HOLE | KEEP_SIZE,
            Self::Zero { keep_size } => ZERO_RANGE | keep(keep_size),
        }
    }

    /// The file is never longer after it than before.
    #[must_use]
    pub fn keeps_size(self) -> bool {
        self.mode() & KEEP_SIZE != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_linux_and_no_others() {
        let known: Vec<u32> = (0..0x100).filter(|&mode| Allocation::from_mode(mode).is_ok()).collect();
        assert_eq!(known, [0, 1, 3, 0x10, 0x11]);
        for mode in known {
            assert_eq!(Allocation::from_mode(mode).map(Allocation::mode), Ok(mode));
        }
        assert_eq!(Allocation::from_mode(2), Err(Errno::EOPNOTSUPP), "a hole never changes the size");
    }
}
