//! What commands print: tables for people, JSON for programs.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use serde_json::json;

use crate::failure::Failure;

/// How a command shows its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
}

impl Output {
    /// Prints `data` as one JSON document, or what `human` makes of it.
    pub(crate) fn show<T: Serialize>(self, data: &T, human: impl FnOnce(&T) -> String) -> Result<(), Failure> {
        if self.json {
            let text = serde_json::to_string_pretty(data).context("cannot write the result as JSON")?;
            print(&text)
        } else {
            print(human(data).trim_end())
        }
    }

    /// Says on standard error how the command failed: a line, or one JSON document in a line. What it found was its result.
    pub(crate) fn fail(self, failure: &Failure) {
        match failure {
            Failure::Found => {}
            _ if self.json => complain(&failure_document(&failure.to_string(), failure.code())),
            _ => complain(&format!("weft: {failure}")),
        }
    }

    /// Prints a line for people only: what they see happening.
    pub(crate) fn say(self, line: &str) -> Result<(), Failure> {
        if self.json { Ok(()) } else { print(line) }
    }
}

/// Of a failure, what `--json` promises.
pub(crate) fn failure_document(error: &str, code: u8) -> String {
    json!({ "error": error, "code": code }).to_string()
}

/// A line to standard output. A reader that has gone away (`| head`) is no error.
fn print(text: &str) -> Result<(), Failure> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// A line to standard error, whose failure nobody could be told.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Shows on a terminal how far a long piece of work has come; elsewhere nothing.
pub(crate) struct Progress {
    shown: bool,
    last: Option<Instant>,
}

impl Progress {
    const INTERVAL: Duration = Duration::from_millis(100);

    pub(crate) fn new() -> Self {
        Self { shown: io::stderr().is_terminal(), last: None }
    }

    /// `what` is waited for, since `begin`: shown from the first full second on.
    pub(crate) fn waiting(&mut self, what: &str, begin: Instant) {
        let waited = begin.elapsed().as_secs();
        if waited > 0 {
            self.update(&format!("{what}, {waited} s"));
        }
    }

    pub(crate) fn update(&mut self, text: &str) {
        if self.shown && self.last.is_none_or(|last| last.elapsed() >= Self::INTERVAL) {
            self.last = Some(Instant::now());
            let _ = write!(io::stderr().lock(), "\r\x1b[K{text}");
        }
    }
}

/// Does `work`, and shows on a terminal that it goes on when that has taken a second: `what`, and for how long.
pub(crate) fn patiently<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let mut progress = Progress::new();
    if !progress.shown {
        return work();
    }
    let (working, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let begin = Instant::now();
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(Progress::INTERVAL) {
                progress.waiting(what, begin);
            }
        });
        // Goes with this closure, however that ends, and then the one who shows it ends as well.
        let _working = working;
        work()
    })
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown && self.last.is_some() {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

/// Columns as wide as their widest cell.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(head: [&str; N]) -> Self {
        Self { rows: vec![head.map(str::to_owned).to_vec()] }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    pub(crate) fn render(&self) -> String {
        let columns = self.rows[0].len();
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
        };
        self.rows.iter().map(line).collect()
    }
}

/// Bytes for people, such as `512 KiB` or `1.5 TiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() == 0.0 || value >= 100.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up() {
        let mut table = Table::new(["A", "LONG"]);
        table.row(["wide cell".into(), "x".into()]);
        assert_eq!(table.render(), "A          LONG\nwide cell  x\n");
    }

    #[test]
    fn a_failure_is_one_line_of_json() {
        let document = failure_document("no \"such\" thing:\n  at all", 2);
        assert!(!document.contains('\n'), "{document}");
        let read: serde_json::Value = serde_json::from_str(&document).expect("JSON");
        assert_eq!((read["error"].as_str(), read["code"].as_u64()), (Some("no \"such\" thing:\n  at all"), Some(2)));
    }

    #[test]
    fn bytes_are_short() {
        let shown: Vec<String> = [0, 1023, 512 << 10, 1536 << 30, u64::MAX].map(bytes).into();
        assert_eq!(shown, ["0 B", "1023 B", "512 KiB", "1.5 TiB", "16 EiB"]);
    }
}
