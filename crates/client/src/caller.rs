//! On whose behalf an operation runs.

use std::cell::Cell;

use types::cred::{Conditions, Credentials};

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
    /// What was found out of an inode or a name, for the shard to look at again with the change that it was found out for.
    given: Conditions,
}

impl<'a> Caller<'a> {
    /// One that waits to the end.
    #[must_use]
    pub fn patient(cred: Credentials) -> Self {
        let given = Conditions::default();
        Self { cred, interrupted: None, ending: None, doubt: None, needs_held_intent: false, given }
    }

    /// One for a record that is being appended, whoever began it.
    pub(crate) fn appending() -> Caller<'static> {
        Caller::patient(Credentials::default())
    }

    /// One whose wait for a lock ends when `interrupted` says so, and any other when `ending` does.
    #[must_use]
    pub fn interruptible(cred: Credentials, interrupted: &'a dyn Fn() -> bool, ending: &'a dyn Fn() -> bool) -> Self {
        Self { interrupted: Some(interrupted), ending: Some(ending), ..Self::patient(cred) }
    }

    /// This caller, in an operation that signals do not end: a wait for a lock ends only where the caller itself does.
    pub(crate) fn but_for_its_end(&self) -> Self {
        Self { interrupted: self.ending, ..*self }
    }

    /// This caller, whose waits for locks end when `interrupted` says so; it has to ask what interrupts this one as
    /// well.
    pub(crate) fn interrupted_by(&self, interrupted: &'a dyn Fn() -> bool) -> Self {
        Self { interrupted: Some(interrupted), ..*self }
    }

    /// This caller, who has it noted in `doubt` when an operation was given up that may be carried out all the same.
    pub(crate) fn noting(&self, doubt: &'a Cell<Option<Attempts>>) -> Self {
        Self { doubt: Some(doubt), ..*self }
    }

    /// This caller, in an operation that fails where the write intent is lost, instead of asking for another one.
    pub(crate) fn under_held_intent(&self) -> Self {
        Self { needs_held_intent: true, ..*self }
    }

    /// This caller, whose change is made only where it is as `given`; `ECANCELED` where it is not.
    pub(crate) fn where_given(&self, given: Conditions) -> Self {
        Self { given, ..*self }
    }

    pub(crate) fn given(&self) -> Conditions {
        self.given
    }

    /// Whether what it writes is written under the write intent that is held, or not at all.
    pub(crate) fn needs_held_intent(&self) -> bool {
        self.needs_held_intent
    }

    /// An operation was given up that may be carried out all the same; `unanswered` says when it was sent.
    pub(crate) fn note_doubt(&self, unanswered: Attempts) {
        if let Some(doubt) = self.doubt {
            doubt.set(Some(unanswered));
        }
    }

    /// The application was signalled: its waits for locks end with `EINTR`.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.is_some_and(|interrupted| interrupted())
    }

    /// The application ends: whatever waits for a server ends with `EINTR`.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some_and(|ending| ending())
    }

    /// It waits for no lock any more, since it was signalled or ends. Either may be known of alone.
    pub(crate) fn gives_up(&self) -> bool {
        self.is_interrupted() || self.is_ending()
    }
}
