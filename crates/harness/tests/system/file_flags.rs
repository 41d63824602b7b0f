//! Flags of files outlive services, and administrators see them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};

use harness::cluster::Cluster;
use harness::file_flags::{self, APPEND, IMMUTABLE, NODUMP};

#[test]
fn flags_outlive_the_metadata_service() {
    let cluster = Cluster::start();
    let (file, directory) = (cluster.path("file"), cluster.folder("directory"));
    fs::write(&file, "content").unwrap();
    fs::write(directory.join("kept"), "").unwrap();
    file_flags::set(&file, IMMUTABLE | NODUMP).unwrap();
    file_flags::set(&directory, APPEND).unwrap();
    let killed = cluster.kill("metad-1");
    cluster.wait_for_another("metad-1", killed);
    let refused = |result: std::io::Result<()>| assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EPERM));
    refused(File::options().write(true).open(&file).map(drop));
    refused(fs::remove_file(&file));
    refused(fs::remove_file(directory.join("kept")));
    fs::write(directory.join("more"), "").unwrap();
    assert_eq!(file_flags::get(&file).unwrap(), IMMUTABLE | NODUMP);
    assert_eq!(file_flags::get(&directory).unwrap(), APPEND);
    let info = cluster.json(&["entry", "info", file.to_str().unwrap()]);
    assert_eq!(info["flags"], serde_json::json!(["immutable", "no dump"]));
    let text = cluster.weft(&["entry", "info", "/directory"]).expect_ok().stdout;
    assert!(text.contains("flags            append only\n"), "{text}");
    cluster.assert_sound();
}
