//! Ends that break the rules: each loses its connection, with one log line, and nobody else notices.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use net::handshake::HandshakeError;
use net::places::Places;
use net::{CallError, ConnectError, Connection, Limits, To};
use ring::buf::Buf;
use wire::frame::{Header, crc32c, flags};
use wire::op::{Op, Ping};
use wire::v1::storage;

use crate::common::log::Warnings;
use crate::common::{Raw, Running, aside, encode, identity, identity_of, object, pattern, run, serve, until};

const WRITE: storage::Write = storage::Write {
    object: types::id::ObjectId { inode: types::id::InodeId(9), stripe: 1 },
    offset: 0,
    unchanged_since: 0,
    at: types::time::Timestamp(0),
    not_before: types::time::Timestamp(0),
    durable: false,
};

/// What a hostile caller sends after its handshake, and the reason that must be logged for it.
type Attack = (fn(&Raw) -> Vec<u8>, &'static str);

const ATTACKS: &[Attack] = &[
    (|_| vec![0xab; 64], "does not speak Weft"),
    (|raw| raw.changed(1, &Ping {}, b"", |header| header.body_crc ^= 1), "body checksum"),
    (
        |raw| {
            let mut other = raw.frame(1, &Ping {}, b"");
            other[60] ^= 1;
            other
        },
        "header checksum",
    ),
    (|raw| raw.changed(1, &Ping {}, b"", |header| header.version = 2), "version 2 was not negotiated"),
    (|raw| raw.changed(1, &Ping {}, b"", |header| header.body_len = u32::MAX), "body of 4294967295 bytes"),
    (|raw| raw.changed(1, &WRITE, b"", |header| header.payload_len = 9 << 20), "payload of 9437184 bytes"),
    (|raw| raw.changed(1, &Ping {}, b"", |header| header.flags = flags::REPLY), "a reply where only requests come"),
    (|raw| raw.changed(1, &Ping {}, b"", |header| header.flags = 0x80), "unknown flags"),
    (|raw| [raw.frame(7, &Ping {}, b""), raw.frame(7, &Ping {}, b"")].concat(), "does not rise"),
    (|raw| [raw.frame(7, &Ping {}, b""), raw.frame(3, &Ping {}, b"")].concat(), "does not rise"),
    (
        |raw| raw.changed(1, &WRITE, &[1; 300_000], |header| header.flags = flags::CHECKED),
        "payload checksum does not match",
    ),
    (
        |raw| raw.changed(1, &WRITE, &[1; 300], |header| header.flags = flags::CHECKED),
        "payload checksum does not match",
    ),
    (
        |raw| raw.changed(1, &Ping {}, &[1; 300], |header| header.flags = flags::CHECKED),
        "payload checksum does not match",
    ),
];

async fn healthy(running: &Running) -> Connection {
    Connection::connect(running.address, &identity(), &Limits::default()).await.unwrap()
}

async fn ping(connection: &Connection) {
    connection.call(To::default(), &Ping {}).await.unwrap();
}

#[test]
fn a_caller_that_breaks_the_protocol_loses_its_connection_and_only_that() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    run(async {
        let running = serve(Limits::default());
        let bystander = healthy(&running).await;
        for (at, (attack, reason)) in ATTACKS.iter().enumerate() {
            let address = running.address;
            let attacker = aside(move || {
                let mut raw = Raw::connect(address);
                let bytes = attack(&raw);
                // The server may close while this is still sending.
                let _ = raw.stream.write_all(&bytes);
                let mine = raw.stream.local_addr().unwrap();
                while !raw.is_closed_by_peer() {}
                mine
            })
            .await;
            until(|| running.store.disconnects.borrow().len() == at + 1).await;
            let logged = warnings.take();
            assert_eq!(logged.len(), 1, "{reason}: {logged:?}");
            assert!(logged[0].contains(reason) && logged[0].contains(&attacker.to_string()), "{logged:?}");
            assert!(logged[0].contains("tester"), "{logged:?}");
            ping(&bystander).await;
        }
    });
}

#[test]
fn a_frame_of_another_connection_is_refused() {
    run(async {
        let running = serve(Limits::default());
        let address = running.address;
        aside(move || {
            let mut first = Raw::connect(address);
            let recorded = first.frame(1, &Ping {}, b"");
            first.send(&recorded);
            first.read_frame().unwrap();
            let mut second = Raw::connect(address);
            second.send(&recorded);
            assert!(second.is_closed_by_peer());
        })
        .await;
        assert_eq!(running.store.requests.get(), 1);
    });
}

