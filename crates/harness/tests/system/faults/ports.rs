//! Ports that somebody else has.

use std::fs;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use harness::cluster::Cluster;
use harness::wait;

use super::{SOON, assert_data_is_there, assert_refused, cluster_with_data, config_of, mgmtd_of, service, set};

#[test]
fn a_port_in_use_is_named() {
    let cluster = cluster_with_data();
    let mgmtd = config_of(&cluster, "mgmtd");
    let text = fs::read_to_string(&mgmtd).unwrap();
    let listen = text.lines().find(|line| line.starts_with("listen =")).unwrap().split('"').nth(1).unwrap().to_owned();
    let occupied = TcpListener::bind(&listen).unwrap();
    assert_refused(&service("mgmtd", &mgmtd, &[]), &[&listen, "in use"]);
    let other = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = other.local_addr().unwrap().port().to_string();
    drop(occupied);
    cluster.up().expect_ok();
    cluster.freeze_supervisor();
    for (name, kind, flag, value) in [
        ("storaged-1", "storaged", "--port", port.clone()),
        ("metad-1", "metad", "--listen", format!("0.0.0.0:{port}")),
    ] {
        cluster.kill(name);
        let refused = service(kind, &config_of(&cluster, name), &[flag, &value]);
        assert_refused(&refused, &[&port, "in use"]);
        let metrics = format!("127.0.0.1:{port}");
        let refused = service(kind, &config_of(&cluster, name), &["--metrics-listen", &metrics]);
        assert_refused(&refused, &["metrics_listen", &metrics, "in use"]);
    }
    cluster.resume();
    wait::until("all is well again", SOON, || fs::metadata(cluster.path("kept")).ok());
    assert_data_is_there(&cluster);
}

#[test]
fn a_port_that_weft_chose_itself_is_replaced_where_it_is_taken() {
    let cluster = cluster_with_data();
    let line = |key: &str| -> String {
        let text = fs::read_to_string(config_of(&cluster, "mgmtd")).unwrap();
        text.lines().find_map(|line| line.strip_prefix(&format!("{key} = "))).unwrap().trim_matches('"').to_owned()
    };
    for key in ["listen", "metrics_listen"] {
        let lines = || ["listen", "metrics_listen"].map(line);
        let (before, other) = (lines(), TcpListener::bind(line(key)).unwrap());
        let up = cluster.up().expect_ok();
        // Who was told the one that is free finds the cluster there.
        let changed: Vec<bool> = before.iter().zip(lines()).map(|(before, now)| *before != now).collect();
        assert_eq!(changed, [key == "listen", key == "metrics_listen"], "{before:?}");
        assert_eq!(up.stdout.contains("is taken"), key == "listen", "{}", up.stdout);
        assert_eq!(mgmtd_of(&cluster), line("listen"));
        assert_data_is_there(&cluster);
        cluster.down().expect_ok();
        drop(other);
    }
    // One that the user has chosen is theirs to change.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    set(&config_of(&cluster, "mgmtd"), "listen", &address);
    assert_refused(&cluster.up(), &["mgmtd", &address, "in use"]);
    assert_eq!(line("listen"), address);
}

/// The ports of a metadata service are chosen anew at each start, here after the check has asked where they are.
#[test]
fn a_check_finds_a_service_that_was_started_again_elsewhere() {
    let cluster = Cluster::start();
    fs::write(cluster.path("kept"), vec![9; 2_000_000]).unwrap();
    cluster.freeze_supervisor();
    cluster.kill("metad-1");
    thread::scope(|scope| {
        let check = scope.spawn(|| cluster.weft(&["fsck"]));
        thread::sleep(Duration::from_secs(1));
        cluster.resume();
        check.join().unwrap().expect_ok();
    });
}
