//! The program under test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

/// Another program than the one that was built last, such as one of an older release.
const OVERRIDE: &str = "WEFT_BIN";

/// Path of `weft` as the build made it beside this test.
///
/// # Panics
/// Where it is missing, or older than its sources: a test of yesterday's program proves nothing.
pub fn weft() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| match std::env::var_os(OVERRIDE) {
        Some(path) => PathBuf::from(path),
        None => built(),
    })
}

fn built() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    // target/release/deps/NAME-HASH
    let folder = test.parent().and_then(Path::parent).expect("tests lie two folders below the target's");
    let weft = folder.join("weft");
    assert!(weft.exists(), "{} is missing: cargo build --release --workspace", weft.display());
    let made = changed(&weft).expect("the program has a time");
    let stale = sources(&folder.join("weft.d")).into_iter().find(|source| changed(source).is_some_and(|at| at > made));
    if let Some(source) = stale {
        panic!("{} is older than {}: cargo build --release --workspace", weft.display(), source.display());
    }
    weft
}

/// What the program was made of, as Cargo wrote it down: `program: source source ...`.
fn sources(list: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(list).unwrap_or_default();
    let names = text.split_once(": ").map_or("", |(_, names)| names.trim());
    names.replace("\\ ", "\0").split(' ').map(|name| PathBuf::from(name.replace('\0', " "))).collect()
}

fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|meta| meta.modified()).ok()
}
