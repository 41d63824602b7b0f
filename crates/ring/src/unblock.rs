//! A few helper threads for calls that the kernel offers in blocking form alone.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use crate::mailbox;

const THREADS: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

fn pool() -> &'static Sender<Job> {
    static POOL: OnceLock<Sender<Job>> = OnceLock::new();
    POOL.get_or_init(|| {
        let (sender, receiver) = mpsc::channel::<Job>();
        let receiver = Arc::new(Mutex::new(receiver));
        for index in 0..THREADS {
            let receiver = Arc::clone(&receiver);
            thread::Builder::new()
                .name(format!("unblock-{index}"))
                .spawn(move || work(&receiver))
                .expect("the system can start a thread");
        }
        sender
    })
}

fn work(receiver: &Mutex<Receiver<Job>>) {
    loop {
        let job = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}

/// Runs `call` on a helper thread while this ring goes on. For what is rare or slow anyway: listings, large unlinks.
///
/// # Panics
/// If `call` panics.
pub async fn unblock<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, mut receiver) = mailbox::mailbox();
    let job: Job = Box::new(move || {
        sender.send(call());
    });
    pool().send(job).expect("the helper threads live as long as the process");
    receiver.recv().await.expect("the call answers unless it panics")
}
