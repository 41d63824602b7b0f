//! Who keeps a mount busy.

use std::fs;
use std::path::Path;

/// Processes with their working directory, root, program or an open file below `point`, as `name (pid)`; at most
/// `limit`. Processes of other users stay unseen without the right to look.
pub(crate) fn of_mount(point: &Path, limit: usize) -> Vec<String> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| uses(*pid, point)).take(limit).map(describe).collect()
}

fn uses(pid: u32, point: &Path) -> bool {
    let process = Path::new("/proc").join(pid.to_string());
    let below = |link: &Path| fs::read_link(link).is_ok_and(|target| target.starts_with(point));
    if ["cwd", "root", "exe"].iter().any(|name| below(&process.join(name))) {
        return true;
    }
    let files = fs::read_dir(process.join("fd")).into_iter().flatten();
    files.filter_map(Result::ok).any(|file| below(&file.path()))
}

fn describe(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{} ({pid})", name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_process_that_holds_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let point = folder.path().canonicalize().expect("it is there");
        assert!(of_mount(&point, 5).is_empty());
        let file = fs::File::create(point.join("f")).expect("writable");
        let users = of_mount(&point, 5);
        assert!(users.len() == 1 && users[0].contains(&std::process::id().to_string()), "{users:?}");
        drop(file);
    }
}
