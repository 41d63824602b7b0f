//! The options of `mount(8)` about access times.

use std::fmt;

use types::time::AccessTimes;

/// What options say of access times; what they do not name is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Accesses {
    files: Option<AccessTimes>,
    directories: Option<bool>,
}

impl Accesses {
    /// Whether `option` is about access times: of several the last one counts.
    pub(super) fn take(&mut self, option: &str) -> bool {
        match option {
            "relatime" | "atime" | "nostrictatime" => self.files = Some(AccessTimes::Relatime),
            "strictatime" => self.files = Some(AccessTimes::Strictatime),
            "noatime" => self.files = Some(AccessTimes::Noatime),
            "diratime" => self.directories = Some(true),
            "nodiratime" => self.directories = Some(false),
            _ => return false,
        }
        true
    }

    /// How it is mounted, by the options that the kernel shows: it does not name what each access changes.
    pub(super) fn shown(options: &str) -> Self {
        let mut accesses = Self { files: Some(AccessTimes::Strictatime), directories: Some(true) };
        for option in options.split(',') {
            accesses.take(option);
        }
        accesses
    }

    /// Whether something else is asked for than what is `mounted`.
    pub(super) fn differs(self, mounted: Self) -> bool {
        let files = self.files.is_some_and(|rule| mounted.files != Some(rule));
        files || self.directories.is_some_and(|on| mounted.directories != Some(on))
    }

    /// As settings of a mount, with their values.
    pub(super) fn settings(self) -> impl Iterator<Item = (&'static str, String)> {
        let files = self.files.map(|rule| ("access_times", rule.to_string()));
        let directories = self.directories.map(|on| ("directory_access_times", on.to_string()));
        files.into_iter().chain(directories)
    }
}

/// As options of `mount(8)`.
impl fmt::Display for Accesses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.files.map(|rule| rule.to_string());
        let directories = self.directories.map(|on| if on { "diratime" } else { "nodiratime" }.to_owned());
        let words: Vec<String> = files.into_iter().chain(directories).collect();
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(options: &str) -> Accesses {
        let mut accesses = Accesses::default();
        for option in options.split(',') {
            assert!(accesses.take(option), "{option}");
        }
        accesses
    }

    #[test]
    fn what_is_asked_is_compared_with_what_is_shown() {
        for (shown, same, other) in [
            ("rw,nosuid,relatime", "relatime,diratime", "noatime"),
            ("rw,noatime", "relatime,noatime", "strictatime"),
            ("rw,nodiratime", "strictatime,nodiratime", "diratime"),
            ("rw,nodiratime,relatime", "noatime,atime", "nodiratime,strictatime"),
        ] {
            assert!(!asked(same).differs(Accesses::shown(shown)), "{shown}");
            assert!(asked(other).differs(Accesses::shown(shown)), "{shown}");
            assert!(!Accesses::default().differs(Accesses::shown(shown)));
        }
        assert!(!Accesses::default().take("noatimes"));
        assert_eq!(Accesses::shown("rw,nodiratime,noatime").to_string(), "noatime,nodiratime");
    }
}
