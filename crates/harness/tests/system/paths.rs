//! Whole paths that no kernel walks: they lead where the mount's kernel finds them, in a request for each shard on the way.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use client::{Caller, Client};
use harness::cluster::{Cluster, Shape};
use harness::dice::{Dice, scale, seed};
use harness::{metrics, syscall, wait};
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;
use types::parts::PartNumber;

const PATIENCE: Duration = Duration::from_secs(30);

/// In two services.
fn eight_shards() -> Cluster {
    Cluster::of(Shape { metadata: 2, shards: 4, targets: 2, ..Shape::default() })
}

/// What a client core answers, which this process is.
fn with_core<R>(cluster: &Cluster, ask: impl AsyncFnOnce(&Rc<Client>) -> R) -> R {
    let management = cluster.json(&["status"])["mgmtd"].as_str().unwrap().to_owned();
    let cluster = client::Cluster { management, key_file: cluster.dir().join("cluster.key"), patience: PATIENCE };
    let connected = client::connect(&cluster, client::config::Config::default()).unwrap();
    ring::Ring::new(&ring::Config::default()).unwrap().run(async {
        let core = Client::new(Arc::clone(&connected.shared));
        let answer = ask(&core).await;
        core.shutdown().await;
        answer
    })
}

async fn look_up(core: &Client, path: &str, follows: bool) -> Result<InodeId, Errno> {
    let caller = Caller::patient(Credentials::default());
    core.lookup_path(&caller, InodeId::ROOT, path.as_bytes(), follows).await.map(|found| found.attr.inode)
}

fn by_core(cluster: &Cluster, path: &str) -> InodeId {
    with_core(cluster, async |core| look_up(core, path, false).await).unwrap()
}

/// As `weft entry info` says.
fn by_command(cluster: &Cluster, path: &str) -> String {
    cluster.json(&["entry", "info", path])["id"].as_str().unwrap().to_owned()
}

fn by_kernel(path: &Path) -> InodeId {
    InodeId(fs::symlink_metadata(path).unwrap().ino())
}

