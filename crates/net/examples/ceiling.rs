//! The network ceiling: our own connection layer answering nothing. A server thread answers `Ping`, and `Read` and
//! `Write` from memory; a client thread keeps requests in flight on one or more connections of loopback.
//!
//! `cargo run --release -p net --example ceiling -- [connections] [in flight per connection] [seconds] [only this work or ""] [spin us]`
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "an example for a terminal")]

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use net::{ClusterKey, Connection, Identity, Limits, Request, Service, To};
use ring::buf::{Buf, Slice};
use ring::{Config, Ring};
use types::id::{InodeId, ObjectId};
use wire::codec::decode_body;
use wire::op::{Op, Ping};
use wire::v1::session::Empty;
use wire::v1::storage::{ObjectReply, Read, Write};

fn identity() -> Identity {
    Identity { incarnation: 1, ..Identity::new(ClusterKey::from_bytes([7; 32]), "ceiling") }
}

struct Memory {
    data: Slice,
}

impl Service for Memory {
    fn on_request(self: &Rc<Self>, request: Request) {
        let answer = ObjectReply { version: 1, size: 0 };
        match request.header.op {
            Op::Read => {
                let read: Read = decode_body(&request.body).unwrap();
                request.responder.reply_payload(&answer, vec![self.data.slice(0..read.length as usize)]);
            }
            Op::Write => request.responder.reply(&answer),
            _ => request.responder.reply(&Empty {}),
        }
    }
}

fn ring_on(cpu: usize) -> Ring {
    let spin = std::env::args().nth(5).map_or(0, |us| us.parse().expect("microseconds"));
    Ring::new(&Config { cpu: Some(cpu), spin: Duration::from_micros(spin), ..Config::default() }).unwrap()
}

fn server(addresses: mpsc::Sender<SocketAddr>) {
    let mut ring = ring_on(0);
    ring.run(async move {
        let (listener, address) = ring::op::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        addresses.send(address).unwrap();
        let service = Rc::new(Memory { data: Buf::zeroed(1 << 20).freeze() });
        net::serve(listener, Rc::new(identity()), Limits::default(), Rc::default(), service).await;
    });
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Ping,
    Read(u32),
    Write(u32),
}

async fn one(connection: &Connection, work: Work, data: &Slice, spare: &mut Option<Buf>) {
    let object = ObjectId { inode: InodeId(1), stripe: 0 };
    match work {
        Work::Ping => drop(connection.call(To::default(), &Ping {}).await.unwrap()),
        Work::Read(length) => {
            let into = spare.take().unwrap_or_else(|| Buf::with_capacity(length as usize));
            let request = Read { object, offset: 0, length };
            let answer = connection.call_payload(To::default(), &request, Vec::new(), Some(into)).await.unwrap();
            assert_eq!(answer.payload.len(), length as usize);
            *spare = Some(answer.payload);
        }
        Work::Write(length) => {
            let request = Write::new(object, 0);
            let payload = vec![data.slice(0..length as usize)];
            connection.call_payload(To::default(), &request, payload, None).await.unwrap();
        }
    }
}

/// CPU time of (the main thread, all others), in nanoseconds: holds also where others load the machine.
fn cpu_ns() -> (u64, u64) {
    let mut total = (0, 0);
    let main = std::process::id().to_string();
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let ns: u64 = text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
        if task.file_name().to_string_lossy() == main { total.0 += ns } else { total.1 += ns }
    }
    total
}

/// Requests per second.
async fn measure(connections: &[Connection], in_flight: usize, work: Work, time: Duration) -> f64 {
    let done = Rc::new(Cell::new(0u64));
    let running = Rc::new(Cell::new(connections.len() * in_flight));
    let finished = Rc::new(RefCell::new(None));
    let (sender, receiver) = ring::sync::oneshot();
    *finished.borrow_mut() = Some(sender);
    let begin = Instant::now();
    let data = Buf::zeroed(1 << 20).freeze();
    for connection in connections {
        for _ in 0..in_flight {
            let (connection, data) = (connection.clone(), data.clone());
            let (done, running, finished) = (Rc::clone(&done), Rc::clone(&running), Rc::clone(&finished));
            ring::spawn(async move {
                let mut spare = None;
                while ring::now() - begin < time {
                    one(&connection, work, &data, &mut spare).await;
                    done.set(done.get() + 1);
                }
                running.set(running.get() - 1);
                if running.get() == 0 {
                    let sender: Option<ring::sync::Sender<()>> = finished.borrow_mut().take();
                    sender.unwrap().send(());
                }
            });
        }
    }
    receiver.await;
    done.get() as f64 / begin.elapsed().as_secs_f64()
}

fn main() {
    let only = std::env::args().nth(4).unwrap_or_default();
    let mut arguments = std::env::args().skip(1).take(3).map(|argument| argument.parse::<usize>().expect("a number"));
    let connections = arguments.next().unwrap_or(1);
    let in_flight = arguments.next().unwrap_or(64);
    let time = Duration::from_secs(arguments.next().unwrap_or(2) as u64);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || server(sender));
    let address = receiver.recv().unwrap();
    let mut ring = ring_on(1);
    ring.run(async move {
        let mut open = Vec::new();
        for _ in 0..connections {
            open.push(Connection::connect(address, &identity(), &Limits::default()).await.unwrap());
        }
        println!("{connections} connection(s), {in_flight} in flight each");
        let sizes = [4 << 10, 64 << 10, 1 << 20];
        let works = [Work::Ping].into_iter().chain(sizes.map(Work::Read)).chain(sizes.map(Work::Write));
        for work in works.filter(|work| format!("{work:?}").starts_with(&only)) {
            let before = cpu_ns();
            let begin = Instant::now();
            let rate = measure(&open, in_flight, work, time).await;
            let requests = rate * begin.elapsed().as_secs_f64();
            let after = cpu_ns();
            let client = (after.0 - before.0) as f64 / 1e3 / requests;
            let server = (after.1 - before.1) as f64 / 1e3 / requests;
            let bytes = match work {
                Work::Ping => 0,
                Work::Read(length) | Work::Write(length) => length,
            };
            let megabytes = rate * f64::from(bytes) / 1e6;
            println!(
                "{:<16} {rate:>9.0} /s {megabytes:>7.0} MB/s; CPU us per request: client {client:.2}, server {server:.2}",
                format!("{work:?}"),
            );
        }
    });
}
