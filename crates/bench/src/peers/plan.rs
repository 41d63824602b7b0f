//! The rows, and the steps that measure them, as data.
//!
//! A group is done by one peer from its beginning to its end; then the next peer does it. Its steps find in one place what
//! the steps before have left there.

use std::path::PathBuf;

use crate::work::Part;
use crate::work::population::{Population, Step as Doing};
use crate::work::scan::{Program, Shape};

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Of what goes on for a time.
    pub(crate) seconds: f64,
    /// Of the 1 MiB rows, over all processes.
    pub(crate) sequential_bytes: u64,
    /// Of the row of 4 KiB writes.
    pub(crate) pieces_bytes: u64,
    /// Of the random rows, over all processes.
    pub(crate) random_bytes: u64,
    /// That are made at most, over all processes.
    pub(crate) files: u64,
    /// What `find` and `du` go through.
    pub(crate) scan: Shape,
}

impl Scale {
    pub(crate) const FULL: Self = Self {
        seconds: 3.0,
        sequential_bytes: 2 << 30,
        pieces_bytes: 128 << 20,
        random_bytes: 512 << 20,
        files: 40_000,
        scan: Shape { directories: 200, files: 100 },
    };
    pub(crate) const QUICK: Self = Self {
        seconds: 1.0,
        sequential_bytes: 256 << 20,
        pieces_bytes: 16 << 20,
        random_bytes: 128 << 20,
        files: 8_000,
        scan: Shape { directories: 50, files: 50 },
    };
}

/// What a step may need to know.
pub(crate) struct Needs {
    pub(crate) scale: Scale,
    pub(crate) processes: u64,
    /// Files, or what else the first step of the group that makes some has made, of each process.
    pub(crate) made: u64,
    pub(crate) sources: Sources,
}

/// On the local file system.
#[derive(Clone, Default)]
pub(crate) struct Sources {
    pub(crate) archive: PathBuf,
    pub(crate) tree: PathBuf,
    pub(crate) repository: PathBuf,
}

pub(crate) struct Group {
    /// The directory it is done in is called so.
    pub(crate) name: &'static str,
    pub(crate) processes: usize,
    pub(crate) steps: &'static [Step],
}

pub(crate) struct Step {
    /// `None`: not measured.
    pub(crate) row: Option<Row>,
    /// The mount is renewed and the page cache dropped before it.
    pub(crate) cold: bool,
    pub(crate) work: fn(&Needs) -> Task,
}

/// What a step does.
pub(crate) enum Task {
    Part(Part),
    /// A program goes through the files of a shape that was made in the same place.
    Scan(Program, Shape),
}

/// One row of the table.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    /// Whether the table has its CPU time too.
    pub(crate) cpu: bool,
    /// Whether it writes with `O_DIRECT`.
    pub(crate) direct_writes: bool,
}

/// Of what so many are counted per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    Megabytes,
    Operations,
    Entries,
    Files,
}

impl Unit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Unit::Megabytes => "MB/s",
            Unit::Operations => "op/s",
            Unit::Entries => "entries/s",
            Unit::Files => "files/s",
        }
    }
}

const fn row(name: &'static str, unit: Unit, work: fn(&Needs) -> Task) -> Step {
    Step { row: Some(Row { name, unit, cpu: false, direct_writes: false }), cold: false, work }
}

const fn hidden(work: fn(&Needs) -> Task) -> Step {
    Step { row: None, cold: false, work }
}

impl Step {
    const fn cold(self) -> Self {
        Self { cold: true, ..self }
    }

    const fn with_cpu(self) -> Self {
        let row = match self.row {
            Some(row) => Some(Row { cpu: true, ..row }),
            None => None,
        };
        Self { row, ..self }
    }

    const fn with_direct_writes(self) -> Self {
        let row = match self.row {
            Some(row) => Some(Row { direct_writes: true, ..row }),
            None => None,
        };
        Self { row, ..self }
    }
}

