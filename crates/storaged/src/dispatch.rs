//! From a request on the wire to the engine and back: the whole protocol of a storage lane in one match.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use net::bench::memory::{Memory, forget};
use net::{Request, Responder, Service};
use ring::buf::Slice;
use rustc_hash::FxHashMap;
use telemetry::seldom::Seldom;
use types::error::Errno;
use types::id::{Epoch, Generation, GroupId, ObjectId};
use wire::codec::{Wire, decode_body};
use wire::frame::Status;
use wire::metadata_op;
use wire::op::Op;
use wire::v1::bench::{BenchCleanup, BenchStart, BenchStarted, BenchStatus, BenchStop};
use wire::v1::netbench::{BLOCK_MAX, NetRead, NetReadReply, NetStart, NetStatus, NetStop, NetWritten};
use wire::v1::scrub::{ScrubStart, ScrubStatus, ScrubStop};
use wire::v1::session::Empty;
use wire::v1::storage::{
    Allocate, Copy, List, Place, Read, Remove, Seek, Stat, StatReply, Sync, TargetStat, Truncate, Write,
};

use crate::bench::Home;
use crate::engine::{Data, Found, LaneShare, ObjectStore};
use crate::metrics::{LaneMetrics, TargetMetrics};
use crate::netbench::NetBench;
use crate::scrub;
use crate::served::Served;
use crate::target::Target;

/// Log lines of requests that have to wait for a descriptor: one for many.
static NO_DESCRIPTOR: LazyLock<Seldom> = LazyLock::new(|| Seldom::every(Duration::from_secs(10)));

/// A group as the cluster map says it is served here.
pub(crate) struct Route<S> {
    pub(crate) generation: Generation,
    pub(crate) served: Rc<Served<S>>,
    pub(crate) metrics: TargetMetrics,
}

/// Answers the requests of all connections of one lane.
pub(crate) struct Dispatch<S> {
    pub(crate) routes: RefCell<FxHashMap<GroupId, Rc<Route<S>>>>,
    pub(crate) epoch: Rc<Cell<Epoch>>,
    pub(crate) metrics: LaneMetrics,
    pub(crate) net_bench: Arc<NetBench>,
    /// What NetBench's reads are answered with.
    pub(crate) memory: Memory,
    /// Requests of this turn.
    pub(crate) taken: Cell<u64>,
}

impl<S: ObjectStore + 'static> Service for Dispatch<S> {
    fn on_request(self: &Rc<Self>, request: Request) {
        let op = request.header.op;
        let begun = Instant::now();
        self.count();
        match self.route(&request) {
            Ok(None) => {
                if let Err(status) = self.answer_without_target(request) {
                    self.metrics.refused(op, status);
                }
                self.metrics.answered(op, begun.elapsed());
            }
            Ok(Some(route)) => {
                let this = Rc::clone(self);
                self.metrics.in_flight.inc();
                ring::spawn(async move {
                    if let Err(status) = answer(&route, request).await {
                        this.metrics.refused(op, status);
                    }
                    this.metrics.in_flight.dec();
                    this.metrics.answered(op, begun.elapsed());
                });
            }
            Err(status) => {
                self.metrics.refused(op, status);
                request.responder.fail(status);
            }
        }
    }
}

