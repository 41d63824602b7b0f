//! Merges file, environment and flags into typed settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::error::{ConfigError, Origin};
use crate::flags::Flags;
use crate::knob::{Knob, Knobs};
use crate::text;

/// Where settings come from: flags win over the environment, the environment over the file, the file over defaults.
pub struct Sources<'a, C> {
    /// `None`: no file, all from the others.
    pub file: Option<&'a Path>,
    /// A value, so that tests need not change the process's own.
    pub environment: &'a Environment,
    pub flags: &'a Flags<C>,
}

/// Environment variables.
pub type Environment = BTreeMap<String, String>;

/// Reads the settings of one service, with this process's environment.
///
/// # Errors
/// For the first thing that is wrong: file, key, and what to do.
pub fn load<C: Knobs>(file: Option<&Path>, flags: &Flags<C>) -> Result<C, ConfigError> {
    let environment =
        std::env::vars_os().filter_map(|(name, value)| name.into_string().ok().zip(value.into_string().ok()));
    Sources { file, environment: &environment.collect(), flags }.load()
}

impl<C: Knobs> Sources<'_, C> {
    /// # Errors
    /// As [`load`].
    pub fn load(&self) -> Result<C, ConfigError> {
        let mut values = Values::defaults::<C>();
        for knob in C::KNOBS {
            if let Some(text) = self.flags.default_of(knob.key) {
                values.set(knob, split(knob, text), Origin::Default);
            }
        }
        if let Some(path) = self.file {
            values.merge_file::<C>(path)?;
        }
        refuse_misspelled::<C>(self.environment)?;
        for knob in C::KNOBS {
            let variable = knob.variable(C::SERVICE);
            if let Some(text) = self.environment.get(&variable) {
                values.set(knob, split(knob, text), Origin::Environment(variable));
            }
            if let Some(texts) = self.flags.given(knob.key) {
                let texts = texts.iter().flat_map(|text| split(knob, text)).collect();
                values.set(knob, texts, Origin::Flag(knob.flag()));
            }
        }
        C::from_values(&mut values)
    }
}

/// Merged texts by key, with where each came from.
pub struct Values {
    service: &'static str,
    knobs: &'static [Knob],
    by_key: BTreeMap<&'static str, (Vec<String>, Origin)>,
}

impl Values {
    fn defaults<C: Knobs>() -> Self {
        let mut values = Self { service: C::SERVICE, knobs: C::KNOBS, by_key: BTreeMap::new() };
        for knob in C::KNOBS {
            if let Some(text) = knob.default {
                values.set(knob, split(knob, text), Origin::Default);
            }
        }
        values
    }

    /// The typed value of `key`; for the code that [`knobs!`](crate::knobs) makes.
    ///
    /// # Errors
    /// Where it is set nowhere or is no `T`.
    pub fn take<T: DeserializeOwned>(&mut self, key: &str) -> Result<T, ConfigError> {
        let knob = self.knobs.iter().find(|knob| knob.key == key).expect("the macro takes only declared keys");
        let (texts, origin) = match self.by_key.remove(key) {
            Some(found) => found,
            None if knob.is_required() => return Err(self.not_set(knob)),
            None => (Vec::new(), Origin::Default),
        };
        text::read(&texts).map_err(|error| ConfigError::new(origin, key, error.to_string()))
    }

    fn not_set(&self, knob: &Knob) -> ConfigError {
        let (flag, variable) = (knob.flag(), knob.variable(self.service));
        let reason = format!("is not set: set it in the file, with {flag} or in {variable}");
        ConfigError::new(Origin::Nowhere(self.service), knob.key, reason)
    }

    fn set(&mut self, knob: &Knob, texts: Vec<String>, origin: Origin) {
        self.by_key.insert(knob.key, (texts, origin));
    }

    fn merge_file<C: Knobs>(&mut self, path: &Path) -> Result<(), ConfigError> {
        let origin = || Origin::File(path.to_owned());
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::new(origin(), "", format!("cannot be read: {error}")))?;
        let table: toml::Table = text.parse().map_err(|error| syntax_error(path, &text, &error))?;
        for (key, value) in &table {
            let knob = C::KNOBS
                .iter()
                .find(|knob| knob.key == key)
                .ok_or_else(|| ConfigError::new(origin(), key, unknown_key::<C>(key)))?;
            let texts = texts_of(value).ok_or_else(|| {
                ConfigError::new(origin(), key, "must be a string, a number, a bool or a list of these")
            })?;
            self.set(knob, texts, origin());
        }
        Ok(())
    }
}

fn syntax_error(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let place = line.map_or_else(|| path.to_owned(), |line| PathBuf::from(format!("{}:{line}", path.display())));
    ConfigError::new(Origin::File(place), "", format!("is no valid TOML: {}", error.message()))
}

/// A variable that is hardly one of ours is none: others make such names too, as Kubernetes does of the names of services
/// (`WEFT_MGMTD_SERVICE_HOST`).
fn refuse_misspelled<C: Knobs>(environment: &Environment) -> Result<(), ConfigError> {
    let prefix = Knob::variable_of(C::SERVICE, "");
    for name in environment.range(prefix.clone()..).map(|(name, _)| name).take_while(|name| name.starts_with(&prefix)) {
        let key = name[prefix.len()..].to_lowercase();
        let is_known = C::KNOBS.iter().any(|knob| knob.variable(C::SERVICE) == *name);
        if !is_known && nearest::<C>(&key).is_some_and(|(distance, _)| distance <= 2) {
            return Err(ConfigError::new(Origin::Environment(name.clone()), &key, unknown_key::<C>(&key)));
        }
    }
    Ok(())
}

