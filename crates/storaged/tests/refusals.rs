//! What a service refuses to start with: one line, exit code 2, nothing changed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use storaged::Config;

struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let place = Self { root };
        let key = place.path("key");
        fs::write(&key, "ab".repeat(32)).expect("written");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("set");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn refusal(&self, set: &[(&'static str, &str)]) -> String {
        let mut flags = conf::Flags::<Config>::default();
        let text = |path: &Path| path.to_str().expect("plain path").to_owned();
        let mut defaults = vec![("key_file", text(&self.path("key"))), ("targets", text(&self.path("target")))];
        defaults.retain(|(key, _)| !set.iter().any(|(other, _)| other == key));
        for (key, value) in &defaults {
            flags.give(key, value);
        }
        for (key, value) in set {
            flags.give(key, value);
        }
        let config: Config = conf::load(None, &flags).expect("well formed");
        let error = storaged::run(config.clone(), Box::new(move || Ok(config.clone()))).expect_err("refused");
        assert_eq!(conf::exit_code(error.as_ref()), 2, "{error}");
        let text = error.to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    }
}

#[test]
fn a_target_that_is_not_mounted() {
    let place = Place::new();
    assert!(place.refusal(&[]).contains("does not exist: mount its disk"));
    fs::create_dir(place.path("target")).expect("made");
    assert!(place.refusal(&[]).contains("is empty: mount its disk"));
    assert_eq!(fs::read_dir(place.path("target")).expect("readable").count(), 0);
}

#[test]
fn a_key_that_is_missing_open_or_garbled() {
    let place = Place::new();
    assert!(place.refusal(&[("key_file", "/nonexistent/key")]).contains("cluster key /nonexistent/key"));
    fs::set_permissions(place.path("key"), fs::Permissions::from_mode(0o644)).expect("set");
    assert!(place.refusal(&[("init", "true")]).contains("chmod 600"));
    fs::write(place.path("key"), "not a key").expect("written");
    fs::set_permissions(place.path("key"), fs::Permissions::from_mode(0o600)).expect("set");
    assert!(place.refusal(&[("init", "true")]).contains("hexadecimal"));
    assert!(!place.path("target").exists(), "the target was made");
}

#[test]
fn a_port_in_use() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let refusal = place.refusal(&[("port", &port), ("init", "true")]);
    assert!(refusal.contains("is in use: stop the service that has it"), "{refusal}");
    assert!(!place.path("target").exists(), "the target was made");
}

#[test]
fn an_interface_that_is_not_there() {
    let refusal = Place::new().refusal(&[("interfaces", "nosuch0"), ("init", "true")]);
    assert!(refusal.contains("nosuch0"), "{refusal}");
}
