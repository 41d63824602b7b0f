//! What the agent's thread tells to those who wait for it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use conf::Fatal;
use tokio::sync::watch;
use types::id::SessionId;

use crate::error::ControlError;
use crate::node::Registered;
use crate::view::View;

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    views: watch::Sender<View>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) registered: Option<Registered>,
    pub(super) session: Option<SessionId>,
    pub(super) view: View,
    pub(super) refused: Option<Fatal>,
    /// Why there is no connection, while there is none.
    pub(super) trouble: Option<ControlError>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), views: watch::Sender::new(View::default()) }
    }
}

impl Shared {
    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    pub(super) fn set_view(&self, view: &View) {
        self.change(|state| state.view = view.clone());
        self.views.send_replace(view.clone());
    }

    pub(super) fn view(&self) -> View {
        self.lock().view.clone()
    }

    pub(super) fn session(&self) -> Option<SessionId> {
        self.lock().session
    }

    pub(super) fn watch(&self) -> watch::Receiver<View> {
        self.views.subscribe()
    }

    /// Waits until `find` finds something, the agent is refused, or `patience` ends.
    pub(super) fn wait<T>(
        &self,
        patience: Option<Duration>,
        management: &str,
        find: impl Fn(&State) -> Option<T>,
    ) -> Result<T, Fatal> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        let mut state = self.lock();
        loop {
            if let Some(fatal) = &state.refused {
                return Err(fatal.clone());
            }
            if let Some(found) = find(&state) {
                return Ok(found);
            }
            let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Err(out_of_patience(&state, management));
            }
            // The state is checked again at least once a second, so a lost wake-up cannot hang.
            let waited = self.changed.wait_timeout(state, left.min(Duration::from_secs(1)));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment, so a panic elsewhere leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn out_of_patience(state: &State, management: &str) -> Fatal {
    let text = match &state.trouble {
        Some(error) => error.to_string(),
        None => format!("mgmtd at {management} answers, but the cluster is not ready"),
    };
    Fatal::failed(text)
}
