//! One declaration per setting.

use crate::error::ConfigError;
use crate::load::Values;

/// One setting of one service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Knob {
    /// In the file; the flag is the same with dashes, the variable `WEFT_SERVICE_KEY`.
    pub key: &'static str,
    /// Its Rust type, which tells whether TOML quotes the value.
    pub kind: &'static str,
    /// One or more lines.
    pub doc: &'static str,
    /// As it would be written as a flag. `None`: required, or absent where `kind` is an `Option` or a `Vec`.
    pub default: Option<&'static str>,
}

impl Knob {
    /// The flag, such as `--log-level`.
    #[must_use]
    pub fn flag(&self) -> String {
        format!("--{}", self.key.replace('_', "-"))
    }

    /// The environment variable, such as `WEFT_MGMTD_LOG_LEVEL`.
    #[must_use]
    pub fn variable(&self, service: &str) -> String {
        Self::variable_of(service, self.key)
    }

    pub(crate) fn variable_of(service: &str, key: &str) -> String {
        format!("WEFT_{service}_{key}").to_uppercase().replace('-', "_")
    }

    /// A list may be given several times as a flag, or with commas.
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.kind.starts_with("Vec")
    }

    /// It must be set somewhere.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.default.is_none() && !self.is_list() && !self.kind.starts_with("Option")
    }

    /// Lines of documentation without the space that doc comments begin with.
    pub fn doc_lines(&self) -> impl Iterator<Item = &'static str> {
        doc_lines(self.doc)
    }
}

pub(crate) fn doc_lines(doc: &'static str) -> impl Iterator<Item = &'static str> {
    doc.lines().map(|line| line.strip_prefix(' ').unwrap_or(line))
}

/// A flag that stands for several settings, such as `--join HOST:PORT`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shorthand {
    pub name: &'static str,
    /// What its value is called in the help.
    pub value_name: &'static str,
    /// One or more lines.
    pub doc: &'static str,
    /// The key that gets the flag's value.
    pub key: &'static str,
    /// Other keys and what the flag sets them to, as if they were flags themselves.
    pub sets: &'static [(&'static str, &'static str)],
    /// Defaults of other keys where the flag is given.
    pub defaults: &'static [(&'static str, &'static str)],
}

/// All settings of one service, as [`knobs!`](crate::knobs) declares them.
pub trait Knobs: Sized {
    /// As in `weft config default SERVICE`.
    const SERVICE: &'static str;
    const ABOUT: &'static str;
    const KNOBS: &'static [Knob];
    const SHORTHANDS: &'static [Shorthand];

    /// Makes the typed settings from merged texts.
    ///
    /// # Errors
    /// For the first key that is missing or has no valid value.
    fn from_values(values: &mut Values) -> Result<Self, ConfigError>;
}

/// Declares a struct of settings. Each field has its documentation and, after `=`, its default as text; a field without
/// one is required, or absent where it is an `Option` or a `Vec`. Field types are anything that serde can read from a
/// string, a number, a bool or a list of these. After the struct there may be shorthands: flags that stand for several
/// settings.
///
/// ```
/// conf::knobs! {
///     /// A service for this example.
///     pub struct Config for "example" {
///         /// Where it listens.
///         listen: std::net::SocketAddr = "127.0.0.1:9400",
///         /// Where it keeps its state.
///         dir: std::path::PathBuf,
///         /// How long it waits for an answer.
///         patience: conf::units::Period = "10s",
///     }
///
///     /// Listen there, and keep the state in the working directory where nothing else says so.
///     shorthand at "ADDRESS:PORT" for listen, with { patience = "1m" }, without { dir = "state" };
/// }
/// ```
#[macro_export]
macro_rules! knobs {
    (
        $(#[doc = $about:literal])*
        $visibility:vis struct $name:ident for $service:literal {
            $( $(#[doc = $doc:literal])* $field:ident : $type:ty $(= $default:literal)? ),* $(,)?
        }
        $(
            $(#[doc = $short_doc:literal])*
            shorthand $short:ident $value_name:literal for $key:ident,
            with { $( $set:ident = $text:literal ),* }, without { $( $unset:ident = $fallback:literal ),* };
        )*
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug)]
        $visibility struct $name {
            $( $(#[doc = $doc])* pub $field: $type, )*
        }

        impl $crate::Knobs for $name {
            const SERVICE: &'static str = $service;
            const ABOUT: &'static str = concat!($($about, "\n"),*);
            const KNOBS: &'static [$crate::Knob] = &[
                $( $crate::Knob {
                    key: stringify!($field),
                    kind: stringify!($type),
                    doc: concat!($($doc, "\n"),*),
                    default: $crate::knobs!(@default $($default)?),
                } ),*
            ];
            const SHORTHANDS: &'static [$crate::Shorthand] = &[
                $( $crate::Shorthand {
                    name: stringify!($short),
                    value_name: $value_name,
                    doc: concat!($($short_doc, "\n"),*),
                    key: stringify!($key),
                    sets: &[ $( (stringify!($set), $text) ),* ],
                    defaults: &[ $( (stringify!($unset), $fallback) ),* ],
                } ),*
            ];

            fn from_values(values: &mut $crate::load::Values) -> Result<Self, $crate::ConfigError> {
                Ok(Self { $( $field: values.take(stringify!($field))?, )* })
            }
        }
    };
    (@default) => { None };
    (@default $default:literal) => { Some($default) };
}
