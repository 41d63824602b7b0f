//! What has happened in a run, for those who compare runs and for those who look for a fault.

use std::fmt::Write;

use kv::Kv;

use super::{Packet, Sim};

impl Sim {
    pub(super) fn note(&mut self, packet: &Packet) {
        if let Some(record) = &mut self.record {
            let _ = writeln!(record, "{} {packet:?}", self.now_ms);
        }
    }

    /// From now on, what arrives is written down.
    pub(crate) fn begin_record(&mut self) {
        self.record = Some(String::new());
    }

    /// What has arrived since, and what all shards keep.
    pub(crate) fn take_record(&mut self) -> String {
        let mut record = self.record.take().expect("it was begun");
        for (index, node) in self.nodes.iter().enumerate() {
            let visit = |key: &[u8], value: &[u8]| {
                let _ = writeln!(record, "{index} {key:02x?} = {value:02x?}");
                std::ops::ControlFlow::Continue(())
            };
            node.kv.scan(b"", &[0xff; 64], visit).expect("readable");
        }
        record
    }
}

#[expect(clippy::print_stderr, reason = "who looks at a failed test wants to know which run it was")]
impl Drop for Sim {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.record.as_deref().unwrap_or_default());
            eprintln!("seed {}, event {}, {} ms", self.seed, self.events, self.now_ms);
        }
    }
}
