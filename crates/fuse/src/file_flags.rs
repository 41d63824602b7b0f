//! Flags of files (`chattr`): the kernel asks for them, and sets them, by `ioctl` on an open file, in one of two forms.
//!
//! Who may set them it checks itself, and sends the few bytes of the form alone. Kernels before 5.13 pass what a program asks
//! on as it is, with the length of the request's number, and check nothing: that is refused.

use types::error::Errno;
use types::flags::FileFlags;

use crate::abi::{self, FsXattr, IoctlIn, bytes_of, ioctl, read_front};
use crate::decode::Refusal;
use crate::operation::Operation;

/// Length of the flags by themselves, in bytes.
const WORD: u32 = 4;
const XATTR: u32 = size_of::<FsXattr>() as u32;

/// How the kernel wants flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// As `chattr` does: the bits of `FS_IOC_GETFLAGS`.
    Word,
    /// As XFS's programs do: other bits, among other things.
    Xattr,
}

/// Each flag, and its bit in an [`FsXattr`].
const XFLAGS: [(FileFlags, u32); 4] = [
    (FileFlags::IMMUTABLE, ioctl::XFLAG_IMMUTABLE),
    (FileFlags::APPEND, ioctl::XFLAG_APPEND),
    (FileFlags::NODUMP, ioctl::XFLAG_NODUMP),
    (FileFlags::NOATIME, ioctl::XFLAG_NOATIME),
];

/// What an `ioctl` asks for; `data` is what comes with it. `checked`: by the kernel, as above.
///
/// # Errors
/// `ENOTTY` for any other request, `EOPNOTSUPP` for what Weft does not have.
pub(crate) fn operation(args: &IoctlIn, data: &[u8], checked: bool) -> Result<Operation, Refusal> {
    let is_of = |cmd: u32, sizes: (u32, u32)| checked && args.cmd == cmd && (args.in_size, args.out_size) == sizes;
    if is_of(ioctl::GETFLAGS, (0, WORD)) {
        return Ok(Operation::GetFlags { form: Form::Word });
    }
    if is_of(ioctl::FSGETXATTR, (0, XATTR)) {
        return Ok(Operation::GetFlags { form: Form::Xattr });
    }
    if is_of(ioctl::SETFLAGS, (WORD, 0)) {
        let bits = data.try_into().map(u32::from_ne_bytes).map_err(|_| Refusal::Malformed)?;
        let flags = FileFlags::from_bits(bits).ok_or(Errno::EOPNOTSUPP)?;
        return Ok(Operation::SetFlags { flags });
    }
    if is_of(ioctl::FSSETXATTR, (XATTR, 0)) {
        let xattr = read_front(data).filter(|_| data.len() == size_of::<FsXattr>()).ok_or(Refusal::Malformed)?;
        return Ok(Operation::SetFlags { flags: flags_of(&xattr)? });
    }
    Err(Errno::ENOTTY.into())
}

/// There are neither projects nor hints for extents.
fn flags_of(xattr: &FsXattr) -> Result<FileFlags, Errno> {
    let mut rest = xattr.xflags;
    let mut flags = FileFlags::NONE;
    for (flag, bit) in XFLAGS.into_iter().filter(|(_, bit)| xattr.xflags & bit != 0) {
        flags = flags.with(flag);
        rest &= !bit;
    }
    let others = rest | xattr.extent_size | xattr.cow_extent_size | xattr.project;
    if others == 0 { Ok(flags) } else { Err(Errno::EOPNOTSUPP) }
}

/// The answer that has flags in this form.
pub(crate) fn answer(flags: FileFlags, form: Form) -> Vec<u8> {
    match form {
        Form::Word => u32::from(flags.bits()).to_ne_bytes().to_vec(),
        Form::Xattr => {
            let bits = XFLAGS.into_iter().filter(|(flag, _)| flags.has(*flag)).map(|(_, bit)| bit);
            bytes_of(&FsXattr { xflags: bits.sum(), ..abi::FsXattr::default() }).to_vec()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(cmd: u32, data: &[u8], out_size: u32) -> Result<Operation, Refusal> {
        let args = IoctlIn { cmd, in_size: data.len() as u32, out_size, ..Default::default() };
        operation(&args, data, true)
    }

    fn set(operation: Result<Operation, Refusal>) -> Result<FileFlags, Refusal> {
        match operation? {
            Operation::SetFlags { flags } => Ok(flags),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_forms_say_the_same() {
        for bits in 0..16u32 {
            let flags = FileFlags::from_bits(bits * 0x10).expect("four bits");
            assert_eq!(set(asked(ioctl::SETFLAGS, &answer(flags, Form::Word), 0)), Ok(flags));
            assert_eq!(set(asked(ioctl::FSSETXATTR, &answer(flags, Form::Xattr), 0)), Ok(flags));
        }
        assert_eq!(answer(FileFlags::NOATIME, Form::Xattr)[..4], 0x40u32.to_ne_bytes());
        assert!(matches!(asked(ioctl::GETFLAGS, b"", 4), Ok(Operation::GetFlags { form: Form::Word })));
        assert!(matches!(asked(ioctl::FSGETXATTR, b"", 28), Ok(Operation::GetFlags { form: Form::Xattr })));
    }

    #[test]
    fn what_there_is_not_is_refused() {
        for bits in [1u32, 0x0008_0000, 0x20 | 0x4000_0000] {
            assert_eq!(set(asked(ioctl::SETFLAGS, &bits.to_ne_bytes(), 0)), Err(Errno::EOPNOTSUPP.into()));
        }
        let xattrs = [
            FsXattr { xflags: 1, ..Default::default() },
            FsXattr { project: 7, ..Default::default() },
            FsXattr { extent_size: 4096, ..Default::default() },
        ];
        for xattr in xattrs {
            assert_eq!(set(asked(ioctl::FSSETXATTR, bytes_of(&xattr), 0)), Err(Errno::EOPNOTSUPP.into()));
        }
        // Other requests, and these as programs send them: with the lengths in their numbers.
        for (cmd, len, out_size) in
            [(0x5401, 0, 0), (ioctl::GETFLAGS, 0, 8), (ioctl::SETFLAGS, 8, 0), (ioctl::FSSETXATTR, 27, 0), (0, 4, 4)]
        {
            assert_eq!(asked(cmd, &vec![0; len], out_size).expect_err("no request"), Errno::ENOTTY.into(), "{cmd:#x}");
        }
        let args = IoctlIn { cmd: ioctl::FSSETXATTR, in_size: 28, ..Default::default() };
        assert_eq!(operation(&args, &[0; 28], false).expect_err("nobody has checked it"), Errno::ENOTTY.into());
        assert_eq!(operation(&args, &[0; 20], true).expect_err("too short"), Refusal::Malformed);
        let args = IoctlIn { cmd: ioctl::SETFLAGS, in_size: 4, ..Default::default() };
        assert_eq!(operation(&args, &[0; 5], true).expect_err("too long"), Refusal::Malformed);
    }
}
