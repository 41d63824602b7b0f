//! Takes the place of functions of the C library in a program that a test starts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{LONG, run};

/// The variable that names such a library.
pub const VARIABLE: &str = "LD_PRELOAD";

/// Compiles `source`, in C, to a library of this name in `folder`.
///
/// # Panics
/// Where that cannot be done.
#[must_use]
pub fn library(folder: &Path, name: &str, source: &str) -> PathBuf {
    let (file, library) = (folder.join(name).with_extension("c"), folder.join(name).with_extension("so"));
    fs::write(&file, source).expect("a file");
    run(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&file), LONG).expect_ok();
    library
}
