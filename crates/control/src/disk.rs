//! How full the file system of a directory is.

use std::io;
use std::path::Path;

use cluster::capacity::Capacity;
use cluster::event::Report;
use conf::file_system::statvfs;

/// What `statvfs` says of the file system that holds `dir`.
///
/// # Errors
/// Where the directory is gone or its disk fails.
pub fn capacity(dir: &Path) -> io::Result<Capacity> {
    let stat = statvfs(dir)?;
    Ok(Capacity {
        total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        total_inodes: stat.f_files,
        free_inodes: stat.f_favail,
    })
}

/// The report on a target in `dir`: failing where the file system cannot even be asked.
#[must_use]
pub fn report(dir: &Path, empty: bool) -> Report {
    match capacity(dir) {
        Ok(capacity) => Report { capacity, failing: false, empty },
        Err(error) => {
            tracing::warn!(dir = %dir.display(), %error, "the target's file system cannot be asked");
            Report { failing: true, ..Report::default() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_the_file_system_and_reports_a_directory_that_is_gone() {
        let dir = tempfile::tempdir().expect("a directory");
        let found = capacity(dir.path()).expect("it is there");
        assert!(found.total_bytes > 0 && found.free_bytes <= found.total_bytes);
        assert!(!report(dir.path(), true).failing);
        assert!(report(&dir.path().join("gone"), true).failing);
    }
}
