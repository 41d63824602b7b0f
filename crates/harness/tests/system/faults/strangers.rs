//! Who does not hold the key, belongs to another cluster, or speaks another language.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use harness::cluster::Cluster;
use harness::{ports, wait};
use net::handshake::{HandshakeError, Initiator, drive_blocking};
use net::{ClusterKey, Identity};

use super::{SOON, assert_data_is_there, assert_refused, cluster_with_data, config_of, mgmtd_of, service, set};

#[test]
fn a_wrong_key_is_refused_by_all_and_harms_nothing() {
    let cluster = Cluster::start();
    fs::write(cluster.path("kept"), vec![9; 2_000_000]).unwrap();
    let wrong = cluster.beside("wrong.key");
    fs::write(&wrong, "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n").unwrap();
    fs::set_permissions(&wrong, fs::Permissions::from_mode(0o600)).unwrap();
    let mgmtd = mgmtd_of(&cluster);
    let key = wrong.to_str().unwrap();
    let point = cluster.beside("point");
    fs::create_dir(&point).unwrap();
    let ended = cluster.weft_alone(&["node", "list", "--mgmtd", &mgmtd, "--key-file", key]);
    assert_refused(&ended, &["key"]);
    let mount = ["mount", point.to_str().unwrap(), "--mgmtd", &mgmtd, "--key-file", key, "--start-timeout", "5s"];
    assert_refused(&cluster.weft_alone(&mount), &["key"]);
    // One that everybody could read is none.
    fs::set_permissions(&wrong, fs::Permissions::from_mode(0o644)).unwrap();
    let ended = cluster.weft_alone(&["node", "list", "--mgmtd", &mgmtd, "--key-file", key]);
    assert_refused(&ended, &["wrong.key"]);
    fs::write(&wrong, "short\n").unwrap();
    fs::set_permissions(&wrong, fs::Permissions::from_mode(0o600)).unwrap();
    let ended = cluster.weft_alone(&["node", "list", "--mgmtd", &mgmtd, "--key-file", key]);
    assert_refused(&ended, &["wrong.key"]);
    assert_data_is_there(&cluster);
    assert!(cluster.log("mgmtd").contains("WARN"), "the refusals are in the log");
}

fn wrong_key(cluster: &Cluster) -> PathBuf {
    let wrong = cluster.beside("wrong.key");
    fs::write(&wrong, "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n").unwrap();
    fs::set_permissions(&wrong, fs::Permissions::from_mode(0o600)).unwrap();
    wrong
}

#[test]
fn a_service_with_a_wrong_key_does_not_start() {
    let cluster = cluster_with_data();
    cluster.up().expect_ok();
    let wrong = wrong_key(&cluster);
    cluster.freeze_supervisor();
    for (name, kind) in [("metad-1", "metad"), ("storaged-1", "storaged")] {
        cluster.kill(name);
        let refused = service(kind, &config_of(&cluster, name), &["--key-file", wrong.to_str().unwrap()]);
        assert_refused(&refused, &["wrong cluster key", &mgmtd_of(&cluster)]);
    }
    cluster.resume();
    assert_data_is_there(&cluster);
    cluster.down().expect_ok();
}

