//! What is wrong with a configuration, in one line that names the place, the key and what to do.

use std::fmt;
use std::path::PathBuf;

/// Where a value came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    Default,
    File(PathBuf),
    Environment(String),
    Flag(String),
    /// No source in particular, such as a required key that is in none.
    Nowhere(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("built-in default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
            Self::Nowhere(service) => write!(f, "configuration of {service}"),
        }
    }
}

/// The configuration cannot be used; nothing was started. Exit code 2.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    pub origin: Origin,
    /// Empty where the whole file is at fault.
    pub key: String,
    pub reason: String,
}

impl ConfigError {
    #[must_use]
    pub fn new(origin: Origin, key: &str, reason: impl Into<String>) -> Self {
        // One line, whatever a parser said.
        let reason: String = reason.into();
        let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        Self { origin, key: key.to_owned(), reason }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            write!(f, "{}: {}", self.origin, self.reason)
        } else {
            write!(f, "{}: {}: {}", self.origin, self.key, self.reason)
        }
    }
}

impl std::error::Error for ConfigError {}
