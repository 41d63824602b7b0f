//! The commented file that `weft config default SERVICE` prints.

use std::fmt::Write;

use crate::knob::{Knob, Knobs};

/// A TOML file with every key of `C`, its documentation and default. Keys in `set` (key, value as a flag would have
/// it; a list with commas) are active lines; the others are comments that show the default.
///
/// # Panics
/// If `set` names a key that `C` does not have: a programmer's error.
#[must_use]
pub fn template<C: Knobs>(set: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for line in C::ABOUT.lines() {
        let _ = writeln!(text, "#{line}");
    }
    let _ = writeln!(
        text,
        "#\n# Each key is also a flag (--log-level) and an environment variable (WEFT_{}_LOG_LEVEL);",
        C::SERVICE.to_uppercase()
    );
    let _ = writeln!(text, "# flags win over the environment, the environment over this file.");
    for (key, _) in set {
        assert!(C::KNOBS.iter().any(|knob| knob.key == *key), "{} has no key {key}", C::SERVICE);
    }
    for knob in C::KNOBS {
        text.push('\n');
        for line in knob.doc_lines() {
            let _ = writeln!(text, "# {line}");
        }
        let chosen = set.iter().find(|(key, _)| *key == knob.key).map(|(_, value)| *value);
        let _ = match (chosen, knob.default) {
            (Some(value), _) => writeln!(text, "{} = {}", knob.key, literal(knob, value)),
            (None, Some(default)) => writeln!(text, "#{} = {}", knob.key, literal(knob, default)),
            (None, None) if knob.is_required() => writeln!(text, "# Required.\n#{} =", knob.key),
            (None, None) => writeln!(text, "# Not set by default.\n#{} =", knob.key),
        };
    }
    text
}

/// `value` as TOML writes it.
fn literal(knob: &Knob, value: &str) -> String {
    let kind = knob.kind.trim_start_matches("Option").trim_start_matches("Vec").trim_matches(['<', '>']);
    let bare = matches!(kind, "bool" | "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" | "f64");
    let one = |value: &str| if bare { value.to_owned() } else { toml::Value::String(value.to_owned()).to_string() };
    if knob.is_list() {
        let items: Vec<String> = value.split(',').filter(|item| !item.is_empty()).map(one).collect();
        format!("[{}]", items.join(", "))
    } else {
        one(value)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::{Flags, Sources};

    crate::knobs! {
        /// The service of these tests.
        pub(crate) struct Config for "example" {
            /// Where its state is.
            dir: PathBuf,
            /// Directories to serve,
            /// one per disk.
            targets: Vec<PathBuf> = "/a,/b",
            /// A port.
            port: u16 = "80",
            /// Absent by default.
            extra: Option<String>,
        }
    }

    #[test]
    fn every_key_is_there_with_documentation_and_default() {
        let text = template::<Config>(&[]);
        for part in [
            "# The service of these tests.\n",
            "# Where its state is.\n# Required.\n#dir =\n",
            "# Directories to serve,\n# one per disk.\n#targets = [\"/a\", \"/b\"]\n",
            "#port = 80\n",
            "# Not set by default.\n#extra =\n",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
    }

    #[test]
    fn what_is_printed_can_be_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("example.toml");
        let set = [("dir", "/with \"quotes\" and \\"), ("targets", "/x,/y"), ("port", "81")];
        std::fs::write(&path, template::<Config>(&set)).expect("written");
        let flags = Flags::default();
        let config: Config = Sources { file: Some(&path), environment: &crate::Environment::new(), flags: &flags }
            .load()
            .expect("valid");
        assert_eq!(config.dir, PathBuf::from("/with \"quotes\" and \\"));
        assert_eq!(config.targets, [PathBuf::from("/x"), PathBuf::from("/y")]);
        assert_eq!((config.port, config.extra), (81, None));
    }
}
