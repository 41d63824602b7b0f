//! One loop: workers that receive, run and answer requests.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use ring::sync::Notify;
use ring::{Company, mailbox};
use types::error::Errno;
use types::id::InodeId;

use crate::abi::{InHeader, Opcode};
use crate::arrivals::{Awaited, Rounds};
use crate::context::{Context, Interrupt};
use crate::decode::{self, Refusal};
use crate::dispatch::{Shape, dispatch};
use crate::filesystem::FileSystem;
use crate::lookups::Lookups;
use crate::metrics::OperationMetrics;
use crate::operation::Operation;
use crate::reply::{Outcome, error_number};
use crate::team::Team;
use crate::transport::{Message, Transport};

/// How long a loop may take to begin with all that it was sent, where no operation ends for which the kernel could hand over
/// another one.
const CATCH_UP_MAX: Duration = Duration::from_millis(200);

/// From one loop, or from the outside, to a loop.
pub(crate) enum Control {
    /// The request with this number was interrupted; the kernel told another loop.
    Interrupt(u64),
    /// There is more to do than the others can do.
    Come,
    /// Somebody waits until this loop has begun with all that it was sent.
    CatchUp(Awaited),
    /// The connection to the kernel is gone.
    Leave,
    /// Receive nothing more, and end when what is in flight is answered, or after this time.
    Stop(Duration),
}

/// Which of the loops of its mount a loop is, and what it shares with the others.
pub(crate) struct TeamMember {
    pub(crate) index: usize,
    pub(crate) team: Arc<Team>,
    pub(crate) lookups: Arc<Lookups>,
    /// The loops, where they stay awake for each other.
    pub(crate) company: Option<Arc<Company>>,
}

/// How long a loop waits at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For what is in flight when the connection to the kernel is gone.
    pub(crate) orphans: Duration,
    /// For the file system to say goodbye.
    pub(crate) shutdown: Duration,
}

pub(crate) struct Loop<F, T> {
    pub(crate) fs: F,
    pub(crate) transport: T,
    pub(crate) shape: Shape,
    pub(crate) metrics: OperationMetrics,
    member: TeamMember,
    patience: Patience,
    lines: RefCell<Vec<Rc<Interrupt>>>,
    rounds: Rounds,
    workers: Cell<usize>,
    worker_ended: Notify,
}

impl<F: FileSystem, T: Transport> Loop<F, T> {
    pub(crate) fn new(
        fs: F,
        transport: T,
        shape: Shape,
        metrics: OperationMetrics,
        member: TeamMember,
        patience: Patience,
    ) -> Rc<Self> {
        Rc::new(Self {
            fs,
            transport,
            shape,
            metrics,
            member,
            patience,
            lines: RefCell::default(),
            rounds: Rounds::default(),
            workers: Cell::new(0),
            worker_ended: Notify::new(),
        })
    }

