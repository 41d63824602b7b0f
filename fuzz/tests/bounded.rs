//! Every target on its corpus and on mutations of it, the same ones each time.

use std::path::Path;

struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    // At run time: one build may serve several checkouts.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").expect("`cargo test` sets it");
    let folder = Path::new(&manifest).join("corpus").join(target);
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("a corpus").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).expect("a readable file")).collect()
}

fn mutate(input: &[u8], random: &mut Random) -> Vec<u8> {
    const INTERESTING: [u8; 6] = [0, 1, 2, 0x7f, 0x80, 0xff];
    let mut data = input.to_vec();
    for _ in 0..1 + random.next() % 4 {
        let at = random.next() % (data.len() + 1);
        match random.next() % 6 {
            0 => data.truncate(at),
            1 => data.insert(at, random.next() as u8),
            2 if !data.is_empty() => {
                let (from, to) = (random.next() % data.len(), at);
                let piece = data[from.min(to)..from.max(to)].to_vec();
                data.extend(piece);
            }
            3 if at < data.len() => data[at] = INTERESTING[random.next() % INTERESTING.len()],
            4 if at < data.len() => data[at] ^= 1 << (random.next() % 8),
            _ => (0..random.next() % 50).for_each(|_| data.push(random.next() as u8)),
        }
    }
    data.truncate(4096);
    data
}

fn explore(target: &str, rounds: usize) {
    let (_, run) = fuzz::TARGETS.iter().find(|(name, _)| *name == target).expect("a target");
    let corpus = corpus(target);
    assert!(!corpus.is_empty());
    corpus.iter().for_each(|input| run(input));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..rounds {
        let data = mutate(&corpus[round % corpus.len()], &mut random);
        if std::panic::catch_unwind(|| run(&data)).is_err() {
            panic!("target {target} fails on {data:02x?}");
        }
    }
}

#[test]
fn header() {
    explore("header", 50_000);
}

#[test]
fn hello() {
    explore("hello", 50_000);
}

#[test]
fn message() {
    explore("message", 100_000);
}

#[test]
fn receive() {
    explore("receive", 2_000);
}

#[test]
fn handshake() {
    explore("handshake", 200);
}

#[test]
fn place() {
    explore("place", 20_000);
}

#[test]
fn control() {
    explore("control", 10_000);
}

#[test]
fn records() {
    explore("records", 10_000);
}

#[test]
fn kernel() {
    explore("kernel", 100_000);
}

#[test]
fn every_target_has_a_test_and_a_corpus() {
    let names: Vec<&str> = fuzz::TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["header", "hello", "message", "receive", "handshake", "place", "control", "records", "kernel"]);
    assert!(names.iter().all(|name| !corpus(name).is_empty()));
}
