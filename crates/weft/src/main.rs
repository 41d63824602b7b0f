//! The door: one binary that is every service and every command.
//!
//! Each command is a file of `command/`: its flags, and a function that does it with crate `admin`, the service crates
//! or `local` and shows what came of it. Errors end up here, as one line on standard error (with `--json` of JSON) and an
//! exit code: 2 for what the caller has to change, 1 for the rest.

mod cli;
mod command;
mod failure;
mod helper;
mod local;
mod locate;
mod output;

use std::process::ExitCode;

use crate::cli::Cli;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    if helper::is_asked(arguments.next().as_deref()) {
        return helper::run(arguments);
    }
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let output = cli.output();
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.fail(&failure);
            ExitCode::from(failure.code())
        }
    }
}
