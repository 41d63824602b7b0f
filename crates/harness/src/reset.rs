//! Resets of connections on this host, as a firewall or a failing network makes them. Needs root and `nft`.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::ports;

/// A rule set of its own, gone when this is dropped.
pub struct Resets {
    table: String,
}

impl Resets {
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let table = format!("weft_reset_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        nft(&format!("add table inet {table}"));
        nft(&format!("add counter inet {table} hits"));
        nft(&format!("add chain inet {table} out {{ type filter hook output priority 0; }}"));
        Self { table }
    }

    /// For so long, whatever is sent by TCP to or from what the process listens at is answered with a reset: established
    /// connections end, new ones are refused.
    pub fn cut(&self, pid: i32, time: Duration) {
        let ports: Vec<String> = ports::listening(pid).iter().map(u16::to_string).collect();
        assert!(!ports.is_empty(), "process {pid} listens nowhere");
        let ports = ports.join(", ");
        for end in ["dport", "sport"] {
            let what = format!("tcp {end} {{ {ports} }} counter name hits reject with tcp reset");
            nft(&format!("add rule inet {} out {what}", self.table));
        }
        thread::sleep(time);
        nft(&format!("flush chain inet {} out", self.table));
    }

    /// Packets that were answered with a reset.
    #[must_use]
    pub fn hits(&self) -> u64 {
        let text = nft(&format!("list counter inet {} hits", self.table));
        let mut words = text.split_whitespace().skip_while(|word| *word != "packets");
        words.nth(1).and_then(|count| count.parse().ok()).expect("a count")
    }
}

impl Default for Resets {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Resets {
    fn drop(&mut self) {
        // Also where a test has failed.
        let _ = Command::new("nft").arg(format!("delete table inet {}", self.table)).status();
    }
}

fn nft(line: &str) -> String {
    let ended = Command::new("nft").arg(line).output().expect("nft is installed");
    assert!(ended.status.success(), "nft {line}: {}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8_lossy(&ended.stdout).into_owned()
}
