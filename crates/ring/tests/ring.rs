//! The executor on real sockets, files and threads.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use ring::buf::{Buf, Slice};
use ring::{Config, Elapsed, Ring, join_all, mailbox, op, sync};

fn ring() -> Ring {
    Ring::new(&Config::default()).expect("io_uring is available")
}

#[test]
fn many_bytes_cross_a_socket_whole() {
    ring().run(async {
        let (listener, address) = op::listen("127.0.0.1:0".parse().expect("address")).expect("a free port");
        let sent: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
        let parts: Vec<Slice> = sent.chunks(7001).map(|chunk| Buf::from_slice(chunk).freeze()).collect();
        ring::spawn(async move {
            let client = op::connect(address).await.expect("connects");
            op::send_all(client.as_raw_fd(), parts).await.expect("sends");
        });
        let server = op::accept(listener.as_raw_fd()).await.expect("accepts");
        let (result, got) = op::recv_exact(server.as_raw_fd(), Buf::with_capacity(sent.len())).await;
        result.expect("receives all");
        assert!(got[..] == sent[..]);
        let (result, _) = op::recv(server.as_raw_fd(), Buf::with_capacity(10)).await;
        assert_eq!(result.expect("clean end"), 0);
    });
}

#[test]
fn files_read_what_was_written_through_rings_of_their_own() {
    let file = tempfile::tempfile().expect("a temporary file");
    ring().run(async {
        let fd = file.as_raw_fd();
        let data = Buf::from_slice(&[7u8; 100_000]).freeze();
        let writes = (0..20u64).map(|i| op::write_at(fd, data.clone(), i * 100_000));
        for written in join_all(writes).await {
            assert_eq!(written.expect("writes"), 100_000);
        }
        op::fsync(fd, true).await.expect("syncs");
        let (count, buf) = op::read_at(fd, Buf::with_capacity(3_000_000), 0).await;
        assert_eq!(count.expect("reads"), 2_000_000);
        assert!(buf[..2_000_000].iter().all(|&byte| byte == 7));
    });
}

#[test]
fn more_reads_complete_at_once_than_the_ring_has_room_for() {
    let file = tempfile::tempfile().expect("a temporary file");
    ring().run(async {
        let fd = file.as_raw_fd();
        op::write_at(fd, Buf::from_slice(&[7u8; 4096]).freeze(), 0).await.expect("writes");
        let read_all = join_all((0..5000).map(|_| op::read_at(fd, Buf::with_capacity(4096), 0)));
        let read = ring::timeout(Duration::from_secs(10), read_all).await.expect("none is lost");
        assert!(read.into_iter().all(|(count, _)| count.is_ok_and(|count| count == 4096)));
    });
}

#[test]
fn turn_end_comes_after_all_that_can_run() {
    ring().run(async {
        let log = Rc::new(RefCell::new(Vec::new()));
        let done = Rc::new(sync::Notify::new());
        let (batch, finished) = (Rc::clone(&log), Rc::clone(&done));
        ring::spawn(async move {
            ring::turn_end().await;
            batch.borrow_mut().push("batch");
            ring::turn_end().await;
            batch.borrow_mut().push("replies");
            finished.notify_one();
        });
        for _ in 0..3 {
            let log = Rc::clone(&log);
            ring::spawn(async move {
                ring::yield_now().await;
                log.borrow_mut().push("request");
            });
        }
        done.notified().await;
        assert_eq!(*log.borrow(), ["request", "request", "request", "batch", "replies"]);
    });
}

#[test]
fn timeouts_give_up_and_keep_the_buffer_alive() {
    ring().run(async {
        let (listener, address) = op::listen("127.0.0.1:0".parse().expect("address")).expect("a free port");
        let client = op::connect(address).await.expect("connects");
        let server = op::accept(listener.as_raw_fd()).await.expect("accepts");
        let begin = Instant::now();
        let waited = ring::timeout(Duration::from_millis(30), op::recv(server.as_raw_fd(), Buf::with_capacity(100)));
        assert!(matches!(waited.await, Err(Elapsed)));
        assert!(begin.elapsed() >= Duration::from_millis(29));
        // The cancelled receive must not swallow what comes later.
        ring::yield_now().await;
        op::send_all(client.as_raw_fd(), vec![Buf::from_slice(b"late").freeze()]).await.expect("sends");
        let (count, buf) = op::recv(server.as_raw_fd(), Buf::with_capacity(100)).await;
        assert_eq!(&buf[..count.expect("receives")], b"late");
    });
}