#[test]
fn a_stream_that_ends_anywhere_in_a_frame_executes_nothing() {
    run(async {
        let running = serve(Limits::default());
        let bystander = healthy(&running).await;
        let address = running.address;
        for cut in [1, 63, 64, 70, 92, 20_000, 300_000] {
            aside(move || {
                let mut raw = Raw::connect(address);
                let frame = raw.frame(1, &WRITE, &[1; 300_000]);
                raw.send(&frame[..cut]);
            })
            .await;
        }
        until(|| running.store.disconnects.borrow().len() == 7).await;
        assert_eq!(running.store.requests.get(), 0);
        ping(&bystander).await;
    });
}

#[test]
fn a_caller_stuck_in_a_frame_or_silent_is_given_up_and_a_calling_one_is_kept() {
    let limits = Limits { stall: Duration::from_millis(200), idle: Duration::from_millis(3000), ..Limits::default() };
    run(async {
        let running = serve(limits);
        let address = running.address;
        let pinging = Limits { silence: Duration::from_millis(4000), ..Limits::default() };
        let lively = Connection::connect(address, &identity(), &pinging).await.unwrap();
        let closed_after = move |bytes: usize| {
            let begin = Instant::now();
            let mut raw = Raw::connect(address);
            let frame = raw.frame(1, &WRITE, &[1; 300_000]);
            raw.send(&frame[..bytes]);
            assert!(raw.is_closed_by_peer());
            begin.elapsed()
        };
        for bytes in [10, 80, 200_000] {
            let after = aside(move || closed_after(bytes)).await;
            assert!((200..2500).contains(&after.as_millis()), "{after:?}");
        }
        let after = aside(move || closed_after(0)).await;
        assert!(after.as_millis() >= 3000, "{after:?}");
        assert!(!lively.is_closed());
        ping(&lively).await;
    });
}

#[test]
fn a_reader_that_does_not_read_is_bounded_and_blocks_nobody() {
    run(async {
        let limits = Limits { requests: 8, bytes: 16 << 20, ..Limits::default() };
        let running = serve(limits);
        running.store.objects.borrow_mut().insert(1, pattern(1 << 20, 1));
        let address = running.address;
        let (mut raw, sent) = aside(move || {
            let mut raw = Raw::connect(address);
            raw.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
            let read = storage::Read { object: object(1), offset: 0, length: 1 << 20 };
            let mut sent = 0u64;
            while sent < 200 {
                let frame = raw.frame(sent + 1, &read, b"");
                raw.send(&frame);
                sent += 1;
            }
            (raw, sent)
        })
        .await;
        ring::sleep(Duration::from_millis(100)).await;
        let taken = running.store.requests.get();
        assert!(taken < 60, "{taken} requests taken: more than the socket buffers and the bound can hold");
        let other = healthy(&running).await;
        let begin = Instant::now();
        ping(&other).await;
        assert!(begin.elapsed() < Duration::from_secs(3));
        // It begins to read: all of its answers come, none is lost.
        let answered = aside(move || (0..sent).filter(|_| raw.read_frame().unwrap().2.len() == 1 << 20).count()).await;
        assert_eq!(answered as u64, sent);
    });
}

#[test]
fn requests_over_the_servers_bound_wait_in_the_socket() {
    for limits in [Limits { requests: 4, ..Limits::default() }, Limits { bytes: 100_000, ..Limits::default() }] {
        run(async {
            let running = serve(limits);
            running.store.hold.set(true);
            let address = running.address;
            let mut raw = aside(move || {
                let mut raw = Raw::connect(address);
                for request in 1..=50 {
                    let frame = raw.frame(request, &WRITE, &[1; 25_000]);
                    raw.send(&frame);
                }
                raw
            })
            .await;
            ring::sleep(Duration::from_millis(50)).await;
            assert_eq!(running.store.requests.get(), 4);
            let store = Rc::clone(&running.store);
            ring::spawn(async move {
                while store.requests.get() < 50 || !store.held.borrow().is_empty() {
                    store.answer_held();
                    ring::sleep(Duration::from_millis(1)).await;
                }
            });
            aside(move || (0..50).for_each(|_| drop(raw.read_frame().unwrap()))).await;
            assert_eq!(running.store.requests.get(), 50);
        });
    }
}

