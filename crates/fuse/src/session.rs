//! A mount from its beginning to its end.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ring::{Company, mailbox};

use crate::abi::{self, InHeader, Opcode, OutHeader, READ_BUFFER_MIN, bytes_of, read_front};
use crate::abort::abort;
use crate::arrivals::Arrivals;
use crate::dev::Device;
use crate::dispatch::Shape;
use crate::filesystem::FileSystem;
use crate::init::{self, Agreed};
use crate::lookups::Lookups;
use crate::metrics::OperationMetrics;
use crate::mount::{self, MountError};
use crate::notify::Notifier;
use crate::options::{Channel, Options};
use crate::signals::{Ended, Signals};
use crate::team::Team;
use crate::transport::Transport;
use crate::uring::{self, Uring, queues};
use crate::worker::{Control, Loop, Patience, TeamMember};

/// How long the kernel gets to begin talking after a mount.
const INIT_WAIT: Duration = Duration::from_secs(10);
/// Requests that may be in flight in a loop, unless the options say otherwise.
const REQUESTS_MAX: usize = 256;
/// Requests over io_uring that may be in flight in a mount on many CPUs, or [`PER_QUEUE_MIN`] in each of the kernel's queues
/// where that is more: each has memory of its own, which stays once it was used.
const OVER_RING_MAX: usize = 1024;
const PER_QUEUE_MIN: usize = 16;
/// With more CPUs than this the loops do not keep all of them awake for one caller.
const COMPANY_MAX: usize = 4;
/// Between attempts to unmount while files are open.
const BUSY_RETRY: Duration = Duration::from_millis(20);
const RING_ENTRIES: u32 = 256;
/// Loops are bound to CPUs of lower numbers alone: a ring knows no others.
const CPUS_BOUND: usize = libc::CPU_SETSIZE as usize;
/// Words of a set of CPUs, at most: the kernel has numbers for 8,192 of them today.
const CPU_WORDS_MAX: usize = 1 << 12;

/// A mounted file system. Dropping it unmounts, as [`Handle::unmount`] does.
pub struct Handle {
    mountpoint: PathBuf,
    /// Number of the file system, which tells it from what else may be mounted in its place. `None` where it is not known.
    number: Option<String>,
    options: Options,
    threads: Vec<JoinHandle<()>>,
    /// From its beginning on.
    team: Option<Arc<Team>>,
    ended: Arc<Ended>,
    notifier: Option<(Arc<OwnedFd>, Notifier)>,
    over_ring: bool,
}

/// Mounts a file system and serves it, on one thread per loop. `factory` is called once on each of them, with the
/// number of the loop.
///
/// A dead mount that an earlier process left on the mount point is taken off first.
///
/// # Errors
/// What prevents the mount; nothing is left behind.
pub fn mount<F, M>(mountpoint: &Path, options: Options, factory: M) -> Result<Handle, MountError>
where
    F: FileSystem,
    M: Fn(usize) -> F + Send + Sync + 'static,
{
    options.validate().map_err(MountError::Options)?;
    let ended = Arc::new(Ended::new().map_err(MountError::Loop)?);
    let mountpoint = mount::prepare(mountpoint)?;
    if options.channel != Channel::Dev {
        uring::offer::switch_on();
    }
    let device = mount::mount(&mountpoint, &options)?;
    let mut handle = Handle {
        number: mount::device_number(&mountpoint),
        mountpoint,
        options,
        threads: Vec::new(),
        team: None,
        ended,
        notifier: None,
        over_ring: false,
    };
    match handle.begin(&device, factory) {
        Ok(()) => Ok(handle),
        Err(error) => {
            handle.notifier = None;
            // With the last descriptor the connection dies, which lets the loops that run already end.
            let _ = mount::unmount(&handle.mountpoint, true);
            drop(device);
            handle.stop(Duration::ZERO);
            let _ = handle.join_threads();
            Err(error)
        }
    }
}

impl Handle {
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// How requests come: [`Channel::Dev`] or [`Channel::Uring`].
    #[must_use]
    pub fn channel(&self) -> Channel {
        if self.over_ring { Channel::Uring } else { Channel::Dev }
    }

