//! Stream sockets.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use io_uring::{opcode, types};

use super::{Op, length};
use crate::buf::{Buf, Slice};
use crate::driver::Via;

/// Most parts of one `sendmsg` (the kernel's `UIO_MAXIOV` is 1024).
const PARTS_MAX: usize = 256;
const BACKLOG: i32 = 1024;

/// One receive into `buf`; 0 = the other side has closed.
pub async fn recv(fd: RawFd, mut buf: Buf) -> (io::Result<usize>, Buf) {
    let entry = opcode::Recv::new(types::Fd(fd), buf.as_raw(), length(&buf)).build();
    Op::new(Via::Main, entry, buf).await
}

/// Fills the whole of `buf`.
///
/// The error is `UnexpectedEof` where the other side closes before.
pub async fn recv_exact(fd: RawFd, mut buf: Buf) -> (io::Result<()>, Buf) {
    let mut done = 0;
    while done < buf.len() {
        let mut rest = buf.split_off(done);
        let entry = opcode::Recv::new(types::Fd(fd), rest.as_raw(), length(&rest)).flags(libc::MSG_WAITALL).build();
        let (count, rest) = Op::new(Via::Main, entry, rest).await;
        buf.unsplit(rest).expect("the two halves of one buffer");
        match count {
            Ok(0) => return (Err(io::ErrorKind::UnexpectedEof.into()), buf),
            Ok(count) => done += count,
            Err(error) => return (Err(error), buf),
        }
    }
    (Ok(()), buf)
}

/// What one `sendmsg` needs to stay where it is.
struct Message {
    #[expect(dead_code, reason = "keeps the bytes alive")]
    parts: Vec<Slice>,
    vectors: Vec<libc::iovec>,
    header: Box<libc::msghdr>,
}

impl Message {
    fn new(parts: Vec<Slice>) -> Self {
        let vectors = parts.iter().map(vector_of).collect();
        // SAFETY: an all-zero msghdr is valid: no name, no control data, no vectors.
        let header = Box::new(unsafe { std::mem::zeroed::<libc::msghdr>() });
        Self { parts, vectors, header }
    }
}

fn vector_of(part: &Slice) -> libc::iovec {
    libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() }
}

/// Sends all parts in order, in as few system calls as the kernel allows.
///
/// # Errors
/// The kernel's; some of the bytes may have gone out.
pub async fn send_all(fd: RawFd, parts: Vec<Slice>) -> io::Result<()> {
    let mut parts = parts;
    while !parts.is_empty() {
        let later = parts.split_off(parts.len().min(PARTS_MAX));
        send_some(fd, parts).await?;
        parts = later;
    }
    Ok(())
}

