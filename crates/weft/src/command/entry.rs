//! One file or directory: where it lies, and how new files of a directory are striped.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use admin::Admin;
use admin::entry::{Entry, Policy, Subject, components, validate_split};
use anyhow::Context;
use clap::Subcommand;
use conf::units::Size;
use types::id::InodeId;
use types::placement::Placement;

use crate::command::{connect_to, pool};
use crate::failure::{Failure, usage};
use crate::local::mounts;
use crate::locate::{Cluster, Selection};
use crate::output::{Output, Table, bytes, patiently};

/// Show where a file or directory lies, and set how new files of a directory are striped and new directories placed
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  weft entry info /mnt/weft/a/file
  weft entry set /mnt/weft/a --chunk-size 1MiB --stripe-count 8
  weft entry set /mnt/weft/busy --split 4")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show where it is at home, how it is striped, and where its objects lie on disk
    #[command(after_help = "Example:\n  weft entry info /mnt/weft/a/file --json")]
    Info {
        #[command(flatten)]
        selection: Selection,
        /// On a mount; with --dir or --mgmtd also from the root of the file system, such as /a/file
        path: PathBuf,
    },
    /// Set where files that are made in a directory from now on have their contents, or split it over metadata shards
    #[command(after_help = "Example:\n  weft entry set /mnt/weft/a --chunk-size 1MiB --stripe-count 8 --pool default")]
    Set {
        #[command(flatten)]
        selection: Selection,
        /// A directory on a mount; with --dir or --mgmtd also from the root of the file system
        path: PathBuf,
        /// Bytes that go to one target before the next has its turn: a power of two, 4KiB to 64MiB
        #[arg(long, value_name = "SIZE")]
        chunk_size: Option<Size>,
        /// Targets that a file is spread over, 1 to 256; fewer where the pool has not so many
        #[arg(long, value_name = "N")]
        stripe_count: Option<u16>,
        /// Name or number of the pool
        #[arg(long, value_name = "POOL")]
        pool: Option<String>,
        /// Which shard directories that are made in it go to: random, roundrobin, inherit (the parent's), or shard:N
        #[arg(long, value_name = "WHERE")]
        placement: Option<Placement>,
        /// Up to so many bytes a new file's contents lie in the metadata: 0 (never) to 64KiB
        #[arg(long, value_name = "SIZE")]
        inline_limit: Option<Size>,
        /// Spread the entries of this directory over so many metadata shards: 2 to 64, and for good. It may take as long as
        /// clients may believe what they were told (lease_term of the metadata service) until it begins. What entries there
        /// are then move while the directory is used; "weft entry info" shows how far that is
        #[arg(long, value_name = "N")]
        split: Option<u16>,
    },
}

impl Args {
    pub(crate) fn run(self, output: Output) -> Result<(), Failure> {
        match self.verb {
            Verb::Info { selection, path } => {
                let (admin, subject) = find(&selection, &path)?;
                let entry = admin.entry_info(&subject).with_context(|| shown(&path, &subject))?;
                output.show(&entry, text)
            }
            Verb::Set { selection, path, chunk_size, stripe_count, pool, placement, inline_limit, split } => {
                let striping = chunk_size.is_some() || stripe_count.is_some() || pool.is_some();
                let has_policy = striping || placement.is_some() || inline_limit.is_some();
                if !has_policy && split.is_none() {
                    let options = "--chunk-size, --stripe-count, --pool, --placement, --inline-limit or --split";
                    return Err(usage!("nothing to set: give {options}"));
                }
                let (admin, subject) = find(&selection, &path)?;
                let pool = pool.map(|word| pool::find(&admin, &word)).transpose()?;
                let chunk_size = chunk_size.map(chunk).transpose()?;
                let inline_limit = inline_limit.map(inline).transpose()?;
                let policy = Policy { chunk_size, stripe_count, pool, placement, inline_limit };
                policy.validate().map_err(|reason| usage!("{reason}"))?;
                split.map_or(Ok(()), validate_split).map_err(|reason| usage!("{reason}"))?;
                let context = || shown(&path, &subject);
                let mut entry = None;
                if has_policy {
                    entry = Some(admin.entry_set(&subject, policy).with_context(context)?);
                }
                if let Some(count) = split {
                    let what = format!("waiting for the leases of clients on {}", path.display());
                    entry = Some(patiently(&what, || admin.entry_split(&subject, count)).with_context(context)?);
                }
                entry.map_or(Ok(()), |entry| output.show(&entry, text))
            }
        }
    }
}

fn chunk(size: Size) -> Result<u32, Failure> {
    u32::try_from(size.0).map_err(|_| usage!("--chunk-size {size}: at most 64MiB"))
}

fn inline(size: Size) -> Result<u32, Failure> {
    u32::try_from(size.0).map_err(|_| usage!("--inline-limit {size}: at most 64KiB"))
}

fn find(selection: &Selection, path: &Path) -> Result<(Admin, Subject), Failure> {
    let cluster = selection.find(Some(path))?;
    let subject = subject(path, &cluster)?;
    Ok((connect_to(&cluster)?, subject))
}

