//! Crates depend downwards only. A crate boundary is a proof: what is not in a manifest cannot be used.

use super::tree::{Package, Tree};

/// Every crate's floor. An arrow may stay on its floor or go down.
const FLOORS: &[(u8, &[&str])] = &[
    (0, &["types", "conf", "telemetry", "hosts"]),
    (1, &["wire", "layout", "kv", "ring", "model"]),
    (2, &["cluster", "namespace", "net", "control"]),
    (3, &["mgmtd", "metad", "storaged", "client", "admin"]),
    (4, &["fuse", "mount", "bench"]),
    (5, &["weft", "harness", "xtask"]),
];

/// Crates that nobody depends on.
const ROOFS: &[&str] = &["weft", "harness", "xtask"];

pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for package in &tree.crates {
        let Some(floor) = floor_of(&package.name) else {
            findings.push(format!("{}: has no floor: add it to xtask/src/tidy/arrows.rs", package.folder));
            continue;
        };
        for name in dependencies(package) {
            match floor_of(&name) {
                Some(_) if ROOFS.contains(&name.as_str()) => {
                    findings.push(format!("{}: depends on {name}, which nobody may", package.folder));
                }
                Some(other) if other > floor => {
                    findings.push(format!("{}: on floor {floor}, depends upwards on {name} on {other}", package.folder))
                }
                _ => {}
            }
        }
    }
    findings
}

fn floor_of(name: &str) -> Option<u8> {
    FLOORS.iter().find(|(_, names)| names.contains(&name)).map(|(floor, _)| *floor)
}

/// Names of what a crate needs to run; what only its tests need is left out.
pub(crate) fn dependencies(package: &Package) -> Vec<String> {
    let table = package.manifest.get("dependencies").and_then(toml::Value::as_table);
    table.map(|table| table.keys().cloned().collect()).unwrap_or_default()
}
