//! Payloads in memory that both sides have in common.

use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use net::{CallError, Connection, Limits, PLACED_MIN, To};
use ring::buf::{Buf, Slice};
use wire::codec::Bytes;
use wire::frame::{Place, crc32c, flags};
use wire::op::Ping;
use wire::v1::session::Share;
use wire::v1::storage;

use crate::common::{Raw, aside, identity, object, pattern, run, serve, until};

fn write(stripe: u32) -> storage::Write {
    storage::Write::new(object(stripe), 0)
}

fn read(stripe: u32, length: usize) -> storage::Read {
    storage::Read { object: object(stripe), offset: 0, length: length as u32 }
}

fn shareable(bytes: &[u8]) -> Slice {
    let mut buf = Buf::shareable(bytes.len());
    buf.copy_from_slice(bytes);
    buf.freeze()
}

/// All threads of a process have one memory in common, and a test that loses a connection abandons it.
fn alone(test: impl Future<Output = ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    run(test);
}

/// A connection, after the first payload has made it offer its memory.
async fn sharing(running: &crate::common::Running) -> Connection {
    sharing_within(running, &Limits::default()).await
}

async fn sharing_within(running: &crate::common::Running, limits: &Limits) -> Connection {
    ring::shared::lend(4 << 20);
    let connection = Connection::connect(running.address, &identity(), limits).await.unwrap();
    let data = shareable(&pattern(PLACED_MIN, 0));
    connection.call_payload(To::default(), &write(0), vec![data], None).await.unwrap();
    // The offer went out right behind it; what is asked now is answered after.
    connection.call(To::default(), &Ping {}).await.unwrap();
    connection
}

#[test]
fn payloads_arrive_whole_both_ways_with_only_their_place_on_the_wire() {
    alone(async {
        let running = serve(Limits::default());
        let connection = sharing(&running).await;
        for (stripe, len) in [(1, PLACED_MIN - 11), (2, PLACED_MIN), (3, 300_001), (4, 1 << 20)] {
            let data = pattern(len, stripe);
            running.store.hold.set(true);
            let payload = vec![shareable(&data)];
            let (writer, message) = (connection.clone(), write(stripe));
            let (sender, written) = ring::sync::oneshot();
            ring::spawn(async move {
                sender.send(writer.call_payload(To::default(), &message, payload, None).await.map(|a| a.message.size));
            });
            until(|| !running.store.held.borrow().is_empty()).await;
            let placed = running.store.held.borrow()[0].header.flags & flags::PLACED != 0;
            assert_eq!(placed, len >= PLACED_MIN, "{len}");
            running.store.hold.set(false);
            running.store.answer_held();
            assert_eq!(written.await.unwrap().unwrap(), len as u64);
            assert!(running.store.objects.borrow()[&stripe] == data, "{len}");

            let into = Buf::shareable(len + 10);
            let place = into.as_ptr();
            let answer =
                connection.call_payload(To::default(), &read(stripe, len), Vec::new(), Some(into)).await.unwrap();
            let mut payload = answer.payload;
            assert!(payload[..] == data[..], "{len}");
            payload.unsplit(answer.into_rest.unwrap()).unwrap();
            assert_eq!((payload.as_ptr(), payload.len()), (place, len + 10), "the caller's own buffer");
            assert_eq!(running.store.placed.replace(0), usize::from(len + 10 >= PLACED_MIN), "{len}");
        }
    });
}

#[test]
fn the_place_of_what_another_thread_gave_goes_over_the_wire() {
    alone(async {
        let running = serve(Limits::default());
        let connection = sharing(&running).await;
        let data = pattern(PLACED_MIN, 6);
        let bytes = data.clone();
        let given = aside(move || {
            ring::shared::lend(4 << 20);
            shareable(&bytes).into_common()
        });
        let payload = vec![Slice::from_common(&given.await)];
        running.store.hold.set(true);
        let (writer, message) = (connection.clone(), write(6));
        ring::spawn(async move { drop(writer.call_payload(To::default(), &message, payload, None).await) });
        until(|| running.store.held.borrow().len() == 1).await;
        assert_ne!(running.store.held.borrow()[0].header.flags & flags::PLACED, 0);
        running.store.answer_held();
        until(|| connection.in_flight() == 0).await;
        assert!(running.store.objects.borrow()[&6] == data);
    });
}

/// A connection that ends with nothing lent takes nothing from the others of the process.
#[test]
fn a_memory_of_which_nothing_is_lent_stays_in_use() {
    alone(async {
        let mut running = serve(Limits::default());
        let connection = sharing(&running).await;
        let memory = ring::shared::lent().unwrap().id();
        running.stop();
        until(|| connection.is_closed()).await;
        assert_eq!(ring::shared::lent().unwrap().id(), memory);
        let running = serve(Limits::default());
        sharing(&running).await;
        assert_eq!(Buf::shareable(1).place().unwrap().memory, memory);
    });
}

