//! All commands in one list.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::command;
use crate::failure::{EXIT_USAGE, Failure};
use crate::output::{self, Output};

/// A parallel file system: files striped over storage servers, metadata in key-value shards, one POSIX namespace.
#[derive(Debug, Parser)]
#[command(
    name = "weft",
    version,
    max_term_width = 100,
    after_help = "\
Example: a cluster on this machine, mounted at ./mnt, with its data in ./.weft
  weft up --detach
  weft status
  weft down"
)]
pub(crate) struct Cli {
    /// Print the result as one JSON document, and a failure as one on standard error: {"error": ..., "code": ...}
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(command::up::Args),
    Down(command::down::Args),
    #[command(hide = true)]
    Supervise(command::supervise::Args),
    Status(command::status::Args),
    Mount(command::mount::Args),
    Umount(command::umount::Args),
    Mgmtd(command::service::Args<mgmtd::config::Config>),
    Metad(command::service::Args<metad::config::Config>),
    Storaged(command::service::Args<storaged::config::Config>),
    Config(command::config::Args),
    Net(command::net::Args),
    Node(command::node::Args),
    Target(command::target::Args),
    Pool(command::pool::Args),
    Df(command::df::Args),
    Entry(command::entry::Args),
    LogLevel(command::log_level::Args),
    Fsck(command::fsck::Args),
    Scrub(command::scrub::Args),
    Bench(command::bench::Args),
}

impl Cli {
    /// The command line's, or its failure told and the exit code: asked for help, that is shown.
    pub(crate) fn read() -> Result<Self, ExitCode> {
        Self::try_parse().map_err(|error| {
            let wants_json = std::env::args_os().skip(1).any(|word| word == "--json");
            if !error.use_stderr() || !wants_json {
                error.exit();
            }
            output::complain(&output::failure_document(&in_one_line(&error), EXIT_USAGE));
            ExitCode::from(EXIT_USAGE)
        })
    }

    pub(crate) fn output(&self) -> Output {
        Output { json: self.json }
    }

    pub(crate) fn run(self) -> Result<(), Failure> {
        let output = self.output();
        match self.command {
            Command::Up(args) => args.run(output),
            Command::Down(args) => args.run(output),
            Command::Supervise(args) => args.run(),
            Command::Status(args) => args.run(output),
            Command::Mount(args) => args.run(output),
            Command::Umount(args) => args.run(output),
            Command::Mgmtd(args) => args.run(|config, _| mgmtd::run(&config)),
            Command::Metad(args) => args.run(metad::run),
            Command::Storaged(args) => args.run(storaged::run),
            Command::Config(args) => args.run(output),
            Command::Net(args) => args.run(output),
            Command::Node(args) => args.run(output),
            Command::Target(args) => args.run(output),
            Command::Pool(args) => args.run(output),
            Command::Df(args) => args.run(output),
            Command::Entry(args) => args.run(output),
            Command::LogLevel(args) => args.run(output),
            Command::Fsck(args) => args.run(output),
            Command::Scrub(args) => args.run(output),
            Command::Bench(args) => args.run(output),
        }
    }
}

/// What is wrong, without the advice that follows an empty line.
fn in_one_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a subcommand is missing: see --help".to_owned();
    }
    let text = error.render().to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_is_wrong_with_a_command_line_is_said_in_one_line() {
        let said = |words: &str| Cli::try_parse_from(words.split(' ')).map_err(|error| in_one_line(&error));
        let wrong =
            |words: &str, named: &str| said(words).is_err_and(|line| line.contains(named) && !line.contains('\n'));
        assert!(wrong("weft bench storage", "--write"));
        assert!(wrong("weft pool assign fast", "GROUPS"));
        assert!(wrong("weft entry", "subcommand"));
        assert!(wrong("weft df --nonsense", "'--nonsense'"));
    }

    #[test]
    fn a_benchmark_of_targets_finds_its_cluster_like_other_commands() {
        let dir = |words: &str| {
            let words = words.split(' ').filter(|word| !word.is_empty());
            let matches = Cli::command().get_matches_from(["weft", "bench"].into_iter().chain(words));
            let (_, bench) = matches.subcommand().expect("bench");
            let below = bench.subcommand().map(|(_, storage)| storage.get_one::<std::path::PathBuf>("dir").cloned());
            below.unwrap_or_else(|| bench.get_one("bench_dir").cloned())
        };
        assert_eq!(dir("storage --status"), None);
        assert_eq!(dir("storage --status --dir x"), Some("x".into()));
        assert_eq!(dir("--quick --dir x"), Some("x".into()));
        assert_eq!(dir(""), Some(".".into()));
    }

    #[test]
    fn every_command_says_what_it_does_and_shows_an_example() {
        look_at(&Cli::command());
    }

    fn look_at(command: &clap::Command) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains("Example"), "{} has no example", command.get_name());
        assert!(command.get_about().is_some(), "{} does not say what it does", command.get_name());
        command.get_subcommands().filter(|command| !command.is_hide_set()).for_each(look_at);
    }
}