async fn send_some(fd: RawFd, mut parts: Vec<Slice>) -> io::Result<()> {
    // Mostly there is room, and then a completion to wait for would cost more than the system call does.
    loop {
        parts.retain(|part| !part.is_empty());
        if parts.is_empty() {
            return Ok(());
        }
        match send_now(fd, &parts) {
            Ok(sent) => drop_first(&mut parts, sent),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    let mut message = Message::new(parts);
    loop {
        message.header.msg_iov = message.vectors.as_mut_ptr();
        message.header.msg_iovlen = message.vectors.len();
        let flags = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32;
        let entry = opcode::SendMsg::new(types::Fd(fd), &raw const *message.header).flags(flags).build();
        let (sent, back) = Op::new(Via::Main, entry, message).await;
        message = back;
        advance(&mut message.vectors, sent?);
        message.vectors.retain(|vector| vector.iov_len > 0);
        if message.vectors.is_empty() {
            return Ok(());
        }
    }
}

/// As much as fits into the socket's buffer at once, of at most [`PARTS_MAX`] parts.
fn send_now(fd: RawFd, parts: &[Slice]) -> io::Result<usize> {
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; PARTS_MAX];
    let vectors = &mut vectors[..parts.len()];
    for (vector, part) in vectors.iter_mut().zip(parts) {
        vector.write(vector_of(part));
    }
    // SAFETY: an all-zero msghdr is valid.
    let mut header = unsafe { std::mem::zeroed::<libc::msghdr>() };
    (header.msg_iov, header.msg_iovlen) = (vectors.as_mut_ptr().cast(), vectors.len());
    // SAFETY: the header, its vectors (all of them written) and their bytes live through the call, which only reads them.
    let sent = unsafe { libc::sendmsg(fd, &raw const header, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Takes the first `count` bytes off the parts.
fn drop_first(parts: &mut [Slice], mut count: usize) {
    for part in parts {
        let taken = count.min(part.len());
        *part = part.slice(taken..part.len());
        count -= taken;
        if count == 0 {
            return;
        }
    }
}

/// Takes the first `count` bytes off the vectors.
fn advance(vectors: &mut [libc::iovec], mut count: usize) {
    for vector in vectors {
        let taken = count.min(vector.iov_len);
        vector.iov_base = vector.iov_base.wrapping_byte_add(taken);
        vector.iov_len -= taken;
        count -= taken;
        if count == 0 {
            return;
        }
    }
}

/// A TCP connection to `address`, without delay of small segments.
///
/// # Errors
/// The kernel's, such as `ECONNREFUSED`.
pub async fn connect(address: SocketAddr) -> io::Result<OwnedFd> {
    connect_from(None, None, address).await
}

/// As [`connect`], from the address `from` and over the interface `device` alone where they are given. A process that may
/// not tie sockets to devices gets one that is not tied: the routes decide then.
///
/// # Errors
/// The kernel's, such as `EADDRNOTAVAIL` where no interface has the address any more.
pub async fn connect_from(from: Option<IpAddr>, device: Option<&str>, address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = tcp_socket(&address)?;
    set_no_delay(&socket)?;
    if let Some(device) = device {
        tie(&socket, device)?;
    }
    if let Some(from) = from {
        bind(&socket, SocketAddr::new(from, 0))?;
    }
    let (storage, len) = raw_address(&address);
    let storage = Box::new(storage);
    let entry = opcode::Connect::new(types::Fd(socket.as_raw_fd()), (&raw const *storage).cast(), len).build();
    Op::new(Via::Main, entry, storage).await.0?;
    Ok(socket)
}

/// A connection to the UNIX socket that listens under an abstract name.
///
/// # Errors
/// The kernel's, such as `ECONNREFUSED` where nobody has that name; `InvalidInput` where it is too long for one.
pub async fn connect_local(name: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: an all-zero sockaddr_un is valid.
    let mut address = Box::new(unsafe { std::mem::zeroed::<libc::sockaddr_un>() });
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The first byte stays zero: that makes it abstract.
    let room = address.sun_path.get_mut(1..=name.len()).ok_or(io::ErrorKind::InvalidInput)?;
    room.iter_mut().zip(name).for_each(|(to, from)| *to = *from as libc::c_char);
    let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    let socket = stream_socket(libc::AF_UNIX)?;
    let raw = (&raw const *address).cast();
    let entry = opcode::Connect::new(types::Fd(socket.as_raw_fd()), raw, len as libc::socklen_t).build();
    Op::new(Via::Main, entry, address).await.0?;
    Ok(socket)
}

/// The user who listens at, or has connected to, the other end of a UNIX socket.
///
/// # Errors
/// The kernel's, for other sockets.
pub fn peer_user(socket: &OwnedFd) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the pointers are to live locals of the lengths given.
    let result = unsafe {
        let peer = (&raw mut peer).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, peer, &raw mut len)
    };
    if result == 0 { Ok(peer.uid) } else { Err(io::Error::last_os_error()) }
}

/// The user that this process acts as.
#[must_use]
pub fn own_user() -> u32 {
    // SAFETY: cannot fail, and touches no memory.
    unsafe { libc::geteuid() }
}

/// Ends both directions, and with them whatever waits for the socket. Where it is gone already, nothing happens.
pub fn shutdown(socket: &OwnedFd) {
    // SAFETY: a plain system call on a descriptor that is open.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
}

/// A listening socket and the address that it got (port 0 asks for any free one).
///
/// # Errors
/// `EADDRINUSE` and the like.
pub fn listen(address: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = tcp_socket(&address)?;
    let on = 1i32;
    let (storage, len) = raw_address(&address);
    // SAFETY: the pointers are to live locals of the lengths given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_REUSEADDR,
            (&raw const on).cast(),
            size_of::<i32>() as libc::socklen_t,
        );
        match libc::bind(socket.as_raw_fd(), (&raw const storage).cast(), len) {
            0 => libc::listen(socket.as_raw_fd(), BACKLOG),
            failed => failed,
        }
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let listener = TcpListener::from(socket);
    let bound = listener.local_addr()?;
    Ok((listener.into(), bound))
}

fn tie(socket: &OwnedFd, device: &str) -> io::Result<()> {
    // SAFETY: the pointer is to a live string of the length given.
    let result = unsafe {
        let (name, len) = (device.as_ptr().cast(), device.len() as libc::socklen_t);
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name, len)
    };
    match io::Error::last_os_error() {
        _ if result == 0 => Ok(()),
        error if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        error => Err(error),
    }
}

