//! The binary under the name `mount.weft`: what `mount -t weft` and `/etc/fstab` call, with the arguments that
//! `mount(8)` gives such a helper. They are put into the words of `weft mount`, which then does it.

mod accesses;
mod settings;

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::command::this_program;
use crate::failure::EXIT_USAGE;
use crate::local::mounts;
use crate::output;

use accesses::Accesses;
use settings::{Remount, flags_of_mount, in_force};

/// By these names `mount(8)` looks for a helper: for `-t weft` and `-t fuse.weft`.
const NAMES: [&str; 2] = ["mount.weft", "mount.fuse.weft"];
/// Exit codes as `mount(8)` knows them.
const WRONG_USE: u8 = 1;
const FAILED: u8 = 32;
/// What the kernel shows as the device before the cluster's address.
const SOURCE_PREFIX: &str = "weft@";

/// What the helper was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Asked {
    /// `weft` with these arguments. `tells`: what it has done.
    Mount { words: Vec<OsString>, tells: bool },
    /// What is mounted there gets other flags.
    Remount(OsString, Remount),
    /// `-f`: all but the mounting.
    Nothing,
}

/// Whether the program was called by a helper's name.
pub(crate) fn is_asked(program: Option<&OsStr>) -> bool {
    let name = program.and_then(|program| Path::new(program).file_name());
    name.is_some_and(|name| NAMES.iter().any(|helper| name == *helper))
}

/// Mounts as the arguments say. They are those after the program's name.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let (words, tells) = match translate(arguments) {
        Ok(Asked::Mount { words, tells }) => (words, tells),
        Ok(Asked::Remount(point, asked)) => return remounted(&point, &asked),
        Ok(Asked::Nothing) => return ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&format!("mount.weft: {error}"));
            return ExitCode::from(WRONG_USE);
        }
    };
    // Its own name again would make it this helper again.
    let mut command = Command::new(this_program());
    command.arg0("weft").args(words);
    // Whoever mounts by `mount(8)` expects it to say nothing where all is well.
    if !tells {
        command.stdout(Stdio::null());
    }
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) if status.code() == Some(i32::from(EXIT_USAGE)) => ExitCode::from(WRONG_USE),
        Ok(_) => ExitCode::from(FAILED),
        Err(error) => {
            output::complain(&format!("mount.weft: cannot start weft: {error}"));
            ExitCode::from(FAILED)
        }
    }
}

fn remounted(point: &OsStr, asked: &Remount) -> ExitCode {
    match remount(point, asked) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&format!("mount.weft: cannot remount {}: {error}", point.display()));
            ExitCode::from(FAILED)
        }
    }
}

fn remount(point: &OsStr, asked: &Remount) -> anyhow::Result<()> {
    let options = mounts::at(Path::new(point))?.map(|mount| mount.options).unwrap_or_default();
    // The kernel does not tell a mount that it has other flags now.
    let (mounted, accesses) = (Accesses::shown(&options), &asked.accesses);
    anyhow::ensure!(
        options.is_empty() || !accesses.differs(mounted),
        "its access times stay as they were mounted ({mounted}); for {accesses} unmount it and mount it again"
    );
    Ok(set_flags(point, asked.flags(&options))?)
}

