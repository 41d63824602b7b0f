//! The pure crates: no clock, no dice, no sockets, no files, no threads, no order of hash maps. What they need of these
//! comes in as values, so that a run can be repeated from its inputs.

use super::arrows;
use super::source::Source;
use super::tree::Tree;

const PURE: &[&str] = &["types", "wire", "layout", "cluster", "namespace", "model"];

/// Outside crates that a pure crate may use: values, codecs, containers.
const OUTSIDE: &[&str] = &["serde", "serde_json", "thiserror", "uuid", "crc-fast", "crc32c", "rustc-hash"];

/// Code that no pure crate has outside of its tests, and what to do instead.
const BANNED: &[(&str, &str)] = &[
    ("std::time::Instant", "take the time as a value"),
    ("std::time::SystemTime", "take the time as a value"),
    ("Instant::now", "take the time as a value"),
    ("SystemTime::now", "take the time as a value"),
    ("std::fs", "open no files"),
    ("std::net::Tcp", "open no sockets"),
    ("std::net::Udp", "open no sockets"),
    ("std::thread", "start no threads"),
    ("std::env", "take configuration as a value"),
    ("std::process", "start no processes"),
    ("tokio", "leave asynchrony to the shell around it"),
    ("rand::", "take a seed as a value"),
    ("getrandom", "take a seed as a value"),
    ("new_v4", "take the id as a value"),
    ("RandomState", "use FxHashMap or BTreeMap"),
    ("HashMap::new", "use FxHashMap (never iterated) or BTreeMap"),
    ("HashSet::new", "use FxHashSet (never iterated) or BTreeSet"),
    ("unsafe", "be safe"),
];

pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for package in tree.crates.iter().filter(|package| PURE.contains(&package.name.as_str())) {
        for name in arrows::dependencies(package) {
            let inside = tree.crates.iter().any(|other| other.name == name);
            if !(OUTSIDE.contains(&name.as_str()) || inside && (PURE.contains(&name.as_str()) || name == "kv")) {
                findings.push(format!("{}: is pure, so it cannot depend on {name}", package.folder));
            }
        }
        let link = tree.root.join(&package.folder).join("clippy.toml");
        if std::fs::read_link(link).ok().is_none_or(|target| !target.ends_with("clippy-pure.toml")) {
            findings.push(format!("{}: ln -s ../../clippy-pure.toml clippy.toml", package.folder));
        }
        for (path, source) in tree.sources_of(package).filter(|(path, _)| path.contains("/src/")) {
            findings.extend(banned_in(path, source));
        }
    }
    findings
}

fn banned_in(path: &str, source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, line) in source.production().lines().enumerate() {
        for (word, instead) in BANNED {
            if contains_word(line, word) {
                findings.push(format!("{path}:{}: `{word}` in a pure crate: {instead}", number + 1));
            }
        }
    }
    findings
}

/// Whether `word` is there and begins as a word of its own (`rand::` is not in `operand::`, `Fx` makes another type).
fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !(c.is_alphanumeric() || c == '_'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_code_but_no_comments_tests_or_lookalikes() {
        let source = Source::new(
            "// Instant::now\nlet m = FxHashMap::new();\noperand::x();\nlet t = Instant::now();\n\
             #[cfg(test)]\nmod tests { use std::fs; }\n"
                .to_owned(),
        );
        assert_eq!(banned_in("f.rs", &source), ["f.rs:4: `Instant::now` in a pure crate: take the time as a value"]);
    }
}
