//! Log set-up: text or JSON lines on standard error, with levels that change at run time.

use std::fmt;
use std::io::{self, IsTerminal};
use std::str::FromStr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

/// How a log line looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Changes the level of the running process. Clones share the same filter.
#[derive(Clone)]
pub struct LogHandle(Arc<Shared>);

struct Shared {
    reload: reload::Handle<EnvFilter, Registry>,
    current: Mutex<String>,
}

/// The text is no log filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadFilter {
    text: String,
    reason: String,
}

/// The one of this process, set at the first `init`.
static HANDLE: OnceLock<LogHandle> = OnceLock::new();

/// Sends this process's log to standard error. `filter` is a level (`info`) or levels by crate
/// (`metad=debug,net=trace`), where crates not named stay at `info`. A second call changes only the filter.
///
/// # Errors
/// Where `filter` cannot be understood; nothing is changed then.
pub fn init(format: LogFormat, filter: &str) -> Result<LogHandle, BadFilter> {
    let parsed = parse(filter)?;
    let mut first = Some(parsed);
    let handle = HANDLE.get_or_init(|| {
        let (layer, reload) = reload::Layer::new(first.take().expect("only called once"));
        let registry = Registry::default().with(layer);
        let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
        // The only failure is that a test harness has set a subscriber before: then its lines serve.
        let _ = match format {
            LogFormat::Text => registry.with(lines).try_init(),
            LogFormat::Json => registry.with(lines.json()).try_init(),
        };
        LogHandle(Arc::new(Shared { reload, current: Mutex::new(filter.to_owned()) }))
    });
    if first.is_some() {
        handle.set(filter)?;
    }
    Ok(handle.clone())
}

impl LogHandle {
    /// Changes what is logged from now on; `filter` as in [`init`].
    ///
    /// # Errors
    /// Where `filter` cannot be understood; nothing is changed then.
    pub fn set(&self, filter: &str) -> Result<(), BadFilter> {
        let parsed = parse(filter)?;
        // Fails only when the subscriber is gone, at the end of the process.
        let _ = self.0.reload.reload(parsed);
        filter.trim().clone_into(&mut self.0.current.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    /// One that steers nothing, so that tests do not meet in the process's own.
    #[cfg(test)]
    pub(crate) fn detached(filter: &str) -> Self {
        let (_, reload) = reload::Layer::new(parse(filter).expect("a level"));
        Self(Arc::new(Shared { reload, current: Mutex::new(filter.to_owned()) }))
    }

    /// The filter in use.
    #[must_use]
    pub fn current(&self) -> String {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for LogHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogHandle({})", self.current())
    }
}

fn parse(filter: &str) -> Result<EnvFilter, BadFilter> {
    let bad = |reason: &dyn fmt::Display| BadFilter { text: filter.to_owned(), reason: reason.to_string() };
    let text = filter.trim();
    // A bare word that is no level would silently be taken for a crate's name, at its most talkative.
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    if let Some(word) = text.split(',').find(|part| !part.contains('=') && !levels.contains(&part.trim())) {
        return Err(bad(&format_args!("{word:?} is neither a level nor CRATE=LEVEL")));
    }
    EnvFilter::builder().parse(format!("info,{text}")).map_err(|error| bad(&error))
}

impl fmt::Display for BadFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "log level {:?}: {}; write one of off, error, warn, info, debug, trace, or CRATE=LEVEL,CRATE=LEVEL",
            self.text, self.reason
        )
    }
}

impl std::error::Error for BadFilter {}

impl FromStr for LogFormat {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("log format {text:?}: write text or json")),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_change_and_bad_ones_change_nothing() {
        let handle = init(LogFormat::Text, "warn").expect("a level");
        assert_eq!(init(LogFormat::Text, "info").expect("a level").current(), "info");
        handle.set("metad=debug,net=trace\n").expect("levels by crate");
        assert_eq!(handle.current(), "metad=debug,net=trace");
        for bad in ["chatty", "net=loud", ""] {
            assert!(handle.set(bad).is_err(), "{bad:?} was taken");
        }
        assert_eq!(handle.current(), "metad=debug,net=trace");
        assert!(handle.set("chatty").unwrap_err().to_string().contains("trace"));
    }
}
