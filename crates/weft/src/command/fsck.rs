//! The check of a whole cluster.

use admin::fsck::{NotAsked, Report, Stage};

use crate::command::connect;
use crate::failure::{Failure, usage};
use crate::locate::Selection;
use crate::output::{Output, Progress, bytes};

/// Check that names, inodes and objects belong together, while the cluster works; changes nothing
#[derive(Debug, clap::Args)]
#[command(after_help = "\
It holds all names and inodes and the list of all objects in memory: about 80 bytes for each of them, so 500 MB for a
million files of four objects each.

A storage target that its service runs without, or whose node is offline, is named, and so are the files that have bytes there
(out-of-reach); the rest is checked.

Example: exit code 0 where all is well, 1 where something was found or a target could not be asked
  weft fsck --dir .weft && echo sound")]
pub(crate) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Repair what is found: not in this release
    #[arg(long)]
    repair: bool,
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        if self.repair {
            return Err(usage!("--repair is not in this release: fsck finds, and changes nothing"));
        }
        let admin = connect(&self.selection, None)?;
        let mut progress = Progress::new();
        let report = admin.fsck(&mut |stage: Stage| {
            let Stage { pass, objects, records } = stage;
            progress.update(&format!("pass {pass}: {objects} objects, {records} names and inodes"));
        });
        drop(progress);
        let report = report?;
        output.show(&report, text)?;
        if report.is_sound() { Ok(()) } else { Err(Failure::Found) }
    }
}

fn text(report: &Report) -> String {
    let mut text = format!(
        "{} inodes ({} directories), {} names, {} objects with {}\n",
        report.inodes,
        report.directories,
        report.names,
        report.objects,
        bytes(report.object_bytes)
    );
    text += &format!(
        "{} files being written, {} unlinked but open, {} objects waiting for deletion\n",
        report.unsettled, report.orphans, report.deletions
    );
    text += &format!("{} files with {} in the metadata\n", report.inline_files, bytes(report.inline_bytes));
    for finding in &report.findings {
        let path = finding.path.as_ref().map(|path| format!("{path}: ")).unwrap_or_default();
        text += &format!("{}: {path}{}\n", super::word(&finding.kind), finding.text);
    }
    for NotAsked { target, path, node, left_out, failing } in &report.not_asked {
        let why = match (left_out, failing) {
            (true, _) => "its service runs without it, and the log there says why",
            (false, true) => "its disk gives errors, and the log there says which",
            (false, false) => "the node is offline, or was so for a while",
        };
        text += &format!("target {target} ({path} on node {node}) could not be asked: {why}\n");
    }
    match (report.findings.len(), report.not_asked.len()) {
        (0, 0) => text + "sound: nothing found",
        (count, 0) => format!("{text}{count} findings"),
        (count, away) => format!("{text}{count} findings, and {away} targets that could not be asked"),
    }
}
