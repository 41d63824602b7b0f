//! Targets that go for good: only those that no file needs, and be it for what it has not got yet.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::io::Write;
use std::time::Duration;

use harness::cluster::{Cluster, Shape};
use harness::wait;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);
const FILES: usize = 20;

fn targets(cluster: &Cluster) -> Vec<Value> {
    let all = cluster.json(&["target", "list"]);
    all.as_array().unwrap().iter().filter(|target| target["kind"] == "storage").cloned().collect()
}

#[test]
fn a_target_goes_when_no_file_may_need_it() {
    let cluster = Cluster::of(Shape { targets: 2, ..Shape::default() });
    let folder = cluster.folder("small");
    // Their contents are in the metadata, and no object is anywhere.
    for number in 0..FILES {
        fs::write(folder.join(number.to_string()), [7; 100]).unwrap();
    }
    let id = targets(&cluster)[1]["id"].to_string();
    for words in [&["target", "delete", &id][..], &["target", "delete", &id, "--yes"]] {
        // Until it is known to be empty, that is what stands in the way.
        let refused = wait::until("its files are what is in the way", SOON, || {
            let refused = cluster.weft(words);
            assert_eq!(refused.code, Some(2), "{refused}");
            (!refused.stderr.contains("not known to be empty")).then_some(refused)
        });
        assert!(refused.stderr.contains("20 files lie on it or may grow onto it, such as inode "), "{refused}");
    }
    assert!(targets(&cluster).iter().all(|target| target["state"] == "good"), "{:?}", targets(&cluster));
    for number in 0..FILES {
        let mut file = File::options().append(true).open(folder.join(number.to_string())).unwrap();
        file.write_all(&vec![8; 1 << 20]).unwrap();
        file.sync_all().unwrap();
    }
    cluster.assert_sound();

    // Nothing is left that names it, once the objects are gone.
    fs::remove_dir_all(&folder).unwrap();
    let gone = wait::until("it goes", SOON, || {
        let ended = cluster.weft(&["target", "delete", &id, "--yes"]);
        assert!(ended.code == Some(0) || ended.code == Some(2), "{ended}");
        (ended.code == Some(0)).then_some(ended)
    });
    assert!(gone.stdout.contains(&format!("target {id} (")), "{gone}");
    assert_eq!(targets(&cluster).len(), 1);
    fs::write(cluster.path("new"), vec![9; 1 << 20]).unwrap();
    assert_eq!(fs::read(cluster.path("new")).unwrap(), vec![9; 1 << 20]);
}

#[test]
fn a_target_whose_disk_is_dead_goes_when_the_files_that_lost_bytes_are_removed() {
    let cluster = Cluster::of(Shape { targets: 2, ..Shape::default() });
    let folder = cluster.folder("files");
    cluster.weft_alone(&["entry", "set", folder.to_str().unwrap(), "--stripe-count", "1"]).expect_ok();
    for number in 0..FILES {
        fs::write(folder.join(number.to_string()), vec![7; 1 << 20]).unwrap();
    }
    let dead = targets(&cluster)[1].clone();
    let (id, place) = (dead["id"].to_string(), dead["path"].as_str().unwrap());
    cluster.freeze_supervisor();
    let old = cluster.kill("storaged-1");
    fs::rename(place, cluster.beside("dead")).unwrap();
    cluster.resume();
    cluster.wait_for_another("storaged-1", old);
    wait::until("its service runs without it", SOON, || (targets(&cluster)[1]["left_out"] == true).then_some(()));

    let check = || {
        let ended = cluster.weft(&["fsck", "--json"]);
        let report: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"));
        assert_eq!((ended.code, &report["not_asked"][0]["target"]), (Some(1), &dead["id"]), "{report}");
        report["findings"].as_array().unwrap().clone()
    };
    let lost = check();
    assert!(!lost.is_empty() && lost.len() < FILES, "{lost:?}");
    for finding in &lost {
        assert_eq!(finding["kind"], "out-of-reach", "{finding}");
        let path = cluster.path(finding["path"].as_str().unwrap().trim_start_matches('/'));
        assert!(fs::read(&path).is_err(), "{finding}");
        fs::remove_file(path).unwrap();
    }
    assert!(check().is_empty(), "all others have nothing there");
    for entry in fs::read_dir(&folder).unwrap() {
        assert_eq!(fs::read(entry.unwrap().path()).unwrap(), vec![7; 1 << 20]);
    }
    cluster.weft(&["target", "delete", &id, "--yes"]).expect_ok();
    wait::until("nobody waits for its objects any more", SOON, || {
        let report = cluster.json(&["fsck"]);
        (report["deletions"] == 0).then_some(())
    });
}
