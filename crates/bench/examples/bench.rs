//! `weft bench` without the rest of `weft`: `cargo run --release --workspace --example bench -- --list`

use std::io::Write;

use clap::Parser;

#[derive(Parser)]
enum Cli {
    Bench(bench::Options),
}

fn main() -> anyhow::Result<()> {
    let Cli::Bench(options) = Cli::parse();
    if options.peers.is_some() && options.job.is_none() {
        return Ok(write!(std::io::stdout(), "{}", bench::peers::run(&options)?)?);
    }
    let report = bench::run(&options)?;
    Ok(write!(std::io::stdout(), "{report}")?)
}