fn bind(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    let (storage, len) = raw_address(&address);
    let on = 1i32;
    // SAFETY: the pointers are to live locals of the lengths given.
    let result = unsafe {
        // The port is chosen when the connection is made: as many as there are, to each peer. An old kernel does without.
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of::<i32>() as libc::socklen_t,
        );
        libc::bind(socket.as_raw_fd(), (&raw const storage).cast(), len)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What the kernel knows of a TCP connection's other side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpSigns {
    /// Segments were sent that are not acknowledged, or wait though the other side has room for them: it cannot be sent to.
    pub unacknowledged: bool,
    pub since_acknowledged: Duration,
    pub round_trip: Duration,
    pub variance: Duration,
    /// Bytes that the other side's kernel has acknowledged so far, and those that have come from there in order.
    pub acknowledged: u64,
    pub received: u64,
}

/// Places in the kernel's `struct tcp_info` (`<linux/tcp.h>`), in bytes; it only grows at its end.
mod tcp_info {
    pub(super) const LEN: usize = 256;
    pub(super) const SEND_SEGMENT: usize = 16;
    pub(super) const UNACKNOWLEDGED: usize = 24;
    pub(super) const LAST_ACKNOWLEDGED: usize = 56;
    pub(super) const ROUND_TRIP: usize = 68;
    pub(super) const VARIANCE: usize = 72;
    pub(super) const BYTES_ACKNOWLEDGED: usize = 120;
    pub(super) const BYTES_RECEIVED: usize = 128;
    pub(super) const UNSENT: usize = 144;
    /// Since Linux 5.4; zero before.
    pub(super) const SEND_WINDOW: usize = 228;
}

/// `None` for other sockets.
#[must_use]
pub fn tcp_signs(socket: &OwnedFd) -> Option<TcpSigns> {
    let mut info = [0u8; tcp_info::LEN];
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: the pointers are to live locals of the lengths given.
    let result = unsafe {
        let info = (&raw mut info).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info, &raw mut len)
    };
    let number = |at: usize| info[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    let count = |at: usize| info[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    // What no device or rule lets out is never counted as sent; where the other side has no room, that is no wonder.
    let has_room = number(tcp_info::SEND_WINDOW) >= number(tcp_info::SEND_SEGMENT).max(1);
    let is_held_up = number(tcp_info::UNSENT) > 0 && has_room;
    (result == 0).then(|| TcpSigns {
        unacknowledged: number(tcp_info::UNACKNOWLEDGED) > 0 || is_held_up,
        since_acknowledged: Duration::from_millis(number(tcp_info::LAST_ACKNOWLEDGED).into()),
        round_trip: Duration::from_micros(number(tcp_info::ROUND_TRIP).into()),
        variance: Duration::from_micros(number(tcp_info::VARIANCE).into()),
        acknowledged: count(tcp_info::BYTES_ACKNOWLEDGED),
        received: count(tcp_info::BYTES_RECEIVED),
    })
}

fn tcp_socket(address: &SocketAddr) -> io::Result<OwnedFd> {
    stream_socket(if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 })
}

fn stream_socket(family: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call; its result is checked before it is owned.
    let fd = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(super) fn set_no_delay(socket: &OwnedFd) -> io::Result<()> {
    let on = 1i32;
    // SAFETY: the pointer is to a live local of the length given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NODELAY,
            (&raw const on).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn raw_address(address: &SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: an all-zero sockaddr_storage is valid, and larger than either of the two written to it.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let len = match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: `storage` is large and aligned enough for any address family.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(raw) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(raw) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, len as libc::socklen_t)
}
