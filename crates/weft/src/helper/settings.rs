//! Mount options as flags of `weft mount`.

use std::ffi::OsString;

use conf::{Knob, Knobs};
use mount::config::Config;

use super::accesses::Accesses;

/// Options that are for `mount(8)` and the system's start, or say what is so anyway.
const NO_MATTER: [&str; 14] = [
    "defaults",
    "rw",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "async",
    "norelatime",
    "nolazytime",
];
/// Options that the kernel takes care of, by the words that switch them on and off: these a remount can change.
const FLAGS: [(&str, &str, libc::c_ulong); 4] = [
    ("ro", "rw", libc::MS_RDONLY),
    ("nosuid", "suid", libc::MS_NOSUID),
    ("nodev", "dev", libc::MS_NODEV),
    ("noexec", "exec", libc::MS_NOEXEC),
];
/// Settings that stand for flags, and the value with which they switch them on.
const SETTINGS_OF_FLAGS: [(&str, &str, libc::c_ulong); 3] = [
    ("--allow-suid", "false", libc::MS_NOSUID),
    ("--allow-devices", "false", libc::MS_NODEV),
    ("--noexec", "true", libc::MS_NOEXEC),
];
/// What words of `mount(8)` mean in settings; `noexec` is one by that name.
const MEANINGS: [(&str, (&str, &str)); 6] = [
    ("ro", ("read_only", "true")),
    ("suid", ("allow_suid", "true")),
    ("nosuid", ("allow_suid", "false")),
    ("dev", ("allow_devices", "true")),
    ("nodev", ("allow_devices", "false")),
    ("exec", ("noexec", "false")),
];
/// What those may do whom the table of file systems lets mount.
const IMPLIED: [(&str, &[&str]); 4] = [
    ("user", &["noexec", "nosuid", "nodev"]),
    ("users", &["noexec", "nosuid", "nodev"]),
    ("owner", &["nosuid", "nodev"]),
    ("group", &["nosuid", "nodev"]),
];
/// What `mount(8)` read in the list of mounts, and puts before the options of a remount.
const AS_MOUNTED: [&str; 5] = ["remount", "user_id", "group_id", "default_permissions", "allow_other"];

/// The options with what they imply, and without words of flags that later ones take back.
pub(super) fn in_force<'a>(options: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut words: Vec<&str> = Vec::new();
    for option in options {
        let implied = IMPLIED.iter().find(|(word, _)| *word == split(option).0).map_or(&[][..], |(_, implied)| implied);
        for word in std::iter::once(option).chain(implied.iter().copied()) {
            if let Some((on, off, _)) = FLAGS.iter().find(|(on, off, _)| [on, off].contains(&&word)) {
                words.retain(|before| before != on && before != off);
            }
            words.push(word);
        }
    }
    words
}

