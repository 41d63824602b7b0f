//! What a service tells about itself: logs whose level changes at run time, metrics that cost one atomic addition,
//! and the HTTP endpoint that serves both. Also the wall clock, which all services read alike.
//!
//! Handles to metrics are resolved once, at start; no label is looked up on a request path.

mod bounded;
pub mod clock;
pub mod histogram;
pub mod http;
pub mod log;
pub mod metrics;
pub mod names;
pub mod process;
pub mod runtime;
pub mod seldom;
