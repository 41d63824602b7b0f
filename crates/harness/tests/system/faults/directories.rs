//! Directories that belong to somebody else, are in use, gone, or hold what is not ours.

use std::fs;

use harness::cluster::{Cluster, Shape};

use super::{assert_data_is_there, assert_refused, cluster_with_data, config_of, mgmtd_of, service, set};

#[test]
fn a_target_of_another_cluster_is_refused() {
    let (ours, theirs) = (cluster_with_data(), cluster_with_data());
    for (name, kind) in [("storaged-1", "storaged"), ("metad-1", "metad")] {
        // Their mgmtd and key, our directory.
        theirs.up().expect_ok();
        let config = ours.beside("mixed.toml");
        fs::copy(config_of(&ours, name), &config).unwrap();
        set(&config, "mgmtd", &mgmtd_of(&theirs));
        set(&config, "key_file", theirs.dir().join("cluster.key").to_str().unwrap());
        let refused = service(kind, &config, &[]);
        assert_refused(&refused, &["cluster"]);
        theirs.down().expect_ok();
    }
    for cluster in [&ours, &theirs] {
        cluster.up().expect_ok();
        assert_data_is_there(cluster);
    }
}

#[test]
fn two_services_on_one_directory_are_one_too_many() {
    let cluster = Cluster::start();
    fs::write(cluster.path("kept"), vec![9; 2_000_000]).unwrap();
    for (name, kind) in [("storaged-1", "storaged"), ("metad-1", "metad"), ("mgmtd", "mgmtd")] {
        let pid = cluster.pid(name).unwrap().to_string();
        let refused = service(kind, &config_of(&cluster, name), &[]);
        let words = if name == "mgmtd" { vec!["in use"] } else { vec!["another service", &pid, name] };
        assert_refused(&refused, &words);
    }
    // Up twice is no mistake, and starts nothing twice.
    let before = cluster.pids();
    cluster.up().expect_ok();
    assert_eq!(cluster.pids(), before);
    assert_data_is_there(&cluster);
}

#[test]
fn a_target_that_vanished_is_not_made_anew() {
    let cluster = cluster_with_data();
    // Of a storage service all targets: with another one it starts.
    for (name, vanished) in [("storaged-1", "storaged-1"), ("metad-1", "metad-1"), ("mgmtd", "mgmtd")] {
        let (place, aside) = (cluster.dir().join(vanished), cluster.beside("aside"));
        fs::rename(&place, &aside).unwrap();
        assert_refused(&cluster.up(), &[name, vanished.rsplit('/').next().unwrap()]);
        assert!(!place.exists(), "nothing was made in its place");
        // An empty directory is what a disk that is not mounted looks like.
        fs::create_dir(&place).unwrap();
        assert_refused(&cluster.up(), &[name]);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "nothing was made in {vanished}");
        assert!(cluster.pids().is_empty(), "nothing half started stays behind");
        fs::remove_dir(&place).unwrap();
        fs::rename(&aside, &place).unwrap();
        cluster.up().expect_ok();
        assert_data_is_there(&cluster);
        cluster.down().expect_ok();
    }
}

#[test]
fn wrong_words_are_refused_with_what_to_do() {
    let cluster = Cluster::unborn(Shape::default());
    let dir = cluster.dir();
    fs::create_dir(&dir).unwrap();
    assert_refused(&cluster.weft(&["status"]), &["weft up"]);
    fs::write(dir.join("precious"), b"x").unwrap();
    assert_refused(&cluster.up(), &["something else", "--dir"]);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "nothing was changed");
    fs::remove_file(dir.join("precious")).unwrap();
    fs::create_dir_all(cluster.mount_point()).unwrap();
    fs::write(cluster.path("mine"), b"x").unwrap();
    assert_refused(&cluster.up(), &["not empty"]);
    assert_eq!(fs::read(cluster.path("mine")).unwrap(), b"x");
    fs::remove_file(cluster.path("mine")).unwrap();
    cluster.up().expect_ok();
    cluster.down().expect_ok();
    let config = config_of(&cluster, "metad-1");
    set(&config, "no_such_key", "1");
    assert_refused(&cluster.up(), &["metad-1", "no_such_key"]);
}
