//! Settings and what lies around a service's directory: units, knobs merged from file, environment and flags, the
//! directory's lock, identity, place, page cache and file system, and errors that end the process with one clear line.
//!
//! A knob is declared once, with [`knobs!`]; file key, flag, environment variable, default and documentation follow.

pub mod atomic;
pub mod error;
pub mod fatal;
pub mod file_system;
pub mod flags;
pub mod identity;
pub mod knob;
pub mod load;
pub mod lock;
pub mod page_cache;
pub mod place;
pub mod template;
pub mod text;
pub mod units;

pub use error::ConfigError;
pub use fatal::{Fatal, exit_code};
pub use flags::Flags;
pub use knob::{Knob, Knobs, Shorthand};
pub use load::{Environment, Sources, load};
pub use template::template;

/// Reads a service's settings once more, from where they came at its start.
pub type Reread<C> = Box<dyn Fn() -> Result<C, ConfigError>>;