    /// To tell the kernel things unasked; it outlives the mount, and reaches nobody then.
    ///
    /// # Panics
    /// Never: a mounted file system has one.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        self.notifier.as_ref().expect("set with the mount").1.clone()
    }

    /// To wait for requests that the kernel has sent.
    ///
    /// # Panics
    /// Never: a mounted file system has loops.
    #[must_use]
    pub fn arrivals(&self) -> Arrivals {
        Arrivals::new(Arc::clone(self.team.as_ref().expect("set with the mount")))
    }

    /// Waits until somebody unmounts the file system.
    ///
    /// # Errors
    /// Where a loop has panicked, which ends the mount: what is left at the mount point gives errors.
    pub fn join(mut self) -> Result<(), MountError> {
        self.ended.wait(None);
        self.join_threads()
    }

    /// Waits until somebody unmounts the file system, or one of `signals` comes: then it unmounts.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn run_until(mut self, signals: &Signals) -> Result<(), MountError> {
        if let Some(signal) = self.ended.wait(Some(signals)) {
            tracing::info!(signal, mountpoint = %self.mountpoint.display(), "unmounting");
            self.take_off();
        }
        self.join_threads()
    }

    /// Unmounts, and returns when everything in flight is answered and every loop has ended.
    ///
    /// Waits for open files for `Options::busy_wait`; then the mount is detached: it vanishes from the tree, and what
    /// is still open gets errors after `Options::drain_wait`.
    pub fn unmount(mut self) {
        self.take_off();
        let _ = self.join_threads();
    }

    fn begin<F, M>(&mut self, device: &OwnedFd, factory: M) -> Result<(), MountError>
    where
        F: FileSystem,
        M: Fn(usize) -> F + Send + Sync + 'static,
    {
        let agreed = greet(device, &self.options)?;
        self.over_ring = agreed.over_ring();
        let channel = Arc::new(mount::clone_device(device).map_err(MountError::Loop)?);
        let lookups = Arc::new(Lookups::new());
        let notifier = Notifier::new(&channel, agreed.minor, Arc::clone(&lookups));
        self.notifier = Some((channel, notifier));
        tracing::debug!(?agreed, mountpoint = %self.mountpoint.display(), "mounted");
        let cpus = allowed_cpus();
        let loops = if self.options.loops == 0 { cpus.len() } else { self.options.loops };
        let factory = Arc::new(factory);
        let (controls, receivers): (Vec<_>, Vec<_>) = (0..loops).map(|_| mailbox::mailbox()).unzip();
        let team = Arc::new(Team::new(controls));
        self.team = Some(Arc::clone(&team));
        let keeps_company = agreed.over_ring() && self.options.pin && (2..=COMPANY_MAX).contains(&loops);
        let company = keeps_company.then(|| Arc::new(Company::new(Instant::now())));
        let (started, starts) = mpsc::channel();
        let failed = MountError::Loop;
        let may_be_bound = |cpu: &usize| self.options.pin && *cpu < CPUS_BOUND;
        let bound: Vec<Option<usize>> =
            (0..loops).map(|index| Some(cpus[index % cpus.len()]).filter(may_be_bound)).collect();
        let mut queues =
            if agreed.over_ring() { queues::assign(queues::count().map_err(failed)?, &bound) } else { Vec::new() };
        let over_ring_max = OVER_RING_MAX / loops;
        for (index, control) in receivers.into_iter().enumerate() {
            let plan = Plan {
                over_ring_max,
                fd: Arc::new(mount::clone_device(device).map_err(failed)?),
                queues: queues.get_mut(index).map(std::mem::take),
                agreed,
                options: self.options.clone(),
                cpu: bound[index],
                member: TeamMember {
                    index,
                    team: Arc::clone(&team),
                    lookups: Arc::clone(&lookups),
                    company: company.clone(),
                },
                control,
            };
            let (factory, started, running) = (Arc::clone(&factory), started.clone(), self.ended.running());
            let ends_all = EndsAll { team: Arc::clone(&team), limit: self.options.drain_wait };
            let thread = thread::Builder::new().name(format!("fuse-{index}")).spawn(move || {
                let (_running, _ends_all) = (running, ends_all);
                plan.run(|| factory(index), &started);
            });
            self.threads.push(thread.map_err(failed)?);
        }
        drop(started);
        for _ in 0..loops {
            let start = starts.recv().unwrap_or_else(|_| Err(io::Error::other("a loop panicked while starting")));
            start.map_err(MountError::Loop)?;
        }
        mount::set_read_ahead(self.number.as_deref());
        Ok(())
    }

    fn take_off(&self) {
        let deadline = Instant::now() + self.options.busy_wait;
        // Somebody may have detached it, and mounted something else there since.
        while mount::device_number(&self.mountpoint) == self.number {
            match mount::unmount(&self.mountpoint, false) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                    thread::sleep(BUSY_RETRY);
                }
                Err(error) if self.ended.has_ended() => {
                    tracing::debug!(%error, "unmounted already");
                    return;
                }
                Err(error) => {
                    let mountpoint = self.mountpoint.display();
                    tracing::warn!(%error, %mountpoint, "cannot unmount in order: detaching, open files will fail");
                    if let Err(error) = mount::unmount(&self.mountpoint, true) {
                        tracing::error!(%error, %mountpoint, "cannot detach: the mount point stays dead");
                    }
                    return self.stop(self.options.drain_wait);
                }
            }
        }
        self.end_elsewhere(deadline);
    }

    /// Not seen here any more, it may be used all the same: by who had a file open when it was detached, and in the mount
    /// namespaces of containers that began while it was there.
    fn end_elsewhere(&self, deadline: Instant) {
        while self.notifier.as_ref().is_some_and(|(channel, _)| mount::is_connected(channel)) {
            if Instant::now() >= deadline {
                tracing::warn!(mountpoint = %self.mountpoint.display(), "still in use elsewhere: it will fail there");
                return self.stop(self.options.drain_wait);
            }
            thread::sleep(BUSY_RETRY);
        }
        // What is in flight nobody waits for any more: who asks this process to end need not wait for it either.
        self.stop(self.options.drain_wait);
    }

    /// Detached but still open somewhere, the kernel would go on sending: the loops themselves have to end.
    fn stop(&self, limit: Duration) {
        if let Some(team) = &self.team {
            team.stop(limit);
        }
    }

    /// # Errors
    /// Where one of them has panicked, which it has said itself.
    fn join_threads(&mut self) -> Result<(), MountError> {
        // The kernel ends the connection with the last descriptor of it: ours, those of the loops, and for its moment that of
        // who tells the kernel something.
        let channel = self.notifier.take().map(|(channel, _)| Arc::downgrade(&channel));
        let outcomes: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        if let Some(channel) = channel.and_then(|channel| channel.upgrade()) {
            self.end_connection(&channel);
        }
        if outcomes.iter().all(Result::is_ok) { Ok(()) } else { Err(MountError::Panicked) }
    }

    /// The loops have ended, and something is being told to the kernel all the same. That may wait for a page which a request
    /// was to bring that nobody answers any more; of those that came over io_uring nothing else ends one than the end of the
    /// connection, which the descriptor held meanwhile would put off for ever. Only here: who has files open on a mount that
    /// was detached is served until the loops end, and then the connection ends by itself where nothing holds it.
    fn end_connection(&self, channel: &OwnedFd) {
        if !mount::is_connected(channel) {
            return;
        }
        if let Err(error) = abort(channel, self.number.as_deref()) {
            let mountpoint = self.mountpoint.display();
            tracing::warn!(%error, %mountpoint, "cannot end the connection to the kernel: this process may not end by itself");
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.take_off();
            let _ = self.join_threads();
        }
    }
}

