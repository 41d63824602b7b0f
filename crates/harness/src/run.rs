//! Runs programs, with a bound on their time.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for anything that these tests run, on slow and busy machines.
pub const LONG: Duration = Duration::from_secs(120);

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub command: String,
    /// `None` after a signal.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Ended {
    /// # Panics
    /// Where the exit code is not 0, with all that it said.
    #[track_caller]
    pub fn expect_ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self}");
        self
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, code, stdout, stderr, took } = self;
        write!(f, "`{command}` ended with {code:?} after {took:.1?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}

/// # Panics
/// Where the program cannot be started, or runs for longer than `limit`: it is killed then.
#[track_caller]
pub fn run(command: &mut Command, limit: Duration) -> Ended {
    let name = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let begin = Instant::now();
    let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot run {name}: {error}"));
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let Some(code) = wait(&mut child, limit) else {
        let _ = child.kill();
        let (stdout, stderr) = (stdout.so_far(), stderr.so_far());
        panic!("{name} did not end in {limit:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
    };
    let took = begin.elapsed();
    Ended { command: name, code: code.0, stdout: stdout.whole(), stderr: stderr.whole(), took }
}

/// A script of the shell in a folder, ended by its first failure.
///
/// # Panics
/// Where it fails, with all that it said.
#[track_caller]
pub fn shell(folder: &Path, script: &str) -> Ended {
    run(Command::new("sh").arg("-euc").arg(script).current_dir(folder), LONG).expect_ok()
}

/// The exit code, or `None` where the program still runs after `limit`.
pub fn wait(child: &mut Child, limit: Duration) -> Option<Code> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return Some(Code(status.code()));
        }
        if begin.elapsed() > limit {
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// An exit code, or none after a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code(pub Option<i32>);

/// What a program writes, read by a thread of its own so that the program never waits for us.
struct Collected {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: thread::JoinHandle<()>,
}

fn collect(stream: Option<impl Read + Send + 'static>) -> Collected {
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&bytes);
    let reader = thread::spawn(move || {
        let Some(mut stream) = stream else { return };
        let mut piece = [0; 4096];
        loop {
            match stream.read(&mut piece) {
                Ok(count @ 1..) => kept.lock().expect("nobody panics with it").extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What came until an error is worth showing.
                Ok(0) | Err(_) => return,
            }
        }
    });
    Collected { bytes, reader }
}

impl Collected {
    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().expect("nobody panics with it")).into_owned()
    }

    fn whole(self) -> String {
        let Self { bytes, reader } = self;
        reader.join().expect("readers do not panic");
        let bytes = bytes.lock().expect("nobody panics with it");
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
