//! The process itself: memory and CPU time, read from `/proc` when somebody asks.

use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::metrics::level;

/// Linux shows CPU times in `/proc` in hundredths of a second on every architecture (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// What one process uses.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Usage {
    pub resident_bytes: u64,
    /// User and system time of all threads, in seconds.
    pub cpu_seconds: f64,
    pub threads: u64,
}

impl Usage {
    /// Of this process; `None` where `/proc` is not mounted.
    #[must_use]
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/stat").ok()?, &fs::read_to_string("/proc/self/status").ok()?)
    }

    fn parse(stat: &str, status: &str) -> Option<Self> {
        // The command name in parentheses may hold anything, so fields count from the last parenthesis: state is 3.
        let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let resident_kib: u64 = resident.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(Self {
            resident_bytes: resident_kib * 1024,
            cpu_seconds: (number(14)? + number(15)?) as f64 / TICKS_PER_SECOND,
            threads: number(20)?,
        })
    }
}

#[derive(Debug)]
pub(crate) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let Some(usage) = Usage::now() else { return Ok(()) };
        let gauges = [
            ("process_resident_memory_bytes", "Resident memory of the process", usage.resident_bytes),
            ("process_threads", "Threads of the process", usage.threads),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(level(value));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let cpu = ConstCounter::new(usage.cpu_seconds);
        let help = "User and system CPU time of the process";
        cpu.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, cpu.metric_type())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_fields_behind_a_hostile_command_name() {
        let stat = "7 (a) b) (c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 9 0 100";
        let status = "Name:\tx\nVmRSS:\t    2048 kB\n";
        let usage = Usage::parse(stat, status).expect("well formed");
        assert_eq!(usage, Usage { resident_bytes: 2 << 20, cpu_seconds: 3.0, threads: 9 });
        assert_eq!(Usage::parse("garbage", status), None);
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(Usage::now().expect("Linux has /proc").resident_bytes > 0);
    }
}