pub(crate) const GROUPS: &[Group] = &[
    Group {
        name: "sequential-x1",
        processes: 1,
        steps: &[
            row("write 1M x1", Unit::Megabytes, |needs| write(needs.scale.sequential_bytes, 1 << 20)).with_cpu(),
            row("cold read 1M x1", Unit::Megabytes, read).cold().with_cpu(),
        ],
    },
    Group {
        name: "sequential-x4",
        processes: 4,
        steps: &[
            row("write 1M x4", Unit::Megabytes, |needs| write(needs.scale.sequential_bytes, 1 << 20)),
            row("cold read 1M x4", Unit::Megabytes, read).cold(),
            row("warm read 1M x4", Unit::Megabytes, read),
        ],
    },
    Group {
        name: "pieces",
        processes: 1,
        steps: &[row("write 4K x1", Unit::Megabytes, |needs| write(needs.scale.pieces_bytes, 4 << 10))],
    },
    Group {
        name: "random-x1",
        processes: 1,
        steps: &[
            hidden(|needs| Task::Part(Part::PrepareRandom { bytes: needs.scale.random_bytes })),
            row("read 4K random x1", Unit::Operations, read_random).cold(),
            row("write 4K random x1", Unit::Operations, |needs| write_random(needs, false)).cold().with_direct_writes(),
        ],
    },
    Group {
        name: "random-x16",
        processes: 16,
        steps: &[
            hidden(|needs| Task::Part(Part::PrepareRandom { bytes: needs.scale.random_bytes })),
            row("read 4K random x16", Unit::Operations, read_random).cold(),
            row("write 4K random x16", Unit::Operations, |needs| write_random(needs, false))
                .cold()
                .with_direct_writes(),
            row("write 4K random + fsync x16", Unit::Operations, |needs| write_random(needs, true))
                .cold()
                .with_direct_writes(),
        ],
    },
    Group {
        name: "empty-x1",
        processes: 1,
        steps: &[
            row("create x1", Unit::Operations, |needs| make(needs, Doing::Create, false)).with_cpu(),
            row("cold stat x1", Unit::Operations, |needs| visit(needs, Doing::Stat, false)).cold(),
            row("warm stat x1", Unit::Operations, |needs| visit(needs, Doing::StatAgain, false)),
            row("cold ls -l", Unit::Entries, |needs| visit(needs, Doing::List, false)).cold(),
            row("rename x1", Unit::Operations, |needs| visit(needs, Doing::Rename, false)),
            row("unlink x1", Unit::Operations, |needs| visit(needs, Doing::Unlink { renamed: true }, false)),
        ],
    },
    Group {
        name: "small-x1",
        processes: 1,
        steps: &[
            row("create + write 4K x1", Unit::Operations, |needs| make(needs, Doing::Write, false)),
            row("cold open + read 4K x1", Unit::Operations, |needs| visit(needs, Doing::Read, false)).cold(),
        ],
    },
    Group {
        name: "directories",
        processes: 1,
        steps: &[row("mkdir x1", Unit::Operations, |needs| make(needs, Doing::Mkdir, false))],
    },
    Group {
        name: "synced",
        processes: 1,
        steps: &[row("create + write 4K + fsync x1", Unit::Operations, |needs| make(needs, Doing::WriteSynced, false))],
    },
    Group {
        name: "empty-x8",
        processes: 8,
        steps: &[
            row("create x8", Unit::Operations, |needs| make(needs, Doing::Create, false)).with_cpu(),
            row("cold stat x8", Unit::Operations, |needs| visit(needs, Doing::Stat, false)).cold().with_cpu(),
            row("warm stat x8", Unit::Operations, |needs| visit(needs, Doing::StatAgain, false)),
            row("unlink x8", Unit::Operations, |needs| visit(needs, Doing::Unlink { renamed: false }, false)),
        ],
    },
    Group {
        name: "small-x8",
        processes: 8,
        steps: &[
            row("create + write 4K x8", Unit::Operations, |needs| make(needs, Doing::Write, false)),
            row("cold open + read 4K x8", Unit::Operations, |needs| visit(needs, Doing::Read, false)).cold(),
        ],
    },
    Group {
        name: "shared-x8",
        processes: 8,
        steps: &[
            row("shared create x8", Unit::Operations, |needs| make(needs, Doing::Create, true)),
            row("shared cold stat x8", Unit::Operations, |needs| visit(needs, Doing::Stat, true)).cold(),
            row("shared unlink x8", Unit::Operations, |needs| visit(needs, Doing::Unlink { renamed: false }, true)),
        ],
    },
    Group {
        name: "scan",
        processes: 1,
        steps: &[
            hidden(|needs| Task::Part(Part::MakeShape { shape: needs.scale.scan })),
            row("cold find", Unit::Entries, |needs| Task::Scan(Program::Find, needs.scale.scan)).cold(),
            row("cold du", Unit::Entries, |needs| Task::Scan(Program::Usage, needs.scale.scan)).cold(),
        ],
    },
    Group {
        name: "archive",
        processes: 1,
        steps: &[
            row("tar x", Unit::Files, |needs| {
                let Sources { archive, tree, .. } = needs.sources.clone();
                Task::Part(Part::Unpack { archive, tree })
            }),
            row("cold tar c", Unit::Files, |needs| Task::Part(Part::Pack { tree: needs.sources.tree.clone() })).cold(),
            row("warm grep -r", Unit::Files, |needs| {
                Task::Part(Part::Grep { seconds: needs.scale.seconds, tree: needs.sources.tree.clone() })
            }),
            row("rm -rf", Unit::Files, |_| Task::Part(Part::Remove)),
        ],
    },
    Group {
        name: "git",
        processes: 1,
        steps: &[
            row("git clone", Unit::Files, |needs| {
                let Sources { repository, tree, .. } = needs.sources.clone();
                Task::Part(Part::Clone { repository, tree })
            }),
            row("cold git status", Unit::Files, |_| Task::Part(Part::Status)).cold(),
        ],
    },
];

