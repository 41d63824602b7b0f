//! Sizes and durations as people write them.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number of bytes, written `512KiB`, `4GiB` or plain `4096`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Size(pub u64);

const UNITS: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no size: write it like 512KiB, 4GiB or 4096");
        let text_trimmed = text.trim();
        let digits_end = text_trimmed.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text_trimmed.len());
        let (digits, unit) = text_trimmed.split_at(digits_end);
        let number: u64 = digits.replace('_', "").parse().map_err(|_| bad())?;
        let unit = unit.trim();
        let factor = match unit {
            "" => 1,
            // `512K` is common usage; `512KB` could mean either and is refused.
            _ => {
                UNITS.iter().find(|(name, _)| *name == unit || name.strip_suffix("iB") == Some(unit)).ok_or_else(bad)?.1
            }
        };
        number.checked_mul(factor).map(Self).ok_or_else(bad)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS.iter().find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor));
        match exact {
            Some((name, factor)) if *factor > 1 => write!(f, "{}{name}", self.0 / factor),
            _ => write!(f, "{}", self.0),
        }
    }
}

/// A length of time, written `500ms`, `10s` or `1h 30m`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Period(pub Duration);

impl Period {
    /// Whole milliseconds, rounded down.
    #[must_use]
    pub fn as_ms(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Deref for Period {
    type Target = Duration;
    fn deref(&self) -> &Duration {
        &self.0
    }
}

impl FromStr for Period {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |_| format!("{text:?} is no duration: write it with a unit, like 500ms, 10s or 5m");
        humantime::parse_duration(text.trim()).map(Self).map_err(bad)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

macro_rules! serde_as_text {
    ($($type:ty),*) => { $(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    )* };
}

serde_as_text!(Size, Period);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown_as_people_write_them() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("512KiB", 512 << 10), ("3 MiB", 3 << 20), ("1G", 1 << 30)] {
            assert_eq!(text.parse(), Ok(Size(bytes)));
        }
        for bytes in [0, 1, 1023, 1024, 1536, 4 << 20, (4 << 20) + 1, 5 << 40] {
            assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
        }
        assert_eq!(Size(512 << 10).to_string(), "512KiB");
        for bad in ["", "KiB", "12KB", "-1", "1.5GiB", "99999999999TiB"] {
            assert!(bad.parse::<Size>().unwrap_err().contains("write it like"), "{bad} was taken");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!("1m 30s".parse(), Ok(Period(Duration::from_secs(90))));
        assert_eq!(Period(Duration::from_millis(2500)).to_string().parse(), Ok(Period(Duration::from_millis(2500))));
        assert!("10".parse::<Period>().unwrap_err().contains("unit"));
    }
}