/// What a hostile service answers to a `Read` of 1000 bytes, and what the caller must make of it.
type Reply = (fn(&Raw, &Header) -> Vec<u8>, &'static str);

const REPLIES: &[Reply] = &[
    (|raw, request| raw.reply(&Header { request: request.request + 1, ..*request }, b"", b""), "reply to no request"),
    (|raw, request| raw.reply(&Header { op: Op::Write, ..*request }, b"", b""), "reply of Write to a request of Read"),
    (|raw, request| raw.reply(request, &object_reply(), &[1; 1001]), "1001 bytes where 1000 were asked for"),
    (|raw, request| raw.reply(request, &object_reply(), &[1; 100_000]), "100000 bytes where 1000"),
    (|raw, request| raw.reply(request, b"short", b""), "does not decode"),
    (|raw, request| checked_reply(raw, request, 10), "payload checksum does not match"),
    (|raw, request| checked_reply(raw, request, 1000), "payload checksum does not match"),
    (|raw, request| raw.frame(request.request, &Ping {}, b""), "a request where only replies come"),
    (|_, _| b"HTTP/1.1 200 OK\r\n\r\n".repeat(4), "does not speak Weft"),
    (|raw, request| raw.reply(request, &object_reply(), &[1; 1000])[..500].to_vec(), "middle of a frame"),
    (|raw, request| raw.reply(request, &object_reply(), &[1; 1000])[..30].to_vec(), "middle of a frame"),
    (|_, _| Vec::new(), "has closed"),
];

/// With a checksum that is not that of the payload.
fn checked_reply(raw: &Raw, request: &Header, len: usize) -> Vec<u8> {
    let flags = flags::REPLY | flags::CHECKED;
    let mut header = Header { flags, payload_len: len as u32, payload_crc: 7, ..*request };
    let body = object_reply();
    (header.body_len, header.body_crc) = (body.len() as u32, crc32c(&body));
    [&header.encode(raw.established.seed)[..], &body, &vec![1; len]].concat()
}

fn object_reply() -> Vec<u8> {
    encode(&storage::ObjectReply { version: 1, size: 1000 })
}

#[test]
fn a_service_that_breaks_the_protocol_fails_the_calls_of_its_connection() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for (reply, _) in REPLIES {
                let mut raw = Raw::accept(&listener);
                let (request, _, _) = raw.read_frame().unwrap();
                let bytes = reply(&raw, &request);
                raw.send(&bytes);
            }
        });
        for (_, reason) in REPLIES {
            let connection = Connection::connect(address, &identity(), &Limits::default()).await.unwrap();
            let read = storage::Read { object: object(1), offset: 0, length: 1000 };
            let into = Some(Buf::with_capacity(1000));
            let error = connection.call_payload(To::default(), &read, Vec::new(), into).await.unwrap_err();
            assert!(error.to_string().contains(reason), "{reason}: {error}");
            assert!(connection.is_closed());
            let again = connection.call(To::default(), &Ping {}).await.unwrap_err();
            assert!(matches!(again, CallError::Closed(_)), "{again}");
        }
    });
}

#[test]
fn a_service_that_says_nothing_is_given_up() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (keep, kept) = std::sync::mpsc::channel();
        std::thread::spawn(move || keep.send(Raw::accept(&listener)));
        let limits = Limits { silence: Duration::from_millis(300), ..Limits::default() };
        let connection = Connection::connect(address, &identity(), &limits).await.unwrap();
        let begin = Instant::now();
        let error = connection.call(To::default(), &Ping {}).await.unwrap_err();
        assert!(error.to_string().contains("nothing heard"), "{error}");
        assert!((300..5000).contains(&begin.elapsed().as_millis()));
        drop(kept);
    });
}

