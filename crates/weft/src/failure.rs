//! How a command fails: one line for people, one exit code for scripts.

use std::fmt;

/// Exit code for what went wrong while doing it.
const EXIT_FAILURE: u8 = 1;
/// Exit code for what the caller has to change: arguments, configuration, input. Nothing was changed.
pub(crate) const EXIT_USAGE: u8 = 2;

#[derive(Debug)]
pub(crate) enum Failure {
    /// Exit code 2.
    Usage(String),
    /// The exit code that a `conf::Fatal` among its causes asks for, else 1.
    Failed(anyhow::Error),
    /// Exit code 1 without a further word: the output has said it (findings of a check).
    Found,
}

/// A [`Failure::Usage`] from a format string.
macro_rules! usage {
    ($($arg:tt)*) => { $crate::failure::Failure::Usage(format!($($arg)*)) };
}
pub(crate) use usage;

impl Failure {
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) => EXIT_USAGE,
            Failure::Failed(error) => conf::exit_code(error.as_ref()),
            Failure::Found => EXIT_FAILURE,
        }
    }
}

impl fmt::Display for Failure {
    /// The causes follow their effect, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(text) => f.write_str(text),
            Failure::Failed(error) => write!(f, "{error:#}"),
            Failure::Found => Ok(()),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::Failed(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::Failed(error.into())
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_service_says_itself_whose_fault_it_is() {
        let refused: anyhow::Result<()> = Err(conf::Fatal::usage("wrong key").into());
        assert_eq!(Failure::from(refused.context("while starting").unwrap_err()).code(), EXIT_USAGE);
        assert_eq!(Failure::from(anyhow::anyhow!("lost")).code(), EXIT_FAILURE);
    }
}
