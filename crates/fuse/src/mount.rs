//! Mounting and unmounting: by system call where that is allowed, through the `fusermount3` helper otherwise.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use conf::file_system;
use thiserror::Error;
use types::time::AccessTimes;

use crate::options::Options;

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
/// Shown as the type `fuse.SUBTYPE`.
const SUBTYPE: &str = "weft";
/// Dead mounts on top of each other that are taken off.
const DEAD_MOUNTS_MAX: usize = 16;

/// Why there is no mount. Each says what to do.
#[derive(Debug, Error)]
pub enum MountError {
    #[error("mount point {path}: {source}", path = .path.display())]
    MountPoint { path: PathBuf, source: io::Error },
    #[error("mount point {} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    #[error("{0}")]
    Options(String),
    #[error("cannot open {DEVICE}: {0} (is the kernel's fuse module there?)")]
    Device(io::Error),
    #[error("cannot mount on {path}: {source}", path = .path.display())]
    Refused { path: PathBuf, source: io::Error },
    #[error("cannot run {HELPER}: {0} (install the package fuse3, or mount as root)")]
    NoHelper(io::Error),
    /// What the helper said.
    #[error("cannot mount: {0}")]
    Helper(String),
    #[error("the kernel does not begin to talk: {0}")]
    Negotiation(String),
    #[error("the kernel does not begin to talk: no message came")]
    Silence,
    #[error("cannot start a loop: {0}")]
    Loop(io::Error),
    #[error("a loop has panicked, which ends the mount: mount again")]
    Panicked,
}

impl MountError {
    /// Another attempt may succeed though nobody has changed anything: this process or its host was short of something, or the
    /// kernel of time.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::MountPoint { source, .. } | Self::Refused { source, .. } => is_shortage(source),
            Self::Device(error) | Self::NoHelper(error) => is_shortage(error),
            Self::Loop(error) => is_shortage(error) || (error.raw_os_error().is_none() && !is_forbidden(error)),
            Self::Silence | Self::Panicked => true,
            Self::NotADirectory(_) | Self::Options(_) | Self::Helper(_) | Self::Negotiation(_) => false,
        }
    }
}

/// Of an io_uring, whose errors come in words.
fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput)
}

fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// Checks the mount point, and takes a dead mount of an earlier process off it.
pub(crate) fn prepare(mountpoint: &Path) -> Result<PathBuf, MountError> {
    for _ in 0..DEAD_MOUNTS_MAX {
        match look(mountpoint) {
            Err(error) if is_dead(&error) => {
                tracing::warn!(mountpoint = %mountpoint.display(), "taking a dead mount off the mount point");
                unmount(mountpoint, true)
                    .map_err(|source| MountError::MountPoint { path: mountpoint.into(), source })?;
            }
            Err(source) => return Err(MountError::MountPoint { path: mountpoint.into(), source }),
            Ok(meta) if !meta.is_dir() => return Err(MountError::NotADirectory(mountpoint.into())),
            Ok(_) => break,
        }
    }
    mountpoint.canonicalize().map_err(|source| MountError::MountPoint { path: mountpoint.into(), source })
}

/// What is there. Asks for the file system first: attributes of a dead mount the kernel may still hold, under a lease.
fn look(mountpoint: &Path) -> io::Result<fs::Metadata> {
    file_system::statvfs(mountpoint)?;
    fs::metadata(mountpoint)
}

/// What a mount answers whose process is gone; `ECANCELED` to who was being served over io_uring when it went.
#[must_use]
pub fn is_dead(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED))
}

/// Mounts, and gives the connection to the kernel.
pub(crate) fn mount(mountpoint: &Path, options: &Options) -> Result<OwnedFd, MountError> {
    if by_helper(options) { mount_by_helper(mountpoint, options) } else { mount_by_syscall(mountpoint, options) }
}

fn by_helper(options: &Options) -> bool {
    // SAFETY: a system call without arguments that cannot fail.
    options.use_helper || unsafe { libc::geteuid() } != 0
}

fn mount_by_syscall(mountpoint: &Path, options: &Options) -> Result<OwnedFd, MountError> {
    let device = File::options().read(true).write(true).open(DEVICE).map_err(MountError::Device)?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        // SAFETY: system calls without arguments that cannot fail.
        unsafe { libc::getuid() },
        // SAFETY: as above.
        unsafe { libc::getgid() },
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let flags = permissions(options) | access_flags(options);
    let refused = |source| MountError::Refused { path: mountpoint.into(), source };
    let source = c_string(options.source.as_bytes()).map_err(refused)?;
    let target = c_string(mountpoint.as_os_str().as_bytes()).map_err(refused)?;
    let kind = c_string(format!("fuse.{SUBTYPE}").as_bytes()).map_err(refused)?;
    let data = c_string(data.as_bytes()).map_err(refused)?;
    // SAFETY: all four strings are terminated and live through the call.
    let result = unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast()) };
    if result == 0 { Ok(device.into()) } else { Err(refused(io::Error::last_os_error())) }
}