fn set_flags(point: &OsStr, flags: libc::c_ulong) -> io::Result<()> {
    let point = CString::new(point.as_bytes())?;
    let none = std::ptr::null();
    // SAFETY: the path is terminated and lives through the call; the kernel reads nothing else for a remount.
    let result = unsafe { libc::mount(none, point.as_ptr(), none, libc::MS_REMOUNT | flags, none.cast()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn translate(arguments: impl Iterator<Item = OsString>) -> Result<Asked, String> {
    let mut places = Vec::new();
    let (mut sloppy, mut fake, mut tells, mut options) = (false, false, false, Vec::new());
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        match argument.to_str().and_then(|text| text.strip_prefix('-')) {
            Some("o") => options.push(text(arguments.next(), "-o")?),
            // The type is known by our name.
            Some("t") => drop(text(arguments.next(), "-t")?),
            Some(letters) if !letters.is_empty() => {
                for letter in letters.chars() {
                    match letter {
                        's' => sloppy = true,
                        'f' => fake = true,
                        'r' => options.push("ro".into()),
                        'v' => tells = true,
                        'w' => options.push("rw".into()),
                        'n' => {}
                        _ => {
                            return Err(format!(
                                "-{letter} is no flag of a mount helper; `weft mount --help` has more"
                            ));
                        }
                    }
                }
            }
            Some(_) | None => places.push(argument),
        }
    }
    let [source, point] = <[OsString; 2]>::try_from(places).map_err(|places| {
        format!("give a cluster and a directory, as in `mount.weft HOST:PORT /mnt`, not {}", places.len())
    })?;
    let options = in_force(options.iter().flat_map(|list| list.split(',')).filter(|option| !option.is_empty()));
    if options.contains(&"remount") {
        let asked = Remount::asked(&options, sloppy)?;
        return Ok(if fake { Asked::Nothing } else { Asked::Remount(point, asked) });
    }
    let mut words = vec!["mount".into(), point];
    words.extend(cluster(source)?);
    words.extend(flags_of_mount(&options, sloppy)?);
    Ok(if fake { Asked::Nothing } else { Asked::Mount { words, tells } })
}

fn text(argument: Option<OsString>, flag: &str) -> Result<String, String> {
    let argument = argument.ok_or_else(|| format!("{flag} wants a value"))?;
    argument.into_string().map_err(|argument| format!("{} is no valid UTF-8", argument.display()))
}

/// A directory that `weft up` made a cluster in, or where its management service is.
fn cluster(source: OsString) -> Result<[OsString; 2], String> {
    if Path::new(&source).is_absolute() {
        return Ok(["--dir".into(), source]);
    }
    let address = text(Some(source), "the cluster")?;
    let address = address.strip_prefix(SOURCE_PREFIX).unwrap_or(&address).to_owned();
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    if port.is_none() {
        return Err(format!(
            "{address} is neither HOST:PORT of a management service nor the path of a cluster's directory"
        ));
    }
    Ok(["--mgmtd".into(), address.into()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<Asked, String> {
        translate(line.split_whitespace().map(OsString::from))
    }

    fn mounts(line: &str) -> String {
        match asked(line) {
            Ok(Asked::Mount { words, .. }) => words.join(OsStr::new(" ")).into_string().expect("UTF-8"),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn is_known_by_its_name() {
        for name in ["/sbin/mount.weft", "mount.fuse.weft"] {
            assert!(is_asked(Some(OsStr::new(name))));
        }
        assert!(!is_asked(Some(OsStr::new("/usr/bin/weft"))) && !is_asked(None));
    }

    #[test]
    fn says_it_in_the_words_of_weft() {
        for (line, words) in [
            ("weft@host:9400 /mnt -o rw,_netdev,noauto,key_file=/k", "mount /mnt --mgmtd host:9400 --key-file=/k"),
            ("[::1]:9400 /mnt -v -o ro -o loops=2", "mount /mnt --mgmtd [::1]:9400 --loops=2 --read-only=true"),
            ("/srv/.weft /mnt -nr", "mount /mnt --dir /srv/.weft --read-only=true"),
            (
                "h:1 /mnt -o suid,local-locks,share_memory=false,x-systemd.requires=a.service,config=/c",
                "mount /mnt --mgmtd h:1 --local-locks=true --share-memory=false --config=/c --allow-suid=true",
            ),
            (
                "h:1 /mnt -o noatime,relatime,strictatime,nodiratime",
                "mount /mnt --mgmtd h:1 --access-times=strictatime --directory-access-times=false",
            ),
            ("h:1 /mnt -s -o sync,frobnicate", "mount /mnt --mgmtd h:1"),
            ("h:1 /mnt -r -o loops=2 -w", "mount /mnt --mgmtd h:1 --loops=2"),
            ("h:1 /mnt -t fuse.weft", "mount /mnt --mgmtd h:1"),
        ] {
            assert_eq!(mounts(line), words);
        }
        assert_eq!(asked("h:1 /mnt -f -o ro"), Ok(Asked::Nothing));
        for (line, expected) in [("h:1 /mnt -n", false), ("h:1 /mnt -nv", true)] {
            assert!(matches!(asked(line), Ok(Asked::Mount { tells, .. }) if tells == expected), "{line}");
        }
    }

    #[test]
    fn a_remount_changes_the_kernels_flags_alone() {
        let shown = "nosuid,nodev,relatime,user_id=0,group_id=0,default_permissions,allow_other";
        let (quiet, read_only) = (libc::MS_NOSUID | libc::MS_NODEV, libc::MS_RDONLY);
        for (options, flags) in [
            (format!("ro,{shown},remount"), quiet | read_only),
            (format!("rw,{shown},remount,key_file=/k,_netdev"), quiet),
            (format!("ro,{shown},remount,rw,suid,dev,noexec"), libc::MS_NOEXEC),
            (format!("rw,{shown},remount,user,suid"), libc::MS_NODEV | libc::MS_NOEXEC),
            // Of a line of `/etc/fstab`, which says nothing of what is so by default.
            ("ro,key_file=/k,_netdev,nofail,remount".into(), quiet | read_only),
            ("rw,allow_suid,remount".into(), libc::MS_NODEV),
            ("rw,allow_suid=false,allow_devices,noexec,remount".into(), libc::MS_NOSUID | libc::MS_NOEXEC),
            ("rw,allow_suid,suid,dev,remount".into(), 0),
            ("rw,allow_suid,nosuid,remount".into(), quiet),
            ("rw,read_only,noexec,remount".into(), quiet | libc::MS_NOEXEC | read_only),
            ("ro,read_only=false,remount".into(), quiet | read_only),
        ] {
            let Ok(Asked::Remount(point, asked)) = asked(&format!("weft@h:1 /mnt -o {options}")) else {
                panic!("{options} is no remount");
            };
            let is_kept = !asked.accesses.differs(Accesses::shown("relatime"));
            assert_eq!(
                (point, asked.flags("rw,nosuid,nodev,relatime"), is_kept),
                ("/mnt".into(), flags, true),
                "{options}"
            );
        }
        assert_eq!(asked("weft@h:1 /mnt -f -o remount,ro"), Ok(Asked::Nothing));
        assert!(asked("weft@h:1 /mnt -o remount,frobnicate").is_err());
    }

    #[test]
    fn refuses_what_it_would_have_to_pass_over() {
        for line in [
            "h:1",
            "h:1 /mnt /more",
            "host /mnt",
            "h:1 /mnt -o sync",
            "h:1 /mnt -o loops",
            "h:1 /mnt -o mountpoint=/else",
            "h:1 /mnt -o",
            "h:1 /mnt -Z",
        ] {
            assert!(asked(line).is_err(), "{line}");
        }
    }
}
