//! Peers of a release that is too far from ours: each side says so in one line, and goes on or ends as it should.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use harness::cluster::Cluster;
use harness::run::{Ended, run};
use harness::{binary, ports, wait};
use net::handshake::{HandshakeError, Initiator, Responder, drive_blocking};
use net::{ClusterKey, Identity};
use wire::frame::{VERSION, VERSION_MIN};

const SOON: Duration = Duration::from_secs(60);
/// What the peers of these tests speak.
const THEIRS: (u16, u16) = (VERSION + 7, VERSION + 8);

fn identity(cluster: &Cluster) -> Identity {
    let key = ClusterKey::from_file(&cluster.dir().join("cluster.key")).unwrap();
    Identity::new(key, "a client from the future")
}

/// The line that one side gives about the other's versions.
fn line(theirs: (u16, u16), ours: (u16, u16)) -> String {
    let (their_min, their_max) = theirs;
    format!("speaks protocol versions {their_min} to {their_max}, this side {} to {}", ours.0, ours.1)
}

#[test]
fn every_service_tells_a_peer_of_another_version_and_goes_on() {
    let cluster = Cluster::start();
    fs::write(cluster.path("kept"), vec![9; 2_000_000]).unwrap();
    let before = cluster.pids();
    let addresses = ports::of_services(&cluster);
    let names: BTreeSet<&str> = addresses.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names.len(), 3);
    for (name, address) in addresses {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let mut initiator = Initiator::with_versions(&identity(&cluster), THEIRS);
        let error = drive_blocking(&mut initiator, &mut stream).unwrap_err();
        assert!(matches!(error, HandshakeError::Version(_)), "{name}: {error}");
        assert!(error.to_string().contains(&line((VERSION_MIN, VERSION), THEIRS)), "{name}: {error}");
        let said = wait::until("a line in its log", SOON, || {
            let log = cluster.log(&name);
            log.lines().rfind(|line| line.contains("protocol versions")).map(str::to_owned)
        });
        assert!(said.contains("WARN") && said.contains(&line(THEIRS, (VERSION_MIN, VERSION))), "{name}: {said}");
    }
    assert_eq!(cluster.pids(), before);
    assert!(fs::read(cluster.path("kept")).unwrap() == vec![9; 2_000_000]);
    cluster.assert_sound();
}

/// A mgmtd of another release: it comes to terms with nobody.
fn future_mgmtd(identity: Identity) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut responder = Responder::with_versions(&identity, THEIRS);
            // The other side tells how it went.
            let _ = drive_blocking(&mut responder, &mut stream.unwrap());
        }
    });
    address
}

#[track_caller]
fn assert_refused(ended: &Ended) {
    assert_eq!(ended.code, Some(2), "{ended}");
    let lines: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("weft: ")).collect();
    assert_eq!(lines.len(), 1, "one line: {ended}");
    assert!(lines[0].contains(&line(THEIRS, (VERSION_MIN, VERSION))), "{ended}");
    assert!(lines[0].contains("upgrade the older one"), "{ended}");
}

#[test]
fn who_meets_a_mgmtd_of_another_version_ends_with_a_clear_line() {
    let cluster = Cluster::start();
    fs::write(cluster.path("kept"), vec![9; 2_000_000]).unwrap();
    cluster.down().expect_ok();
    let mgmtd = future_mgmtd(identity(&cluster));
    for (name, kind) in [("metad-1", "metad"), ("storaged-1", "storaged")] {
        let config = cluster.dir().join(format!("{name}.toml"));
        let ended =
            run(Command::new(binary::weft()).arg(kind).arg("--config").arg(&config).args(["--mgmtd", &mgmtd]), SOON);
        assert_refused(&ended);
    }
    let key = cluster.dir().join("cluster.key");
    let of_cluster = ["--mgmtd", &mgmtd, "--key-file", key.to_str().unwrap()];
    let point = cluster.beside("point");
    fs::create_dir(&point).unwrap();
    let mount = |flags: &[&str]| {
        let args = [&["mount", point.to_str().unwrap()], &of_cluster[..], flags].concat();
        cluster.weft_alone(&args)
    };
    assert_refused(&mount(&[]));
    assert_refused(&mount(&["--foreground"]));
    assert_refused(&cluster.weft_alone(&[&["node", "list"], &of_cluster[..]].concat()));
    assert!(is_empty(&point));
    cluster.up().expect_ok();
    assert!(fs::read(cluster.path("kept")).unwrap() == vec![9; 2_000_000]);
    cluster.assert_sound();
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}
