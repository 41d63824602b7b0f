//! Measures storage lanes over loopback against the file system below them:
//! `cargo run --release -p storaged --example lane_bench -- DIR [MIB] [LANES] [WRITE_IN_PLACE_BYTES]`
//!
//! The client stripes 512 KiB chunks over four targets, as files are by default, so a request of 1 MiB is two
//! requests to two objects. Each figure stands beside the same work on plain files in the same directory.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use net::{ClusterKey, Connection, Identity, Limits, To};
use ring::buf::{Buf, Slice};
use ring::op;
use storaged::local::{LocalConfig, LocalNode};
use types::id::{GroupId, InodeId, ObjectId};
use types::layout::Layout;
use wire::v1::storage::{Read, Remove, Sync, Truncate, Write};

const MIB: u64 = 1 << 20;
const SMALL: u64 = 4096;
const SMALL_OPS: u64 = 40_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().expect("usage: lane_bench DIR [MIB] [LANES] [WRITE_IN_PLACE_BYTES]"));
    let mut number = |default: u64| arguments.next().map_or(default, |text| text.parse().unwrap());
    let (size, lanes, in_place) = (number(2048) * MIB, number(1), number(64 << 10));
    let targets: Vec<PathBuf> = (1..=4).map(|n| dir.join(format!("bench-target-{n}"))).collect();
    targets.iter().for_each(|target| std::fs::create_dir_all(target).unwrap());
    let key = ClusterKey::from_bytes([1; 32]);
    let mut config = LocalConfig::new(targets.clone(), key.clone());
    config.lanes = lanes as usize;
    config.write_in_place_max = in_place as usize;
    let node = LocalNode::start(&config).unwrap();
    ring::Ring::new(&ring::Config::default()).unwrap().run(async {
        let client = Rc::new(Client::connect(&node, key).await);
        println!("{:40} {:>12} {:>12} {:>7} {:>14}", "work", "lane", "local", "ratio", "lane CPU us/op");
        for round in 0..3 {
            println!("round {round}");
            sequential(&client, &dir, size).await;
            small(&client, &dir, &targets, size).await;
        }
        client.remove().await;
    });
    node.stop().unwrap();
    targets.iter().for_each(|target| std::fs::remove_dir_all(target).unwrap());
}

struct Client {
    lanes: Vec<Connection>,
    to: To,
    layout: Layout,
}

impl Client {
    async fn connect(node: &LocalNode, key: ClusterKey) -> Self {
        let map = node.map();
        let identity = Identity::new(key, "bench");
        let mut lanes = Vec::new();
        for lane in 0..map.targets.values().next().unwrap().ports.len() {
            let address = map.route_lane(GroupId(1), lane).unwrap().addresses[0];
            lanes.push(Connection::connect(address, &identity, &Limits::default()).await.unwrap());
        }
        let layout = Layout { chunk_size: 512 << 10, groups: (1..=4).map(GroupId).collect() };
        let generation = map.groups[&GroupId(1)].generation;
        Self { lanes, to: To { group: GroupId(1), generation, epoch: map.epoch }, layout }
    }

    fn object(&self, stripe: u32) -> ObjectId {
        ObjectId { inode: InodeId(4096), stripe }
    }

    fn lane(&self, stripe: u32) -> (&Connection, To, ObjectId) {
        let object = self.object(stripe);
        let to = To { group: self.layout.groups[stripe as usize], ..self.to };
        (&self.lanes[object.lane(self.lanes.len())], to, object)
    }

    async fn write(&self, offset: u64, data: &Slice) {
        ring::join_all(layout::extents(&self.layout, offset, data.len() as u64).map(|extent| async move {
            let (lane, to, object) = self.lane(extent.stripe);
            let from = (extent.file_offset - offset) as usize;
            let payload = vec![data.slice(from..from + extent.len as usize)];
            let request = Write::new(object, extent.object_offset);
            lane.call_payload(to, &request, payload, None).await.unwrap();
        }))
        .await;
    }

    async fn read(&self, offset: u64, len: u64) {
        ring::join_all(layout::extents(&self.layout, offset, len).map(|extent| async move {
            let (lane, to, object) = self.lane(extent.stripe);
            let request = Read { object, offset: extent.object_offset, length: extent.len };
            let into = Some(Buf::with_capacity(extent.len as usize));
            let answer = lane.call_payload(to, &request, Vec::new(), into).await.unwrap();
            assert_eq!(answer.payload.len(), extent.len as usize);
        }))
        .await;
    }

    async fn sync(&self) {
        ring::join_all((0..4).map(|stripe| async move {
            let (lane, to, object) = self.lane(stripe);
            lane.call(to, &Sync { object, since: 0 }).await.unwrap();
        }))
        .await;
    }

    async fn empty(&self) {
        for stripe in 0..4 {
            let (lane, to, object) = self.lane(stripe);
            lane.call(to, &Truncate { object, size: 0, unchanged_since: 0 }).await.unwrap();
        }
    }

    async fn remove(&self) {
        for stripe in 0..4 {
            let (lane, to, object) = self.lane(stripe);
            lane.call(to, &Remove { object }).await.unwrap();
        }
    }
}

fn cpu_us() -> f64 {
    // SAFETY: an all-zero rusage is valid, and the pointer is to a live one.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let us = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    us(usage.ru_utime) + us(usage.ru_stime)
}