/// Ends all loops of the mount where the one that holds it panics: what that had taken from the kernel nobody answers any more,
/// and over io_uring nobody takes what programs on its CPU ask for. Their calls would wait as long as the others go on.
struct EndsAll {
    team: Arc<Team>,
    limit: Duration,
}

impl Drop for EndsAll {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!("a loop of the mount has panicked: the mount ends");
            self.team.stop(self.limit);
        }
    }
}

/// All that one loop thread needs.
struct Plan {
    fd: Arc<OwnedFd>,
    /// Those of the kernel that it serves, where requests come over io_uring.
    queues: Option<Vec<u16>>,
    /// How many of its requests may be in flight there.
    over_ring_max: usize,
    agreed: Agreed,
    options: Options,
    cpu: Option<usize>,
    member: TeamMember,
    control: mailbox::Receiver<Control>,
}

type Started = mpsc::Sender<io::Result<()>>;

impl Plan {
    fn run<F: FileSystem>(self, factory: impl FnOnce() -> F, started: &Started) {
        let (spin, company) = (self.options.spin, self.member.company.clone());
        let config = ring::Config { entries: RING_ENTRIES, cpu: self.cpu, spin, company, ..ring::Config::default() };
        match ring::Ring::new(&config) {
            Ok(mut ring) => ring.run(self.serve(factory, started)),
            Err(error) => {
                let _ = started.send(Err(error));
            }
        }
    }

    async fn serve<F: FileSystem>(mut self, factory: impl FnOnce() -> F, started: &Started) {
        match self.queues.take() {
            None => {
                let device = self.device();
                self.serve_over(device, factory, started).await;
            }
            Some(queues) => {
                let uring = self.uring(queues).await;
                self.serve_over(uring, factory, started).await;
            }
        }
    }

    fn device(&self) -> io::Result<Device> {
        let fd = Arc::clone(&self.fd);
        Device::new(
            fd,
            self.agreed.max_write,
            self.options.requests_max.unwrap_or(REQUESTS_MAX),
            self.member.index,
            Arc::clone(&self.member.team),
        )
    }

