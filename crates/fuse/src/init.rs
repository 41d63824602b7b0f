//! The first message of a connection: which protocol, which features, which sizes.

use types::time::AccessTimes;

use crate::abi::{self, InitInShort, InitOut, init, read_front};
use crate::options::{Channel, Options};
use crate::uring::offer;

pub(crate) const PAGE: u32 = 4096;
/// The kernel's bound where it does not tell another.
const MAX_PAGES_DEFAULT: u32 = 256;
/// Of the largest read, write and listing: 1 MiB. The kernel may allow less.
const REQUEST_PAGES_MAX: u16 = 256;
/// Asynchronous requests that the kernel sends before it makes their callers wait.
const BACKGROUND_MAX: u16 = 128;
const MAX_PAGES_LIMIT_FILE: &str = "/proc/sys/fs/fuse/max_pages_limit";

/// What both sides agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Agreed {
    pub(crate) minor: u32,
    pub(crate) features: u64,
    /// Largest write, in bytes.
    pub(crate) max_write: u32,
}

impl Agreed {
    pub(crate) fn over_ring(&self) -> bool {
        self.features & init::OVER_IO_URING != 0
    }
}

/// Answers the kernel's offer.
///
/// # Errors
/// A sentence for the user: the kernel is too old, or the message makes no sense.
pub(crate) fn negotiate(
    arguments: &[u8],
    options: &Options,
    max_pages_limit: u32,
) -> Result<(Agreed, InitOut), String> {
    let offer: InitInShort = read_front(arguments).ok_or("the kernel's first message is too short")?;
    if (offer.major, offer.minor) < (abi::MAJOR, abi::MINOR_MIN) {
        let (major, minor) = (offer.major, offer.minor);
        return Err(format!("the kernel speaks FUSE {major}.{minor}; 7.{} (Linux 5.4) is needed", abi::MINOR_MIN));
    }
    let extended: Option<u32> = read_front::<abi::GetxattrIn>(&arguments[size_of::<InitInShort>()..]).map(|w| w.size);
    let has_extension = u64::from(offer.flags) & init::INIT_EXT != 0;
    let offered = u64::from(offer.flags) | if has_extension { u64::from(extended.unwrap_or(0)) << 32 } else { 0 };
    let features = offered & wanted(options);
    if options.channel == Channel::Uring && features & init::OVER_IO_URING == 0 {
        return Err(offer::missing());
    }
    let max_pages = u16::try_from(max_pages_limit).unwrap_or(u16::MAX).clamp(1, REQUEST_PAGES_MAX);
    let max_write = u32::from(max_pages) * PAGE;
    let out = InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR,
        max_readahead: offer.max_readahead,
        flags: features as u32,
        max_background: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_MAX / 4 * 3,
        max_write,
        time_gran: 1,
        max_pages,
        flags2: (features >> 32) as u32,
        ..Default::default()
    };
    Ok((Agreed { minor: offer.minor.min(abi::MINOR), features, max_write }, out))
}

/// The features that this front-end is made for.
///
/// Not among them, on purpose: the write-back cache (strict coherence), splicing (a copy into memory that the network sends
/// from is what we need), and truncation by `open` (the kernel sends a `setattr` for it, which needs no second form).
fn wanted(options: &Options) -> u64 {
    let mut wanted = init::ASYNC_READ
        | init::BIG_WRITES
        // File handles stay good when the kernel has forgotten the inode; the numbers alone name it.
        | init::EXPORT_SUPPORT
        // The umask comes along: a default ACL takes its place.
        | init::DONT_MASK
        | init::AUTO_INVAL_DATA
        // Listings bring the attributes of their entries along, as long as somebody asks for these.
        | init::DO_READDIRPLUS
        | init::READDIRPLUS_AUTO
        | init::ASYNC_DIO
        | init::PARALLEL_DIROPS
        | init::MAX_PAGES
        | init::HANDLE_KILLPRIV_V2
        | init::SETXATTR_EXT
        | init::INIT_EXT
        | init::DIRECT_IO_ALLOW_MMAP;
    if options.access_times != AccessTimes::Strictatime {
        // A symlink's target never changes, and inode numbers are never reused.
        wanted |= init::CACHE_SYMLINKS;
    }
    if options.posix_acls {
        wanted |= init::POSIX_ACL;
    }
    if options.locks {
        wanted |= init::POSIX_LOCKS | init::FLOCK_LOCKS;
    }
    if options.channel != Channel::Dev {
        wanted |= init::OVER_IO_URING;
    }
    wanted
}

