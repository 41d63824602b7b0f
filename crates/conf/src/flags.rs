//! Every knob as a flag.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::knob::{Knob, Knobs, Shorthand, doc_lines};

/// The flags that were given for settings `C`. Use it with `#[command(flatten)]`.
#[derive(Clone, Debug)]
pub struct Flags<C> {
    by_key: BTreeMap<&'static str, Vec<String>>,
    /// Of shorthands and programs: what holds where no source says anything.
    defaults: BTreeMap<&'static str, &'static str>,
    settings: PhantomData<fn() -> C>,
}

impl<C> Default for Flags<C> {
    fn default() -> Self {
        Self { by_key: BTreeMap::new(), defaults: BTreeMap::new(), settings: PhantomData }
    }
}

impl<C: Knobs> Flags<C> {
    /// Sets `key` as its flag would; for programs that start a service themselves.
    pub fn give(&mut self, key: &'static str, value: &str) {
        self.by_key.entry(key).or_default().push(value.to_owned());
    }

    /// Makes `value` the default of `key`: any source says more.
    pub fn default_to(&mut self, key: &'static str, value: &'static str) {
        self.defaults.insert(key, value);
    }

    /// The values given for `key`.
    #[must_use]
    pub fn given(&self, key: &str) -> Option<&[String]> {
        self.by_key.get(key).map(Vec::as_slice)
    }

    /// What a given shorthand makes the default of `key`.
    pub(crate) fn default_of(&self, key: &str) -> Option<&'static str> {
        self.defaults.get(key).copied()
    }

    /// A flag that was given for itself says more than the shorthand.
    fn expand(&mut self, shorthand: &Shorthand, value: &str) {
        for (key, text) in [(shorthand.key, value)].iter().chain(shorthand.sets) {
            self.by_key.entry(key).or_insert_with(|| vec![(*text).to_owned()]);
        }
        self.defaults.extend(shorthand.defaults.iter().copied());
    }

    fn arg(knob: &Knob) -> Arg {
        let mut help: Vec<String> = knob.doc_lines().map(str::to_owned).collect();
        help.push(format!("[env: {}]", knob.variable(C::SERVICE)));
        help.extend(knob.default.map(|default| format!("[default: {default}]")));
        let action = if knob.is_list() { ArgAction::Append } else { ArgAction::Set };
        let arg = Arg::new(knob.key);
        // `--init` alone says yes; `--init=false` is there to overrule a file. Without the equals sign a switch would
        // swallow the argument after it.
        let is_switch = knob.kind == "bool";
        let switch = |arg: Arg| arg.num_args(0..=1).require_equals(true).default_missing_value("true");
        let arg = if is_switch { switch(arg) } else { arg };
        // `--target A --target B` reads better than a plural.
        let arg = match knob.key.strip_suffix('s') {
            Some(one) if knob.is_list() => arg.visible_alias(one),
            _ => arg,
        };
        arg
            // clap wants names that live as long as the program; there is one per knob.
            .long(&*knob.key.replace('_', "-").leak())
            .value_name(value_name(knob))
            .help(help.join(" "))
            .action(action)
    }

    fn shorthand(shorthand: &Shorthand) -> Arg {
        let help: Vec<&str> = doc_lines(shorthand.doc).collect();
        let arg = Arg::new(shorthand.name).long(shorthand.name).value_name(shorthand.value_name);
        arg.conflicts_with(shorthand.key).help(help.join(" "))
    }
}

impl<C: Knobs> FromArgMatches for Flags<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for knob in C::KNOBS {
            if let Some(values) = matches.get_many::<String>(knob.key) {
                self.by_key.insert(knob.key, values.cloned().collect());
            }
        }
        for shorthand in C::SHORTHANDS {
            if let Some(value) = matches.get_one::<String>(shorthand.name) {
                self.expand(shorthand, value);
            }
        }
        Ok(())
    }
}

