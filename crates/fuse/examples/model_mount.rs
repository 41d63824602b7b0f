//! Mounts the in-memory reference file system: `cargo run --release -p fuse --example model_mount -- MOUNTPOINT`.
//!
//! Options after the mount point: `--loops N`, `--no-pin`, `--spin-us N`, `--pages` (use the page cache), `--uring`.

#![allow(clippy::print_stderr, reason = "a tool for people")]

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use fuse::model_fs::{Caching, ModelFs};
use fuse::options::{Channel, Options};
use fuse::signals::Signals;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("model_mount: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let signals = Signals::block()?;
    let mut arguments = std::env::args().skip(1);
    let mountpoint = arguments.next().ok_or("which mount point?")?;
    let (mut options, mut caching) = (Options { source: "model".into(), ..Options::default() }, Caching::Direct);
    while let Some(argument) = arguments.next() {
        let mut number =
            || arguments.next().ok_or("an option lacks its number")?.parse::<u64>().map_err(|e| e.to_string());
        match argument.as_str() {
            "--loops" => options.loops = number()? as usize,
            "--spin-us" => options.spin = Duration::from_micros(number()?),
            "--no-pin" => options.pin = false,
            "--helper" => options.use_helper = true,
            "--uring" => options.channel = Channel::Uring,
            "--pages" => caching = Caching::Pages,
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    let fs = ModelFs::new(model::Limits::default(), caching);
    let handle = fuse::mount(Path::new(&mountpoint), options, move |_| fs.clone())?;
    Ok(handle.run_until(&signals)?)
}