/// Each service by itself: it lets the right one in and says which node it is; no answer to anything but the right key and the right cluster, one line in the log that says
/// which it was, and no harm.
#[test]
fn every_port_refuses_a_wrong_key_and_another_cluster() {
    let cluster = Cluster::start();
    fs::write(cluster.path("kept"), vec![9; 2_000_000]).unwrap();
    let before = cluster.pids();
    let right = ClusterKey::from_file(&cluster.dir().join("cluster.key")).unwrap();
    let wrong = ClusterKey::from_file(&wrong_key(&cluster)).unwrap();
    let ours = cluster.json(&["status"])["cluster"].as_str().unwrap().to_owned();
    let other = "00000000-0000-4000-8000-00000000000f";
    let services = ports::of_services(&cluster);
    let names: BTreeSet<&str> = services.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names, ["metad-1", "mgmtd", "storaged-1"].into());
    let mut nodes = BTreeSet::new();
    for (name, address) in &services {
        let node = shake_hands(address, &right, "").unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!node.is_empty() && nodes.insert(node), "{name} says which node it is");
        let error = shake_hands(address, &wrong, &ours).unwrap_err();
        assert_eq!(error, HandshakeError::Key, "{name}");
        assert_warned(&cluster, name, "key");
        let error = shake_hands(address, &right, other).unwrap_err();
        assert!(matches!(&error, HandshakeError::Cluster { theirs, .. } if *theirs == ours), "{name}: {error}");
        assert_warned(&cluster, name, other);
    }
    assert_eq!(cluster.pids(), before);
    assert_data_is_there(&cluster);
}

fn shake_hands(address: &str, key: &ClusterKey, cluster: &str) -> Result<String, HandshakeError> {
    let identity = Identity { cluster: cluster.to_owned(), incarnation: 7, ..Identity::new(key.clone(), "a stranger") };
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    drive_blocking(&mut Initiator::new(&identity), &mut stream).map(|established| established.peer.node)
}

fn assert_warned(cluster: &Cluster, name: &str, word: &str) {
    wait::until(&format!("a line about the {word} in the log of {name}"), SOON, || {
        let log = cluster.log(name);
        log.lines().rfind(|line| line.contains("WARN") && line.contains(word)).map(str::to_owned)
    });
}

/// Somebody has copied the key file: it is the clusters that differ.
#[test]
fn a_service_of_another_cluster_with_the_same_key_is_refused() {
    let (ours, theirs) = (cluster_with_data(), cluster_with_data());
    copy_key(&ours, &theirs);
    theirs.up().expect_ok();
    for (name, kind) in [("storaged-1", "storaged"), ("metad-1", "metad")] {
        let config = ours.beside("mixed.toml");
        fs::copy(config_of(&ours, name), &config).unwrap();
        set(&config, "mgmtd", &mgmtd_of(&theirs));
        let refused = service(kind, &config, &[]);
        let uuid = theirs.json(&["status"])["cluster"].as_str().unwrap().to_owned();
        assert_refused(&refused, &["cluster", &uuid]);
    }
    assert_data_is_there(&theirs);
    theirs.down().expect_ok();
    ours.up().expect_ok();
    assert_data_is_there(&ours);
    ours.down().expect_ok();
}

fn copy_key(from: &Cluster, to: &Cluster) {
    let key = |cluster: &Cluster| cluster.dir().join("cluster.key");
    fs::copy(key(from), key(to)).unwrap();
}

/// Bytes that are no protocol, or one of another version: that connection is closed, and nothing else notices.
#[test]
fn foreign_bytes_close_their_connection_and_nothing_else() {
    let cluster = Cluster::start();
    fs::write(cluster.path("kept"), vec![9; 2_000_000]).unwrap();
    let before = cluster.pids();
    let mut ports = vec![mgmtd_of(&cluster)];
    for kind in ["node", "target"] {
        let list = cluster.json(&[kind, "list"]).to_string();
        let digits = list.split("127.0.0.1:").skip(1).map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        ports.extend(digits.flatten().map(|port| format!("127.0.0.1:{port}")));
    }
    assert!(ports.len() >= 3, "addresses of all services: {ports:?}");
    for port in &ports {
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 4096], &[0xff; 4096], b"WEFT\xff\xff\xff\xff", b""] {
            let mut stream = TcpStream::connect(port).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
            let _ = stream.write_all(bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut answer = Vec::new();
            match stream.take(1 << 20).read_to_end(&mut answer) {
                Ok(_) => {}
                Err(error) => assert_ne!(error.kind(), ErrorKind::WouldBlock, "{port} keeps a foreign connection"),
            }
        }
    }
    assert_eq!(cluster.pids(), before);
    assert_data_is_there(&cluster);
}
