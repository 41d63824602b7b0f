//! The committed corpora are those that the code makes.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

fn corpus() -> PathBuf {
    // At run time: one build may serve several checkouts.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").expect("`cargo test` sets it");
    PathBuf::from(manifest).join("corpus")
}

#[test]
fn seeds_are_as_the_code_makes_them() {
    for seed in fuzz::seeds::all() {
        let path = corpus().join(seed.target).join(&seed.name);
        let is_written = fs::read(&path).is_ok_and(|bytes| bytes == seed.bytes);
        assert!(is_written, "{} is missing or out of date: run this test file with --ignored", path.display());
    }
}

/// What a fuzzer has found has a checksum for its name; everything else that is no seed any more explores nothing.
#[test]
fn nothing_is_left_of_older_seeds() {
    let seeds = fuzz::seeds::all();
    let made: BTreeSet<&str> = seeds.iter().map(|seed| seed.target).collect();
    for target in made {
        let names: BTreeSet<&str> =
            seeds.iter().filter(|seed| seed.target == target).map(|seed| &seed.name[..]).collect();
        for entry in fs::read_dir(corpus().join(target)).expect("a corpus") {
            let name = entry.expect("a file").file_name().into_string().expect("a name in ASCII");
            let is_found = name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(is_found || names.contains(&name[..]), "{target}/{name} is no seed: remove it");
        }
    }
}

#[test]
#[ignore = "writes the seeds into the sources"]
fn write_seeds() {
    for seed in fuzz::seeds::all() {
        let folder = corpus().join(seed.target);
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(&seed.name), &seed.bytes).expect("a file");
    }
}
