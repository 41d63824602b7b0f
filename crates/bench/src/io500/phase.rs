//! The phases, in IO500's order.

use serde::{Deserialize, Serialize};

/// One phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Phase {
    IorEasyWrite,
    MdtestEasyWrite,
    IorHardWrite,
    MdtestHardWrite,
    Find,
    IorEasyRead,
    MdtestEasyStat,
    IorHardRead,
    MdtestHardStat,
    MdtestEasyDelete,
    MdtestHardRead,
    MdtestHardDelete,
    IorRnd4kEasyRead,
}

pub(crate) const PHASES: &[Phase] = &[
    Phase::IorEasyWrite,
    Phase::MdtestEasyWrite,
    Phase::IorHardWrite,
    Phase::MdtestHardWrite,
    Phase::Find,
    Phase::IorEasyRead,
    Phase::MdtestEasyStat,
    Phase::IorHardRead,
    Phase::MdtestHardStat,
    Phase::MdtestEasyDelete,
    Phase::MdtestHardRead,
    Phase::MdtestHardDelete,
    Phase::IorRnd4kEasyRead,
];

/// Which of the two scores a phase counts in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Its figure is GiB per second.
    Bandwidth,
    /// Its figure is thousands of operations per second.
    Metadata,
    /// Measured, as IO500 does, and not counted. Its figure is thousands of operations per second.
    Unscored,
}

impl Phase {
    /// As IO500 calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::IorEasyWrite => "ior-easy-write",
            Phase::MdtestEasyWrite => "mdtest-easy-write",
            Phase::IorHardWrite => "ior-hard-write",
            Phase::MdtestHardWrite => "mdtest-hard-write",
            Phase::Find => "find",
            Phase::IorEasyRead => "ior-easy-read",
            Phase::MdtestEasyStat => "mdtest-easy-stat",
            Phase::IorHardRead => "ior-hard-read",
            Phase::MdtestHardStat => "mdtest-hard-stat",
            Phase::MdtestEasyDelete => "mdtest-easy-delete",
            Phase::MdtestHardRead => "mdtest-hard-read",
            Phase::MdtestHardDelete => "mdtest-hard-delete",
            Phase::IorRnd4kEasyRead => "ior-rnd4K-easy-read",
        }
    }

    pub(crate) fn group(self) -> Group {
        match self {
            Phase::IorEasyWrite | Phase::IorHardWrite | Phase::IorEasyRead | Phase::IorHardRead => Group::Bandwidth,
            Phase::IorRnd4kEasyRead => Group::Unscored,
            _ => Group::Metadata,
        }
    }

    /// It goes on for the wanted time at least; the others work on what was made.
    pub(crate) fn makes(self) -> bool {
        matches!(self, Phase::IorEasyWrite | Phase::MdtestEasyWrite | Phase::IorHardWrite | Phase::MdtestHardWrite)
    }
}

/// What each process has made: all of them the same, since the slow ones went on until they had as much as the fastest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Transfers in its file of ior-easy.
    pub(crate) transfers: u64,
    /// Records in the shared file of ior-hard.
    pub(crate) records: u64,
    /// Files of mdtest-easy.
    pub(crate) easy_files: u64,
    /// Files of mdtest-hard.
    pub(crate) hard_files: u64,
}

impl Counts {
    /// Each process has done so many operations of `phase`.
    pub(crate) fn note(&mut self, phase: Phase, each: u64) {
        match phase {
            Phase::IorEasyWrite => self.transfers = each,
            Phase::IorHardWrite => self.records = each,
            Phase::MdtestEasyWrite => self.easy_files = each,
            Phase::MdtestHardWrite => self.hard_files = each,
            _ => {}
        }
    }
}
