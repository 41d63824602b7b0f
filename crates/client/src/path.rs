//! A path on its way to what it leads to: what to ask for next, by the rules of POSIX. Pure.
//!
//! Symbolic links are followed as a kernel does, and `..` is the directory that the way came from: of a link's target, the
//! one above the target. Above where the way began, nothing is known, and is asked for.

use types::attr::FileType;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;
use types::walk::{PATH_MAX, WALK_NAMES_MAX, WalkEnd, WalkNames};

/// Symbolic links that are followed on one way, as Linux does.
const LINKS_MAX: usize = 40;
/// How often in a row an answer may say where else to ask, and nothing more.
const DETOURS_MAX: usize = 64;

/// What a path has to say.
#[derive(Debug)]
enum Part {
    Name(Name),
    /// `..`
    Up,
    /// A slash or a `.` at the end: what comes before is a directory.
    Here,
}

/// What to ask for next.
#[derive(Debug)]
pub(crate) enum Next {
    /// These names, from `directory` on; the first is to be asked for in `place`, where that is known.
    Walk { directory: InodeId, place: Option<InodeId>, names: WalkNames },
    /// The directory above this one.
    Parent(InodeId),
    /// The target of this symbolic link.
    Target(InodeId),
    /// Nothing: this is what the path leads to.
    Found(InodeId),
}

/// See the module.
pub(crate) struct Way {
    /// Directories from the uppermost one that is known to where the way has come, each in the one before.
    directories: Vec<InodeId>,
    /// Which directory has the next name: the last one, or a part of it. `None`: nobody has said.
    place: Option<InodeId>,
    /// What the last name led to, where that is no directory.
    other: Option<(InodeId, FileType)>,
    /// What is left of the path, the last part first.
    rest: Vec<Part>,
    /// Also the last name, if it is a symbolic link.
    follows: bool,
    links: usize,
    detours: usize,
}

impl Way {
    /// # Errors
    /// `ENOENT` for an empty path, `ENAMETOOLONG`, `EINVAL` for bytes that no path has.
    pub(crate) fn new(from: InodeId, path: &[u8], follows: bool) -> Result<Self, Errno> {
        let directories = vec![from];
        let mut way = Self { directories, place: None, other: None, rest: Vec::new(), follows, links: 0, detours: 0 };
        way.prepend(path)?;
        Ok(way)
    }

