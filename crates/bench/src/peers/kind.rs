//! Who can take part, and what has to be installed for it.

use serde::Serialize;

use super::plan::Row;
use super::process::find_program;

/// One file system that does the work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The yardstick; it takes part always.
    Local,
    Weft,
    Passthrough,
    #[value(name = "juicefs")]
    JuiceFs,
    #[value(name = "moosefs")]
    MooseFs,
    #[value(name = "glusterfs")]
    GlusterFs,
}

impl Kind {
    /// In the order of the table.
    pub(crate) const ALL: [Self; 6] =
        [Self::Local, Self::Weft, Self::Passthrough, Self::JuiceFs, Self::MooseFs, Self::GlusterFs];

    /// Above its column.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Weft => "Weft",
            Self::Passthrough => "passthrough",
            Self::JuiceFs => "JuiceFS",
            Self::MooseFs => "MooseFS",
            Self::GlusterFs => "GlusterFS",
        }
    }

    /// That have to be there beside ourselves.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Local | Self::Weft => &[],
            Self::Passthrough => &["passthrough_ll"],
            Self::JuiceFs => &["juicefs", "redis-server"],
            Self::MooseFs => &["mfsmaster", "mfschunkserver", "mfsmount"],
            Self::GlusterFs => &["glusterd", "gluster", "glusterfsd", "glusterfs"],
        }
    }

    /// How to get them, on Debian and its like.
    fn remedy(self) -> &'static str {
        match self {
            Self::Local | Self::Weft => "",
            Self::Passthrough => {
                "an example of libfuse: apt-get install gcc pkg-config libfuse3-dev, then gcc -O2 -o \
                 /usr/local/bin/passthrough_ll /usr/share/doc/libfuse3-dev/examples/passthrough_ll.c \
                 $(pkg-config --cflags --libs fuse3)"
            }
            Self::JuiceFs => "the binary juicefs of a release, in PATH; apt-get install redis-server",
            Self::MooseFs => "apt-get install moosefs-master moosefs-chunkserver moosefs-client",
            Self::GlusterFs => "apt-get install glusterfs-server glusterfs-client",
        }
    }

    /// What prints its versions: programs with an argument.
    pub(crate) fn versions(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Local | Self::Weft => &[],
            Self::Passthrough => &[("passthrough_ll", "--version")],
            Self::JuiceFs => &[("juicefs", "version"), ("redis-server", "--version")],
            Self::MooseFs => &[("mfsmaster", "-v")],
            Self::GlusterFs => &[("glusterfs", "--version")],
        }
    }

    /// How often the bytes of large files that were removed stay on the disk: for a day in its trash, times its copies;
    /// in its cache; and, by our look at it, as what random writes have left behind.
    pub(crate) fn copies_kept(self) -> u64 {
        match self {
            Self::Local | Self::Weft | Self::Passthrough | Self::GlusterFs => 0,
            Self::JuiceFs => 3,
            Self::MooseFs => 2,
        }
    }

    /// Why it takes no part in a row; `None`: it does.
    pub(crate) fn cannot(self, row: &Row) -> Option<&'static str> {
        let misaligned = self == Self::Passthrough && row.direct_writes;
        misaligned.then_some("it opens the file below with O_DIRECT too, and writes from a buffer that is not aligned")
    }

    /// # Errors
    /// Which program is not there, and how to get it.
    pub(crate) fn find(self) -> Result<(), String> {
        let missing: Vec<&str> =
            self.programs().iter().copied().filter(|program| find_program(program).is_none()).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("no {} in PATH ({})", missing.join(", "), self.remedy())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_and_the_yardstick_are_always_there_and_the_others_can_be_had() {
        assert!(Kind::Local.find().is_ok() && Kind::Weft.find().is_ok());
        for kind in Kind::ALL {
            assert_eq!(kind.programs().is_empty(), kind.remedy().is_empty(), "{}", kind.title());
            let known = |(program, _): &(&str, &str)| kind.programs().contains(program);
            assert!(kind.versions().iter().all(known), "{}", kind.title());
        }
    }
}