/// Units per second and CPU microseconds per operation of `work`.
async fn measure(units: f64, ops: u64, work: impl Future<Output = ()>) -> (f64, f64) {
    let (begun, cpu) = (Instant::now(), cpu_us());
    work.await;
    (units / begun.elapsed().as_secs_f64(), (cpu_us() - cpu) / ops as f64)
}

fn show(name: &str, lane: (f64, f64), local: f64) {
    println!("{name:40} {:12.0} {local:12.0} {:6.0}% {:14.1}", lane.0, lane.0 / local * 100.0, lane.1);
}

fn drop_cache(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            drop_cache(&path);
        } else if let Ok(file) = File::open(&path) {
            file.sync_all().unwrap();
            // SAFETY: no memory is passed.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        }
    }
}

/// `depth` tasks share the operations.
async fn in_flight(depth: u64, ops: u64, op: impl AsyncFn(u64)) {
    let op = &op;
    ring::join_all((0..depth).map(|first| async move {
        for n in (first..ops).step_by(depth as usize) {
            op(n).await;
        }
    }))
    .await;
}

async fn sequential(client: &Rc<Client>, dir: &Path, size: u64) {
    let (count, megabytes) = (size / MIB, size as f64 / 1e6);
    let path = dir.join("bench-local");
    let data = Buf::from_slice(&vec![0x5a; MIB as usize]).freeze();
    let lane_file = async |depth: u64| {
        client.empty().await;
        measure(megabytes, count, async {
            in_flight(depth, count, async |n| client.write(n * MIB, &data).await).await;
            client.sync().await;
        })
        .await
    };
    let local = || async {
        client.empty().await;
        let _ = std::fs::remove_file(&path);
        let file = File::create(&path).unwrap();
        for n in 0..count {
            file.write_all_at(&data, n * MIB).unwrap();
        }
        file.sync_data().unwrap();
    };
    local().await;
    let (local_write, _) = measure(megabytes, count, local()).await;
    lane_file(1).await;
    show("1 MiB write + sync, 1 in flight, MB/s", lane_file(1).await, local_write);
    show("1 MiB write + sync, 4 in flight, MB/s", lane_file(4).await, local_write);
    // On a virtual machine a page that was not used lately costs a fault in the host, far more than to fill it. So each
    // measured pass comes right after one that had, and freed, as many pages.
    let local = || async {
        let file = File::open(&path).unwrap();
        let mut buffer = vec![0; MIB as usize];
        for n in 0..count {
            file.read_exact_at(&mut buffer, n * MIB).unwrap();
        }
    };
    drop_cache(dir);
    local().await;
    drop_cache(dir);
    let (local_read, _) = measure(megabytes, count, local()).await;
    for depth in [1, 2, 4] {
        let lane = async || in_flight(depth, count, async |n| client.read(n * MIB, MIB).await).await;
        drop_cache(dir);
        lane().await;
        drop_cache(dir);
        let lane = measure(megabytes, count, lane()).await;
        show(&format!("1 MiB read cold, {depth} in flight, MB/s"), lane, local_read);
    }
    let lane = measure(megabytes, count, in_flight(1, count, async |n| client.read(n * MIB, MIB).await)).await;
    show("1 MiB read warm, 1 in flight, MB/s", lane, local_read);
}

fn offset(n: u64, size: u64) -> u64 {
    n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) % (size / SMALL) * SMALL
}

async fn small(client: &Rc<Client>, dir: &Path, targets: &[PathBuf], size: u64) {
    let path = dir.join("bench-local");
    let options = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).clone();
    let direct = options.open(&path).unwrap();
    let fd = direct.as_raw_fd();
    for depth in [1, 16] {
        let ops = SMALL_OPS / if depth == 1 { 4 } else { 1 };
        targets.iter().for_each(|target| drop_cache(target));
        let local = async |n| {
            op::read_at(fd, Buf::with_capacity(SMALL as usize), offset(n, size)).await.0.unwrap();
        };
        let (local, _) = measure(ops as f64, ops, in_flight(depth, ops, local)).await;
        let lane =
            measure(ops as f64, ops, in_flight(depth, ops, async |n| client.read(offset(n, size), SMALL).await)).await;
        show(&format!("4 KiB random read cold, {depth} in flight, /s"), lane, local);
        let lane =
            measure(ops as f64, ops, in_flight(depth, ops, async |n| client.read(offset(n, size), SMALL).await)).await;
        show(&format!("4 KiB random read warm, {depth} in flight, /s"), lane, local);
    }
    let data = Buf::from_slice(&[0xa5; SMALL as usize]).freeze();
    for depth in [1, 16] {
        let ops = SMALL_OPS / if depth == 1 { 4 } else { 1 };
        let local = async |n| {
            op::write_at(fd, data.clone(), offset(n, size)).await.unwrap();
        };
        let (local, _) = measure(ops as f64, ops, in_flight(depth, ops, local)).await;
        let lane =
            measure(ops as f64, ops, in_flight(depth, ops, async |n| client.write(offset(n, size), &data).await)).await;
        show(&format!("4 KiB random write, {depth} in flight, /s"), lane, local);
    }
    client.sync().await;
}
