//! Flags of files and directories, as `chattr(1)` sets them.

use std::fmt;

/// A set of flags. The bits are those of `FS_IOC_GETFLAGS` in `<linux/fs.h>`, which are also persisted and go over the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FileFlags(u8);

impl FileFlags {
    pub const NONE: Self = Self(0);
    /// Neither contents nor attributes change, and no names of it; in a directory none are made or removed.
    pub const IMMUTABLE: Self = Self(0x10);
    /// What is there stays: a file is only appended to, a directory only gets names more.
    pub const APPEND: Self = Self(0x20);
    /// For backup programs, which leave it out.
    pub const NODUMP: Self = Self(0x40);
    /// Reading it does not change its access time.
    pub const NOATIME: Self = Self(0x80);

    /// They keep what is there. To set and clear them takes a capability, beside the owner's right to all flags.
    pub const FIXED: Self = Self::IMMUTABLE.with(Self::APPEND);

    const NAMES: [(Self, &str); 4] = [
        (Self::IMMUTABLE, "immutable"),
        (Self::APPEND, "append only"),
        (Self::NODUMP, "no dump"),
        (Self::NOATIME, "no access times"),
    ];
    const ALL: u8 = Self::IMMUTABLE.0 | Self::APPEND.0 | Self::NODUMP.0 | Self::NOATIME.0;

    /// `None` where one of them is none that Weft has.
    #[must_use]
    pub fn from_bits(bits: u32) -> Option<Self> {
        u8::try_from(bits).ok().filter(|bits| bits & !Self::ALL == 0).map(Self)
    }

    #[must_use]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Any of `some` is set.
    #[must_use]
    pub fn has(self, some: Self) -> bool {
        self.0 & some.0 != 0
    }

    #[must_use]
    pub const fn with(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    /// Those of [`Self::FIXED`].
    #[must_use]
    pub fn fixed(self) -> Self {
        Self(self.0 & Self::FIXED.0)
    }

    /// The contents may be changed, at any place or (`appends`) at the end alone.
    #[must_use]
    pub fn permit_writes(self, appends: bool) -> bool {
        let forbid = if appends { Self::IMMUTABLE } else { Self::IMMUTABLE.with(Self::APPEND) };
        !self.has(forbid)
    }

    /// What is made in a directory gets these of it.
    #[must_use]
    pub fn inherited(self) -> Self {
        Self(self.0 & (Self::NODUMP.0 | Self::NOATIME.0))
    }

    /// As people are told.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| *name)
    }
}

impl fmt::Display for FileFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_linux() {
        for bits in 0..=0x200 {
            let flags = FileFlags::from_bits(bits);
            assert_eq!(flags.is_some(), bits & !0xf0 == 0, "{bits:#x}");
            assert_eq!(flags.map_or(bits, |flags| flags.bits().into()), bits);
        }
        assert_eq!(FileFlags::from_bits(u32::MAX), None);
    }

    #[test]
    fn what_is_made_inherits_what_permits_everything() {
        let all = FileFlags::from_bits(0xf0).expect("all there are");
        assert_eq!(all.inherited(), FileFlags::NODUMP.with(FileFlags::NOATIME));
        assert_eq!(all.inherited().to_string(), "no dump, no access times");
        assert!(!all.inherited().has(FileFlags::IMMUTABLE.with(FileFlags::APPEND)));
    }
}
