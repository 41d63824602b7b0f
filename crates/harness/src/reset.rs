//! Resets of connections on this host, as a firewall or a failing network makes them. Needs root and `nft`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::ports;

/// Runs each line as a command of `nft`, and says how that ended and what it said. In the end the table of this name goes,
/// also where the test was killed, and by a signal to all processes of its group, as `timeout` sends it: whoever had these
/// ports next would be cut off.
const SHELL: &str = "
    trap '' HUP INT TERM
    set -f
    while read -r line; do said=$(nft \"$line\" 2>&1); echo $? $said; done
    nft delete table inet \"$1\"
";

/// A rule set of its own, gone when this is dropped.
pub struct Resets {
    table: String,
    shell: Mutex<Shell>,
}

/// Begun before anything is cut: a process that is begun later has the caller's open files for a moment, and waits, before it
/// runs, for the servers that it is to free.
struct Shell {
    process: Child,
    /// `None` when it is to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Shell {
    fn new(table: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", SHELL, "sh", table]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("a shell");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { input: process.stdin.take(), output, process }
    }

    /// What it said.
    fn nft(&mut self, line: &str) -> String {
        writeln!(self.input.as_ref().expect("it goes on"), "{line}").expect("the shell runs");
        let mut answer = String::new();
        self.output.read_line(&mut answer).expect("the shell answers");
        let (status, said) = answer.split_once(' ').unwrap_or((&answer, ""));
        assert_eq!(status.trim(), "0", "nft {line}: {said}");
        said.to_owned()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.process.wait();
    }
}

impl Resets {
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let table = format!("weft_reset_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let shell = Mutex::new(Shell::new(&table));
        let resets = Self { table, shell };
        let table = &resets.table;
        resets.nft(&format!("add table inet {table}"));
        resets.nft(&format!("add counter inet {table} hits"));
        resets.nft(&format!("add chain inet {table} out {{ type filter hook output priority 0; }}"));
        resets
    }

    fn nft(&self, line: &str) -> String {
        self.shell.lock().unwrap_or_else(PoisonError::into_inner).nft(line)
    }

    /// For so long, whatever is sent by TCP to or from what the process listens at is answered with a reset: established
    /// connections end, new ones are refused.
    pub fn cut(&self, pid: i32, time: Duration) {
        let ports: Vec<String> = ports::listening(pid).iter().map(u16::to_string).collect();
        assert!(!ports.is_empty(), "process {pid} listens nowhere");
        let ports = ports.join(", ");
        for end in ["dport", "sport"] {
            let what = format!("tcp {end} {{ {ports} }} counter name hits reject with tcp reset");
            self.nft(&format!("add rule inet {} out {what}", self.table));
        }
        thread::sleep(time);
        self.nft(&format!("flush chain inet {} out", self.table));
    }

    /// Packets that were answered with a reset.
    #[must_use]
    pub fn hits(&self) -> u64 {
        let text = self.nft(&format!("list counter inet {} hits", self.table));
        let mut words = text.split_whitespace().skip_while(|word| *word != "packets");
        words.nth(1).and_then(|count| count.parse().ok()).expect("a count")
    }
}

impl Default for Resets {
    fn default() -> Self {
        Self::new()
    }
}