#[test]
fn who_cannot_prove_the_key_is_refused_on_both_sides() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    run(async {
        let running = serve(Limits::default());
        let error = Connection::connect(running.address, &identity_of(2, 0), &Limits::default()).await.err().unwrap();
        assert!(error.is_permanent() && error.to_string().contains("does not hold this cluster's key"), "{error}");
        let mut other = identity();
        other.cluster = "another".to_owned();
        let error = Connection::connect(running.address, &other, &Limits::default()).await.err().unwrap();
        assert!(error.is_permanent() && error.to_string().contains("belongs to cluster cluster"), "{error}");
        assert_eq!(running.store.connects.get(), 0);
        let logged = warnings.take();
        assert_eq!(logged.len(), 2, "{logged:?}");
        assert!(logged[0].contains("does not hold this cluster's key"), "{logged:?}");
        assert!(logged[1].contains("belongs to cluster another"), "{logged:?}");
        // Who runs with the former key comes again and again.
        for _ in 0..20 {
            let again = Connection::connect(running.address, &identity_of(2, 0), &Limits::default()).await;
            assert!(again.is_err_and(|error| error.is_permanent()));
        }
        assert_eq!(warnings.take(), [""; 0]);
        ping(&healthy(&running).await).await;
    });
}

/// As many do where the service stood still, and they ask others.
#[test]
fn callers_that_go_away_in_their_handshake_are_told_of_seldom() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    run(async {
        let running = serve(Limits::default());
        let address = running.address;
        aside(move || {
            for _ in 0..20 {
                let stream = TcpStream::connect(address).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                assert_eq!(std::io::Read::read(&mut &stream, &mut [0]).unwrap(), 0);
            }
        })
        .await;
        let logged = warnings.take();
        assert!(logged.len() <= 1, "{logged:?}");
        ping(&healthy(&running).await).await;
    });
}

#[test]
fn a_handshake_that_does_not_come_to_an_end_is_given_up_on_both_sides() {
    run(async {
        let limits = Limits { handshake: Duration::from_millis(100), ..Limits::default() };
        let running = serve(limits.clone());
        let address = running.address;
        let after = aside(move || {
            let stream = TcpStream::connect(address).unwrap();
            let begin = Instant::now();
            assert_eq!(std::io::Read::read(&mut &stream, &mut [0]).unwrap(), 0);
            begin.elapsed()
        })
        .await;
        assert!((80..5000).contains(&after.as_millis()), "{after:?}");
        let mute = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: SocketAddr = mute.local_addr().unwrap();
        let error = Connection::connect(address, &identity(), &limits).await.err().unwrap();
        assert_eq!(error, ConnectError::Handshake { address, error: HandshakeError::TimedOut });
        assert!(!error.is_permanent());
    });
}

#[test]
fn connections_over_the_limit_are_refused_and_places_come_back() {
    let bounds =
        [Limits { connections: 2, ..Limits::default() }, Limits { places: Places::new(2), ..Limits::default() }];
    for limits in bounds {
        run(async {
            let running = serve(limits);
            let first = healthy(&running).await;
            let _second = healthy(&running).await;
            assert!(Connection::connect(running.address, &identity(), &Limits::default()).await.is_err());
            ping(&first).await;
            drop(first);
            until(|| running.store.disconnects.borrow().len() == 1).await;
            ping(&healthy(&running).await).await;
        });
    }
}

/// Its descriptor is kept for as long.
#[test]
fn a_connection_that_has_ended_keeps_its_place_until_its_requests_are_answered() {
    run(async {
        let running = serve(Limits { places: Places::new(1), ..Limits::default() });
        running.store.hold.set(true);
        let asking = healthy(&running).await;
        assert!(ring::timeout(Duration::from_millis(50), ping(&asking)).await.is_err());
        drop(asking);
        until(|| running.store.disconnects.borrow().len() == 1).await;
        assert!(Connection::connect(running.address, &identity(), &Limits::default()).await.is_err());
        running.store.hold.set(false);
        running.store.answer_held();
        ping(&healthy(&running).await).await;
    });
}

#[test]
fn any_bytes_after_the_handshake_are_survived() {
    run(async {
        let running = serve(Limits::default());
        let bystander = healthy(&running).await;
        let address = running.address;
        aside(move || {
            let mut state = 88_172_645_463_325_252u64;
            let mut random = move || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state
            };
            for _ in 0..40 {
                let mut raw = Raw::connect(address);
                let mut bytes = raw.frame(1, &WRITE, &pattern((random() % 40_000) as usize, 1));
                bytes.extend(raw.frame(2, &Ping {}, b""));
                for _ in 0..1 + random() % 3 {
                    let at = (random() as usize) % bytes.len();
                    bytes[at] = random() as u8;
                }
                let _ = raw.stream.write_all(&bytes);
            }
        })
        .await;
        ping(&bystander).await;
    });
}
