//! Disks without room, or without inodes.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use harness::cluster::Cluster;
use harness::loop_disk::LoopDisk;
use harness::{syscall, wait};

use super::{SOON, assert_data_is_there, cluster_with_data, config_of, fill, folder_on, set, state_of};

#[test]
fn a_full_storage_disk_says_so_and_takes_removals() {
    let cluster = cluster_with_data();
    let _disk = LoopDisk::under(&cluster.dir().join("storaged-1"), 160);
    set(&config_of(&cluster, "storaged-1"), "reserve", "16MiB");
    cluster.up().expect_ok();
    let before = syscall::free_bytes(&cluster.mount_point()).unwrap();
    let error = fill(&cluster.path("big"), 400).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    let error = fill(&cluster.path("other"), 40).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "still full");
    // What was written is right, and names can still be made and removed.
    let mut block = vec![0; 1 << 20];
    File::open(cluster.path("big")).unwrap().read_exact(&mut block).unwrap();
    assert!(block.iter().all(|&byte| byte == 7));
    fs::create_dir(cluster.path("d")).unwrap();
    // What is told of it may be a second old.
    let free = || syscall::free_bytes(&cluster.mount_point()).unwrap();
    wait::until("all know that it is full", SOON, || (free() < before / 4).then_some(()));
    for name in ["big", "other"] {
        fs::remove_file(cluster.path(name)).unwrap();
    }
    wait::until("the space is free again", SOON, || (free() + (8 << 20) > before).then_some(()));
    fill(&cluster.path("again"), 40).unwrap();
    assert_data_is_there(&cluster);
    cluster.down().expect_ok();
}

