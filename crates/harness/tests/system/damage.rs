//! `weft fsck` on a cluster that somebody has damaged: it says what is wrong and with what, changes nothing, and finds
//! nothing more once that is put right by hand.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::cluster::Cluster;
use harness::dice::{Dice, seed};
use harness::loop_disk::LoopDisk;
use harness::{syscall, wait};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);
/// Bytes of each stripe of the files here.
const STRIPE: usize = 512 << 10;
const STRIPES: usize = 4;

/// A file on the disk, with one object on each target.
fn make(path: &Path, dice: &mut Dice) -> Vec<u8> {
    let content = dice.bytes(STRIPE * STRIPES);
    let mut file = File::create(path).unwrap();
    file.write_all(&content).unwrap();
    file.sync_all().unwrap();
    content
}

/// The files in which the objects of a file lie, by stripe.
fn objects_of(cluster: &Cluster, path: &Path) -> Vec<PathBuf> {
    let info = cluster.json(&["entry", "info", path.to_str().unwrap()]);
    let stripes = info["stripes"].as_array().unwrap();
    assert_eq!(stripes.len(), STRIPES, "{info}");
    stripes.iter().map(|stripe| PathBuf::from(stripe["place"].as_str().unwrap())).collect()
}

/// Nothing stays open at a service that was started again: what it says is what lies on its disks.
fn start_storage_again(cluster: &Cluster) {
    let old = cluster.kill("storaged-1");
    cluster.wait_for_another("storaged-1", old);
}

/// Kind and inode of each finding, where exit code 1 says that there are some.
fn findings(cluster: &Cluster) -> BTreeSet<(String, u64)> {
    let ended = cluster.weft(&["fsck", "--json"]);
    assert_eq!(ended.code, Some(1), "{ended}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"));
    let one = |finding: &Value| {
        let text = finding["inode"].as_str().unwrap_or_else(|| panic!("no inode: {finding}"));
        let inode = u64::from_str_radix(text, 16).unwrap();
        (finding["kind"].as_str().unwrap().to_owned(), inode)
    };
    report["findings"].as_array().unwrap().iter().map(one).collect()
}

#[test]
fn lost_and_stray_objects_are_found_and_nothing_else() {
    let cluster = Cluster::start();
    let mut dice = Dice::new(seed());
    let paths = ["whole", "holed", "cut", "gone"].map(|name| cluster.path(name));
    let contents = paths.each_ref().map(|path| make(path, &mut dice));
    let [whole, holed, cut, gone] = &paths;
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    let (holed_inode, cut_inode, gone_inode) = (inode(holed), inode(cut), inode(gone));
    cluster.assert_sound();

    // An object that outlived its file, as a backup that is put back makes it.
    let stray = objects_of(&cluster, gone)[2].clone();
    fs::copy(&stray, cluster.beside("stray")).unwrap();
    fs::remove_file(gone).unwrap();
    // Until then a removal may yet come, also again after a restart.
    wait::until("the removal of its objects", SOON, || {
        cluster.weft(&["fsck"]).expect_ok().stdout.contains(" 0 objects waiting for deletion").then_some(())
    });
    // One object from the middle of a file, and the last one of another.
    let lost = [objects_of(&cluster, holed)[1].clone(), objects_of(&cluster, cut)[STRIPES - 1].clone()];
    for (number, object) in lost.iter().enumerate() {
        fs::rename(object, cluster.beside(&format!("lost-{number}"))).unwrap();
    }
    fs::copy(cluster.beside("stray"), &stray).unwrap();
    start_storage_again(&cluster);

    let found = findings(&cluster);
    let expected = [("lost-data", holed_inode), ("wrong-size", cut_inode), ("stray-object", gone_inode)];
    assert_eq!(found, expected.map(|(kind, inode)| (kind.to_owned(), inode)).into());
    assert_eq!(findings(&cluster), found, "it changes nothing, and says the same again");
    let text = cluster.weft(&["fsck"]);
    assert_eq!(text.code, Some(1), "{text}");
    for line in ["lost-data: /holed: ", "wrong-size: /cut: ", "stray-object: ", "3 findings"] {
        assert!(text.stdout.contains(line), "no {line:?}: {text}");
    }
    assert!(fs::read(whole).unwrap() == contents[0], "what is not damaged is not concerned");

    for (number, object) in lost.iter().enumerate() {
        fs::rename(cluster.beside(&format!("lost-{number}")), object).unwrap();
    }
    fs::remove_file(&stray).unwrap();
    start_storage_again(&cluster);
    cluster.assert_sound();
    for (path, content) in paths.iter().zip(&contents).take(3) {
        assert!(fs::read(path).unwrap() == *content, "{} is as it was", path.display());
    }
}

/// XFS takes more than is written, and gives it back when the object is closed. A file with holes has objects that are short.
#[test]
fn what_a_disk_gives_back_by_itself_is_no_loss() {
    let cluster = Cluster::start();
    cluster.down().expect_ok();
    let disk = LoopDisk::xfs_under(&cluster.dir().join("storaged-1"), 512);
    cluster.up().expect_ok();
    let path = cluster.path("f");
    let file = File::create(&path).unwrap();
    for block in 0..64 {
        file.write_all_at(&[1; 4096], block * 4096).unwrap();
    }
    file.set_len(9 * STRIPE as u64 + 5).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let reserved = File::create(cluster.path("reserved")).unwrap();
    reserved.write_all_at(&[1; 4096], STRIPE as u64 * 2).unwrap();
    syscall::fallocate(&reserved, libc::FALLOC_FL_KEEP_SIZE, 0, 4 << 20).unwrap();
    drop(reserved);
    assert_eq!(fs::metadata(&path).unwrap().blocks(), 64 * 8);
    assert_eq!(fs::metadata(cluster.path("reserved")).unwrap().blocks(), (4 << 20) / 512);
    start_storage_again(&cluster);
    cluster.assert_sound();
    cluster.down().expect_ok();
    drop(disk);
}