/// Requests that look up names which shards are asked for while `act` runs: walks, and others.
fn asked(cluster: &Cluster, act: impl FnOnce()) -> (u64, u64) {
    let count = || {
        let requests = metrics::requests(cluster, "metadata");
        let of = |op: &str| requests.get(op).copied().unwrap_or(0);
        (of("Walk"), of("Lookup") + of("Parts"))
    };
    let before = count();
    act();
    let after = count();
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn a_path_takes_a_request_for_each_shard_that_it_meets() {
    let cluster = eight_shards();
    let root = cluster.mount_point();
    // Ten names in the root's shard.
    cluster.weft(&["entry", "set", "/", "--placement", "shard:0"]).expect_ok();
    let path = format!("/near{}/file", "/d".repeat(8));
    let there = root.join(&path[1..]);
    fs::create_dir_all(there.parent().unwrap()).unwrap();
    fs::write(&there, b"x").unwrap();
    let inode = by_kernel(&there);
    assert_eq!(asked(&cluster, || assert_eq!(by_command(&cluster, &path), inode.to_string())), (1, 0));
    assert_eq!(asked(&cluster, || assert_eq!(by_core(&cluster, &path), inode)), (1, 0));

    // Anywhere, and through a directory that is split.
    cluster.weft(&["entry", "set", "/", "--placement", "random"]).expect_ok();
    let names: Vec<String> = (0..30).map(|level| format!("level-{level}")).collect();
    let mut directories = vec![root];
    for name in &names {
        let path = directories.last().unwrap().join(name);
        fs::create_dir(&path).unwrap();
        directories.push(path);
    }
    const SPLIT: usize = 15;
    let path = |count: usize| format!("/{}", names[..count].join("/"));
    cluster.weft(&["entry", "set", &path(SPLIT), "--split", "4"]).expect_ok();
    let split = wait::until("its entry is in its part", PATIENCE, || {
        Some(cluster.json(&["entry", "info", &path(SPLIT)])).filter(|entry| entry["split_percent"].is_null())
    });
    let part = PartNumber::of_name(names[SPLIT].as_bytes(), 4).index;
    let inodes: Vec<InodeId> = directories.iter().map(|path| by_kernel(path)).collect();
    // The shards of all directories in which something is looked up, and of the part that has the name.
    let mut shards: Vec<u64> = inodes[..names.len()].iter().map(|inode| u64::from(inode.home().0)).collect();
    shards.insert(SPLIT + 1, split["parts"][usize::from(part)]["shard"].as_u64().unwrap());
    let met: BTreeSet<u64> = shards.iter().copied().collect();
    assert!(met.len() >= 4, "{met:?}");
    shards.dedup();
    let (whole, last) = (path(names.len()), inodes[names.len()]);
    let walks = shards.len() as u64;
    assert_eq!(asked(&cluster, || assert_eq!(by_command(&cluster, &whole), last.to_string())), (walks, 0));
    assert_eq!(asked(&cluster, || assert_eq!(by_core(&cluster, &whole), last)), (walks, 0));
    let all = with_core(&cluster, async |core| {
        let mut all = Vec::new();
        for count in 0..=names.len() {
            all.push(look_up(core, &path(count), true).await.unwrap());
        }
        all
    });
    assert_eq!(all, inodes);
    cluster.assert_sound();
}

const SLASHES: &[&str] = &["/", "/", "/", "//", "/./"];
/// Names that exist more often than others would.
const NAMES: &[&str] = &["a", "b", "c", "d"];
const PARTS: &[&str] = &["a", "b", "c", "d", "a", "b", "c", "d", "..", "."];

/// A path of few names, which often exist, with all that a path may have.
fn draw(dice: &mut Dice) -> String {
    let mut path = if dice.roll(4) == 0 { "/".to_owned() } else { String::new() };
    for part in 0..1 + dice.roll(5) {
        if part > 0 {
            path.push_str(dice.pick::<&str>(SLASHES));
        }
        path.push_str(dice.pick::<&str>(PARTS));
    }
    if dice.roll(6) == 0 { path + "/" } else { path }
}

#[test]
fn paths_lead_where_the_kernel_goes() {
    let (cluster, mut dice) = (eight_shards(), Dice::new(seed()));
    let root = cluster.mount_point();
    let mut directories: Vec<PathBuf> = vec![root.clone()];
    for _ in 0..scale("WEFT_TEST_PATHS_TREE", 60) {
        let path = dice.pick(&directories).join(dice.pick(NAMES));
        // Names that are taken stay as they are.
        match dice.roll(10) {
            0..5 if fs::create_dir(&path).is_ok() => directories.push(path),
            5..7 => drop(File::create_new(&path)),
            _ => drop(symlink(draw(&mut dice), &path)),
        }
    }
    let mut split = 0;
    for directory in directories.iter().take(3) {
        let path = Path::new("/").join(directory.strip_prefix(&root).unwrap());
        split += u32::from(cluster.weft(&["entry", "set", path.to_str().unwrap(), "--split", "3"]).code == Some(0));
    }
    assert!(split > 0);
    let (dir, count) = (File::open(&root).unwrap(), scale("WEFT_TEST_PATHS", 500));
    let paths: Vec<(String, bool)> = (0..count).map(|_| (draw(&mut dice), dice.roll(2) == 0)).collect();
    let expected = paths.iter().map(|(path, follows)| {
        // To the kernel the mount is the root, as it is to the core.
        let found = syscall::find_in_root(&dir, Path::new(path), *follows);
        found.map(|file| InodeId(file.metadata().unwrap().ino())).map_err(Errno::from)
    });
    let expected: Vec<Result<InodeId, Errno>> = expected.collect();
    let found = with_core(&cluster, async |core| {
        let mut found = Vec::new();
        for (path, follows) in &paths {
            found.push(look_up(core, path, *follows).await);
        }
        found
    });
    let mut ways = [0, 0];
    for (((path, follows), expected), found) in paths.iter().zip(&expected).zip(&found) {
        assert_eq!(found, expected, "{path} (links at the end are followed: {follows})");
        ways[usize::from(found.is_ok())] += 1;
    }
    assert!(ways.iter().all(|&count| count > paths.len() / 20), "{ways:?} of {} are errors, or not", paths.len());
    cluster.assert_sound();
}