#[test]
fn a_full_metadata_disk_says_so_and_takes_removals() {
    let cluster = cluster_with_data();
    let disk_at = cluster.dir().join("metad-1");
    let _disk = LoopDisk::under(&disk_at, 160);
    cluster.up().expect_ok();
    let folder = cluster.folder("d");
    fs::write(folder.join("f"), b"x").unwrap();
    // Somebody else's file on the same disk leaves less than the reserve.
    let free = syscall::free_bytes(&disk_at).unwrap();
    fill(&disk_at.join("foreign"), free / (1 << 20) - 30).unwrap();
    wait::until("making names is refused", SOON, || match File::create_new(folder.join("probe")) {
        Ok(_) => fs::remove_file(folder.join("probe")).map(|()| None).unwrap(),
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
            Some(())
        }
    });
    assert_eq!(fs::create_dir(folder.join("sub")).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    // Its contents are there too.
    let file = File::options().write(true).open(folder.join("f")).unwrap();
    assert_eq!(file.write_all_at(b"more", 0).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    drop(file);
    assert_eq!(fs::read(folder.join("f")).unwrap(), b"x");
    fs::remove_file(folder.join("f")).unwrap();
    fs::remove_dir(&folder).unwrap();
    fs::remove_file(disk_at.join("foreign")).unwrap();
    wait::until("making names works again", SOON, || fs::write(cluster.path("new"), b"y").ok());
    assert_data_is_there(&cluster);
    cluster.down().expect_ok();
}

#[test]
fn a_target_without_inodes_says_so_and_takes_removals() {
    let cluster = cluster_with_data();
    let place = cluster.dir().join("storaged-1/target-2");
    let _disk = LoopDisk::under_with_inodes(&place, 160, INODES);
    set(&config_of(&cluster, "storaged-1"), "reserve", "16MiB");
    cluster.up().expect_ok();
    let (poor, rich) = (folder_on(&cluster, "poor", &place), folder_on(&cluster, "rich", &beside_it(&cluster)));
    // One object a file, and perhaps one for its checksums.
    let (made, error) = make_until_refused(&poor, INODES);
    assert_eq!(error.and_then(|error| error.raw_os_error()), Some(libc::ENOSPC), "after {made} files");
    assert!(made > 20, "{made} files");
    let (others, error) = make_until_refused(&rich, INODES);
    assert!(error.is_none() && others == INODES, "other targets go on: {error:?} after {others}");
    // Started again, the service finds enough for its own files.
    let dead = cluster.kill("storaged-1");
    cluster.wait_for_another("storaged-1", dead);
    // What is there is right, and making room helps.
    for number in 0..made {
        assert_eq!(fs::read(poor.join(number.to_string())).unwrap(), [number as u8; 5000]);
    }
    fs::remove_file(poor.join(made.to_string())).unwrap();
    for number in made / 2..made {
        fs::remove_file(poor.join(number.to_string())).unwrap();
    }
    wait::until("there are inodes again", SOON, || make(&poor, "new", 1).ok());
    assert_data_is_there(&cluster);
    cluster.down().expect_ok();
}

#[test]
fn a_storage_disk_without_a_free_block_or_inode_is_served_after_a_restart() {
    let cluster = cluster_with_data();
    let place = cluster.dir().join("storaged-1/target-2");
    let _disk = LoopDisk::under_with_inodes(&place, 160, INODES);
    set(&config_of(&cluster, "storaged-1"), "reserve", "16MiB");
    cluster.up().expect_ok();
    let poor = folder_on(&cluster, "poor", &place);
    fill(&poor.join("large"), 20).unwrap();
    // Somebody else takes all that is left, the reserve included.
    let foreign = place.join("foreign");
    fs::create_dir(&foreign).unwrap();
    take_all(&foreign).unwrap();
    // Killed, and then stopped in order and started: neither finds any more.
    for _ in 0..2 {
        let old = cluster.kill("storaged-1");
        cluster.wait_for_another("storaged-1", old);
        wait::until("the target is served", SOON, || (state_of(&cluster, &place) == "good").then_some(()));
    }
    cluster.down().expect_ok();
    assert_eq!(syscall::free_bytes(&place).unwrap(), 0, "it was really full");
    cluster.up().expect_ok();
    fs::remove_file(poor.join("large")).unwrap();
    wait::until("the space is free", SOON, || (syscall::free_bytes(&place).unwrap() >= 20 << 20).then_some(()));
    assert!(!cluster.log("storaged-1").contains("cannot be opened"), "{}", cluster.log("storaged-1"));
    fs::remove_dir_all(&foreign).unwrap();
    wait::until("files can be made again", SOON, || fill(&poor.join("new"), 2).ok());
    assert_data_is_there(&cluster);
    cluster.down().expect_ok();
}

/// The last block and the last inode of a file system.
fn take_all(folder: &Path) -> io::Result<()> {
    let full = |error: &io::Error| error.raw_os_error() == Some(libc::ENOSPC);
    let file = File::create(folder.join("blocks"))?;
    let mut at = 0;
    for piece in [1 << 20, 4096] {
        let zeros = vec![0; piece];
        loop {
            match file.write_at(&zeros, at) {
                Ok(written) => at += written as u64,
                Err(error) if full(&error) => break,
                Err(error) => return Err(error),
            }
        }
        file.sync_all()?;
    }
    for number in 0.. {
        match File::create(folder.join(number.to_string())) {
            Ok(_) => {}
            Err(error) if full(&error) => break,
            Err(error) => return Err(error),
        }
    }
    File::open(folder)?.sync_all()
}

/// Of the small disk.
const INODES: u64 = 256;

fn beside_it(cluster: &Cluster) -> PathBuf {
    cluster.dir().join("storaged-1/target-1")
}

/// How many files of up to `most` could be made; the next one is there without its content.
fn make_until_refused(folder: &Path, most: u64) -> (u64, Option<io::Error>) {
    for number in 0..most {
        if let Err(error) = make(folder, &number.to_string(), number as u8) {
            return (number, Some(error));
        }
    }
    (most, None)
}

fn make(folder: &Path, name: &str, byte: u8) -> io::Result<()> {
    let file = File::create(folder.join(name))?;
    file.write_all_at(&[byte; 5000], 0)?;
    file.sync_all()
}