/// What the kernel itself forbids.
fn permissions(options: &Options) -> libc::c_ulong {
    [
        (options.read_only, libc::MS_RDONLY),
        (!options.allow_suid, libc::MS_NOSUID),
        (!options.allow_devices, libc::MS_NODEV),
        (!options.allow_programs, libc::MS_NOEXEC),
    ]
    .into_iter()
    .filter(|(forbids, _)| *forbids)
    .fold(0, |flags, (_, flag)| flags | flag)
}

/// What the mount table is to say of access times.
fn access_flags(options: &Options) -> libc::c_ulong {
    let of_files = match options.access_times {
        AccessTimes::Relatime => libc::MS_RELATIME,
        AccessTimes::Strictatime => libc::MS_STRICTATIME,
        AccessTimes::Noatime => libc::MS_NOATIME,
    };
    if options.directory_access_times { of_files } else { of_files | libc::MS_NODIRATIME }
}

/// The helper mounts for us and sends the descriptor over a socket.
fn mount_by_helper(mountpoint: &Path, options: &Options) -> Result<OwnedFd, MountError> {
    let failed = MountError::NoHelper;
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
    let mut list = format!("fsname={},subtype={SUBTYPE},default_permissions", options.source);
    if options.allow_other {
        list.push_str(",allow_other");
    }
    if options.read_only {
        list.push_str(",ro");
    }
    // Set-user-id bits and devices it forbids by itself.
    if !options.allow_programs {
        list.push_str(",noexec");
    }
    if options.access_times == AccessTimes::Noatime {
        // It knows no other word for access times.
        list.push_str(",noatime");
    }
    let their_fd = theirs.as_raw_fd();
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(list).arg("--").arg(mountpoint).env("_FUSE_COMMFD", their_fd.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // SAFETY: between fork and exec only fcntl is called, which is safe there; the descriptor outlives the spawn.
    unsafe { command.pre_exec(move || keep_over_exec(their_fd)) };
    let child = command.spawn().map_err(failed)?;
    drop(theirs);
    let received = receive_descriptor(ours.as_raw_fd());
    let output = child.wait_with_output().map_err(failed)?;
    match received {
        Ok(fd) if output.status.success() => Ok(fd),
        Ok(_) | Err(_) => {
            // Usually one line, but each begins with its name.
            let said = String::from_utf8_lossy(&output.stderr);
            let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            let said = if said.is_empty() { format!("{HELPER} ended with {}", output.status) } else { said.join("; ") };
            Err(MountError::Helper(said))
        }
    }
}

fn keep_over_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: a plain system call on a descriptor number.
    let result = unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn receive_descriptor(socket: RawFd) -> io::Result<OwnedFd> {
    /// Room for one descriptor with its header, aligned as the kernel wants it.
    #[repr(C, align(8))]
    struct Control([u8; 64]);
    let mut byte = 0u8;
    let mut control = Control([0; 64]);
    let mut vector = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: a zeroed msghdr is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>();
    loop {
        // SAFETY: the message points to live locals of the stated sizes.
        let count = unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        match count {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return Err(io::Error::last_os_error()),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => break,
        }
    }
    // SAFETY: the kernel filled the control buffer and its length; the macros stay within them, and a descriptor that
    // came with SCM_RIGHTS is ours alone.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null() || (*header).cmsg_level != libc::SOL_SOCKET || (*header).cmsg_type != libc::SCM_RIGHTS {
            return Err(io::Error::other("no descriptor came with the message"));
        }
        Ok(OwnedFd::from_raw_fd(std::ptr::read_unaligned(libc::CMSG_DATA(header).cast::<RawFd>())))
    }
}

/// Another descriptor of the same connection, with a queue of its own for what it has read.
pub(crate) fn clone_device(device: &OwnedFd) -> io::Result<OwnedFd> {
    let opened = File::options().read(true).write(true).open(DEVICE);
    let Ok(clone) = opened else {
        // Without permission to open the device (a mount by the helper), threads share one descriptor.
        return device.try_clone();
    };
    let source: u32 = device.as_raw_fd() as u32;
    // SAFETY: the argument points to a live u32, as this request wants.
    let result =
        unsafe { libc::ioctl(clone.as_raw_fd(), libc::Ioctl::from(crate::abi::DEV_IOC_CLONE), &raw const source) };
    if result == 0 { Ok(clone.into()) } else { Err(io::Error::last_os_error()) }
}

