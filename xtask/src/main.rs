//! Automation for those who work on Weft: `cargo xtask tidy`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

mod tidy;

const USAGE: &str = "\
Usage: cargo xtask COMMAND
  tidy           check the house rules: crate arrows, dead files, purity, sizes
  tidy --shrink  the same, and lower the allow-list of sizes (xtask/ratchet.toml) to what is really there";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["tidy"] => report(root().and_then(|root| tidy::check(&root))),
        ["tidy", "--shrink"] => report(root().and_then(|root| tidy::shrink(&root).and_then(|()| tidy::check(&root)))),
        _ => {
            say(USAGE);
            ExitCode::from(2)
        }
    }
}

/// Of the repository that cargo runs this in: one build may serve several checkouts, so it is not known to the compiler.
fn root() -> anyhow::Result<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").context("run this as `cargo xtask`")?;
    Ok(Path::new(&manifest).parent().context("xtask lies in the root of the repository")?.to_path_buf())
}

fn report(findings: anyhow::Result<Vec<String>>) -> ExitCode {
    match findings {
        Ok(findings) if findings.is_empty() => ExitCode::SUCCESS,
        Ok(findings) => {
            findings.iter().for_each(|finding| say(finding));
            say(&format!("{} findings", findings.len()));
            ExitCode::FAILURE
        }
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "a tool for a terminal")]
fn say(line: &str) {
    eprintln!("{line}");
}
