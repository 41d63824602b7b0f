//! The data plane: connections between processes that hold the same cluster key, and calls over them.
//!
//! The rules are pure and apart from the sockets: who may connect ([`handshake`]), what may be received ([`receive`]),
//! which rails there are ([`pairs`]), which to use ([`rails`]), when one is cut ([`health`]) or deaf ([`hearing`]) and
//! when to go back to it ([`homing`]). Around them, on the ring: [`Connection`] and [`Peer`] call, [`serve`] answers.
//! [`bench`] measures them.
//!
//! What is malformed, oversized, truncated or replayed closes its connection with one log line and harms nothing else.

pub mod bench;
mod connection;
mod fences;
mod flow;
pub mod handshake;
pub mod health;
pub mod hearing;
pub mod homing;
mod identity;
mod inbound;
pub mod interfaces;
mod key;
mod limits;
mod local;
pub mod metrics;
mod outbox;
pub mod pairs;
mod peer;
mod pending;
pub mod places;
pub mod rails;
pub mod receive;
pub mod refusal;
mod responder;
mod server;
mod shake;
mod sharing;
mod way;

pub use connection::{Answer, CallError, ConnectError, Connection, To, WeakConnection};
pub use identity::Identity;
pub use key::{ClusterKey, KeyError};
pub use limits::Limits;
pub use peer::Peer;
pub use responder::{ConnectionId, PeerInfo, Responder};
pub use server::{Request, Service, serve};
pub use sharing::PLACED_MIN;
