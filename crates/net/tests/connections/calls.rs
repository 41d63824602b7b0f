//! Calls over loopback between two sides that keep to the rules.

use std::cell::Cell;
use std::net::TcpListener;
use std::rc::Rc;
use std::time::Duration;

use net::{CallError, Connection, Limits, To};
use ring::buf::{Buf, Slice};
use types::error::Errno;
use types::id::{Epoch, Generation, GroupId, InodeId};
use types::time::AccessTimes;
use wire::frame::{Header, Status, crc32c, flags};
use wire::op::Ping;
use wire::v1::{meta, storage};

use crate::common::{Raw, aside, encode, identity, object, pattern, run, serve, until};

async fn connect(running: &crate::common::Running, limits: &Limits) -> Connection {
    Connection::connect(running.address, &identity(), limits).await.unwrap()
}

fn write(stripe: u32) -> storage::Write {
    storage::Write::new(object(stripe), 0)
}

fn read(stripe: u32, length: usize) -> storage::Read {
    storage::Read { object: object(stripe), offset: 0, length: length as u32 }
}

/// Whether header and payload belong together: `None` where there is no checksum.
fn sum_fits(header: &Header, payload: &[u8]) -> Option<bool> {
    (header.flags & flags::CHECKED != 0).then(|| header.payload_crc == crc32c(payload))
}

#[test]
fn payloads_bear_checksums_unless_they_are_switched_off() {
    for payload_sums in [true, false] {
        let (limits, expected) = (Limits { payload_sums, ..Limits::default() }, payload_sums.then_some(true));
        run(async {
            let running = serve(limits.clone());
            let address = running.address;
            let data = pattern(300_001, 1);
            running.store.objects.borrow_mut().insert(1, data.clone());
            let (header, payload) = aside(move || {
                let mut raw = Raw::connect(address);
                let asked = raw.frame(1, &read(1, 1 << 20), b"");
                raw.send(&asked);
                let (header, _, payload) = raw.read_frame().unwrap();
                (header, payload)
            })
            .await;
            assert_eq!((sum_fits(&header, &payload), payload == data), (expected, true), "of a reply");

            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let taken = std::thread::spawn(move || {
                let mut raw = Raw::accept(&listener);
                let (header, _, payload) = raw.read_frame().unwrap();
                sum_fits(&header, &payload)
            });
            let connection = Connection::connect(address, &identity(), &limits).await.unwrap();
            let parts = vec![Slice::from_vec(data[..1001].to_vec()), Slice::from_vec(data[1001..].to_vec())];
            let lost = connection.call_payload(To::default(), &write(1), parts, None).await;
            assert!(matches!(lost, Err(CallError::Closed(_))));
            assert_eq!(taken.join().unwrap(), expected, "of a request");
        });
    }
}

#[test]
fn payloads_of_all_lengths_arrive_whole_both_ways() {
    run(async {
        let running = serve(Limits::default());
        let connection = connect(&running, &Limits::default()).await;
        let to = To { group: GroupId(77), generation: Generation(1), epoch: Epoch(1) };
        let lengths = [0, 1, 100, 4095, 4096, 4097, 16_383, 16_384, 40_000, 262_144, 300_000, 1 << 20, 8 << 20];
        for (stripe, &len) in lengths.iter().enumerate() {
            let stripe = stripe as u32;
            let data = pattern(len, stripe);
            let parts = vec![Slice::from_vec(data[..len / 3].to_vec()), Slice::from_vec(data[len / 3..].to_vec())];
            let answer = connection.call_payload(to, &write(stripe), parts, None).await.unwrap();
            assert_eq!((answer.message.size, answer.message.version), (len as u64, 77));
            assert_eq!((answer.payload.len(), answer.epoch), (0, Epoch(5)));

            let into = Buf::with_capacity(len + 10);
            let place = into.as_ptr();
            let answer = connection.call_payload(to, &read(stripe, len), Vec::new(), Some(into)).await.unwrap();
            let mut payload = answer.payload;
            assert!(payload[..] == data[..], "length {len}");
            payload.unsplit(answer.into_rest.unwrap()).unwrap();
            assert_eq!((payload.as_ptr(), payload.len()), (place, len + 10), "the caller's own buffer");

            let answer = connection.call_payload(to, &read(stripe, len), Vec::new(), None).await.unwrap();
            assert!(answer.payload[..] == data[..] && answer.into_rest.is_none());
        }
        assert_eq!(connection.epoch_seen(), Epoch(5));
        assert_eq!(*running.store.names.borrow(), ["tester"]);
    });
}

