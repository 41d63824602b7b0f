//! Requests to a storage service that measure the network, NetBench: bytes that come from no disk, and go to none. They name
//! no object, so none of them can touch what is stored. Any lane answers, whatever the header's group.

use types::id::NodeId;

use crate::codec::{Bytes, messages, numbered};
use crate::frame::PAYLOAD_MAX;

/// Longest payload of one request, in bytes.
pub const BLOCK_MAX: u32 = PAYLOAD_MAX as u32;
/// Most requests in flight.
pub const DEPTH_MAX: u32 = 256;
/// Most threads that drive them.
pub const THREADS_MAX: u32 = 64;
/// Memory for what is in flight, in bytes.
pub const MEMORY_MAX: u64 = 1 << 30;
/// Longest duration of one measurement, in milliseconds: an hour.
pub const DURATION_MAX_MS: u64 = 3600 * 1000;
/// Most nodes of one run.
pub const NODES_MAX: usize = 256;

messages! {
    /// Asks for a payload of so many bytes, from memory. Refused with `EINVAL` above 8 MiB.
    NetRead { length: u32 }
    NetReadReply {}
    /// The payload is received, and forgotten.
    NetWrite {}
    NetWritten {
        /// Bytes of the payload.
        length: u32,
    }
    /// Has the answering service measure its own ways to other storage nodes, one after the other. Answered at once;
    /// `NetStatus` says how it goes. It ends by itself.
    NetStart {
        /// Names the run.
        run: u64,
        plan: NetPlan,
        nodes: Vec<NodeId>,
    }
    NetStarted {
        /// Empty: it has begun. Else a sentence for people that says why it has not.
        refused: Bytes,
    }
    /// What each measurement does.
    NetPlan {
        /// Bytes of one request.
        block: u32,
        /// Requests in flight, over all threads.
        depth: u32,
        threads: u32,
        duration_ms: u64,
    }
    NetStatus {}
    NetStatusReply {
        /// The last run since the service was started.
        run: Option<NetRun>,
    }
    NetRun {
        run: u64,
        under_way: bool,
        /// Those that have ended.
        measures: Vec<NetMeasure>,
    }
    /// One load over one way to one node.
    NetMeasure {
        node: NodeId,
        /// For people: the addresses at both ends, or what stands for several.
        way: Bytes,
        load: NetLoad,
        requests: u64,
        bytes: u64,
        elapsed_us: u64,
        /// How long half, 99 %, 99.9 % and all of the requests took at most, in nanoseconds.
        p50_ns: u64,
        p99_ns: u64,
        p999_ns: u64,
        max_ns: u64,
        /// Why it ended early, for people; empty: it did not.
        failure: Bytes,
    }
    /// Ends a run after the requests that are under way.
    NetStop {
        /// Only this one; 0: whichever it is.
        run: u64,
    }
}

numbered! {
    NetLoad {
        /// Empty requests, one at a time.
        Ping = 0,
        Write = 1,
        Read = 2,
    }
}

impl NetPlan {
    /// # Errors
    /// One sentence about the first thing that cannot be.
    pub fn check(&self) -> Result<(), String> {
        let Self { block, depth, threads, duration_ms } = *self;
        if block == 0 || block > BLOCK_MAX {
            return Err(format!("requests of {block} bytes: give a size between 1 byte and 8MiB"));
        }
        if depth == 0 || depth > DEPTH_MAX {
            return Err(format!("{depth} requests in flight: give between 1 and {DEPTH_MAX}"));
        }
        if threads == 0 || threads > THREADS_MAX || threads > depth {
            return Err(format!(
                "{threads} threads: give between 1 and {THREADS_MAX}, and no more than requests in flight"
            ));
        }
        if u64::from(block) * u64::from(depth) > MEMORY_MAX {
            return Err(format!("{depth} requests of {block} bytes each are over 1GiB: give fewer, or smaller ones"));
        }
        if duration_ms == 0 || duration_ms > DURATION_MAX_MS {
            return Err("each measurement takes between a millisecond and an hour".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_that_cannot_be_are_refused_with_the_reason() {
        let plan = NetPlan { block: 1 << 20, depth: 16, threads: 2, duration_ms: 3_000 };
        assert_eq!(plan.check(), Ok(()));
        for (wrong, word) in [
            (NetPlan { block: 0, ..plan.clone() }, "8MiB"),
            (NetPlan { block: BLOCK_MAX + 1, ..plan.clone() }, "8MiB"),
            (NetPlan { depth: 0, ..plan.clone() }, "in flight"),
            (NetPlan { depth: 257, ..plan.clone() }, "in flight"),
            (NetPlan { threads: 17, ..plan.clone() }, "threads"),
            (NetPlan { threads: 0, ..plan.clone() }, "threads"),
            (NetPlan { block: 8 << 20, depth: 256, ..plan.clone() }, "over 1GiB"),
            (NetPlan { duration_ms: 0, ..plan.clone() }, "an hour"),
            (NetPlan { duration_ms: DURATION_MAX_MS + 1, ..plan.clone() }, "an hour"),
        ] {
            let refusal = wrong.check().expect_err("refused");
            assert!(refusal.contains(word), "{refusal}");
        }
    }
}