fn write(bytes: u64, step: usize) -> Task {
    Task::Part(Part::WriteFiles { bytes, step })
}

fn read(needs: &Needs) -> Task {
    Task::Part(Part::ReadFiles { bytes: needs.scale.sequential_bytes, step: 1 << 20 })
}

fn read_random(needs: &Needs) -> Task {
    Task::Part(Part::ReadRandom { seconds: needs.scale.seconds, bytes: needs.scale.random_bytes })
}

fn write_random(needs: &Needs, synced: bool) -> Task {
    Task::Part(Part::WriteRandom { seconds: needs.scale.seconds, bytes: needs.scale.random_bytes, synced })
}

fn make(needs: &Needs, step: Doing, shared: bool) -> Task {
    let (count, seconds) = (needs.scale.files / needs.processes, needs.scale.seconds);
    Task::Part(Part::Population(Population { step, shared, count, seconds }))
}

fn visit(needs: &Needs, step: Doing, shared: bool) -> Task {
    let (count, seconds) = (needs.made, needs.scale.seconds);
    Task::Part(Part::Population(Population { step, shared, count, seconds }))
}

impl Group {
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row> {
        self.steps.iter().filter_map(|step| step.row)
    }

    /// Of the large files that `steps` make.
    pub(crate) fn bytes(&self, steps: &[Step], scale: Scale) -> u64 {
        let needs = Needs { scale, processes: self.processes as u64, made: 0, sources: Sources::default() };
        let bytes = |step: &Step| match (step.work)(&needs) {
            Task::Part(Part::WriteFiles { bytes, .. } | Part::PrepareRandom { bytes }) => bytes,
            Task::Part(_) | Task::Scan(..) => 0,
        };
        steps.iter().map(bytes).sum()
    }

    /// The steps up to the last one whose row is wanted; none where none is.
    pub(crate) fn steps_for(&self, wanted: impl Fn(&Row) -> bool) -> &'static [Step] {
        let last = self.steps.iter().rposition(|step| step.row.as_ref().is_some_and(&wanted));
        &self.steps[..last.map_or(0, |last| last + 1)]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_and_every_group_has_its_own_name() {
        let rows: Vec<&str> = GROUPS.iter().flat_map(Group::rows).map(|row| row.name).collect();
        assert_eq!(rows.len(), 38);
        assert_eq!(rows.iter().collect::<BTreeSet<_>>().len(), rows.len());
        assert_eq!(GROUPS.iter().map(|group| group.name).collect::<BTreeSet<_>>().len(), GROUPS.len());
        assert_eq!(GROUPS.iter().flat_map(Group::rows).filter(|row| row.cpu).count(), 5);
    }

    #[test]
    fn what_is_cold_says_so_and_no_group_begins_with_what_was_made_before() {
        for group in GROUPS {
            assert!(!group.steps[0].cold, "{}: nothing is there yet", group.name);
            for step in group.steps {
                let direct = |name: &str| name.contains("random");
                let honest = |row: Row| row.name.contains("cold") == step.cold || direct(row.name);
                assert!(step.row.is_none_or(honest), "{:?}", step.row);
            }
        }
    }

    #[test]
    fn whoever_cannot_write_directly_leaves_out_what_nothing_else_needs() {
        let writes = |step: &Step| {
            let needs = Needs { scale: Scale::QUICK, processes: 1, made: 0, sources: Sources::default() };
            matches!((step.work)(&needs), Task::Part(Part::WriteRandom { .. }))
        };
        for group in GROUPS {
            let direct = |step: &Step| step.row.is_some_and(|row| row.direct_writes);
            assert!(group.steps.iter().all(|step| direct(step) == writes(step)), "{}", group.name);
            let first = group.steps.iter().position(direct).unwrap_or(group.steps.len());
            assert!(group.steps[first..].iter().all(direct), "{}", group.name);
        }
    }

    #[test]
    fn large_files_count_once_however_often_they_are_read() {
        let all: u64 = GROUPS.iter().map(|group| group.bytes(group.steps, Scale::FULL)).sum();
        assert_eq!(all, (5 << 30) + (128 << 20));
        assert_eq!(GROUPS[0].bytes(&GROUPS[0].steps[..1], Scale::QUICK), 256 << 20);
    }

    #[test]
    fn only_the_steps_that_a_row_needs_are_done() {
        let group = GROUPS.iter().find(|group| group.name == "empty-x1").expect("it is there");
        assert_eq!(group.steps_for(|row| row.name == "cold stat x1").len(), 2);
        assert_eq!(group.steps_for(|_| true).len(), group.steps.len());
        assert!(group.steps_for(|row| row.name == "mkdir x1").is_empty());
    }
}