impl<S: ObjectStore + 'static> Dispatch<S> {
    fn count(self: &Rc<Self>) {
        let taken = self.taken.get() + 1;
        self.taken.set(taken);
        if taken == 1 {
            let this = Rc::clone(self);
            ring::spawn(async move {
                ring::turn_end().await;
                this.metrics.batch.record(this.taken.take());
            });
        }
    }

    /// `None` for what concerns no target.
    fn route(&self, request: &Request) -> Result<Option<Rc<Route<S>>>, Status> {
        let op = request.header.op;
        if matches!(op, Op::Ping | Op::NetRead | Op::NetWrite | Op::NetStart | Op::NetStatus | Op::NetStop) {
            return Ok(None);
        }
        let routes = self.routes.borrow();
        let route = routes.get(&request.header.group).filter(|route| route.generation == request.header.generation);
        route.cloned().map(Some).ok_or(Status::StaleMap)
    }

    /// Pings, and NetBench: nothing here can reach what is stored. Answers in any case; the error is for the metrics.
    fn answer_without_target(&self, request: Request) -> Result<(), Status> {
        let Request { header, body, payload, room, responder, .. } = request;
        match header.op {
            Op::NetWrite => {
                forget(&payload);
                let length = u32::try_from(payload.len()).map_err(|_| Status::Errno(Errno::EINVAL));
                reply(responder, length.map(|length| NetWritten { length }))
            }
            Op::NetRead => match decode(&body) {
                Ok(NetRead { length }) if length <= BLOCK_MAX => {
                    responder.reply_payload(&NetReadReply {}, self.memory.payload(length as usize, room));
                    Ok(())
                }
                Ok(NetRead { .. }) => reply::<Empty>(responder, Err(Status::Errno(Errno::EINVAL))),
                Err(status) => reply::<Empty>(responder, Err(status)),
            },
            Op::NetStart => reply(responder, decode(&body).map(|request: NetStart| self.net_bench.start(request))),
            Op::NetStatus => reply(responder, decode(&body).map(|NetStatus {}| self.net_bench.status())),
            Op::NetStop => {
                let stop = |NetStop { run }| {
                    self.net_bench.stop(run);
                    Empty {}
                };
                reply(responder, decode(&body).map(stop))
            }
            Op::Ping => reply(responder, Ok(Empty {})),
            // Nothing else is sent here.
            _ => reply::<Empty>(responder, Err(Status::Errno(Errno::EOPNOTSUPP))),
        }
    }
}

/// The protocol: a line per operation. Answers the request in any case; the error is for the metrics.
async fn answer<S: ObjectStore + 'static>(route: &Route<S>, request: Request) -> Result<(), Status> {
    let Request { header, body, payload, sums, room, connection, responder } = request;
    let Some(_taken) = route.served.queue.take(body.len() + payload.len()) else {
        return reply::<Empty>(responder, Err(Status::Busy));
    };
    let (served, metrics, share, target) = (&route.served, &route.metrics, route.served.share, &route.served.target);
    match header.op {
        Op::Read => match on_object(share, &body, async |m: Read| served.read(&m, room).await).await {
            Ok((message, Found { data, crc, .. }, memory)) => {
                metrics.read.inc_by(data.len() as u64);
                responder.reply_summed(&message, data.freeze(), crc, memory);
                Ok(())
            }
            Err(status) => reply::<Empty>(responder, Err(status)),
        },
        Op::Write => {
            let length = payload.len() as u64;
            let write = async |m: Write| {
                let data = Data { bytes: payload, sums, durable: m.durable };
                served.write(&m, data).await
            };
            let written = on_object(share, &body, write).await;
            // What was refused is not there, and may come again.
            metrics.written.inc_by(if written.is_ok() { length } else { 0 });
            reply(responder, written)
        }
        Op::Truncate => reply(responder, on_object(share, &body, async |m: Truncate| served.truncate(&m).await).await),
        Op::Sync => {
            let sync = async |m: Sync| served.sync(&m, connection.0).await;
            reply(responder, on_object(share, &body, sync).await)
        }
        Op::Remove => {
            let remove = async |m: Remove| served.remove(m.object).await.map(|()| Empty {});
            reply(responder, on_object(share, &body, remove).await)
        }
        Op::Place => reply(responder, on_object(share, &body, async |m: Place| served.place(m.object).await).await),
        Op::Allocate => reply(responder, on_object(share, &body, async |m: Allocate| served.allocate(&m).await).await),
        Op::Copy => reply(responder, on_object(share, &body, async |m: Copy| served.copy(&m).await).await),
        Op::Seek => reply(responder, on_object(share, &body, async |m: Seek| served.seek(&m).await).await),
        Op::Stat => reply(responder, stat(served, &body).await),
        Op::List => {
            let list = async { served.list(&decode::<List>(&body)?).await.map_err(Status::Errno) };
            reply(responder, list.await)
        }
        Op::TargetStat => {
            // The header's group decides; the body's is there for people who read a trace.
            reply(responder, decode::<TargetStat>(&body).map(|_| served.target_stat()))
        }
        Op::BenchStart => reply(responder, bench_start(target, &body)),
        Op::BenchStatus => reply(responder, decode(&body).map(|BenchStatus {}| target.bench.status())),
        Op::BenchStop => reply(responder, bench_stop(target, &body)),
        Op::BenchCleanup => reply(responder, bench_cleanup(target, &body)),
        Op::ScrubStart => reply(responder, decode(&body).map(|request: ScrubStart| scrub::start(served, &request))),
        Op::ScrubStatus => reply(responder, decode(&body).map(|ScrubStatus {}| served.scrub.status())),
        Op::ScrubStop => reply(responder, scrub_stop(served, &body)),
        // Another service's, of no target, or the connection's.
        metadata_op!()
        | Op::Ping
        | Op::NetRead
        | Op::NetWrite
        | Op::NetStart
        | Op::NetStatus
        | Op::NetStop
        | Op::Share
        | Op::Fence
        | Op::FenceSession => reply::<Empty>(responder, Err(Status::Errno(Errno::EOPNOTSUPP))),
    }
}

