//! What registering files and buffers with a ring saves, in CPU per request of a file ring as lanes have them:
//! `cargo run --release -p ring --example registered -- DIR [ROUNDS]`
//!
//! All ways take turns in each round; the figures are medians over the rounds, of user and system time of the whole process.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement for people")]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use io_uring::squeue::Entry;
use io_uring::{IoUring, opcode, types};
use ring::buf::Buf;

const FILE_LEN: u64 = 64 << 20;
const DEPTH: usize = 8;

#[derive(Clone, Copy)]
enum Way {
    Plain,
    File,
    FileAndBuffer,
}

#[derive(Clone, Copy)]
struct Work {
    name: &'static str,
    len: usize,
    direct: bool,
    write: bool,
    count: usize,
}

const ALL: [Work; 6] = [
    Work { name: "4 KiB read, cached", len: 4096, direct: false, write: false, count: 100_000 },
    Work { name: "4 KiB read, direct", len: 4096, direct: true, write: false, count: 10_000 },
    Work { name: "4 KiB write, direct", len: 4096, direct: true, write: true, count: 5_000 },
    Work { name: "1 MiB read, cached", len: 1 << 20, direct: false, write: false, count: 2_000 },
    Work { name: "1 MiB read, direct", len: 1 << 20, direct: true, write: false, count: 300 },
    Work { name: "1 MiB write, direct", len: 1 << 20, direct: true, write: true, count: 300 },
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().expect("usage: registered DIR [ROUNDS]");
    let rounds = arguments.next().map_or(7, |text| text.parse().unwrap());
    let path = Path::new(&dir).join("registered.tmp");
    let mut file = File::create(&path).unwrap();
    (0..FILE_LEN >> 20).for_each(|_| file.write_all(&[7; 1 << 20]).unwrap());
    file.sync_all().unwrap();
    println!("{:24} {:>10} {:>10} {:>10}   CPU us per request", "work", "plain", "file", "and buffer");
    for work in ALL {
        let flags = if work.direct { libc::O_DIRECT } else { 0 };
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path).unwrap();
        let mut bench = Bench::new(&file, work);
        let mut seen = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..=rounds {
            for (way, seen) in [Way::Plain, Way::File, Way::FileAndBuffer].into_iter().zip(&mut seen) {
                let cost = bench.run(way);
                // The first one warms up.
                if round > 0 {
                    seen.push(cost);
                }
            }
        }
        let median = |mut costs: Vec<f64>| {
            costs.sort_by(f64::total_cmp);
            costs[costs.len() / 2]
        };
        let [plain, file, both] = seen.map(median);
        println!("{:24} {plain:10.2} {file:10.2} {both:10.2}", work.name);
    }
    std::fs::remove_file(path).unwrap();
}

struct Bench {
    ring: IoUring,
    fd: i32,
    work: Work,
    bufs: Vec<Buf>,
    state: u64,
}

impl Bench {
    fn new(file: &File, work: Work) -> Self {
        let mut builder = IoUring::builder();
        let ring = builder.setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag().build(64).unwrap();
        let mut bufs: Vec<Buf> = (0..DEPTH).map(|_| Buf::with_whole_pages(work.len)).collect();
        let vectors: Vec<libc::iovec> =
            bufs.iter_mut().map(|buf| libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() }).collect();
        ring.submitter().register_files(&[file.as_raw_fd()]).unwrap();
        // SAFETY: the buffers live as long as the ring, and nothing but the kernel touches them.
        unsafe { ring.submitter().register_buffers(&vectors).unwrap() };
        Self { ring, fd: file.as_raw_fd(), work, bufs, state: 1 }
    }

    fn entry(&mut self, way: Way, index: usize) -> Entry {
        let Work { len, write, .. } = self.work;
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let offset = (self.state >> 20) % (FILE_LEN / len as u64) * len as u64;
        let (start, bytes, number) = (self.bufs[index].as_mut_ptr(), len as u32, index as u16);
        let (plain, fixed) = (types::Fd(self.fd), types::Fixed(0));
        let entry = match (way, write) {
            (Way::Plain, false) => opcode::Read::new(plain, start, bytes).offset(offset).build(),
            (Way::Plain, true) => opcode::Write::new(plain, start, bytes).offset(offset).build(),
            (Way::File, false) => opcode::Read::new(fixed, start, bytes).offset(offset).build(),
            (Way::File, true) => opcode::Write::new(fixed, start, bytes).offset(offset).build(),
            (Way::FileAndBuffer, false) => opcode::ReadFixed::new(fixed, start, bytes, number).offset(offset).build(),
            (Way::FileAndBuffer, true) => opcode::WriteFixed::new(fixed, start, bytes, number).offset(offset).build(),
        };
        entry.user_data(index as u64)
    }

    fn push(&mut self, way: Way, index: usize) {
        let entry = self.entry(way, index);
        // SAFETY: the buffer of this index is not in use, and lives as long as the ring.
        unsafe { self.ring.submission().push(&entry).unwrap() };
    }

    /// CPU microseconds per request.
    fn run(&mut self, way: Way) -> f64 {
        let begun = cpu_us();
        (0..DEPTH).for_each(|index| self.push(way, index));
        let (mut begun_count, mut done) = (DEPTH, 0);
        while done < begun_count {
            self.ring.submit_and_wait(1).unwrap();
            let completed: Vec<(u64, i32)> =
                self.ring.completion().map(|one| (one.user_data(), one.result())).collect();
            for (index, result) in completed {
                assert_eq!(result, self.work.len as i32, "{}", self.work.name);
                done += 1;
                if begun_count < self.work.count {
                    begun_count += 1;
                    self.push(way, index as usize);
                }
            }
        }
        (cpu_us() - begun) / done as f64
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
