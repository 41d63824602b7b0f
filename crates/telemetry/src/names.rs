//! The names of all metrics, with kind, unit, labels and meaning. A new metric is one line here.
//!
//! Counters get the suffix `_total` in the exposition.

/// What a metric measures and how it is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Def {
    pub name: &'static str,
    pub kind: Kind,
    /// Keys of its labels, in the order in which values are given.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only rises.
    Counter,
    Gauge,
    /// Histogram of durations, 10 us to 10 s.
    Seconds,
    /// Histogram of numbers of things, 1 to 4096.
    Sizes,
}

macro_rules! names {
    ($($name:ident = $text:literal, $kind:ident, [$($label:literal),*], $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $name: Def = Def { name: $text, kind: Kind::$kind, labels: &[$($label),*], help: $help };
        )*

        /// Every metric of every service.
        pub const ALL: &[Def] = &[$($name),*];
    };
}

names! {
    // All services; latencies of a mount: `weft_fuse_seconds`.
    REQUEST_SECONDS = "weft_request_seconds", Seconds, ["op"], "Time from a request's arrival to its reply, by operation";
    REQUEST_ERRORS = "weft_request_errors", Counter, ["op", "error"], "Requests answered with an error, by operation and error; of a mount, the kernel's";
    REQUESTS_IN_FLIGHT = "weft_requests_in_flight", Gauge, [], "Requests taken and not yet answered; of a shard, see its queues";
    QUEUE_DEPTH = "weft_queue_depth", Gauge, ["queue"], "Requests that wait, by what they wait for";
    BATCH_REQUESTS = "weft_batch_requests", Sizes, [], "Requests handled together: by a shard or mgmtd in one write batch, by a storage lane in one turn";
    SYNC_SECONDS = "weft_sync_seconds", Seconds, [], "Time to make what was written durable on disk: a log, mgmtd's store, an object";
    MAP_EPOCH = "weft_map_epoch", Gauge, [], "Epoch of the cluster map in use";
    CONNECTIONS = "weft_connections", Gauge, [], "Open connections with other processes of the cluster, accepted and made";
    CONNECTIONS_REFUSED = "weft_connections_refused", Counter, ["reason"], "Connections closed in or before the handshake, by reason";
    SENT_BYTES = "weft_sent_bytes", Counter, ["rail"], "Bytes sent, by the own address; local: within the host";
    RECEIVED_BYTES = "weft_received_bytes", Counter, ["rail"], "Bytes received, by the own address; local: within the host";

    // The data plane.
    FRAMES_REFUSED = "weft_frames_refused", Counter, ["reason"], "Connections closed for a malformed frame, by reason";
    PLACED_BYTES = "weft_placed_bytes", Counter, [], "Bytes exchanged in memory shared with a process of this host, as the answering side counts";
    RAIL_SENT_BYTES = "weft_rail_sent_bytes", Counter, ["rail", "peer"], "Bytes sent on connections made from here, by own and peer's address";
    RAIL_RECEIVED_BYTES = "weft_rail_received_bytes", Counter, ["rail", "peer"], "Bytes received on connections made from here, by own and peer's address";
    RAIL_CONNECTIONS = "weft_rail_connections", Gauge, ["rail", "peer"], "Open connections made from here, by own and peer's address";
    RAIL_HEALTHY = "weft_rail_healthy", Gauge, ["rail", "peer"], "0 where the last that happened on this rail was a failure, not long ago";
    RAIL_FAILURES = "weft_rail_failures", Counter, ["rail", "peer"], "Connections that were lost on this rail or could not be made";
    RAIL_ROUND_TRIP = "weft_rail_round_trip_microseconds", Gauge, ["rail", "peer"], "Round trip as the kernel last measured it";

    // mgmtd.
    NODES = "weft_nodes", Gauge, ["state"], "Registered nodes, by state";
    TARGETS = "weft_targets", Gauge, ["state"], "Registered targets, by state";
    HEARTBEATS = "weft_heartbeats", Counter, [], "Heartbeats received";
    MAP_SUBSCRIBERS = "weft_map_subscribers", Gauge, [], "Services and clients that watch the cluster map";

    // metad.
    COMMIT_SECONDS = "weft_commit_seconds", Seconds, [], "Time to commit one write batch";
    SESSIONS = "weft_sessions", Gauge, [], "Sessions of clients";
    OPEN_INODES = "weft_open_inodes", Gauge, [], "Inodes held open by sessions";
    DELETIONS_PENDING = "weft_deletions_pending", Gauge, [], "Objects of removed files still to be removed from their storage group";
    INLINE_FILES_GROWN = "weft_inline_files_grown", Counter, [], "Files whose contents grew out of the metadata and were moved to objects";
    RECALLS = "weft_lease_recalls", Counter, [], "Times that a client was told to give back leases";

    // storaged.
    READ_BYTES = "weft_read_bytes", Counter, ["target"], "Bytes read from objects, by target";
    READ_AHEAD_BYTES = "weft_read_ahead_bytes", Counter, [], "Bytes of objects read past the page cache before they were asked for";
    READ_AHEAD_USED_BYTES = "weft_read_ahead_used_bytes", Counter, [], "Bytes of those that a request then found there";
    PAST_CACHE_BYTES = "weft_past_cache_bytes", Counter, ["way"], "Bytes of objects read for requests, and written, past the page cache";
    WRITTEN_BYTES = "weft_written_bytes", Counter, ["target"], "Bytes written to objects, by target";
    CORRUPT_BLOCKS = "weft_corrupt_blocks", Counter, ["target"], "Reads of a block of an object that did not match its checksum";
    UNVERIFIED_BLOCKS = "weft_unverified_blocks", Counter, ["target"], "Blocks of objects read without a checksum to trust";
    TARGET_TOTAL_BYTES = "weft_target_total_bytes", Gauge, ["target"], "Size of a target's part of its file system, also of metad's";
    TARGET_FREE_BYTES = "weft_target_free_bytes", Gauge, ["target"], "Free bytes of a target's part of its file system, also of metad's";
    TARGET_FREE_INODES = "weft_target_free_inodes", Gauge, ["target"], "Free inodes of a target's part of its file system, also of metad's";
    TARGET_QUEUE_DEPTH = "weft_target_queue_depth", Gauge, ["target"], "Requests of a target taken and not yet answered";
    TARGET_AT_DISK = "weft_target_at_disk", Gauge, ["target"], "Of those, the ones that do not wait for a place at the target's disk";

    // Client and mount.
    FUSE_SECONDS = "weft_fuse_seconds", Seconds, ["op"], "Time from a kernel request's arrival to its reply, by operation";
    KEPT_BYTES = "weft_kept_bytes", Gauge, ["what"], "Bytes that the mount keeps in memory: contents of small files, read ahead, unwritten";
    CLIENT_RETRIES = "weft_client_retries", Counter, ["group"], "Requests sent again after a lost connection or a stale map, by group";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_well_formed() {
        let mut seen = std::collections::BTreeSet::new();
        for def in ALL {
            assert!(seen.insert(def.name), "{} is there twice", def.name);
            assert!(def.name.starts_with("weft_"), "{} lacks the prefix", def.name);
            assert!(def.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{} is no metric name", def.name);
            assert!(!def.name.ends_with("_total"), "{}: the exposition adds the suffix", def.name);
            assert!(!def.help.is_empty() && !def.help.ends_with('.'), "{}: help is one phrase", def.name);
        }
    }
}