fn unknown_key<C: Knobs>(key: &str) -> String {
    let near = nearest::<C>(key).filter(|(distance, _)| *distance <= 3);
    let hint = near.map(|(_, near)| format!("did you mean {near}? "));
    format!("no such key: {}`weft config default {}` prints them all", hint.unwrap_or_default(), C::SERVICE)
}

/// The key that takes the fewest edits.
fn nearest<C: Knobs>(key: &str) -> Option<(usize, &'static str)> {
    C::KNOBS.iter().map(|knob| (distance(key, knob.key), knob.key)).min()
}

/// Edits (insert, remove, replace) that turn one key into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<u8> = b.bytes().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn texts_of(value: &toml::Value) -> Option<Vec<String>> {
    match value {
        toml::Value::Array(items) => items.iter().map(text_of).collect(),
        _ => Some(vec![text_of(value)?]),
    }
}

fn text_of(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(yes) => Some(yes.to_string()),
        toml::Value::Datetime(_) | toml::Value::Array(_) | toml::Value::Table(_) => None,
    }
}

/// The values in one text: a list splits at commas.
fn split(knob: &Knob, text: &str) -> Vec<String> {
    if knob.is_list() {
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    } else {
        vec![text.to_owned()]
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use super::*;
    use crate::units::{Period, Size};

    crate::knobs! {
        /// For these tests.
        pub(crate) struct Config for "example" {
            /// Where it listens.
            listen: SocketAddr = "127.0.0.1:9400",
            /// Where its state is.
            dir: PathBuf,
            /// Directories to serve.
            targets: Vec<PathBuf>,
            patience: Period = "10s",
            memory: Size = "64MiB",
            metrics_listen: Option<SocketAddr>,
        }
    }

    fn load_with(
        file: Option<&str>,
        environment: &[(&str, &str)],
        flags: &[(&'static str, &str)],
    ) -> Result<Config, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("example.toml");
        if let Some(text) = file {
            std::fs::write(&path, text).expect("written");
        }
        let mut given = Flags::<Config>::default();
        for (key, value) in flags {
            given.give(key, value);
        }
        let environment = environment.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let sources = Sources { file: file.map(|_| path.as_path()), environment: &environment, flags: &given };
        sources.load().map_err(|error| error.to_string().replace(&dir.path().display().to_string(), "DIR"))
    }

    #[test]
    fn flags_win_over_environment_over_file_over_defaults() {
        let file = "dir = '/f'\npatience = '1s'\nmemory = 4096\ntargets = ['/a', '/b']\n";
        let environment = [("WEFT_EXAMPLE_PATIENCE", "2s"), ("WEFT_EXAMPLE_DIR", "/e")];
        let config = load_with(Some(file), &environment, &[("dir", "/flag")]).expect("valid");
        assert_eq!(config.dir, PathBuf::from("/flag"));
        assert_eq!(*config.patience, Duration::from_secs(2));
        assert_eq!(config.memory, Size(4096));
        assert_eq!(config.targets, [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!(config.listen.port(), 9400);
        assert_eq!(config.metrics_listen, None);
        let config = load_with(Some(file), &[("WEFT_EXAMPLE_TARGETS", "/x, /y,/z")], &[]).expect("valid");
        assert_eq!(config.targets.len(), 3);
        let of_others =
            [("WEFT_EXAMPLE_SERVICE_HOST", "10.0.0.1"), ("WEFT_EXAMPLES_DIR", "/x"), ("WEFT_EXAMPL_DIR", "/x")];
        assert!(load_with(Some(file), &of_others, &[]).is_ok());
    }

    #[test]
    fn each_mistake_is_one_line_with_place_key_and_remedy() {
        let cases = [
            (
                load_with(None, &[], &[]),
                "configuration of example: dir: is not set: set it in the file, with --dir or in WEFT_EXAMPLE_DIR",
            ),
            (
                load_with(Some("dir = '/d'\nlisten_ = 'x'"), &[], &[]),
                "DIR/example.toml: listen_: no such key: did you mean listen? `weft config default example` prints them all",
            ),
            (
                load_with(Some("dir = '/d'\npatience = 10"), &[], &[]),
                "DIR/example.toml: patience: \"10\" is no duration: write it with a unit, like 500ms, 10s or 5m",
            ),
            (
                load_with(Some("dir = '/d'\n[listen]\na=1"), &[], &[]),
                "DIR/example.toml: listen: must be a string, a number, a bool or a list of these",
            ),
            (
                load_with(None, &[("WEFT_EXAMPLE_MEMORY", "lots")], &[("dir", "/")]),
                "environment variable WEFT_EXAMPLE_MEMORY: memory: \"lots\" is no size: write it like 512KiB, 4GiB or 4096",
            ),
            (
                load_with(None, &[("WEFT_EXAMPLE_PATIENSE", "1s")], &[("dir", "/")]),
                "environment variable WEFT_EXAMPLE_PATIENSE: patiense: no such key: did you mean patience? \
                 `weft config default example` prints them all",
            ),
            (
                load_with(None, &[], &[("dir", "/"), ("listen", "here")]),
                "flag --listen: listen: invalid socket address syntax",
            ),
        ];
        for (result, expected) in cases {
            assert_eq!(result.map(|_| ()).unwrap_err(), expected);
        }
        let syntax = load_with(Some("dir = '/d'\npatience = = 3"), &[], &[]).map(|_| ()).unwrap_err();
        assert!(syntax.starts_with("DIR/example.toml:2: is no valid TOML: ") && !syntax.contains('\n'), "{syntax}");
    }
}