#[test]
fn parked_requests_hold_up_nobody_and_keep_their_connection() {
    run(async {
        let idle = Duration::from_secs(2);
        let running = serve(Limits { requests: 4, idle, ..Limits::default() });
        let store = Rc::clone(&running.store);
        // It asks twice in that time whether the service lives.
        let limits = Limits { requests: 4, silence: idle, ..Limits::default() };
        let connection = connect(&running, &limits).await;
        store.hold.set(true);
        store.park.set(true);
        let asked = ring::join_all((0..20).map(|stripe| {
            let connection = connection.clone();
            async move { connection.call_patiently(To::default(), &read(stripe, 1)).await }
        }));
        let releaser = Rc::clone(&store);
        let others = connection.clone();
        ring::spawn(async move {
            until(|| releaser.held.borrow().len() == 20).await;
            releaser.hold.set(false);
            assert!(others.call(To::default(), &Ping {}).await.is_ok());
            ring::sleep(idle * 3 / 2).await;
            releaser.answer_held();
        });
        for answer in asked.await {
            assert_eq!(answer.unwrap_err(), CallError::Status(Status::Errno(Errno::ENOENT)));
        }
        assert!(store.disconnects.borrow().is_empty());
    });
}

#[test]
fn many_in_flight_are_matched_though_answered_in_reverse() {
    run(async {
        let running = serve(Limits::default());
        let connection = connect(&running, &Limits::default()).await;
        let store = Rc::clone(&running.store);
        for stripe in 0..100 {
            store.objects.borrow_mut().insert(stripe, pattern(stripe as usize * 500, stripe));
        }
        store.hold.set(true);
        let asked = (0..100).map(|stripe| {
            let connection = connection.clone();
            async move { connection.call_payload(To::default(), &read(stripe, 1 << 20), Vec::new(), None).await }
        });
        let releaser = Rc::clone(&store);
        ring::spawn(async move {
            until(|| releaser.held.borrow().len() == 100).await;
            releaser.answer_held();
        });
        let answers = ring::join_all(asked).await;
        for (stripe, answer) in answers.into_iter().enumerate() {
            assert!(answer.unwrap().payload[..] == pattern(stripe * 500, stripe as u32)[..], "stripe {stripe}");
        }
        assert_eq!(connection.in_flight(), 0);
    });
}

#[test]
fn requests_and_bytes_over_the_callers_bounds_wait() {
    for (limits, in_flight) in
        [(Limits { requests: 4, ..Limits::default() }, 4), (Limits { bytes: 3 * 10_100, ..Limits::default() }, 3)]
    {
        run(async {
            let running = serve(Limits::default());
            let connection = connect(&running, &limits).await;
            let store = Rc::clone(&running.store);
            store.hold.set(true);
            let most = Rc::new(Cell::new(0));
            let (releaser, seen) = (Rc::clone(&store), Rc::clone(&most));
            ring::spawn(async move {
                loop {
                    ring::sleep(Duration::from_millis(5)).await;
                    seen.set(seen.get().max(releaser.held.borrow().len()));
                    releaser.answer_held();
                }
            });
            let calls = (0..50).map(|stripe| {
                let connection = connection.clone();
                let payload = vec![Slice::from_vec(vec![1; 10_000])];
                async move { connection.call_payload(To::default(), &write(stripe), payload, None).await.map(drop) }
            });
            assert!(ring::join_all(calls).await.iter().all(Result::is_ok));
            assert_eq!((store.requests.get(), most.get()), (50, in_flight));
        });
    }
}

#[test]
fn a_request_larger_than_the_bound_goes_alone() {
    run(async {
        let limits = Limits { bytes: 1000, ..Limits::default() };
        let running = serve(limits.clone());
        let connection = connect(&running, &limits).await;
        let payload = vec![Slice::from_vec(pattern(100_000, 1))];
        connection.call_payload(To::default(), &write(1), payload, None).await.unwrap();
        assert_eq!(
            connection.call_payload(To::default(), &read(1, 100_000), Vec::new(), None).await.unwrap().payload.len(),
            100_000
        );
    });
}

