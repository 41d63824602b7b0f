//! On whose behalf an operation runs.

use std::cell::Cell;

use types::cred::Credentials;

use crate::retry::Attempts;

/// Who asks, and whether they still want to know.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    pub cred: Credentials,
    /// Whether the application was signalled: a wait for a lock then ends with `EINTR`.
    interrupted: Option<&'a dyn Fn() -> bool>,
    /// Whether it ends by that: so then does any operation that waits for a server.
    ending: Option<&'a dyn Fn() -> bool>,
    /// Set where an operation was given up that may be carried out all the same: to when it was sent.
    doubt: Option<&'a Cell<Option<Attempts>>>,
    /// What it writes is written under the write intent that is held, or not at all.
    needs_held_intent: bool,
}

impl<'a> Caller<'a> {
    /// One that waits to the end.
    #[must_use]
    pub fn patient(cred: Credentials) -> Self {
        Self { cred, interrupted: None, ending: None, doubt: None, needs_held_intent: false }
    }

    /// One for a record that is being appended, whoever began it.
    pub(crate) fn appending() -> Caller<'static> {
        Caller::patient(Credentials::default())
    }

    /// One whose wait for a lock ends when `interrupted` says so, and any other when `ending` does.
    #[must_use]
    pub fn interruptible(cred: Credentials, interrupted: &'a dyn Fn() -> bool, ending: &'a dyn Fn() -> bool) -> Self {
        Self { cred, interrupted: Some(interrupted), ending: Some(ending), doubt: None, needs_held_intent: false }
    }

    /// The same one, where a wait for a lock belongs to an operation that signals do not end.
    pub(crate) fn but_for_its_end(&self) -> Self {
        Self { interrupted: self.ending, ..*self }
    }

    /// The same one, whose wait for a lock also ends when `interrupted`, which knows of what interrupts this one, says so.
    pub(crate) fn interrupted_by(&self, interrupted: &'a dyn Fn() -> bool) -> Self {
        Self { interrupted: Some(interrupted), ..*self }
    }

    /// The same one, who wants to know of what may be carried out though it was given up.
    pub(crate) fn noting(&self, doubt: &'a Cell<Option<Attempts>>) -> Self {
        Self { doubt: Some(doubt), ..*self }
    }

    /// The same one, who asks for no other write intent where that is lost.
    pub(crate) fn under_held_intent(&self) -> Self {
        Self { needs_held_intent: true, ..*self }
    }

    pub(crate) fn needs_held_intent(&self) -> bool {
        self.needs_held_intent
    }

    pub(crate) fn note_doubt(&self, unanswered: Attempts) {
        if let Some(doubt) = self.doubt {
            doubt.set(Some(unanswered));
        }
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.is_some_and(|interrupted| interrupted())
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some_and(|ending| ending())
    }

    /// Waits for no lock any more. The one may not be heard of where the other is looked for.
    pub(crate) fn gives_up(&self) -> bool {
        self.is_interrupted() || self.is_ending()
    }
}
