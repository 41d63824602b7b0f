//! Errors that end the process: one line that says what to do, and the exit code.

use std::error::Error;
use std::io;

use thiserror::Error;
use types::error::Errno;

/// The process cannot go on. Carried by `anyhow` through any context up to `main`, which asks [`exit_code`].
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{message}")]
pub struct Fatal {
    pub message: String,
    pub code: u8,
}

/// Exit code of failures in general.
pub const FAILED: u8 = 1;
/// Exit code where configuration, input or environment is at fault and nothing was changed: starting again without a
/// change by the user gives the same.
pub const USAGE: u8 = 2;

impl Fatal {
    /// The user must change something: exit code 2.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: USAGE }
    }

    /// It failed now and may work later: exit code 1.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: FAILED }
    }

    /// A file or directory cannot be used: a disk that is full or fails may be better later, all else the user must change.
    #[must_use]
    pub fn unusable(message: impl Into<String>, error: &io::Error) -> Self {
        let is = |errno: &Errno| error.raw_os_error() == Some(i32::from(errno.0));
        if [Errno::ENOSPC, Errno::EDQUOT, Errno::EIO].iter().any(is) {
            Self::failed(message)
        } else {
            Self::usage(message)
        }
    }
}

/// Why a directory was not opened.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Unopened {
    /// It is somebody else's, or cannot become a new one: whoever configured it has to change that.
    #[error(transparent)]
    Wrong(Fatal),
    /// Its disk is not there, or gives back less than was written. Another time it may be the right one.
    #[error(transparent)]
    Away(Fatal),
}

impl From<Unopened> for Fatal {
    fn from(unopened: Unopened) -> Self {
        match unopened {
            Unopened::Wrong(fatal) | Unopened::Away(fatal) => fatal,
        }
    }
}

/// The exit code that `error` or one of its causes asks for; 1 where none does.
#[must_use]
pub fn exit_code(error: &(dyn Error + 'static)) -> u8 {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(fatal) = error.downcast_ref::<Fatal>() {
            return fatal.code;
        }
        if error.is::<crate::ConfigError>() {
            return USAGE;
        }
        next = error.source();
    }
    FAILED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Error)]
    #[error("while starting")]
    struct Context(#[source] Fatal);

    #[test]
    fn the_code_is_found_below_any_context() {
        assert_eq!(exit_code(&Context(Fatal::usage("port in use"))), 2);
        assert_eq!(exit_code(&std::io::Error::other("x")), 1);
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        let code = |errno: Errno| Fatal::unusable("dir", &io::Error::from_raw_os_error(errno.0.into())).code;
        let codes = [Errno::ENOSPC, Errno::EIO, Errno::EACCES, Errno::EROFS].map(code);
        assert_eq!(codes, [FAILED, FAILED, USAGE, USAGE]);
        assert_eq!(Fatal::unusable("dir", &io::Error::other("x")).code, USAGE);
    }
}
