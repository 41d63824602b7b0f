//! The configuration files of a local cluster: made once, then the user's to edit.

use std::fs;
use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

use super::dir::{ClusterDir, Spec, write_durably};
use super::plan::{is_of_our_choice, metadata_names, mgmtd_address, mgmtd_metrics_address, storage_names};

/// Makes the files that are not there yet, and brings those up to date that name a port of ours from before.
///
/// # Errors
/// Where a file cannot be written, or a path cannot be written down in one.
pub(crate) fn write(dir: &ClusterDir, spec: &Spec) -> Result<()> {
    make(dir, spec)?;
    for name in metadata_names(spec).chain(storage_names(spec)) {
        point_at(&dir.config_file(&name), spec.address, &[("mgmtd", mgmtd_address(spec))])?;
    }
    if spec.address.is_ipv6() {
        // What they listen at by default is IPv4.
        metadata_names(spec).try_for_each(|name| set(&dir.config_file(&name), "listen", "[::]:0"))?;
        storage_names(spec).try_for_each(|name| set(&dir.config_file(&name), "listen", "::"))?;
    }
    let own = [("listen", mgmtd_address(spec)), ("metrics_listen", mgmtd_metrics_address(spec))];
    point_at(&dir.config_file("mgmtd"), spec.address, &own)
}

/// Whether mgmtd listens where we chose, and so may listen elsewhere.
pub(crate) fn may_move(dir: &ClusterDir, spec: &Spec) -> bool {
    let text = fs::read_to_string(dir.config_file("mgmtd")).unwrap_or_default();
    text.lines().any(|line| value(line, "listen").is_some_and(|at| is_of_our_choice(at, spec.address)))
}

/// Replaces addresses that we chose. One that somebody has put there stays.
fn point_at(path: &Path, own: IpAddr, addresses: &[(&str, String)]) -> Result<()> {
    let old = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let renewed = |line: &str| {
        let is_ours = |key: &str| value(line, key).is_some_and(|at| is_of_our_choice(at, own));
        let known = addresses.iter().find(|(key, _)| is_ours(key));
        known.map_or_else(|| format!("{line}\n"), |(key, address)| format!("{key} = \"{address}\"\n"))
    };
    let new: String = old.lines().map(renewed).collect();
    if new == old { Ok(()) } else { write_durably(path, new.as_bytes()) }
}

/// Gives `key` a value in a file that does not set it.
fn set(path: &Path, key: &str, text: &str) -> Result<()> {
    let old = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    if old.lines().any(|line| value(line, key).is_some()) {
        return Ok(());
    }
    let default = format!("#{key} = ");
    let renewed = |line: &str| match line.starts_with(&default) {
        true => format!("{key} = \"{text}\"\n"),
        false => format!("{line}\n"),
    };
    write_durably(path, old.lines().map(renewed).collect::<String>().as_bytes())
}

/// What a line of a configuration file says, as this program writes it.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"')
}

fn make(dir: &ClusterDir, spec: &Spec) -> Result<()> {
    once(dir, "mgmtd", || {
        Ok(conf::template::<mgmtd::config::Config>(&[
            ("dir", &text(&dir.data("mgmtd"))?),
            ("key_file", &text(&dir.key_file())?),
            ("listen", &mgmtd_address(spec)),
            ("metrics_listen", &mgmtd_metrics_address(spec)),
        ]))
    })?;
    for name in metadata_names(spec) {
        once(dir, &name, || metad(dir, spec, &name, spec.shards))?;
        grow(dir, &name, grown_shards(dir, spec, &name)?)?;
    }
    for name in storage_names(spec) {
        once(dir, &name, || storaged(dir, spec, &name, spec.targets))?;
        grow(dir, &name, grown_targets(dir, spec, &name)?)?;
    }
    Ok(())
}

/// Where the endpoint of a service's metrics listens.
const METRICS: &str = "127.0.0.1:0";

fn metad(dir: &ClusterDir, spec: &Spec, name: &str, shards: u32) -> Result<String> {
    Ok(conf::template::<metad::config::Config>(&[
        ("dir", &text(&dir.data(name))?),
        ("shards", &shards.to_string()),
        ("mgmtd", &mgmtd_address(spec)),
        ("key_file", &text(&dir.key_file())?),
        ("alias", name),
        ("metrics_listen", METRICS),
    ]))
}

fn storaged(dir: &ClusterDir, spec: &Spec, name: &str, targets: u32) -> Result<String> {
    Ok(conf::template::<storaged::config::Config>(&[
        ("targets", &targets_of(dir, name, targets)?),
        ("mgmtd", &mgmtd_address(spec)),
        ("key_file", &text(&dir.key_file())?),
        ("alias", name),
        ("metrics_listen", METRICS),
    ]))
}

