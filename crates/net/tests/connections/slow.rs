//! Who is slow keeps its connection; who is gone, or takes nothing of what it has asked for, does not.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use net::{Connection, Limits, To};
use wire::op::Ping;
use wire::v1::storage;

use crate::common::{MEMORY, Raw, aside, encode, identity, object, pattern, run, serve, until};

const LEN: usize = 300_000;

fn write(stripe: u32) -> storage::Write {
    storage::Write::new(object(stripe), 0)
}

/// And reads nothing.
fn asks_for_much(address: SocketAddr) -> Raw {
    let mut raw = Raw::connect(address);
    for request in 1..=40 {
        let frame = raw.frame(request, &storage::Read { object: object(1), offset: 0, length: 1 << 20 }, b"");
        raw.send(&frame);
    }
    raw
}

/// Less than the whole of [`send_slowly`] takes, and much more than is between two pieces.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Each time anew where this thread was too slow itself.
const TRIES: usize = 5;

/// In pieces, over some four seconds. Whether none came much later than the one before, for want of a CPU; that the other side
/// has given up shows when it should answer.
fn send_slowly(raw: &mut Raw, frame: &[u8]) -> bool {
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    for piece in frame.chunks(4 << 10) {
        let _ = raw.stream.write_all(piece);
        longest = longest.max(last.elapsed());
        last = Instant::now();
        std::thread::sleep(Duration::from_millis(50));
    }
    longest < PATIENCE / 2
}

#[test]
fn a_long_frame_may_come_slowly() {
    let limits = Limits { stall: PATIENCE, ..Limits::default() };
    run(async {
        let running = serve(limits);
        let address = running.address;
        for attempt in 1.. {
            let (steady, answered) = aside(move || {
                let mut raw = Raw::connect(address);
                let frame = raw.frame(1, &write(1), &vec![1; LEN]);
                (send_slowly(&mut raw, &frame), raw.read_frame().is_ok())
            })
            .await;
            if answered {
                break;
            }
            assert!(!steady && attempt < TRIES, "given up though it came steadily: {steady}");
        }
    });
}

#[test]
fn a_long_answer_may_come_slowly() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, was_steady) = mpsc::channel();
        std::thread::spawn(move || {
            for _ in 0..TRIES {
                let mut raw = Raw::accept(&listener);
                let (request, _, _) = raw.read_frame().unwrap();
                let reply = storage::ObjectReply { version: 1, size: LEN as u64 };
                let frame = raw.reply(&request, &encode(&reply), &vec![1; LEN]);
                let _ = sender.send(send_slowly(&mut raw, &frame));
            }
        });
        let limits = Limits { silence: PATIENCE, ..Limits::default() };
        for attempt in 1.. {
            let connection = Connection::connect(address, &identity(), &limits).await.unwrap();
            let read = storage::Read { object: object(1), offset: 0, length: LEN as u32 };
            if let Ok(answer) = connection.call_payload(To::default(), &read, Vec::new(), None).await {
                assert_eq!(answer.payload.len(), LEN);
                break;
            }
            let steady = was_steady.recv().unwrap();
            assert!(!steady && attempt < TRIES, "given up though it came steadily: {steady}");
        }
    });
}

#[test]
fn who_vanishes_with_a_request_under_way_is_given_up_and_who_asks_from_time_to_time_is_not() {
    for parks in [false, true] {
        let limits = Limits { idle: Duration::from_millis(800), ..Limits::default() };
        run(async {
            let running = serve(limits);
            running.store.hold.set(true);
            running.store.park.set(parks);
            let address = running.address;
            let lively = Limits { silence: Duration::from_millis(800), ..Limits::default() };
            let lively = Connection::connect(address, &identity(), &lively).await.unwrap();
            let waits = lively.clone();
            ring::spawn(async move { drop(waits.call_payload(To::default(), &write(1), Vec::new(), None).await) });
            let mut vanishes = aside(move || {
                let mut raw = Raw::connect(address);
                let frame = raw.frame(1, &write(2), b"data");
                raw.send(&frame);
                raw
            })
            .await;
            until(|| running.store.held.borrow().len() == 2).await;
            running.store.hold.set(false);
            assert!(aside(move || vanishes.is_closed_by_peer()).await, "parked: {parks}");
            assert!(!lively.is_closed(), "parked: {parks}");
            lively.call(To::default(), &Ping {}).await.unwrap();
            running.store.answer_held();
        });
    }
}

#[test]
fn who_takes_none_of_the_answers_to_what_it_asked_is_given_up() {
    let limits = Limits { stall: Duration::from_millis(400), requests: 8, ..Limits::default() };
    run(async {
        let running = serve(limits);
        running.store.objects.borrow_mut().insert(1, pattern(1 << 20, 1));
        let address = running.address;
        let begin = Instant::now();
        let _raw = aside(move || asks_for_much(address)).await;
        until(|| !running.store.disconnects.borrow().is_empty()).await;
        assert!(begin.elapsed() >= Duration::from_millis(400));
    });
}

#[test]
fn the_memory_of_an_answer_counts_until_it_has_left_but_not_for_long_for_who_does_not_take_it() {
    run(async {
        let running = serve(Limits::default());
        running.store.objects.borrow_mut().insert(1, pattern(1 << 20, 1));
        let (address, store) = (running.address, &running.store);
        let taken = || MEMORY - store.memory().available();
        let mut raw = aside(move || asks_for_much(address)).await;
        until(|| store.requests.get() == 40).await;
        ring::sleep(Duration::from_millis(200)).await;
        assert!(taken() >= 8 << 20, "{} bytes wait to be sent", taken());
        let begin = Instant::now();
        until(|| taken() == 0).await;
        assert!(begin.elapsed() >= Duration::from_secs(3), "given back after {:?}", begin.elapsed());
        aside(move || (0..40).for_each(|_| drop(raw.read_frame().unwrap()))).await;
    });
}