    /// Serves until the mount ends.
    pub(crate) async fn run(self: Rc<Self>, control: mailbox::Receiver<Control>) {
        for entry in self.transport.first_entries() {
            Self::start(&self, entry);
        }
        let give_up = Rc::new(Notify::new());
        ring::spawn(Self::obey(Rc::clone(&self), control, Rc::clone(&give_up)));
        let mut give_up = pin!(give_up.notified());
        loop {
            let mut ended = pin!(self.worker_ended.notified());
            if self.workers.get() == 0 {
                break;
            }
            let gave_up = std::future::poll_fn(|cx| {
                if give_up.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(true);
                }
                ended.as_mut().poll(cx).map(|()| false)
            });
            if gave_up.await {
                tracing::warn!(requests = self.workers.get(), "giving up requests that do not end");
                break;
            }
        }
        // The last answers wait for the end of a turn, which may not come any more.
        self.transport.deliver();
        let limit = self.patience.shutdown;
        if ring::timeout(limit, self.fs.shutdown()).await.is_err() {
            tracing::warn!(?limit, "giving up a shutdown that does not end");
        }
    }

    async fn obey(self: Rc<Self>, mut control: mailbox::Receiver<Control>, give_up: Rc<Notify>) {
        let mut has_left = false;
        while let Some(message) = control.recv().await {
            match message {
                Control::Interrupt(unique) => {
                    if self.raise(unique) {
                        self.member.team.early.take(unique, Instant::now());
                    }
                }
                Control::Come => self.transport.come(),
                Control::CatchUp(awaited) => {
                    if self.rounds.join(awaited) {
                        ring::spawn(Self::catch_up(Rc::clone(&self)));
                    }
                }
                // Each loop tells all.
                Control::Leave if has_left => {}
                Control::Leave => {
                    has_left = true;
                    self.transport.close();
                    // Of callers who have their errors the kernel says nothing more. One that waited for a lock would be served
                    // for as long as another program keeps it: for ever, where that waits for a lock of this very mount.
                    self.lines.borrow().iter().for_each(|line| line.caller_is_gone());
                    give_up_after(self.patience.orphans, &give_up);
                }
                Control::Stop(limit) => {
                    self.transport.close();
                    give_up_after(limit, &give_up);
                }
            }
        }
    }

    async fn catch_up(self: Rc<Self>) {
        let round = async || {
            // Where none of many operations ends, there is nothing to wait for.
            let _ = ring::timeout(CATCH_UP_MAX, self.transport.catch_up()).await;
        };
        self.rounds.run(round).await;
    }

    fn start(this: &Rc<Self>, entry: T::Entry) {
        this.workers.set(this.workers.get() + 1);
        ring::spawn(Self::work(Rc::clone(this), entry));
    }

    async fn work(self: Rc<Self>, mut entry: T::Entry) {
        let line = Rc::new(Interrupt::default());
        self.lines.borrow_mut().push(Rc::clone(&line));
        while let Ok(message) = self.transport.receive(&mut entry).await {
            // Both this and what it runs are pinned where they are made: to move their 17 KB costs as much as many a request.
            pin!(self.serve(&mut entry, &line, message)).await;
        }
        self.workers.set(self.workers.get() - 1);
        self.worker_ended.notify_one();
    }

    async fn serve(self: &Rc<Self>, entry: &mut T::Entry, line: &Rc<Interrupt>, message: Message) {
        let started = Instant::now();
        if let Some(company) = &self.member.company {
            company.works(started);
        }
        let Some(header) = decode::header(message.bytes()) else {
            // Without a header there is no number to answer to.
            tracing::error!(len = message.bytes().len(), "the kernel sent a request without a sound header");
            return self.transport.recycle(message);
        };
        let (opcode, operation) = match decode(&header, &message, self.shape.extended_setxattr) {
            Ok(decoded) => decoded,
            Err(errno) => {
                self.transport.recycle(message);
                return self.reply(entry, header.unique, Some(Err(errno)));
            }
        };
        if let Operation::Interrupt { unique } = operation {
            self.transport.recycle(message);
            return self.interrupt(unique);
        }
        let _in_flight = self.metrics.begin();
        let inode = InodeId(header.nodeid);
        self.member.lookups.heed(inode, &operation);
        // Only a write needs the message for longer; the others have copied the few bytes that they need.
        let kept = if opcode == Opcode::Write {
            Some(message)
        } else {
            self.transport.recycle(message);
            None
        };
        let long = operation.may_wait_for_long();
        if long && !self.transport.begin_long(entry) {
            return self.reply(entry, header.unique, Some(Err(Errno::ENOLCK)));
        }
        line.begin(header.unique, operation.ends_with_its_caller());
        if self.member.team.early.take(header.unique, started) {
            line.raise(header.unique);
        }
        let context = Context::of(&header, &operation, Rc::clone(line), started);
        let dispatched = pin!(dispatch(&self.fs, self.shape, &context, inode, operation, kept));
        let mut running = Guarded(dispatched);
        let outcome = match poll_once(Pin::new(&mut running)).await {
            Some(outcome) => outcome,
            None => {
                if let Some(another) = self.transport.park(entry) {
                    Self::start(self, another);
                }
                running.await
            }
        };
        line.end();
        if long {
            self.transport.end_long(entry);
        }
        let outcome = outcome.unwrap_or_else(|Panicked| {
            tracing::error!(operation = opcode.label(), %inode, "an operation panicked: answering EIO");
            Some(Err(Errno::EIO))
        });
        if let Some(Err(errno)) = &outcome {
            self.metrics.failed(opcode, *errno);
        }
        self.reply(entry, header.unique, outcome);
        if self.fs.waits_for_delivery() {
            self.transport.deliver();
        }
        self.fs.replied();
        self.metrics.observe(opcode, started.elapsed());
    }

    fn reply(&self, entry: &mut T::Entry, unique: u64, outcome: Outcome) {
        let lookups = &self.member.lookups;
        let sent = match &outcome {
            None => return,
            Some(Ok(body)) => {
                body.told().for_each(|inode| lookups.tell(inode));
                let sent = body.with_parts(|parts| self.transport.reply(entry, unique, 0, parts));
                if sent.is_err() {
                    body.told().for_each(|inode| lookups.give_back(inode, 1));
                }
                sent
            }
            Some(Err(errno)) => self.transport.reply(entry, unique, error_number(*errno), &[]),
        };
        let Err(error) = sent else { return };
        // The caller was killed, or the mount is gone: nobody waits for it any more.
        if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::EPERM)) {
            return;
        }
        tracing::error!(%error, unique, "the kernel refused a reply: answering EIO");
        let _ = self.transport.reply(entry, unique, error_number(Errno::EIO), &[]);
    }

    fn interrupt(&self, unique: u64) {
        if !self.raise(unique) {
            self.member.team.interrupt(self.member.index, unique, Instant::now());
        }
    }

    /// False where the request is with another loop, has been answered, or is about to come.
    fn raise(&self, unique: u64) -> bool {
        self.lines.borrow().iter().any(|line| line.raise(unique))
    }
}

fn give_up_after(limit: Duration, give_up: &Rc<Notify>) {
    let give_up = Rc::clone(give_up);
    ring::spawn(async move {
        ring::sleep(limit).await;
        give_up.notify_one();
    });
}

fn decode(header: &InHeader, message: &Message, extended_setxattr: bool) -> Result<(Opcode, Operation), Errno> {
    let opcode = Opcode::from_u32(header.opcode).ok_or(Errno::ENOSYS)?;
    decode::operation(opcode, message.arguments(), extended_setxattr).map(|operation| (opcode, operation)).map_err(
        |refusal| match refusal {
            Refusal::Answer(errno) => errno,
            Refusal::Malformed => {
                let len = message.bytes().len();
                tracing::error!(operation = opcode.label(), len, "the kernel sent a request that makes no sense");
                Errno::EIO
            }
        },
    )
}

/// The output of `future` if it is ready at once.
async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[derive(Clone, Copy, Debug)]
struct Panicked;

/// Turns a panic inside the future into a value, so that it ends one request and not the mount.
struct Guarded<'a, F>(Pin<&'a mut F>);

impl<F: Future> Future for Guarded<'_, F> {
    type Output = Result<F::Output, Panicked>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(_) => Poll::Ready(Err(Panicked)),
        }
    }
}