    /// Goes along `path` before what is left.
    fn prepend(&mut self, path: &[u8]) -> Result<(), Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if path.len() > PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if path[0] == b'/' {
            (self.directories, self.place) = (vec![InodeId::ROOT], None);
        }
        let mut parts = path.rsplit(|&byte| byte == b'/').peekable();
        if parts.peek().is_some_and(|last| matches!(*last, b"" | b".")) {
            self.rest.push(Part::Here);
        }
        for part in parts {
            match part {
                b"" | b"." => {}
                b".." => self.rest.push(Part::Up),
                name => self.rest.push(Part::Name(Name::new(name)?)),
            }
        }
        Ok(())
    }

    fn directory(&self) -> InodeId {
        self.directories.last().copied().unwrap_or(InodeId::ROOT)
    }

    /// # Errors
    /// `ENOTDIR` where the way leads through something else, `ELOOP` after too many symbolic links.
    pub(crate) fn next(&mut self) -> Result<Next, Errno> {
        if let Some((inode, kind)) = self.other {
            let is_last = self.rest.is_empty();
            return match kind {
                FileType::Symlink if !is_last || self.follows => {
                    self.links += 1;
                    if self.links > LINKS_MAX { Err(Errno::ELOOP) } else { Ok(Next::Target(inode)) }
                }
                _ if is_last => Ok(Next::Found(inode)),
                _ => Err(Errno::ENOTDIR),
            };
        }
        loop {
            let directory = self.directory();
            match self.rest.last() {
                None => return Ok(Next::Found(directory)),
                Some(Part::Here) => {}
                Some(Part::Up) if self.directories.len() > 1 => {
                    self.directories.pop();
                }
                // Nothing is above it.
                Some(Part::Up) if directory == InodeId::ROOT => {}
                Some(Part::Up) => return Ok(Next::Parent(directory)),
                Some(Part::Name(_)) => {
                    let names = WalkNames::new(self.names()).ok_or(Errno::ENAMETOOLONG)?;
                    return Ok(Next::Walk { directory, place: self.place, names });
                }
            }
            self.place = None;
            self.rest.pop();
        }
    }

    /// The names that come next and fit into one walk.
    fn names(&self) -> Vec<Name> {
        let name = |part: &Part| if let Part::Name(name) = part { Some(name.clone()) } else { None };
        let mut names: Vec<Name> = self.rest.iter().rev().map_while(name).take(WALK_NAMES_MAX).collect();
        names.truncate(WalkNames::fitting(&names));
        names
    }

    /// What the first of `asked` names lead to, and how the walk ended.
    ///
    /// # Errors
    /// `ENOENT` and `ENOTDIR` where it came to its end; `EIO` for an answer that cannot be.
    pub(crate) fn walked(
        &mut self,
        asked: usize,
        steps: impl ExactSizeIterator<Item = (InodeId, FileType)>,
        end: WalkEnd,
    ) -> Result<(), Errno> {
        let count = steps.len();
        if count > asked || (count == asked) != (end == WalkEnd::Found) {
            return Err(Errno::EIO);
        }
        self.detours = if count == 0 { self.detours + 1 } else { 0 };
        self.place = None;
        for step in steps {
            // After what is no directory nothing can come.
            if self.other.is_some() {
                return Err(Errno::EIO);
            }
            match step {
                (directory, FileType::Directory) => self.directories.push(directory),
                other => self.other = Some(other),
            }
        }
        self.rest.truncate(self.rest.len().saturating_sub(count));
        let leads_to_link = self.other.is_some_and(|(_, kind)| kind == FileType::Symlink);
        match end {
            WalkEnd::Absent => Err(Errno::ENOENT),
            WalkEnd::NotDirectory => Err(Errno::ENOTDIR),
            WalkEnd::GoOn(place) if self.other.is_none() && self.detours <= DETOURS_MAX => {
                self.place = Some(place);
                Ok(())
            }
            WalkEnd::Found => Ok(()),
            WalkEnd::Symlink if leads_to_link => Ok(()),
            WalkEnd::GoOn(_) | WalkEnd::Symlink => Err(Errno::EIO),
        }
    }

    /// The place that was asked has not the next name, or not any more: the directory itself is to say which one has.
    ///
    /// # Errors
    /// `EIO` where that happens again and again.
    pub(crate) fn misled(&mut self) -> Result<(), Errno> {
        self.detours += 1;
        self.place = Some(self.directory());
        if self.detours > DETOURS_MAX { Err(Errno::EIO) } else { Ok(()) }
    }

    /// The directory above where the way has come.
    pub(crate) fn rose(&mut self, parent: InodeId) {
        self.directories = vec![parent];
        self.rest.pop();
    }

    /// The target of the symbolic link that the way has come to.
    ///
    /// # Errors
    /// As of [`Self::new`].
    pub(crate) fn turned(&mut self, target: &[u8]) -> Result<(), Errno> {
        self.other = None;
        self.prepend(target)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// What names lead to, and the targets of links. Directories with numbers from 50 on are another shard's.
    struct Tree {
        names: BTreeMap<(u64, &'static str), (u64, FileType)>,
        targets: BTreeMap<u64, &'static str>,
        parents: BTreeMap<u64, u64>,
        requests: usize,
    }

    const ROOT: u64 = InodeId::ROOT.0;
    const FILE: FileType = FileType::Regular;
    const DIRECTORY: FileType = FileType::Directory;

    /// Root (1) has `a` (2) with `b` (4) with `c` (6) with `file` (8), and `far` (51) with `back` (10).
    fn tree() -> Tree {
        let directories = [(ROOT, "a", 2), (2, "b", 4), (4, "c", 6), (ROOT, "far", 51), (51, "back", 10)];
        let mut tree = Tree {
            names: BTreeMap::from([((6, "file"), (8, FILE)), ((ROOT, "file"), (12, FILE))]),
            targets: BTreeMap::new(),
            parents: BTreeMap::from([(ROOT, ROOT)]),
            requests: 0,
        };
        for (parent, name, child) in directories {
            tree.names.insert((parent, name), (child, DIRECTORY));
            tree.parents.insert(child, parent);
        }
        let links = [
            (ROOT, "to-c", "a/b/c"),
            (2, "up", "../far/back"),
            (4, "absolute", "/far/"),
            (4, "to-file", "c/file"),
            (4, "to-file-as-directory", "c/file/"),
            (4, "loop", "loop"),
            (4, "nowhere", "none"),
            (6, "chain", "../to-file"),
        ];
        for (number, (parent, name, target)) in (100..).zip(links) {
            tree.names.insert((parent, name), (number, FileType::Symlink));
            tree.targets.insert(number, target);
        }
        tree
    }

    impl Tree {
        fn walk(&self, start: u64, names: &WalkNames) -> (Vec<(InodeId, FileType)>, WalkEnd) {
            let (mut at, mut steps) = (start, Vec::new());
            for name in names.iter() {
                if (at < 50) != (start < 50) {
                    return (steps, WalkEnd::GoOn(InodeId(at)));
                }
                let text = name.to_string();
                let found = self.names.iter().find(|((parent, name), _)| (*parent, *name) == (at, text.as_str()));
                let Some((_, &(child, kind))) = found else { return (steps, WalkEnd::Absent) };
                steps.push((InodeId(child), kind));
                match kind {
                    _ if steps.len() == names.len() => break,
                    DIRECTORY => at = child,
                    FileType::Symlink => return (steps, WalkEnd::Symlink),
                    _ => return (steps, WalkEnd::NotDirectory),
                }
            }
            (steps, WalkEnd::Found)
        }

        fn resolve(&mut self, from: u64, path: &str, follows: bool) -> Result<u64, Errno> {
            let mut way = Way::new(InodeId(from), path.as_bytes(), follows)?;
            self.requests = 0;
            loop {
                self.requests += 1;
                match way.next()? {
                    Next::Walk { directory, place, names } => {
                        let (steps, end) = self.walk(place.unwrap_or(directory).0, &names);
                        way.walked(names.len(), steps.into_iter(), end)?;
                    }
                    Next::Parent(directory) => way.rose(InodeId(self.parents[&directory.0])),
                    Next::Target(link) => way.turned(self.targets[&link.0].as_bytes())?,
                    Next::Found(inode) => return Ok(inode.0),
                }
            }
        }
    }

    #[test]
    fn paths_lead_where_posix_says() {
        let long = ["x"; PATH_MAX / 2 + 2].join("/");
        let too_long = "x".repeat(256);
        for (from, path, expected) in [
            (ROOT, "a", Ok(2)),
            (ROOT, "/a/b/c/file", Ok(8)),
            (4, "c//./file", Ok(8)),
            (4, "/", Ok(ROOT)),
            (4, ".", Ok(4)),
            (4, "c/..", Ok(4)),
            // Above where it began.
            (4, "../../far", Ok(51)),
            (4, "../../../../file", Ok(12)),
            (ROOT, "..", Ok(ROOT)),
            (ROOT, "a/", Ok(2)),
            (ROOT, "a/./", Ok(2)),
            (ROOT, "", Err(Errno::ENOENT)),
            (ROOT, "a/none", Err(Errno::ENOENT)),
            (ROOT, "none/..", Err(Errno::ENOENT)),
            (ROOT, "file/", Err(Errno::ENOTDIR)),
            (ROOT, "file/.", Err(Errno::ENOTDIR)),
            (ROOT, "file/..", Err(Errno::ENOTDIR)),
            (ROOT, "file/more", Err(Errno::ENOTDIR)),
            (ROOT, &too_long, Err(Errno::ENAMETOOLONG)),
            (ROOT, &long, Err(Errno::ENAMETOOLONG)),
            (ROOT, "far/back", Ok(10)),
        ] {
            for follows in [false, true] {
                assert_eq!(tree().resolve(from, path, follows), expected, "{from} {path}");
            }
        }
    }

    #[test]
    fn symbolic_links_are_followed_where_posix_says() {
        for (path, expected, itself) in [
            ("to-c", Ok(6), Ok(100)),
            ("to-c/", Ok(6), Ok(6)),
            ("to-c/file", Ok(8), Ok(8)),
            // Above the target, not above the link.
            ("to-c/..", Ok(4), Ok(4)),
            ("a/up", Ok(10), Ok(101)),
            ("a/up/..", Ok(51), Ok(51)),
            ("a/b/absolute/back", Ok(10), Ok(10)),
            ("a/b/to-file", Ok(8), Ok(103)),
            ("a/b/to-file/", Err(Errno::ENOTDIR), Err(Errno::ENOTDIR)),
            ("a/b/to-file-as-directory", Err(Errno::ENOTDIR), Ok(104)),
            ("a/b/loop", Err(Errno::ELOOP), Ok(105)),
            ("a/b/loop/x", Err(Errno::ELOOP), Err(Errno::ELOOP)),
            ("a/b/nowhere", Err(Errno::ENOENT), Ok(106)),
            ("to-c/chain", Ok(8), Ok(107)),
        ] {
            assert_eq!(tree().resolve(ROOT, path, true), expected, "{path}");
            assert_eq!(tree().resolve(ROOT, path, false), itself, "{path}, the link itself");
        }
    }

    #[test]
    fn forty_links_are_followed_and_no_more() {
        for (links, expected) in [(40, Ok(2)), (41, Err(Errno::ELOOP))] {
            let mut tree = tree();
            tree.names.insert((ROOT, "again"), (200, FileType::Symlink));
            tree.targets.insert(200, ".");
            let path = format!("{}a", "again/".repeat(links));
            assert_eq!(tree.resolve(ROOT, &path, true), expected);
        }
    }

    #[test]
    fn as_few_requests_as_shards_and_links_are_met() {
        // One of each resolution finds out that it is done.
        for (path, requests) in
            [("a/b/c/file", 1), ("a/b/c/../c/file", 2), ("far/back", 2), ("to-c/file", 3), ("a/b/../..", 1)]
        {
            let mut tree = tree();
            tree.resolve(ROOT, path, true).expect("there");
            assert_eq!(tree.requests - 1, requests, "{path}");
        }
    }

    fn at(path: &str) -> Way {
        let mut way = Way::new(InodeId::ROOT, path.as_bytes(), true).expect("a path");
        assert!(matches!(way.next(), Ok(Next::Walk { .. })));
        way
    }

    #[test]
    fn long_paths_are_walked_in_pieces() {
        let mut way = at(&["d"; 100].join("/"));
        let mut asked = Vec::new();
        while let Ok(Next::Walk { names, .. }) = way.next() {
            asked.push(names.len());
            let steps = (0..names.len() as u64).map(|number| (InodeId(2 + number), DIRECTORY));
            let steps: Vec<_> = steps.collect();
            way.walked(names.len(), steps.into_iter(), WalkEnd::Found).expect("found");
        }
        assert_eq!(asked, [64, 36]);
    }

    #[test]
    fn who_is_sent_on_without_an_end_gives_up() {
        let part = InodeId(77);
        let go_on = |way: &mut Way| way.walked(1, [].into_iter(), WalkEnd::GoOn(part));
        let mut way = at("a");
        for _ in 0..DETOURS_MAX / 2 {
            go_on(&mut way).expect("a part has it");
            assert!(matches!(way.next(), Ok(Next::Walk { place: Some(place), .. }) if place == part));
            way.misled().expect("it has not");
            assert!(matches!(way.next(), Ok(Next::Walk { place: Some(place), .. }) if place == InodeId::ROOT));
        }
        assert_eq!((go_on(&mut way), way.misled()), (Err(Errno::EIO), Err(Errno::EIO)));
    }

    #[test]
    fn answers_that_cannot_be_are_errors() {
        let file = (InodeId(8), FILE);
        let directory = (InodeId(2), DIRECTORY);
        for (steps, end) in [
            (vec![], WalkEnd::Found),
            (vec![directory; 3], WalkEnd::Found),
            (vec![directory; 2], WalkEnd::GoOn(InodeId(2))),
            (vec![file, directory], WalkEnd::Found),
            (vec![file], WalkEnd::GoOn(InodeId(2))),
            (vec![directory], WalkEnd::Symlink),
            (vec![], WalkEnd::Symlink),
        ] {
            assert_eq!(at("a/b").walked(2, steps.into_iter(), end), Err(Errno::EIO), "{end:?}");
        }
    }
}