/// The checksum is of what is in the frame, and says nothing of what is at the place.
#[test]
fn a_place_with_a_checksum_brings_no_sums_of_the_bytes() {
    alone(async {
        let running = serve(Limits::default());
        let _good = sharing(&running).await;
        let data = shareable(&pattern(PLACED_MIN, 5));
        let place = data.place().unwrap();
        let memory = ring::shared::lent().unwrap();
        let share = Share {
            process: std::process::id(),
            descriptor: memory.descriptor() as u32,
            length: memory.length() as u64,
            mark: Bytes(memory.mark().to_vec()),
        };
        let address = running.address;
        running.store.hold.set(true);
        aside(move || {
            let mut raw = Raw::connect(address);
            let bytes = raw.frame(1, &share, &[]);
            raw.send(&bytes);
            raw.read_frame().unwrap();
            let place = Place { offset: place.offset, len: PLACED_MIN as u64 }.encode();
            let bytes = raw.changed(2, &write(5), &place, |header| {
                (header.flags, header.payload_crc) = (flags::PLACED | flags::CHECKED, crc32c(&place));
            });
            raw.send(&bytes);
            raw
        })
        .await;
        until(|| running.store.held.borrow().len() == 1).await;
        let held = running.store.held.borrow_mut().pop().unwrap();
        assert!(held.payload[..] == data[..] && held.sums.is_none());
    });
}

/// The other side lets go of what was abandoned though nothing long is sent to it.
#[test]
fn a_connection_without_payloads_is_offered_the_new_memory() {
    alone(async {
        let running = serve(Limits::default());
        let limits = Limits { silence: Duration::from_millis(400), ..Limits::default() };
        let connection = sharing_within(&running, &limits).await;
        let old = ring::shared::lent().unwrap();
        let inode = std::fs::metadata(format!("/proc/self/fd/{}", old.descriptor())).unwrap().ino().to_string();
        let is_mapped = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().any(|line| line.contains("weft-payloads") && line.split_whitespace().nth(4) == Some(&inode))
        };
        ring::shared::abandon(old.id());
        drop(old);
        assert!(is_mapped(), "by the service, in the same process");
        let new = Buf::shareable(1);
        assert!(new.place().is_some());
        until(|| !is_mapped()).await;
        assert!(!connection.is_closed());
    });
}

#[test]
fn what_is_not_shareable_goes_over_the_socket_as_ever() {
    alone(async {
        let running = serve(Limits::default());
        let connection = sharing(&running).await;
        let data = pattern(200_000, 1);
        let parts = vec![Slice::from_vec(data.clone())];
        connection.call_payload(To::default(), &write(1), parts, None).await.unwrap();
        let two = vec![shareable(&data[..50_000]), shareable(&data[50_000..])];
        connection.call_payload(To::default(), &write(2), two, None).await.unwrap();
        for stripe in [1, 2] {
            let answer =
                connection.call_payload(To::default(), &read(stripe, 1 << 20), Vec::new(), None).await.unwrap();
            assert!(answer.payload[..] == data[..]);
        }
    });
}

/// The other side may still read it, or write to it.
#[test]
fn what_a_lost_connection_was_lent_is_never_used_for_anything_else() {
    alone(async {
        let mut running = serve(Limits::default());
        let connection = sharing(&running).await;
        running.store.hold.set(true);
        let data = shareable(&pattern(PLACED_MIN, 7));
        let lent = data.place().unwrap();
        let asked = connection.clone();
        ring::spawn(async move {
            // The caller forgets its data as soon as the call has failed.
            let lost = asked.call_payload(To::default(), &write(7), vec![data], None).await;
            assert!(matches!(lost, Err(CallError::Closed(_))));
        });
        until(|| running.store.held.borrow().len() == 1).await;
        let held = running.store.held.borrow_mut().pop().unwrap();
        running.stop();
        until(|| connection.is_closed()).await;
        ring::sleep(Duration::from_millis(20)).await;
        for _ in 0..100 {
            let mut next = Buf::shareable(PLACED_MIN);
            next.fill(0xee);
            assert_ne!(next.place().unwrap().memory, lent.memory);
        }
        assert!(held.payload[..] == pattern(PLACED_MIN, 7)[..], "a request that was taken is executed as it came");
        // The next connection is offered the new memory.
        let running = serve(Limits::default());
        let connection = sharing(&running).await;
        running.store.hold.set(true);
        let data = vec![shareable(&pattern(PLACED_MIN, 8))];
        let (caller, message) = (connection.clone(), write(8));
        ring::spawn(async move { drop(caller.call_payload(To::default(), &message, data, None).await) });
        until(|| running.store.held.borrow().len() == 1).await;
        assert_ne!(running.store.held.borrow()[0].header.flags & flags::PLACED, 0);
    });
}