/// How many pages the kernel allows in one request.
pub(crate) fn max_pages_limit() -> u32 {
    let text = std::fs::read_to_string(MAX_PAGES_LIMIT_FILE).ok();
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(MAX_PAGES_DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::bytes_of;

    fn offer(minor: u32, flags: u64) -> Vec<u8> {
        let head = InitInShort { major: 7, minor, max_readahead: 131_072, flags: flags as u32 };
        let mut bytes = bytes_of(&head).to_vec();
        if minor >= 36 {
            bytes.extend_from_slice(&((flags >> 32) as u32).to_ne_bytes());
            bytes.extend_from_slice(&[0; 44]);
        }
        bytes
    }

    #[test]
    fn takes_what_is_offered_and_wanted() {
        let (agreed, out) = negotiate(&offer(45, u64::MAX), &Options::default(), 256).expect("a good offer");
        assert_eq!(agreed.max_write, 1 << 20);
        assert_eq!((out.max_pages, out.time_gran, out.minor), (256, 1, 45));
        assert_ne!(agreed.features & init::DIRECT_IO_ALLOW_MMAP, 0);
        assert_ne!(out.flags2, 0);
        let (atomic_truncation, writeback_cache) = (1 << 3, 1 << 16);
        assert_eq!(agreed.features & (atomic_truncation | writeback_cache), 0);
    }

    #[test]
    fn an_older_kernel_gets_no_extension() {
        let (agreed, out) = negotiate(&offer(31, u64::from(u32::MAX) & !init::INIT_EXT), &Options::default(), 32)
            .expect("a good offer");
        assert_eq!((agreed.minor, agreed.max_write, out.flags2), (31, 32 * 4096, 0));
    }

    #[test]
    fn io_uring_is_taken_where_offered_and_may_be_insisted_on() {
        let with = |channel| Options { channel, ..Options::default() };
        let (some, all) = (offer(45, !init::OVER_IO_URING), offer(45, u64::MAX));
        let over_ring =
            |offer: &[u8], channel| negotiate(offer, &with(channel), 256).map(|(agreed, _)| agreed.over_ring());
        assert_eq!(over_ring(&all, Channel::Auto), Ok(true));
        assert_eq!(over_ring(&all, Channel::Dev), Ok(false));
        assert_eq!(over_ring(&some, Channel::Auto), Ok(false));
        assert!(over_ring(&some, Channel::Uring).expect_err("not offered").contains("enable_uring"));
    }

    #[test]
    fn targets_of_symlinks_are_asked_for_where_each_access_counts() {
        for (access_times, keeps) in
            [(AccessTimes::Relatime, true), (AccessTimes::Noatime, true), (AccessTimes::Strictatime, false)]
        {
            let options = Options { access_times, ..Options::default() };
            let (agreed, _) = negotiate(&offer(45, u64::MAX), &options, 256).expect("a good offer");
            assert_eq!(agreed.features & init::CACHE_SYMLINKS != 0, keeps, "{access_times}");
        }
    }

    #[test]
    fn too_old_or_too_short_is_refused() {
        assert!(negotiate(&offer(30, 0), &Options::default(), 256).expect_err("old").contains("Linux 5.4"));
        assert!(negotiate(&[0; 15], &Options::default(), 256).is_err());
    }
}