    async fn uring(&self, queues: Vec<u16>) -> io::Result<Uring> {
        let requests_max = match self.options.requests_max {
            Some(bound) => self.over_ring_max.max(PER_QUEUE_MIN * queues.len()).min(bound),
            None => self.over_ring_max.min(REQUESTS_MAX).max(PER_QUEUE_MIN * queues.len()),
        };
        let setup = uring::RingSetup {
            queues,
            requests_max,
            payload_max: self.agreed.max_write.max(abi::READ_BUFFER_MIN as u32),
            device: if self.member.index == 0 { Some(self.device()?) } else { None },
        };
        let registered = Uring::register(Arc::clone(&self.fd), setup, Arc::clone(&self.member.team)).await;
        registered.map_err(|error| refused(&error))
    }

    async fn serve_over<F: FileSystem, T: Transport>(
        self,
        transport: io::Result<T>,
        factory: impl FnOnce() -> F,
        started: &Started,
    ) {
        let transport = match transport {
            Ok(transport) => transport,
            Err(error) => {
                let _ = started.send(Err(error));
                return;
            }
        };
        let shape = Shape {
            reply_max: self.agreed.max_write,
            extended_setxattr: self.agreed.features & abi::init::SETXATTR_EXT != 0,
        };
        let metrics = OperationMetrics::new(self.options.metrics.as_ref());
        // Made inside the ring: the file system may open connections and start tasks.
        let fs = factory();
        let _ = started.send(Ok(()));
        let patience = Patience { orphans: self.options.orphans_wait, shutdown: self.options.drain_wait };
        Loop::new(fs, transport, shape, metrics, self.member, patience).run(self.control).await;
    }
}

/// Answers the kernel's first message, before any loop runs.
fn greet(device: &OwnedFd, options: &Options) -> Result<Agreed, MountError> {
    let failed = |reason: String| MountError::Negotiation(reason);
    let mut poll = libc::pollfd { fd: device.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live pollfd.
    let ready = unsafe { libc::poll(&raw mut poll, 1, INIT_WAIT.as_millis() as i32) };
    if ready <= 0 {
        return Err(MountError::Silence);
    }
    let mut message = vec![0u8; READ_BUFFER_MIN];
    // SAFETY: reads into a live buffer of the stated length.
    let len = unsafe { libc::read(device.as_raw_fd(), message.as_mut_ptr().cast(), message.len()) };
    let len = usize::try_from(len).map_err(|_| failed(io::Error::last_os_error().to_string()))?;
    let header: InHeader = read_front(&message[..len]).ok_or_else(|| failed("a message without a header".into()))?;
    if header.opcode != Opcode::Init as u32 {
        return Err(failed(format!("its first message is number {}", header.opcode)));
    }
    let arguments = &message[size_of::<InHeader>()..len];
    let (agreed, reply) = init::negotiate(arguments, options, init::max_pages_limit()).map_err(failed)?;
    let body = bytes_of(&reply);
    let head = OutHeader { len: (size_of::<OutHeader>() + body.len()) as u32, error: 0, unique: header.unique };
    ring::op::write_device(device.as_raw_fd(), &[bytes_of(&head), body]).map_err(|error| failed(error.to_string()))?;
    Ok(agreed)
}

/// The CPUs that this process may use, at least one.
fn allowed_cpus() -> Vec<usize> {
    let mut set: Vec<libc::c_ulong> = vec![0; size_of::<libc::cpu_set_t>() / size_of::<libc::c_ulong>()];
    // The kernel takes no less room than for all CPUs that it is made for.
    // SAFETY: the call writes at most what it is told the size of.
    while unsafe { libc::sched_getaffinity(0, size_of_val(&set[..]), set.as_mut_ptr().cast()) } != 0 {
        let is_short = io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
        if !is_short || set.len() >= CPU_WORDS_MAX {
            return vec![0];
        }
        set = vec![0; 2 * set.len()];
    }
    let cpus = members(&set);
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// The numbers of the bits that are set.
fn members(set: &[libc::c_ulong]) -> Vec<usize> {
    let bits = libc::c_ulong::BITS as usize;
    (0..set.len() * bits).filter(|number| set[number / bits] >> (number % bits) & 1 == 1).collect()
}

/// Of what kind it is decides whether another attempt may succeed.
fn refused(error: &io::Error) -> io::Error {
    let text = format!("the kernel refuses FUSE over io_uring: {error} (fuse_channel = dev does without)");
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_of_large_machines_are_counted() {
        let mut set = [0; 40];
        (set[0], set[17], set[39]) = (5, 1, 1 << 63);
        assert_eq!(members(&set), [0, 2, 17 * 64, 40 * 64 - 1]);
        assert!(!allowed_cpus().is_empty());
    }

    #[test]
    fn a_refused_channel_is_no_shortage() {
        let passes = |errno| MountError::Loop(refused(&io::Error::from_raw_os_error(errno))).is_passing();
        assert!(![libc::EACCES, libc::EPERM, libc::EOPNOTSUPP, libc::EINVAL].into_iter().any(passes));
        assert!(passes(libc::ENOMEM));
    }
}