#[test]
fn the_room_of_a_caller_that_went_away_stays_lent_until_the_reply() {
    alone(async {
        let running = serve(Limits::default());
        let connection = sharing(&running).await;
        running.store.hold.set(true);
        let room = Buf::shareable(PLACED_MIN);
        let lent = room.place().unwrap();
        let message = read(0, PLACED_MIN);
        let call = connection.call_payload(To::default(), &message, Vec::new(), Some(room));
        assert!(ring::timeout(Duration::from_millis(20), call).await.is_err());
        let others: Vec<Buf> = (0..100).map(|_| Buf::shareable(1)).collect();
        assert!(others.iter().all(|other| other.place() != Some(lent)));
        running.store.hold.set(false);
        running.store.answer_held();
        until(|| connection.in_flight() == 0).await;
        drop(others);
        assert_eq!(Buf::shareable(1).place(), Some(lent), "the first that is free");
    });
}

/// It ends its connection, and who does it may still read what it was lent.
#[test]
fn a_change_that_was_given_up_leaves_its_memory_behind() {
    alone(async {
        let running = serve(Limits::default());
        let connection = sharing(&running).await;
        running.store.hold.set(true);
        let data = shareable(&pattern(PLACED_MIN, 3));
        let lent = data.place().unwrap();
        let message = write(3);
        let call = connection.call_payload(To::default(), &message, vec![data], None);
        assert!(ring::timeout(Duration::from_millis(20), call).await.is_err());
        assert!(connection.is_closed());
        assert_ne!(Buf::shareable(1).place().unwrap().memory, lent.memory);
        running.store.answer_held();
        assert!(running.store.objects.borrow()[&3] == pattern(PLACED_MIN, 3));
    });
}

/// Says what it likes of memory, and has to be refused or closed.
#[test]
fn places_that_are_not_shared_close_the_connection_and_harm_nobody() {
    alone(async {
        let running = serve(Limits::default());
        let good = sharing(&running).await;
        let memory = ring::shared::lent().unwrap();
        let (length, mark) = (memory.length() as u64, memory.mark().to_vec());
        let share = Share {
            process: std::process::id(),
            descriptor: memory.descriptor() as u32,
            length,
            mark: Bytes(mark.clone()),
        };
        let cases: [(bool, u16, Vec<u8>); 8] = [
            (true, flags::PLACED | flags::CHECKED, Place { offset: 4096, len: 4096 }.encode().to_vec()),
            (false, flags::PLACED, Place { offset: 0, len: 4096 }.encode().to_vec()),
            (true, flags::PLACED, Place { offset: length - 1, len: 2 }.encode().to_vec()),
            (true, flags::PLACED, Place { offset: u64::MAX, len: 2 }.encode().to_vec()),
            (true, flags::PLACED, Place { offset: 0, len: u64::MAX }.encode().to_vec()),
            (true, flags::PLACED, vec![1; 15]),
            (true, flags::PLACED, vec![1; 100_000]),
            (true, flags::PLACED | flags::ROOM, Place { offset: 0, len: 4096 }.encode().to_vec()),
        ];
        for (shares, bits, payload) in cases {
            let (address, share) = (running.address, share.clone());
            let case = format!("{shares} {bits} {}", payload.len());
            let closed = aside(move || {
                let mut raw = Raw::connect(address);
                if shares {
                    let bytes = raw.frame(1, &share, &[]);
                    raw.send(&bytes);
                    assert_eq!(raw.read_frame().unwrap().0.status, wire::frame::Status::Ok);
                }
                let bytes = raw.changed(2, &write(9), &payload, |header| header.flags = bits);
                raw.send(&bytes);
                raw.is_closed_by_peer()
            });
            assert!(closed.await, "{case}");
        }
        for wrong in [
            Share { mark: Bytes(vec![0; mark.len()]), ..share.clone() },
            Share { mark: Bytes(Vec::new()), ..share.clone() },
            Share { length: length + 1, ..share.clone() },
            Share { descriptor: 0, ..share.clone() },
            Share { process: u32::MAX, ..share.clone() },
        ] {
            assert!(matches!(good.call(To::default(), &wrong).await, Err(CallError::Status(_))), "{wrong:?}");
        }
        assert!(!running.store.objects.borrow().contains_key(&9));
        let data = vec![shareable(&pattern(PLACED_MIN, 1))];
        good.call_payload(To::default(), &write(1), data, None).await.unwrap();
        assert!(running.store.objects.borrow()[&1] == pattern(PLACED_MIN, 1), "what was shared before still is");
    });
}
