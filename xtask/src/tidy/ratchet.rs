//! Files and functions stay small. What is larger stands in `xtask/ratchet.toml`, which may only shrink.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};

use super::tree::Tree;

/// Lines of production code in one file.
const FILE_MAX: usize = 700;
/// Lines of one function, signature included.
const FUNCTION_MAX: usize = 70;
/// An allowance may lie so far above what is there before it must be lowered.
const SLACK: usize = 20;

const LIST: &str = "xtask/ratchet.toml";

pub(crate) fn check(tree: &Tree) -> Result<Vec<String>> {
    let allowed = read_list(tree)?;
    let found = oversized(tree);
    let mut findings = Vec::new();
    for (name, lines) in &found {
        let limit = allowed.get(name).copied().unwrap_or_else(|| limit_of(name));
        if *lines > limit {
            findings.push(format!("{name}: {lines} lines, over {limit}: look for the second noun in it"));
        }
    }
    for (name, limit) in &allowed {
        if found.get(name).is_none_or(|lines| lines + SLACK < *limit) {
            findings.push(format!("{LIST}: \"{name}\" allows more than is there: cargo xtask tidy --shrink"));
        }
    }
    Ok(findings)
}

pub(crate) fn shrink(tree: &Tree) -> Result<()> {
    let found = oversized(tree);
    let mut lines = vec!["# Sizes above the limits, in lines. Entries go or get smaller; none is added.".to_owned()];
    for (name, limit) in read_list(tree)? {
        if let Some(size) = found.get(&name) {
            lines.push(format!("\"{name}\" = {}", limit.min(*size)));
        }
    }
    fs::write(tree.root.join(LIST), lines.join("\n") + "\n").with_context(|| format!("cannot write {LIST}"))
}

fn limit_of(name: &str) -> usize {
    if name.contains("::") { FUNCTION_MAX } else { FILE_MAX }
}

fn read_list(tree: &Tree) -> Result<BTreeMap<String, usize>> {
    let text = tree.texts.get(LIST).map_or("", String::as_str);
    let table: toml::Table = text.parse().with_context(|| format!("cannot read {LIST}"))?;
    let entry = |(name, value): (String, toml::Value)| {
        let lines = value.as_integer().and_then(|lines| usize::try_from(lines).ok());
        lines.map(|lines| (name.clone(), lines)).with_context(|| format!("{LIST}: {name} needs a number of lines"))
    };
    table.into_iter().map(entry).collect()
}

/// Files (`path`) and functions (`path::name`) over their limit, with their lines.
fn oversized(tree: &Tree) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for (path, source) in
        tree.sources.iter().filter(|(path, _)| !path.contains("/tests/") && !path.ends_with("tests.rs"))
    {
        let lines = source.production().lines().count();
        if lines > FILE_MAX {
            found.insert(path.clone(), lines);
        }
        for function in source.functions().into_iter().filter(|function| function.lines > FUNCTION_MAX) {
            let size = found.entry(format!("{path}::{}", function.name)).or_insert(0);
            *size = function.lines.max(*size);
        }
    }
    found
}