/// The file of a metadata service with as many shards as there are to be; `None` where the number there is the user's. One that
/// is new, by what was written down last, may have been so before, and be behind.
///
/// # Errors
/// Where it cannot be read.
pub(crate) fn grown_shards(dir: &ClusterDir, spec: &Spec, name: &str) -> Result<Option<String>> {
    let old = written_down(dir, |old| old.metadata)?.unwrap_or(spec.made.metadata);
    let is_new = metadata_names(spec).skip(old as usize).any(|new| new == name);
    let made = if is_new { 1 } else { spec.made.shards };
    grown(dir, name, "shards", made..spec.shards, |shards| metad(dir, spec, name, shards))
}

/// A number of the cluster as it was to be before this command, where there was one.
fn written_down(dir: &ClusterDir, number: impl FnOnce(&Spec) -> u32) -> Result<Option<u32>> {
    match dir.exists() {
        true => dir.spec().map(|old| Some(number(&old))).map_err(|failure| anyhow!("{failure}")),
        false => Ok(None),
    }
}

/// The file of a storage service with as many targets as there are to be; `None` where the number there is the user's.
/// One that is new, by what was written down last, may have been so before, and be behind.
///
/// # Errors
/// Where it cannot be read.
pub(crate) fn grown_targets(dir: &ClusterDir, spec: &Spec, name: &str) -> Result<Option<String>> {
    let old = written_down(dir, |old| old.storage)?.unwrap_or(spec.made.storage);
    let is_new = storage_names(spec).skip(old as usize).any(|new| new == name);
    let made = if is_new { 1 } else { spec.made.targets };
    grown(dir, name, "targets", made..spec.targets, |targets| storaged(dir, spec, name, targets))
}

/// Directories of the targets of a storage service.
fn targets_of(dir: &ClusterDir, name: &str, count: u32) -> Result<String> {
    let target = |number: u32| text(&target_dir(dir, name, number));
    Ok((1..=count).map(target).collect::<Result<Vec<_>>>()?.join(","))
}

/// Directory of the target `number`, from 1, of a storage service.
pub(crate) fn target_dir(dir: &ClusterDir, name: &str, number: u32) -> PathBuf {
    dir.data(name).join(format!("target-{number}"))
}

/// Raises the number of what `key` is about to the end of `numbers` in a file that has one of them, as this program once wrote
/// it. One that somebody has changed is left alone, also by taking something out.
fn grown(
    dir: &ClusterDir,
    name: &str,
    key: &str,
    numbers: Range<u32>,
    file: impl Fn(u32) -> Result<String>,
) -> Result<Option<String>> {
    let (path, begin) = (dir.config_file(name), format!("{key} = "));
    let line = |count: u32| -> Result<String> {
        let file = file(count)?;
        let line = file.lines().find(|line| line.starts_with(&begin));
        Ok(line.expect("the template has the keys that it was given").to_owned() + "\n")
    };
    let old = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    for count in numbers.start.max(1)..numbers.end {
        let before = line(count)?;
        if old.contains(&before) {
            return Ok(Some(old.replace(&before, &line(numbers.end)?)));
        }
    }
    Ok(None)
}

fn grow(dir: &ClusterDir, name: &str, grown: Option<String>) -> Result<()> {
    grown.map_or(Ok(()), |text| write_durably(&dir.config_file(name), text.as_bytes()))
}

fn once(dir: &ClusterDir, name: &str, make: impl FnOnce() -> Result<String>) -> Result<()> {
    let path = dir.config_file(name);
    if path.exists() {
        return Ok(());
    }
    write_durably(&path, make()?.as_bytes())
}

