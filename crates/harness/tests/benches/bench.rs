//! `weft bench`: rows run to their end, say what was measured, and leave nothing behind.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;
use std::process::Command;

use harness::binary;
use harness::run::{LONG, run};
use serde_json::Value;

/// The rows with `name` in theirs, in one short round.
fn rows(at: &Path, name: &str) -> Vec<Value> {
    let saved = at.join("saved.json");
    let mut command = Command::new(binary::weft());
    command.args(["--json", "bench", "--quick", "--rounds", "1", "--only", name, "--dir"]).arg(at);
    let ended = run(command.arg("--save").arg(&saved), LONG).expect_ok();
    let report: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"));
    assert_eq!(serde_json::from_slice::<Value>(&fs::read(&saved).unwrap()).unwrap(), report, "what was saved is shown");
    assert_eq!((&report["quick"], &report["rounds"]), (&Value::Bool(true), &Value::from(1)));
    fs::remove_file(saved).unwrap();
    assert!(fs::read_dir(at).unwrap().next().is_none(), "something is left in {}", at.display());
    let rows = report["rows"].as_array().unwrap();
    for row in rows {
        assert!(row["failure"].is_null(), "{row}");
        let figure =
            |key: &str| row[key].as_f64().filter(|figure| *figure > 0.0).unwrap_or_else(|| panic!("{key}: {row}"));
        assert!((figure("ratio") / (figure("ours") / figure("yardstick")) - 1.0).abs() < 1e-9, "{row}");
        assert_eq!(row["series"].as_array().unwrap().len(), 1, "{row}");
    }
    rows.clone()
}

#[test]
fn the_shard_alone_is_measured_beside_rocksdb() {
    let at = tempfile::tempdir().unwrap();
    let rows = rows(at.path(), "shard create");
    let [row] = rows.as_slice() else { panic!("one row: {rows:?}") };
    assert_eq!((&row["unit"], &row["yardstick_name"]), (&Value::from("op/s"), &Value::from("RocksDB")));
    let least = row["goal"]["at-least"].as_f64().unwrap();
    assert_eq!(row["pass"], row["ratio"].as_f64().unwrap() >= least, "{row}");
    assert!(row["cpu_us"]["server"].as_f64().unwrap() > 0.0 && row["yardstick_cpu_us"]["server"].as_f64().is_some());
}

#[test]
fn a_cluster_and_the_local_file_system_bear_the_same_load() {
    let at = tempfile::tempdir().unwrap();
    let rows = rows(at.path(), "mixed");
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["mixed read 4K p99", "mixed read 4K", "mixed write 1M"]);
    let most = rows[0]["goal"]["at-most"].as_f64().unwrap();
    assert_eq!(rows[0]["pass"], rows[0]["ratio"].as_f64().unwrap() <= most, "{}", rows[0]);
    assert_eq!((&rows[1]["goal"], &rows[1]["pass"]), (&Value::from("none"), &Value::Null));
    // Of a thousand reads ten may be slower; none that was measured can have taken longer than all of them together.
    let (p99_us, rate) = (rows[0]["ours"].as_f64().unwrap(), rows[1]["ours"].as_f64().unwrap());
    assert!(p99_us < 60e6 && rate > 0.0 && rows[0]["cpu_us"]["client"].as_f64().unwrap() > 0.0, "{}", rows[0]);
}
