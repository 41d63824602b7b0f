//! Requests to a storage lane about going over its objects and verifying their checksums. The header's group names the
//! target; each of its lanes goes over its own objects.

use types::id::ObjectId;

use crate::codec::{Bytes, messages};

/// Corrupt blocks that a run names; further ones are counted.
pub const NAMED_MAX: usize = 1000;

messages! {
    /// Begins a run on this lane. Answered at once; `ScrubStatus` says how it goes.
    ScrubStart {
        /// Names the run on all lanes, and rises from run to run: when it was begun, in milliseconds since 1970.
        run: u64,
        /// Bytes of objects that this lane reads in a second; 0: as many as it can.
        rate: u64,
        /// Targets that are to take part, this one among them: whoever asks later knows whether one has lost the run.
        targets: u32,
    }
    ScrubStarted {
        /// Empty: it has begun. Else a sentence for people that says why it has not.
        refused: Bytes,
    }
    ScrubStatus {}
    ScrubStatusReply {
        /// The last run since the service was started.
        run: Option<ScrubRun>,
    }
    ScrubRun {
        run: u64,
        rate: u64,
        /// As `ScrubStart` said.
        targets: u32,
        /// It goes on by itself.
        running: bool,
        /// It was ended by `ScrubStop`.
        stopped: bool,
        /// Why it failed, for people; else empty.
        failure: Bytes,
        /// Milliseconds since it began; at its end, how long it took.
        elapsed_ms: u64,
        /// What there was when it began; 0 until it has counted.
        objects_total: u64,
        bytes_total: u64,
        /// What it has gone over.
        objects: u64,
        bytes: u64,
        /// Blocks whose checksum was missing or in doubt for an innocent reason; they have one now.
        adopted: u64,
        /// Blocks that are corrupt or cannot be read.
        corrupt: u64,
        /// The first of those.
        named: Vec<ScrubCorrupt>,
    }
    ScrubCorrupt {
        object: ObjectId,
        /// Of the block, in bytes.
        offset: u64,
        /// The object's file on the node.
        path: Bytes,
        /// The disk does not give it; otherwise its checksum does not match.
        unreadable: bool,
    }
    /// Ends a run after the blocks that are being read.
    ScrubStop {
        /// Only this one; 0: whichever it is.
        run: u64,
    }
}