// The target's own benchmark and this lane's own scrub: none of it waits for the disk.

fn bench_start(target: &Target, body: &Slice) -> Result<BenchStarted, Status> {
    let request: BenchStart = decode(body)?;
    let (path, reserve, sharers) = (target.path.as_path(), target.reserve(), target.sharers());
    let home = Home { path, reserve, sharers, is_present: target.check_present().is_ok() };
    Ok(target.bench.start(home, request))
}

fn bench_stop(target: &Target, body: &Slice) -> Result<Empty, Status> {
    let BenchStop { run } = decode(body)?;
    target.bench.stop(run);
    Ok(Empty {})
}

fn bench_cleanup(target: &Target, body: &Slice) -> Result<Empty, Status> {
    let BenchCleanup {} = decode(body)?;
    // Else it would be where its disk is mounted that nothing is left.
    target.check_present().and_then(|()| target.bench.clean(&target.path)).map_err(Status::Errno)?;
    Ok(Empty {})
}

fn scrub_stop<S>(served: &Served<S>, body: &Slice) -> Result<Empty, Status> {
    let ScrubStop { run } = decode(body)?;
    served.scrub.stop(run);
    Ok(Empty {})
}

/// A request that is about one object.
trait OnObject: Wire {
    fn object(&self) -> ObjectId;
}

macro_rules! on_object {
    ($($message:ty),*) => {
        $(impl OnObject for $message {
            fn object(&self) -> ObjectId {
                self.object
            }
        })*
    };
}

on_object!(Allocate, Copy, Place, Read, Remove, Seek, Sync, Truncate, Write);

/// Runs a request that is about one object, which must be this lane's: a client with another idea of the lanes has an
/// old map.
async fn on_object<M: OnObject, R>(
    share: LaneShare,
    body: &Slice,
    run: impl AsyncFnOnce(M) -> Result<R, Errno>,
) -> Result<R, Status> {
    let message = decode::<M>(body)?;
    if !share.owns(message.object()) {
        return Err(Status::StaleMap);
    }
    run(message).await.map_err(Status::Errno)
}

async fn stat<S: ObjectStore>(served: &Served<S>, body: &Slice) -> Result<StatReply, Status> {
    let Stat { objects } = decode(body)?;
    if !objects.iter().all(|&object| served.share.owns(object)) {
        return Err(Status::StaleMap);
    }
    served.stat(&objects).await.map_err(Status::Errno)
}

fn decode<T: Wire>(body: &Slice) -> Result<T, Status> {
    decode_body(body).map_err(|_| Status::Errno(Errno::EPROTO))
}

fn reply<T: Wire>(responder: Responder, outcome: Result<T, Status>) -> Result<(), Status> {
    match outcome {
        Ok(message) => {
            responder.reply(&message);
            Ok(())
        }
        Err(status) => {
            let status = or_busy(status);
            responder.fail(status);
            Err(status)
        }
    }
}

/// Where the process has no descriptor for a file just now, one is free again soon. Programs would take the error for theirs.
fn or_busy(status: Status) -> Status {
    if !matches!(status, Status::Errno(Errno::EMFILE | Errno::ENFILE)) {
        return status;
    }
    if let Some(left_out) = NO_DESCRIPTOR.is_due(Instant::now()) {
        tracing::warn!(left_out, "no descriptor is free for an object's file: who asks for it has to wait");
    }
    Status::Busy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_when_no_descriptor_is_free_comes_again() {
        for errno in [Errno::EMFILE, Errno::ENFILE] {
            assert_eq!(or_busy(Status::Errno(errno)), Status::Busy);
        }
        for status in [Status::Errno(Errno::EIO), Status::StaleMap] {
            assert_eq!(or_busy(status), status);
        }
    }
}