/// Descriptors are given out again as soon as they are closed.
#[test]
fn what_is_given_up_before_the_kernel_has_it_does_nothing_to_who_gets_its_descriptor_next() {
    ring().run(async {
        let (old, _old_writer) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
        let (new, writer) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
        std::io::Write::write_all(&mut &writer, b"for the new one").expect("it has room");
        let fd = old.as_raw_fd();
        let mut receiving = Box::pin(op::recv(fd, Buf::with_capacity(100)));
        poll_fn(|cx| {
            assert!(receiving.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        drop(receiving);
        drop(old);
        // SAFETY: `fd` was closed just now, and nobody but `again` owns what it stands for from here on.
        let again = unsafe {
            assert_eq!(libc::dup3(new.as_raw_fd(), fd, libc::O_CLOEXEC), fd);
            OwnedFd::from_raw_fd(fd)
        };
        ring::sleep(Duration::from_millis(5)).await;
        let receiving = ring::timeout(Duration::from_secs(1), op::recv(again.as_raw_fd(), Buf::with_capacity(100)));
        let (count, buf) = receiving.await.expect("the bytes are there");
        assert_eq!(&buf[..count.expect("receives")], b"for the new one");
    });
}

#[test]
fn a_connection_that_is_accepted_for_nobody_is_closed() {
    ring().run(async {
        // It comes before the kernel is asked to cancel, or is there when its future is dropped.
        for is_done in [false, true] {
            let (listener, address) = op::listen("127.0.0.1:0".parse().expect("address")).expect("a free port");
            let mut accepting = Box::pin(op::accept(listener.as_raw_fd()));
            let is_pending = poll_fn(|cx| Poll::Ready(accepting.as_mut().poll(cx).is_pending())).await;
            assert!(is_pending);
            let client = std::net::TcpStream::connect(address).expect("the kernel takes it");
            client.set_read_timeout(Some(Duration::from_secs(5))).expect("a socket");
            if is_done {
                ring::next_turn().await;
            }
            drop(accepting);
            ring::sleep(Duration::from_millis(5)).await;
            let read = std::io::Read::read(&mut &client, &mut [0; 1]);
            assert_eq!(read.expect("the other side is closed"), 0);
        }
    });
}

#[test]
fn other_threads_wake_a_sleeping_ring() {
    let (sender, mut receiver) = mailbox::mailbox();
    let thread = std::thread::spawn(move || {
        for i in 0..100 {
            std::thread::sleep(Duration::from_micros(200));
            assert!(sender.send(i));
        }
    });
    let sum = ring().run(async {
        let mut sum = 0;
        while let Some(i) = receiver.recv().await {
            sum += i;
        }
        sum
    });
    assert_eq!(sum, 4950);
    thread.join().expect("no panic");
}

#[test]
fn blocking_calls_run_aside() {
    ring().run(async {
        let ticks = Rc::new(Cell::new(0));
        let counter = Rc::clone(&ticks);
        ring::spawn(async move {
            loop {
                ring::sleep(Duration::from_millis(2)).await;
                counter.set(counter.get() + 1);
            }
        });
        let answer = op::unblock(|| {
            std::thread::sleep(Duration::from_millis(50));
            42
        });
        assert_eq!(answer.await, 42);
        assert!(ticks.get() >= 5, "the ring went on meanwhile: {}", ticks.get());
    });
}

#[test]
fn helpers_that_are_blocked_hold_up_no_others() {
    let (slow, fast) = (ring::Helpers::new("slow", 2), ring::Helpers::new("fast", 2));
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Arc::new(std::sync::Mutex::new(released));
    ring().run(async {
        let done = Rc::new(Cell::new(0));
        for _ in 0..5 {
            let (slow, released, done) = (slow.clone(), std::sync::Arc::clone(&released), Rc::clone(&done));
            ring::spawn(async move {
                slow.run(move || released.lock().is_ok_and(|released| released.recv().is_ok())).await;
                done.set(done.get() + 1);
            });
        }
        ring::sleep(Duration::from_millis(20)).await;
        assert_eq!(fast.run(|| 42).await, 42);
        assert_eq!(done.get(), 0);
        for _ in 0..5 {
            release.send(()).expect("they wait for it");
        }
        while done.get() < 5 {
            ring::sleep(Duration::from_millis(1)).await;
        }
    });
    let names = std::fs::read_dir("/proc/self/task").expect("there is /proc").flatten();
    let names = names.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    assert_eq!(names.filter(|name| name.trim() == "slow").count(), 2, "no more threads than were allowed");
}

#[test]
fn semaphores_serve_in_order_and_get_permits_back() {
    ring().run(async {
        let semaphore = Rc::new(sync::Semaphore::new(10));
        let big = semaphore.acquire(8).await;
        assert!(semaphore.try_acquire(3).is_none());
        let order = Rc::new(RefCell::new(Vec::new()));
        for (name, count) in [("five", 5), ("one", 1), ("huge", 1000)] {
            let (semaphore, order) = (Rc::clone(&semaphore), Rc::clone(&order));
            ring::spawn(async move {
                let _permit = semaphore.acquire(count).await;
                order.borrow_mut().push(name);
                ring::yield_now().await;
            });
        }
        ring::yield_now().await;
        ring::yield_now().await;
        assert!(order.borrow().is_empty(), "one may not overtake five");
        drop(big);
        let _all = semaphore.acquire(10).await;
        assert_eq!(*order.borrow(), ["five", "one", "huge"]);
        assert_eq!(semaphore.available(), 0);
    });
}

#[test]
fn a_ring_that_is_dropped_with_operations_in_flight_frees_nothing_too_early() {
    let mut one = ring();
    one.run(async {
        let (listener, address) = op::listen("127.0.0.1:0".parse().expect("address")).expect("a free port");
        let client = op::connect(address).await.expect("connects");
        ring::spawn(async move {
            let _keep = (listener, client.as_raw_fd());
            let _ = op::recv(client.as_raw_fd(), Buf::with_capacity(4096)).await;
        });
        ring::sleep(Duration::from_millis(5)).await;
    });
    drop(one);
    ring().run(async { ring::sleep(Duration::from_millis(1)).await });
}

#[test]
fn next_turn_comes_after_what_was_submitted_before_and_does_not_wait() {
    ring().run(async {
        let (reader, writer) = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| {
                let writer = std::net::TcpStream::connect(listener.local_addr()?)?;
                Ok((listener.accept()?.0, writer))
            })
            .expect("a pair of sockets");
        reader.set_nonblocking(true).expect("a socket");
        let fd = writer.as_raw_fd();
        ring::spawn(async move {
            op::send_all(fd, vec![ring::buf::Slice::from_vec(b"first".to_vec())]).await.expect("a connected socket");
        });
        ring::turn_end().await;
        // Nothing completes and no timer runs: a wait in the kernel would be for ever.
        ring::next_turn().await;
        let mut got = [0; 5];
        std::io::Read::read_exact(&mut &reader, &mut got).expect("sent before this turn began");
        assert_eq!(&got, b"first");
        ring::next_turn().await;
    });
}

#[test]
fn a_tick_wakes_all_who_wait_for_it_and_none_who_have_left() {
    let mut ring = Ring::new(&Config::default()).unwrap();
    ring.run(async {
        let begun = ring::now();
        let mut left = Box::pin(ring::tick());
        assert!(poll_fn(|context| Poll::Ready(left.as_mut().poll(context).is_pending())).await, "too early for a tick");
        drop(left);
        ring::join_all((0..50).map(|_| ring::tick())).await;
        let first = ring::now() - begun;
        assert!(first >= Duration::from_millis(90) && first < Duration::from_secs(2), "{first:?}");
        // The next one takes its time again.
        let between = ring::now();
        ring::tick().await;
        assert!(ring::now() - between >= Duration::from_millis(90));
    });
}
