//! On whose behalf an operation runs.

use types::cred::Credentials;

/// Who asks, and whether they still want to know.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    pub cred: Credentials,
    /// Whether the application was signalled: an operation that waits for a server then ends with `EINTR`.
    interrupted: Option<&'a dyn Fn() -> bool>,
}

impl<'a> Caller<'a> {
    /// One that waits to the end.
    #[must_use]
    pub fn patient(cred: Credentials) -> Self {
        Self { cred, interrupted: None }
    }

    /// One for a record that is being appended, whoever began it.
    pub(crate) fn appending() -> Caller<'static> {
        Caller::patient(Credentials::default())
    }

    /// One whose wait ends when `interrupted` says so.
    #[must_use]
    pub fn interruptible(cred: Credentials, interrupted: &'a dyn Fn() -> bool) -> Self {
        Self { cred, interrupted: Some(interrupted) }
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.is_some_and(|interrupted| interrupted())
    }
}