/// Flags of `weft mount`, so that they overrule what its file and environment say.
pub(super) fn flags_of_mount(options: &[&str], sloppy: bool) -> Result<Vec<OsString>, String> {
    let (mut said, mut accesses) = (Said::default(), Accesses::default());
    // `mount(8)` puts its own words before all others, whatever their order was: they are what counts.
    let (own, settings): (Vec<&str>, Vec<&str>) = options.iter().partition(|option| meaning(option).is_some());
    for option in settings.into_iter().chain(own) {
        if accesses.take(option) {
            continue;
        }
        match said.take(option) {
            Err(error) if !sloppy => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    for (key, value) in accesses.settings() {
        said.once(&format!("--{}", key.replace('_', "-")), &value);
    }
    Ok(said.0.into_iter().map(|(flag, value)| format!("{flag}={value}").into()).collect())
}

/// What a remount changes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Remount {
    on: libc::c_ulong,
    off: libc::c_ulong,
    /// `mount(8)` has put the mount's own words before the options. Where it finds a line of `/etc/fstab` it takes that in
    /// their place, which need not say what Weft's mounts have unless they are told otherwise.
    as_mounted: bool,
    pub(super) accesses: Accesses,
}

impl Remount {
    /// Weft's options other than those which stand for flags stay as they are.
    pub(super) fn asked(options: &[&str], sloppy: bool) -> Result<Self, String> {
        let (mut asked, mut said) = (Self::default(), Said::default());
        for option in options {
            asked.as_mounted |= split(option).0 == "user_id";
            let is_flag = FLAGS.iter().any(|(on, off, _)| [on, off].contains(&option));
            if is_flag || asked.accesses.take(option) || AS_MOUNTED.contains(&split(option).0) {
                continue;
            }
            match said.take(option) {
                Err(error) if !sloppy => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        for (setting, when, flag) in SETTINGS_OF_FLAGS {
            if let Some((_, value)) = said.0.iter().find(|(said, _)| said == setting) {
                asked.set(flag, value == when);
            }
        }
        let says_read_only = said.0.iter().any(|(flag, value)| flag == "--read-only" && value == "true");
        for option in options {
            if let Some((on, _, flag)) = FLAGS.iter().find(|(on, off, _)| [on, off].contains(&option)) {
                // `mount(8)` says `rw` wherever nobody says `ro`.
                asked.set(*flag, on == option || says_read_only && *flag == libc::MS_RDONLY);
            }
        }
        Ok(asked)
    }

    fn set(&mut self, flag: libc::c_ulong, is_on: bool) {
        let (to, from) = if is_on { (&mut self.on, &mut self.off) } else { (&mut self.off, &mut self.on) };
        *to |= flag;
        *from &= !flag;
    }

    /// The kernel's flags afterwards, where the list of mounts shows `options` now. Whether it is read-only `mount(8)` always
    /// says.
    pub(super) fn flags(&self, options: &str) -> libc::c_ulong {
        let kept =
            FLAGS.iter().filter(|(on, _, flag)| *flag != libc::MS_RDONLY && options.split(',').any(|word| word == *on));
        let now = if self.as_mounted { 0 } else { kept.fold(0, |now, (_, _, flag)| now | flag) };
        (now & !self.off) | self.on
    }
}

/// Flags and their values: of what is said twice the last counts, but of a list all.
#[derive(Default)]
struct Said(Vec<(String, String)>);

impl Said {
    fn take(&mut self, option: &str) -> Result<(), String> {
        if let Some((key, value)) = meaning(option) {
            self.once(&format!("--{}", key.replace('_', "-")), value);
            return Ok(());
        }
        match split(option) {
            ("config", Some(file)) => self.once("--config", file),
            // With it comes who has mounted it.
            ("user" | "comment", Some(_)) => {}
            (key, value) if key.starts_with("x-") || (value.is_none() && NO_MATTER.contains(&key)) => {}
            (key, value) => self.setting(key, value)?,
        }
        Ok(())
    }

    fn setting(&mut self, key: &str, value: Option<&str>) -> Result<(), String> {
        let key = key.replace('-', "_");
        let knob = Config::KNOBS.iter().find(|knob| knob.key == key && knob.key != "mountpoint");
        let knob: &Knob = knob.ok_or_else(|| format!("weft has no mount option {key}"))?;
        let value = match value {
            Some(value) => value,
            None if knob.kind == "bool" => "true",
            None => return Err(format!("the mount option {key} wants a value")),
        };
        if knob.is_list() {
            self.0.push((knob.flag(), value.to_owned()))
        } else {
            self.once(&knob.flag(), value)
        }
        Ok(())
    }

    fn once(&mut self, flag: &str, value: &str) {
        self.0.retain(|(before, _)| before != flag);
        self.0.push((flag.to_owned(), value.to_owned()));
    }
}

fn meaning(option: &str) -> Option<(&'static str, &'static str)> {
    MEANINGS.iter().find(|(word, _)| *word == option).map(|(_, setting)| *setting)
}

fn split(option: &str) -> (&str, Option<&str>) {
    option.split_once('=').map_or((option, None), |(key, value)| (key, Some(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(options: &str) -> String {
        let flags = flags_of_mount(&in_force(options.split(',')), false).expect("known options");
        flags.join(std::ffi::OsStr::new(" ")).into_string().expect("UTF-8")
    }

    #[test]
    fn of_two_words_of_a_flag_the_last_counts() {
        for (options, flags) in [
            ("nosuid,suid", "--allow-suid=true"),
            ("suid,nosuid", "--allow-suid=false"),
            ("suid", "--allow-suid=true"),
            ("dev", "--allow-devices=true"),
            ("dev,suid,nodev", "--allow-suid=true --allow-devices=false"),
            ("ro,rw", ""),
            ("rw,ro", "--read-only=true"),
            ("noexec,exec", "--noexec=false"),
            ("loops=2,interfaces=a,loops=3,interfaces=b", "--interfaces=a --loops=3 --interfaces=b"),
        ] {
            assert_eq!(asked(options), flags, "{options}");
        }
    }

    #[test]
    fn who_lets_users_mount_trusts_nothing_there() {
        let none = "--noexec=true --allow-suid=false --allow-devices=false";
        for (options, flags) in [
            ("user", none),
            ("suid,dev,users", none),
            ("user=joe,exec,suid", "--allow-devices=false --noexec=false --allow-suid=true"),
            ("owner", "--allow-suid=false --allow-devices=false"),
            ("noexec,nodev,user,suid", "--noexec=true --allow-devices=false --allow-suid=true"),
        ] {
            assert_eq!(asked(options), flags, "{options}");
        }
    }

    /// As `mount(8)` gives them, whatever their order was.
    #[test]
    fn words_of_mount_overrule_settings() {
        for (options, flags) in [
            ("rw,nosuid,allow_suid", "--allow-suid=false"),
            ("rw,nodev,allow_devices,allow_suid", "--allow-suid=true --allow-devices=false"),
            ("rw,read_only", "--read-only=true"),
            ("ro,read_only=false", "--read-only=true"),
            ("rw,noatime,access_times=strictatime", "--access-times=noatime"),
        ] {
            assert_eq!(asked(options), flags, "{options}");
        }
    }
}
