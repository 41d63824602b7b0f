//! Measures what checksums cost a storage lane: the same work with and without them, in turns, in this process:
//! `cargo run --release -p storaged --example sums_cost -- DIR [MIB] [ROUNDS]`
//!
//! One object per target of four, MIB in all; each figure is the median over the rounds. CPU time is that of all threads but
//! the client's: the lane, and the kernel's workers for its rings.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use net::{ClusterKey, Connection, Identity, Limits, To};
use ring::buf::{Buf, Slice};
use storaged::local::{LocalConfig, LocalNode};
use types::id::{GroupId, InodeId, ObjectId};
use wire::v1::storage::{Read, Write};

const MIB: u64 = 1 << 20;
const TARGETS: u64 = 4;
const SMALL: u64 = 4096;

/// Name, bytes of a request, requests in flight, whether it writes, whether at random places.
const WORK: [(&str, u64, u64, bool, bool); 6] = [
    ("write 4 KiB random, 1 in flight", SMALL, 1, true, true),
    ("write 4 KiB random, 16 in flight", SMALL, 16, true, true),
    ("read 4 KiB random, 1 in flight", SMALL, 1, false, true),
    ("read 4 KiB random, 16 in flight", SMALL, 16, false, true),
    ("write 512 KiB in order, 4 in flight", 512 << 10, 4, true, false),
    ("read 512 KiB in order, 4 in flight", 512 << 10, 4, false, false),
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().expect("usage: sums_cost DIR [MIB] [ROUNDS]"));
    let mut number = |default: u64| arguments.next().map_or(default, |text| text.parse().unwrap());
    let (size, rounds) = (number(512) * MIB, number(7));
    let sides: Vec<(LocalNode, Vec<PathBuf>)> = [false, true].into_iter().map(|on| start(&dir, on)).collect();
    ring::Ring::new(&ring::Config::default()).unwrap().run(async {
        let mut clients = Vec::new();
        for (node, _) in &sides {
            clients.push(Client::connect(node).await);
        }
        // In small pieces: how large the kernel's folios are decides what a small write costs.
        for client in &clients {
            client.work(SMALL, 16, true, false, size, size / SMALL).await;
        }
        println!(
            "{:38} {:>10} {:>10} {:>7}   {:>10} {:>10} {:>7}",
            "work", "off us", "on us", "", "off /s", "on /s", ""
        );
        for (name, len, depth, writes, random) in WORK {
            let ops = if random { 20_000 } else { size / len };
            let mut found = [Vec::new(), Vec::new()];
            for _ in 0..rounds {
                for (client, found) in clients.iter().zip(&mut found) {
                    let (begun, cpu) = (Instant::now(), server_cpu_ns());
                    client.work(len, depth, writes, random, size, ops).await;
                    let elapsed = begun.elapsed().as_secs_f64();
                    found.push(((server_cpu_ns() - cpu) as f64 / 1e3 / ops as f64, ops as f64 / elapsed));
                }
            }
            let [off, on] = found.map(|found| (median(found.iter().map(|f| f.0)), median(found.iter().map(|f| f.1))));
            let (cpu, speed) = (100.0 * (on.0 / off.0 - 1.0), 100.0 * (on.1 / off.1 - 1.0));
            let (a, b, c, d) = (off.0, on.0, off.1, on.1);
            println!("{name:38} {a:10.2} {b:10.2} {cpu:+6.1}%   {c:10.0} {d:10.0} {speed:+6.1}%");
        }
    });
    for (node, targets) in sides {
        node.stop().unwrap();
        targets.iter().for_each(|target| fs::remove_dir_all(target).unwrap());
    }
}

fn start(dir: &std::path::Path, on: bool) -> (LocalNode, Vec<PathBuf>) {
    let targets: Vec<PathBuf> = (1..=TARGETS).map(|n| dir.join(format!("sums-{on}-{n}"))).collect();
    targets.iter().for_each(|target| fs::create_dir_all(target).unwrap());
    let mut config = LocalConfig::new(targets.clone(), ClusterKey::from_bytes([1; 32]));
    config.checksums = on;
    // All by way of the page cache: what decides between the two ways would decide otherwise on the two sides.
    config.direct_min = u64::MAX;
    (LocalNode::start(&config).unwrap(), targets)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds on a CPU of all threads but this one.
fn server_cpu_ns() -> u64 {
    let own = fs::read_link("/proc/thread-self").unwrap();
    let time = |task: &PathBuf| {
        let text = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0)
    };
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten().map(|entry| entry.path());
    tasks.filter(|task| task.file_name() != own.file_name()).map(|task| time(&task)).sum()
}

struct Client {
    lane: Connection,
    to: To,
}

impl Client {
    async fn connect(node: &LocalNode) -> Self {
        let map = node.map();
        let key = ClusterKey::from_bytes([1; 32]);
        let identity = Identity::new(key, "bench");
        let address = map.route_lane(GroupId(1), 0).unwrap().addresses[0];
        let lane = Connection::connect(address, &identity, &Limits::default()).await.unwrap();
        let generation = map.groups[&GroupId(1)].generation;
        Self { lane, to: To { group: GroupId(1), generation, epoch: map.epoch } }
    }

    async fn work(&self, len: u64, depth: u64, writes: bool, random: bool, size: u64, ops: u64) {
        let data = Buf::from_slice(&vec![0x5a; len as usize]).freeze();
        let data = &data;
        ring::join_all((0..depth).map(|first| async move {
            for n in (first..ops).step_by(depth as usize) {
                let place = if random { n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20 } else { n };
                self.one(place % (size / len) * len, len, writes.then_some(data)).await;
            }
        }))
        .await;
    }

    /// Pieces of 512 KiB go round over the targets.
    async fn one(&self, offset: u64, len: u64, data: Option<&Slice>) {
        let chunk = 512 << 10;
        let (number, within) = (offset / chunk, offset % chunk);
        let to = To { group: GroupId((number % TARGETS) as u32 + 1), ..self.to };
        let (object, offset) = (ObjectId { inode: InodeId(4096), stripe: 0 }, number / TARGETS * chunk + within);
        match data {
            Some(data) => {
                let request = Write::new(object, offset);
                self.lane.call_payload(to, &request, vec![data.clone()], None).await.unwrap();
            }
            None => {
                let request = Read { object, offset, length: len as u32 };
                let into = Some(Buf::with_capacity(len as usize));
                let answer = self.lane.call_payload(to, &request, Vec::new(), into).await.unwrap();
                assert_eq!(answer.payload.len() as u64, len);
            }
        }
    }
}
