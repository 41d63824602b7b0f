//! Every source file is part of a target: a file that no `mod` names rots unseen.

use std::collections::BTreeSet;

use super::tree::{Package, Tree};

pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for package in &tree.crates {
        let alive = reachable(tree, package);
        for (path, _) in tree.sources_of(package) {
            if !alive.contains(path) {
                findings.push(format!("{path}: dead file: no `mod` leads to it"));
            }
        }
    }
    findings
}

fn reachable(tree: &Tree, package: &Package) -> BTreeSet<String> {
    let mut alive = BTreeSet::new();
    let mut open: Vec<String> = tree
        .sources_of(package)
        .map(|(path, _)| path.to_owned())
        .filter(|path| is_root(&package.folder, path))
        .collect();
    while let Some(path) = open.pop() {
        let Some(source) = tree.sources.get(&path) else { continue };
        for (name, file) in source.declared_modules() {
            open.extend(candidates(&package.folder, &path, &name, file.as_deref()));
        }
        alive.insert(path);
    }
    alive
}

/// Where Cargo itself looks for targets.
fn is_root(folder: &str, path: &str) -> bool {
    let inner = &path[folder.len() + 1..];
    let direct =
        |prefix: &str| inner.strip_prefix(prefix).is_some_and(|rest| !rest.contains('/') || rest.ends_with("/main.rs"));
    matches!(inner, "src/lib.rs" | "src/main.rs" | "build.rs")
        || ["src/bin/", "tests/", "benches/", "examples/"].iter().any(|prefix| direct(prefix))
}

/// Where the module `name` that `path` declares may be: only one of them exists.
fn candidates(folder: &str, path: &str, name: &str, file: Option<&str>) -> Vec<String> {
    let (parent, stem) = path.rsplit_once('/').unwrap_or(("", path));
    if let Some(file) = file {
        return vec![format!("{parent}/{file}")];
    }
    let stem = stem.trim_end_matches(".rs");
    let owns_folder = matches!(stem, "mod" | "lib" | "main") || is_root(folder, path);
    let base = if owns_folder { parent.to_owned() } else { format!("{parent}/{stem}") };
    vec![format!("{base}/{name}.rs"), format!("{base}/{name}/mod.rs")]
}