impl<C: Knobs> Args for Flags<C> {
    fn augment_args(command: Command) -> Command {
        command.args(C::KNOBS.iter().map(Self::arg)).args(C::SHORTHANDS.iter().map(Self::shorthand))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn value_name(knob: &Knob) -> &'static str {
    let names = [("PathBuf", "PATH"), ("SocketAddr", "ADDRESS:PORT"), ("Size", "SIZE"), ("Period", "TIME")];
    names.iter().find(|(kind, _)| knob.kind.contains(kind)).map_or("VALUE", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    crate::knobs! {
        /// For these tests.
        pub(crate) struct Config for "example" {
            /// Where it listens.
            listen_port: u16 = "80",
            targets: Vec<String>,
            init: bool = "false",
        }
    }

    #[test]
    fn a_switch_needs_no_value() {
        assert!(Line::try_parse_from(["x", "--init", "false"]).is_err(), "it would swallow an argument");
        for (flags, expected) in [(&["x", "--init"][..], true), (&["x", "--init=false"], false), (&["x"], false)] {
            let line = Line::try_parse_from(flags).expect("valid");
            let sources = crate::Sources { file: None, environment: &crate::Environment::new(), flags: &line.flags };
            assert_eq!(sources.load().expect("valid").init, expected);
        }
    }

    #[test]
    fn a_programs_default_yields_to_every_source() {
        let load = |words: &[&str], variable: Option<&str>| {
            let mut flags = Line::try_parse_from([&["x"], words].concat()).expect("valid").flags;
            flags.default_to("init", "true");
            let environment =
                variable.map(|text| ("WEFT_EXAMPLE_INIT".to_owned(), text.to_owned())).into_iter().collect();
            crate::Sources { file: None, environment: &environment, flags: &flags }.load().expect("valid").init
        };
        assert!(load(&[], None));
        assert!(!load(&[], Some("false")));
        assert!(!load(&["--init=false"], None));
    }

    crate::knobs! {
        /// For these tests.
        pub(crate) struct Joining for "joining" {
            /// Whom it asks.
            server: String,
            /// Its place.
            dir: String,
            /// Begin anew.
            init: bool = "false",
            /// Its parts.
            parts: Vec<String>,
        }
        /// Join that
        /// one.
        shorthand join "HOST:PORT" for server, with { init = "true" }, without { dir = "here" };
    }

    fn joining(words: &[&str], environment: &[(&str, &str)]) -> Result<Joining, String> {
        let command = Flags::<Joining>::augment_args(Command::new("x"));
        let matches = command.try_get_matches_from([&["x"], words].concat()).map_err(|error| error.to_string())?;
        let flags = Flags::from_arg_matches(&matches).expect("it is made from these");
        let environment = environment.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        crate::Sources { file: None, environment: &environment, flags: &flags }
            .load()
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_shorthand_sets_several_keys_and_yields_to_what_is_said_of_each() {
        let config = joining(&["--join", "h:1"], &[]).expect("that is all it needs");
        assert_eq!((&*config.server, &*config.dir, config.init), ("h:1", "here", true));
        let config = joining(&["--join=h:1", "--init=false", "--dir", "d"], &[]).expect("valid");
        assert_eq!((&*config.dir, config.init), ("d", false));
        // Its defaults are defaults: any source is above them. What it sets is a flag: no other source is.
        let config = joining(&["--join=h:1"], &[("WEFT_JOINING_DIR", "e"), ("WEFT_JOINING_INIT", "false")]);
        let config = config.expect("valid");
        assert_eq!((&*config.dir, config.init), ("e", true));
        let refused = joining(&["--join=h:1", "--server=h:2"], &[]).expect_err("two servers");
        assert!(refused.contains("cannot be used with"), "{refused}");
        assert!(joining(&[], &[]).expect_err("nothing is set").contains("server"));
        let help = joining(&["--help"], &[]).expect_err("the help");
        assert!(help.contains("--join <HOST:PORT>") && help.contains("Join that one."), "{help}");
    }

    #[test]
    fn one_of_a_list_is_given_in_the_singular() {
        let config = joining(&["--join=h:1", "--part", "a", "--part", "b"], &[]).expect("valid");
        assert_eq!(config.parts, ["a", "b"]);
    }

    #[derive(Parser, Debug)]
    struct Line {
        #[arg(long)]
        config: Option<String>,
        #[command(flatten)]
        flags: Flags<Config>,
    }

    #[test]
    fn every_knob_is_a_flag_with_help() {
        let line =
            Line::try_parse_from(["x", "--listen-port", "81", "--targets", "a", "--targets=b,c"]).expect("valid");
        let sources = crate::Sources { file: None, environment: &crate::Environment::new(), flags: &line.flags };
        let config = sources.load().expect("valid");
        assert_eq!((config.listen_port, config.targets.len(), line.config), (81, 3, None));
        let help = Line::try_parse_from(["x", "--help"]).unwrap_err().to_string();
        assert!(help.contains("Where it listens. [env: WEFT_EXAMPLE_LISTEN_PORT] [default: 80]"), "{help}");
    }
}
