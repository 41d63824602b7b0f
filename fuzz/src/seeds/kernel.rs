//! A seed for each request of the kernel, as `<linux/fuse.h>` lays them out.

use super::Seed;

/// Header of a request, in bytes.
const HEADER: usize = 40;
const S_IFREG: u32 = 0o100_000;

/// Number, what the decoder calls it, and the arguments.
type Request = (u32, &'static str, Vec<u8>);

pub(super) fn kernel() -> Vec<Seed> {
    let seed = |(opcode, name, arguments): Request| {
        let mut message = vec![0; HEADER];
        message[4..8].copy_from_slice(&opcode.to_le_bytes());
        message[16] = 1;
        message.extend(arguments);
        // These differ by what was agreed on.
        let extended = u8::from(matches!(name, "setxattr" | "ioctl"));
        Seed::new("kernel", format!("{opcode:02}-{name}"), [&[extended][..], &message].concat())
    };
    [on_names(), on_inodes(), on_open_files(), on_xattrs()].concat().into_iter().map(seed).collect()
}

fn zeros(len: usize) -> Vec<u8> {
    vec![0; len]
}

fn with_u32(len: usize, at: usize, value: u32) -> Vec<u8> {
    let mut bytes = zeros(len);
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    bytes
}

fn then(mut head: Vec<u8>, rest: &[u8]) -> Vec<u8> {
    head.extend_from_slice(rest);
    head
}

fn on_names() -> Vec<Request> {
    vec![
        (1, "lookup", b"name\0".to_vec()),
        (6, "symlink", b"name\0target\0".to_vec()),
        (8, "mknod", then(with_u32(16, 0, S_IFREG | 0o644), b"name\0")),
        (9, "mkdir", then(zeros(8), b"name\0")),
        (10, "unlink", b"name\0".to_vec()),
        (11, "rmdir", b"name\0".to_vec()),
        (12, "rename", then(zeros(8), b"old\0new\0")),
        (13, "link", then(zeros(8), b"name\0")),
        (35, "create", then(zeros(16), b"name\0")),
        (45, "rename2", then(zeros(16), b"old\0new\0")),
        (51, "tmpfile", then(zeros(16), b"/\0")),
    ]
}

fn on_inodes() -> Vec<Request> {
    vec![
        (2, "forget", zeros(8)),
        (3, "getattr", zeros(16)),
        // Everything changes.
        (4, "setattr", with_u32(88, 0, u32::MAX)),
        (5, "readlink", zeros(0)),
        (14, "open", zeros(8)),
        (17, "statfs", zeros(0)),
        (27, "opendir", zeros(8)),
        (36, "interrupt", zeros(8)),
        (38, "destroy", zeros(0)),
        // Two of them.
        (42, "batch_forget", with_u32(8 + 2 * 16, 0, 2)),
        (52, "statx", zeros(24)),
    ]
}

fn on_open_files() -> Vec<Request> {
    vec![
        (15, "read", zeros(40)),
        (16, "write", then(with_u32(40, 16, 4), b"data")),
        (18, "release", zeros(24)),
        (20, "fsync", zeros(16)),
        (25, "flush", zeros(24)),
        (28, "readdir", zeros(40)),
        (29, "releasedir", zeros(24)),
        (30, "fsyncdir", zeros(16)),
        (31, "getlk", zeros(48)),
        (32, "setlk", zeros(48)),
        (33, "setlkw", zeros(48)),
        (43, "fallocate", zeros(32)),
        (44, "readdirplus", zeros(40)),
        // SEEK_DATA
        (46, "lseek", with_u32(24, 16, 3)),
        (47, "copy_file_range", zeros(56)),
        (53, "copy_file_range_64", zeros(56)),
        (39, "ioctl", setflags()),
    ]
}

/// `FS_IOC_SETFLAGS` with one flag.
fn setflags() -> Vec<u8> {
    let mut arguments = with_u32(32, 12, 0x4008_6602);
    arguments[24] = 4;
    then(arguments, &[0x10, 0, 0, 0])
}

fn on_xattrs() -> Vec<Request> {
    vec![
        (21, "setxattr", then(with_u32(16, 0, 5), b"user.a\0value")),
        (22, "getxattr", then(zeros(8), b"user.a\0")),
        (23, "listxattr", zeros(8)),
        (24, "removexattr", b"user.a\0".to_vec()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::asked;

    #[test]
    fn each_seed_is_what_it_is_called() {
        for seed in kernel() {
            let (_, name) = seed.name.split_once('-').expect("a number and a name");
            assert_eq!(asked(&seed.bytes), Some(name), "{}", seed.name);
        }
    }
}