/// Takes the mount off: at once where nobody uses it, or `lazily` from sight and for good when its last user is gone.
///
/// # Errors
/// `ResourceBusy` where it is in use, `EINVAL` where nothing is mounted, and what the helper says.
pub fn unmount(mountpoint: &Path, lazily: bool) -> io::Result<()> {
    let target = c_string(mountpoint.as_os_str().as_bytes())?;
    let flags = libc::UMOUNT_NOFOLLOW | if lazily { libc::MNT_DETACH } else { 0 };
    // SAFETY: the string is terminated and lives through the call.
    if unsafe { libc::umount2(target.as_ptr(), flags) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.kind() != io::ErrorKind::PermissionDenied {
        return Err(error);
    }
    unmount_by_helper(mountpoint, lazily, error)
}

/// Users unmount what is theirs through the helper that has the right to; where there is none, the kernel has `refused` it.
fn unmount_by_helper(mountpoint: &Path, lazily: bool, refused: io::Error) -> io::Result<()> {
    let mut command = Command::new(HELPER);
    command.arg("-u").args(lazily.then_some("-z")).arg("--").arg(mountpoint);
    let output = command.stdin(Stdio::null()).output().map_err(|_| refused)?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let busy = text.contains("busy");
    let kind = if busy { io::ErrorKind::ResourceBusy } else { io::ErrorKind::PermissionDenied };
    Err(io::Error::new(kind, text.trim().to_owned()))
}

/// The kernel still has uses for the connection: there is a mount somewhere, or an open file.
pub(crate) fn is_connected(device: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: device.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one live pollfd.
    unsafe { libc::poll(&raw mut poll, 1, 0) };
    poll.revents & libc::POLLERR == 0
}

/// Tells the kernel how far to read ahead in files of the mount with this number that are read through the page cache: of
/// mapped ones, as others go past it. It reads as much around a page at a random place. Only root may tell; where that is
/// not possible the default stays, 128 KiB, over which the answer to its first message cannot raise it.
pub(crate) fn set_read_ahead(number: Option<&str>) {
    const KIB: &str = "256";
    let Some(device) = number else { return };
    let file = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = fs::write(&file, KIB) {
        tracing::debug!(%error, file, "the kernel's read-ahead stays as it is");
    }
}

/// `major:minor` of the newest mount on this path, without touching the mount.
pub(crate) fn device_number(mountpoint: &Path) -> Option<String> {
    let mounts = file_system::mounts().ok()?;
    mounts.into_iter().rfind(|mount| mount.point == mountpoint).map(|mount| mount.device)
}

fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_passes() {
        let passes = |errno| {
            let error = || io::Error::from_raw_os_error(errno);
            let of_loop = MountError::Loop(error()).is_passing();
            assert_eq!(MountError::NoHelper(error()).is_passing(), of_loop);
            of_loop
        };
        assert!([libc::EAGAIN, libc::EMFILE, libc::ENFILE, libc::ENOMEM].into_iter().all(passes));
        // As where io_uring is forbidden, and without a helper.
        assert!(![libc::EPERM, libc::ENOSYS, libc::ENOENT].into_iter().any(passes));
        let told = |kind| MountError::Loop(io::Error::new(kind, "cannot make an io_uring")).is_passing();
        assert!(
            told(io::ErrorKind::Other) && !told(io::ErrorKind::PermissionDenied) && !told(io::ErrorKind::InvalidInput)
        );
        assert!(MountError::Silence.is_passing() && !MountError::Negotiation("it is too old".into()).is_passing());
    }

    #[test]
    fn the_root_mount_has_a_device_number() {
        let device = device_number(Path::new("/")).expect("something is mounted on /");
        assert!(device.contains(':'), "{device}");
    }

    #[test]
    fn the_helper_takes_off_what_it_has_mounted() {
        let place = tempfile::tempdir().expect("a folder");
        let point = place.path().canonicalize().expect("it is there");
        let device = mount_by_helper(&point, &Options::default()).expect("these tests need fusermount3");
        assert!(device_number(&point).is_some());
        let take_off = || unmount_by_helper(&point, false, io::ErrorKind::PermissionDenied.into());
        let done = take_off();
        // Before anything asks what is there: nobody serves it.
        drop(device);
        done.expect("it is ours");
        assert_eq!(device_number(&point), None);
        assert!(take_off().is_err(), "it is gone");
    }

    #[test]
    fn a_file_is_no_mount_point() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let error = prepare(file.path()).expect_err("a file");
        assert!(error.to_string().ends_with("is not a directory"), "{error}");
        let error = prepare(Path::new("/no/such/place")).expect_err("nothing");
        assert!(error.to_string().contains("/no/such/place"), "{error}");
    }
}