/// A path as a configuration file has it: a list is split at commas.
fn text(path: &Path) -> Result<String> {
    let text = path.to_str().filter(|text| !text.contains(','));
    text.map(str::to_owned).ok_or_else(|| anyhow!("{}: no comma and only valid UTF-8, please", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::dir::{LOOPBACK, Made};

    #[test]
    fn ports_of_ours_move_and_those_of_users_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(folder.path()).expect("absolute");
        let (mount, made) = ("/m".into(), Made::default());
        let at = |mgmtd_port, mgmtd_metrics_port| Spec {
            address: LOOPBACK,
            mgmtd_port,
            mgmtd_metrics_port,
            metadata: 1,
            shards: 1,
            storage: 1,
            targets: 2,
            mount: PathBuf::clone(&mount),
            made,
        };
        write(&dir, &at(20_001, 20_002)).expect("writable");
        assert!(may_move(&dir, &at(0, 0)));
        let texts =
            || ["mgmtd", "metad-1", "storaged-1"].map(|name| fs::read_to_string(dir.config_file(name)).expect("made"));
        let before = texts();
        write(&dir, &at(20_011, 20_012)).expect("writable");
        let moved = before.map(|text| text.replace("20001", "20011").replace("20002", "20012"));
        assert_eq!(texts(), moved);

        // Also to where other hosts reach it.
        let elsewhere = Spec { address: [10, 0, 0, 1].into(), ..at(20_011, 20_012) };
        write(&dir, &elsewhere).expect("writable");
        assert_eq!(texts(), moved.clone().map(|text| text.replace("127.0.0.1:20011", "10.0.0.1:20011")));

        // Also where that is not IPv4.
        let elsewhere = Spec { address: "fd00::1".parse().expect("an address"), ..at(20_011, 20_012) };
        let put_back = || {
            for (name, text) in ["mgmtd", "metad-1", "storaged-1"].iter().zip(&moved) {
                fs::write(dir.config_file(name), text).expect("writable");
            }
        };
        put_back();
        write(&dir, &elsewhere).expect("writable");
        let heard = ["[fd00::1]:20011", "\nlisten = \"[::]:0\"\n", "\nlisten = \"::\"\n"];
        assert!(texts().iter().zip(heard).all(|(text, line)| text.contains(line)), "{:?}", texts());
        put_back();

        let own = moved[0].replace("127.0.0.1:20011", "0.0.0.0:20011");
        fs::write(dir.config_file("mgmtd"), &own).expect("writable");
        assert!(!may_move(&dir, &at(0, 0)));
        write(&dir, &at(20_021, 20_012)).expect("writable");
        assert_eq!(texts()[0], own);
    }

    #[test]
    fn files_are_made_once_and_grow_with_the_targets() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(folder.path()).expect("absolute");
        let (mount, made) = ("/m".into(), Made::default());
        let spec = Spec {
            address: LOOPBACK,
            mgmtd_port: 1,
            mgmtd_metrics_port: 2,
            metadata: 1,
            shards: 1,
            storage: 1,
            targets: 2,
            mount,
            made,
        };
        write(&dir, &spec).expect("writable");
        let path = dir.config_file("storaged-1");
        let edited = fs::read_to_string(&path).expect("made") + "# mine\n";
        fs::write(&path, &edited).expect("writable");
        write(&dir, &spec).expect("writable");
        assert_eq!(fs::read_to_string(&path).expect("kept"), edited);

        write(&dir, &Spec { targets: 3, shards: 2, ..spec.clone() }).expect("writable");
        let grown = fs::read_to_string(&path).expect("kept");
        let config = conf::load::<storaged::config::Config>(Some(&path), &conf::Flags::default()).expect("valid");
        assert_eq!(config.targets.len(), 3);
        assert!(grown.ends_with("# mine\n"), "{grown}");
        let path = dir.config_file("metad-1");
        let config = conf::load::<metad::config::Config>(Some(&path), &conf::Flags::default()).expect("valid");
        assert_eq!(config.shards, 2);

        // Somebody has taken out the last target, which they had deleted.
        let made = Made { metadata: 1, shards: 2, storage: 1, targets: 3 };
        let path = dir.config_file("storaged-1");
        fs::write(&path, &edited).expect("writable");
        write(&dir, &Spec { targets: 3, shards: 2, made, ..spec }).expect("writable");
        assert_eq!(fs::read_to_string(&path).expect("kept"), edited);
    }
    #[test]
    fn a_service_that_comes_again_has_as_many_as_the_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::at(folder.path()).expect("absolute");
        let spec = |services: u32, each: u32, made: Made| Spec {
            address: LOOPBACK,
            mgmtd_port: 1,
            mgmtd_metrics_port: 2,
            metadata: services,
            shards: each,
            storage: services,
            targets: each,
            mount: "/m".into(),
            made,
        };
        let made = |each: u32| Made { metadata: 1, shards: each, storage: 1, targets: each };
        for (services, each, was) in [(2, 1, 1), (1, 3, 1), (2, 3, 3)] {
            write(&dir, &spec(services, each, made(was))).expect("writable");
            dir.save_spec(&spec(services, each, made(was))).expect("writable");
        }
        let second = |name: &str| fs::read_to_string(dir.config_file(name)).expect("made");
        assert!(second("metad-2").contains("shards = 3") && second("storaged-2").contains("storaged-2/target-3"));
        // It is being tried again, and somebody has taken out what stood in the way.
        let config = second("storaged-2");
        let all = targets_of(&dir, "storaged-2", 3).expect("plain").replace(',', "\", \"");
        let less = config.replace(&all, &targets_of(&dir, "storaged-2", 2).expect("plain").replace(',', "\", \""));
        assert_ne!(less, config);
        fs::write(dir.config_file("storaged-2"), &less).expect("writable");
        write(&dir, &spec(2, 3, made(3))).expect("writable");
        assert_eq!(second("storaged-2"), less);
    }
}
