//! A process whose descriptors are used up: alone in its program, since its limit is that of the process.
#![allow(dead_code, reason = "what other tests use")]
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "connections/common/mod.rs"]
mod common;

use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use net::Limits;
use net::handshake::{Initiator, drive_blocking};

use common::log::Warnings;
use common::{identity, run, serve, until};

const DESCRIPTORS: libc::rlim_t = 128;

/// Takes all descriptors that there are but these.
fn leave(free: usize) -> Vec<OwnedFd> {
    let limit = libc::rlimit { rlim_cur: DESCRIPTORS, rlim_max: DESCRIPTORS };
    // SAFETY: the pointer is to a live rlimit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let input = std::io::stdin();
    let more = || input.as_fd().try_clone_to_owned().ok();
    let mut taken: Vec<OwnedFd> = std::iter::from_fn(more).collect();
    taken.truncate(taken.len() - free);
    taken
}

#[test]
fn who_gets_the_last_descriptor_is_served_and_others_are_told_of_seldom() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    run(async {
        let running = serve(Limits::default());
        ring::sleep(Duration::from_millis(50)).await;
        let (sender, receiver) = mpsc::channel::<TcpStream>();
        let outcome = Arc::new(Mutex::new(None));
        let told = Arc::clone(&outcome);
        thread::spawn(move || {
            let mut stream = receiver.recv().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let shaken = drive_blocking(&mut Initiator::new(&identity()), &mut stream).is_ok();
            *told.lock().unwrap() = Some((shaken, stream));
        });
        // The caller's, and the one for the server.
        let _taken = leave(2);
        sender.send(TcpStream::connect(running.address).unwrap()).unwrap();
        until(|| outcome.lock().unwrap().is_some()).await;
        assert!(outcome.lock().unwrap().as_ref().is_some_and(|(shaken, _)| *shaken));
        ring::sleep(Duration::from_millis(500)).await;
        let lines = warnings.take();
        assert_eq!(lines.iter().filter(|line| line.contains("cannot accept")).count(), 1, "{lines:?}");
    });
}