#[test]
fn failures_and_facts_come_back_as_they_are() {
    run(async {
        let running = serve(Limits::default());
        let connection = connect(&running, &Limits::default()).await;
        running.epoch.set(Epoch(9));
        let missing = connection.call(To::default(), &storage::Remove { object: object(1) }).await.unwrap_err();
        assert_eq!(missing, CallError::Status(Status::Errno(Errno::ENOENT)));
        assert_eq!(missing.errno(), Errno::ENOENT);
        assert_eq!(connection.epoch_seen(), Epoch(9), "also a failed reply tells the epoch");
        // The service drops this one's responder.
        let dropped = connection.call(To::default(), &storage::Sync { object: object(1), since: 0 }).await.unwrap_err();
        assert_eq!(dropped, CallError::Status(Status::Errno(Errno::EIO)));
        // Its reply is too long for a frame.
        let long = connection
            .call(To::default(), &meta::Readlink { inode: InodeId(1), accesses: AccessTimes::Relatime })
            .await
            .unwrap_err();
        assert_eq!(long, CallError::Status(Status::Errno(Errno::EOVERFLOW)));
        connection.call(To::default(), &Ping {}).await.unwrap();
    });
}

#[test]
fn a_request_too_long_for_a_frame_is_refused_here_and_harms_nothing() {
    run(async {
        let running = serve(Limits::default());
        let connection = connect(&running, &Limits::default()).await;
        let payload = vec![Slice::from_vec(vec![0; (8 << 20) + 1])];
        let error = connection.call_payload(To::default(), &write(1), payload, None).await.unwrap_err();
        assert!(matches!(error, CallError::Protocol(_)), "{error}");
        connection.call(To::default(), &Ping {}).await.unwrap();
        assert_eq!((connection.in_flight(), running.store.requests.get()), (0, 1));
    });
}

#[test]
fn a_caller_that_goes_away_leaves_the_connection_whole() {
    run(async {
        let running = serve(Limits::default());
        let limits = Limits { requests: 2, ..Limits::default() };
        let connection = connect(&running, &limits).await;
        running.store.objects.borrow_mut().insert(1, pattern(50_000, 1));
        running.store.hold.set(true);
        let into = Some(Buf::with_capacity(50_000));
        let message = read(1, 50_000);
        let call = connection.call_payload(To::default(), &message, Vec::new(), into);
        assert!(ring::timeout(Duration::from_millis(20), call).await.is_err());
        assert_eq!(connection.in_flight(), 1, "its reply is still to come");
        running.store.hold.set(false);
        running.store.answer_held();
        for _ in 0..5 {
            connection.call(To::default(), &Ping {}).await.unwrap();
        }
        assert_eq!(connection.in_flight(), 0);
    });
}

#[test]
fn the_last_handle_closes_the_connection() {
    run(async {
        let running = serve(Limits::default());
        let connection = connect(&running, &Limits::default()).await;
        let clone = connection.clone();
        drop(connection);
        clone.call(To::default(), &Ping {}).await.unwrap();
        assert!(running.store.disconnects.borrow().is_empty());
        drop(clone);
        until(|| running.store.disconnects.borrow().len() == 1).await;
    });
}

#[test]
fn messages_go_out_in_the_order_of_the_calls() {
    run(async {
        let running = serve(Limits::default());
        let connection = connect(&running, &Limits::default()).await;
        running.store.hold.set(true);
        for stripe in 0..20 {
            let connection = connection.clone();
            let payload = vec![Slice::from_vec(vec![0; stripe as usize * 1000])];
            ring::spawn(async move {
                let _ = connection.call_payload(To::default(), &write(stripe), payload, None).await;
            });
        }
        until(|| running.store.held.borrow().len() == 20).await;
        let bodies: Vec<Vec<u8>> = running.store.held.borrow().iter().map(|request| request.body.to_vec()).collect();
        assert_eq!(bodies, (0..20).map(|stripe| encode(&write(stripe))).collect::<Vec<_>>());
        let ids: Vec<u64> = running.store.held.borrow().iter().map(|request| request.header.request).collect();
        assert!(ids.is_sorted_by(|a, b| a < b));
    });
}

#[test]
fn a_connection_without_room_for_another_request_ends() {
    run(async {
        let running = serve(Limits::default());
        running.store.hold.set(true);
        running.store.park.set(true);
        let connection = connect(&running, &Limits::default()).await;
        // Who asks gives up, and asks again, while the server has no answer.
        for _ in 0..Limits::REQUESTS_MAX {
            let mut asking = Box::pin(connection.call_patiently(To::default(), &Ping {}));
            let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(asking.as_mut().poll(cx))).await;
            assert!(polled.is_pending());
        }
        assert_eq!(connection.in_flight(), Limits::REQUESTS_MAX);
        let refused = connection.call_patiently(To::default(), &Ping {}).await.unwrap_err();
        assert!(matches!(refused, CallError::Closed(_)), "{refused}");
        assert!(connection.is_closed());
        connect(&running, &Limits::default()).await;
    });
}