/// For people who wonder why it is not found.
fn shown(path: &Path, subject: &Subject) -> String {
    match subject {
        Subject::Inode(_) => path.display().to_string(),
        Subject::Path(_) => format!("{}, from the root of the file system as it is on no mount", path.display()),
    }
}

/// A path on a mount names an inode; any other is one from the root of the file system.
fn subject(path: &Path, cluster: &Cluster) -> Result<Subject, Failure> {
    if let Some(mount) = mounts::containing(path)? {
        if mount.mgmtd != cluster.mgmtd {
            // Inodes of one cluster mean nothing to another.
            return Err(usage!(
                "{} is on a mount of the cluster of mgmtd at {}, not {}: leave --dir, --mgmtd and --key-file away",
                path.display(),
                mount.mgmtd,
                cluster.mgmtd
            ));
        }
        return Ok(Subject::Inode(inode(path, &mount.point)?));
    }
    let text = path.to_str().filter(|text| text.starts_with('/'));
    let text = text.ok_or_else(|| usage!("{} is on no mount of Weft, and no path from its root", path.display()))?;
    components(text).map(Subject::Path).map_err(|errno| usage!("{text}: {errno}"))
}

/// What `path` leads to on the mount at `point`: a symbolic link there is what it is, one elsewhere a way to it, whose own
/// number means nothing there.
fn inode(path: &Path, point: &Path) -> Result<InodeId, Failure> {
    let cannot = || format!("cannot look at {}", path.display());
    let root = fs::symlink_metadata(point).with_context(|| format!("cannot look at {}", point.display()))?;
    let mut found = fs::symlink_metadata(path).with_context(cannot)?;
    if found.dev() != root.dev() {
        found = fs::metadata(path).with_context(cannot)?;
    }
    Ok(InodeId(found.ino()))
}

fn text(entry: &Entry) -> String {
    let mut lines = Vec::new();
    let mut line = |what: &str, value: String| lines.push(format!("{what:<17}{value}"));
    line("entry id", entry.id.clone());
    line("parent id", entry.parent.clone().unwrap_or("-".to_owned()));
    line("type", entry.kind.to_owned());
    if entry.kind == "file" {
        let note = if entry.unsettled { " (being written: the objects know better)" } else { "" };
        line("size", format!("{} bytes{note}", entry.size));
    }
    let node =
        entry.metadata_node.as_ref().map_or("none".to_owned(), |node| format!("{} (node {})", node.alias, node.id));
    line("metadata node", format!("{node}, shard {}", entry.shard));
    if matches!(entry.kind, "file" | "directory") {
        line("pattern", format!("{}, chunk size {}", entry.pattern, bytes(entry.chunk_size.into())));
        let actual = if entry.kind == "file" { format!(", actual {}", entry.stripes.len()) } else { String::new() };
        line("targets", format!("desired {}{actual}", entry.desired_targets));
        line("pool", format!("{} ({})", entry.pool_name.as_deref().unwrap_or("?"), entry.pool));
    }
    if let Some(contents) = contents(entry) {
        line("contents", contents);
    }
    if let Some(own) = entry.policy_is_own {
        line("striping", if own { "set on this directory" } else { "as its parent had when it was made" }.to_owned());
    }
    if let Some(placement) = entry.placement {
        line("directories", format!("new ones here: {placement}"));
    }
    if !entry.flags.is_empty() {
        line("flags", entry.flags.join(", "));
    }
    if !entry.parts.is_empty() {
        let shards: Vec<String> = entry.parts.iter().map(|part| part.shard.to_string()).collect();
        let over = format!("split over shards {}", shards.join(", "));
        line("entries", entry.split_percent.map_or(over.clone(), |percent| format!("being {over} ({percent} % done)")));
    }
    let mut text = lines.join("\n") + "\n";
    if !entry.stripes.is_empty() {
        text += "\n";
        text += &stripes(entry);
    }
    text
}

/// Whether the metadata has them, and for how long.
fn contents(entry: &Entry) -> Option<String> {
    Some(match (entry.kind, entry.inline_limit) {
        ("directory", Some(0)) => "of new files here on targets".to_owned(),
        ("directory", Some(limit)) => format!("of new files here in the metadata up to {}", bytes(limit.into())),
        ("file", Some(limit)) => format!("in the metadata, up to {}", bytes(limit.into())),
        ("file", None) => "on targets".to_owned(),
        _ => return None,
    })
}

fn stripes(entry: &Entry) -> String {
    let mut table = Table::new(["STRIPE", "GROUP", "TARGET", "NODE", "OBJECT"]);
    for stripe in &entry.stripes {
        let place = match (&stripe.place, stripe.exists) {
            (None, _) => "? (its node does not answer)".to_owned(),
            (Some(place), true) => place.clone(),
            (Some(_), false) => "- (nothing written yet)".to_owned(),
        };
        table.row([
            stripe.stripe.to_string(),
            stripe.group.to_string(),
            stripe.target.map_or("-".to_owned(), |target| target.to_string()),
            stripe.node.as_ref().map_or("-".to_owned(), |node| node.alias.clone()),
            place,
        ]);
    }
    table.render()
}
