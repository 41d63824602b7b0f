//! What the shard costs beside its store, printed:
//! `cargo test --release -p namespace --test one_shard -- --ignored speed --nocapture`

use std::ops::ControlFlow;

use kv::{Batch, Kv, KvError, Syncer};
use namespace::shard::Shard;
use namespace::view::{Create, Exactly, Looked};
use types::attr::FileType;
use types::cred::Conditions;
use types::name::Name;
use types::time::Timestamp;

use crate::common::{A, CRED, ROOT, config, pools};

/// A store that has nothing and forgets everything: what is left is the shard's own work.
struct Nothing;

#[derive(Default)]
struct Sink {
    bytes: Vec<u8>,
    changes: usize,
}

struct NoSyncer;

impl Kv for Nothing {
    type Batch = Sink;
    type Syncer = NoSyncer;

    fn get<R>(&self, _: &[u8], read: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, KvError> {
        Ok(read(None))
    }

    fn scan(&self, _: &[u8], _: &[u8], _: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<(), KvError> {
        Ok(())
    }

    fn batch(&self) -> Sink {
        Sink::default()
    }

    fn commit(&self, batch: &mut Sink) -> Result<(), KvError> {
        std::hint::black_box(&batch.bytes);
        batch.clear();
        Ok(())
    }

    fn syncer(&self) -> NoSyncer {
        NoSyncer
    }
}

impl Batch for Sink {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.changes += 1;
    }

    fn delete(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.changes += 1;
    }

    fn len(&self) -> usize {
        self.changes
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.changes = 0;
    }
}

impl Syncer for NoSyncer {
    fn sync(&self) -> Result<(), KvError> {
        Ok(())
    }
}

/// Nanoseconds on a CPU of this thread: true on a busy machine too.
fn cpu_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|text| text.parse().ok()).expect("a number")
}

#[expect(clippy::print_stdout, reason = "that is what it is for")]
fn measure(what: &str, count: u64, mut work: impl FnMut(u64)) {
    let start = cpu_ns();
    for n in 0..count {
        work(n);
    }
    let each = (cpu_ns() - start) / count as f64;
    println!("{what}: {each:.0} ns of CPU each, {:.2} M/s", 1000.0 / each);
}

#[test]
#[ignore = "prints figures"]
fn speed() {
    const COUNT: u64 = 1 << 20;
    const PER_DIRECTORY: u64 = 10_000;
    let mut shard = Shard::open(Nothing, config(), Timestamp(1), 0).expect("opens");
    shard.set_pools(pools());
    shard.session_open(A, b"").expect("opens");
    let mut sequence = 0;
    let directory = |shard: &mut Shard<Nothing>, sequence: u64| {
        let exactly = Exactly { session: A, sequence, answered_below: sequence, given: Conditions::default() };
        let name = Name::new(format!("directory{sequence}").as_bytes()).expect("valid");
        let made = shard.mkdir(exactly, ROOT, &name, 0o755, CRED).expect("made").attr.inode;
        shard.commit().expect("commits");
        made
    };
    let names: Vec<Name> = (0..COUNT).map(|n| Name::new(format!("file{n:08}").as_bytes()).expect("valid")).collect();
    for open in [false, true] {
        let mut directories = Vec::new();
        measure(&format!("create in batches of 64, open: {open}"), COUNT, |n| {
            if n % PER_DIRECTORY == 0 {
                sequence += 1;
                directories.push(directory(&mut shard, sequence));
            }
            sequence += 1;
            let exactly = Exactly {
                session: A,
                sequence,
                answered_below: sequence.saturating_sub(64).max(1),
                given: Conditions::default(),
            };
            let name = &names[n as usize];
            let create = Create {
                parent: directories[directories.len() - 1],
                name,
                kind: FileType::Regular,
                mode: 0o644,
                rdev: 0,
                cred: CRED,
                open,
                write_intent: false,
                exclusive: true,
                draft: false,
            };
            let made = shard.create(exactly, &create).map(|view| view.attr.inode);
            if open && let Ok(inode) = made {
                shard.close_inode(A, inode, None).expect("closes");
            }
            if n % 64 == 63 {
                shard.commit().expect("commits");
            }
        });
        let parent = |n: u64| directories[(n / PER_DIRECTORY) as usize];
        let inode = shard
            .lookup(A, parent(COUNT - 1), &names[COUNT as usize - 1])
            .and_then(Looked::found)
            .expect("in memory")
            .attr
            .inode;
        measure("getattr of a hot inode", COUNT, |n| {
            let view = shard.getattr(A, types::id::InodeId(inode.0 - n % 1000)).expect("in memory");
            std::hint::black_box(view);
        });
        measure("lookup of a hot name", COUNT, |n| {
            let at = COUNT - 1 - n % 1000;
            std::hint::black_box(shard.lookup(A, parent(at), &names[at as usize]).expect("in memory"));
        });
    }
}
