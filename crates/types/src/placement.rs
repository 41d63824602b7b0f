//! Which shard a new directory goes to.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::ShardId;

/// A directory's policy for directories that are made in it. They inherit it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Placement {
    /// Any shard, each as likely.
    #[default]
    Random,
    /// One shard after the other, counted by the shard of the parent over all its directories.
    RoundRobin,
    /// The parent's shard.
    Inherit,
    /// This one.
    Shard(ShardId),
}

impl Placement {
    /// As records and messages have it. **Frozen.**
    #[must_use]
    pub fn to_u32(self) -> u32 {
        match self {
            Self::Random => 0,
            Self::RoundRobin => 1,
            Self::Inherit => 2,
            Self::Shard(shard) => 3 | u32::from(shard.0) << 16,
        }
    }

    /// `None` for a number that stands for nothing.
    #[must_use]
    pub fn from_u32(number: u32) -> Option<Self> {
        match (number & 0xffff, number >> 16) {
            (0, 0) => Some(Self::Random),
            (1, 0) => Some(Self::RoundRobin),
            (2, 0) => Some(Self::Inherit),
            (3, shard) => Some(Self::Shard(ShardId(shard as u16))),
            _ => None,
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random => f.write_str("random"),
            Self::RoundRobin => f.write_str("roundrobin"),
            Self::Inherit => f.write_str("inherit"),
            Self::Shard(shard) => write!(f, "shard:{shard}"),
        }
    }
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "random" => Ok(Self::Random),
            "roundrobin" => Ok(Self::RoundRobin),
            "inherit" => Ok(Self::Inherit),
            _ => match text.strip_prefix("shard:").map(str::parse) {
                Some(Ok(shard)) => Ok(Self::Shard(shard)),
                _ => Err(format!("{text:?}: random, roundrobin, inherit, or shard:N, please")),
            },
        }
    }
}

impl From<Placement> for String {
    fn from(placement: Placement) -> Self {
        placement.to_string()
    }
}

impl TryFrom<String> for Placement {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_round_trip() {
        let all = [Placement::Random, Placement::RoundRobin, Placement::Inherit, Placement::Shard(ShardId(7))];
        for placement in all {
            assert_eq!(placement.to_string().parse(), Ok(placement));
            assert_eq!(Placement::from_u32(placement.to_u32()), Some(placement));
        }
        assert_eq!(Placement::Shard(ShardId(2)).to_u32(), 0x0002_0003);
        assert!("shard:".parse::<Placement>().is_err() && "anywhere".parse::<Placement>().is_err());
        assert_eq!((Placement::from_u32(4), Placement::from_u32(0x1_0000)), (None, None));
    }
}
