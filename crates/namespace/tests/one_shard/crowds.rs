//! Names that were made to have one hash: a directory takes few of them, so that it can always be listed.

use namespace::view::{Create, DirEntry, Rename};
use types::attr::FileType;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;
use types::name_hash::{SAME_HASH_MAX, name_hash};

use crate::common::collisions::names_of;
use crate::common::{A, Bed, CRED, ROOT, name, refused};

const HASH: u64 = 0x0123_4567_89ab_cdef;
/// As of the protocol's frames.
const BODY_MAX: usize = 2 << 20;

fn crowd(words: usize, count: u64) -> Vec<Name> {
    let name = |bytes: Vec<u8>| Name::new(&bytes).expect("a name");
    names_of(HASH, words, count).into_iter().map(name).collect()
}

fn create(bed: &mut Bed, parent: InodeId, name: &Name) -> Result<InodeId, Errno> {
    let exactly = bed.next(A);
    let create = Create {
        parent,
        name,
        kind: FileType::Regular,
        mode: 0o644,
        rdev: 0,
        cred: CRED,
        open: false,
        write_intent: false,
        exclusive: true,
        draft: false,
    };
    match bed.shard.create(exactly, &create) {
        Ok(view) => Ok(view.attr.inode),
        error => Err(refused(error)),
    }
}

fn restart(bed: &mut Bed) {
    bed.restart();
    bed.shard.session_open(A, b"a").expect("session");
}

fn list(bed: &mut Bed, directory: InodeId, count: u32) -> Vec<DirEntry> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let page = bed.shard.readdir(A, directory, cookie, count, true).expect("lists");
        let bytes: usize = page.entries.iter().map(|entry| entry.name.len() + 232).sum();
        assert!(bytes < BODY_MAX, "a page of {} entries has {bytes} bytes", page.entries.len());
        cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
        all.extend(page.entries);
        if page.end {
            return all;
        }
    }
}

/// A directory that somebody tries to fill with thousands of them, before and after a restart of the shard.
#[test]
fn no_page_outgrows_a_frame() {
    let mut bed = Bed::new();
    let directory = bed.mkdir(ROOT, "d").expect("made").attr.inode;
    let (mut made, mut refusals) = (0, 0);
    for (at, name) in crowd(31, 6000).iter().enumerate() {
        match create(&mut bed, directory, name) {
            Ok(_) => made += 1,
            Err(errno) => {
                assert_eq!(errno, Errno::ENOSPC);
                refusals += 1;
            }
        }
        if at % 1000 == 10 {
            bed.turn();
            restart(&mut bed);
        }
    }
    assert_eq!(list(&mut bed, directory, 4096).len(), made);
    assert_eq!((made, refusals), (SAME_HASH_MAX, 6000 - SAME_HASH_MAX));
}

#[test]
fn each_name_of_a_hash_has_its_own_cookie() {
    let mut bed = Bed::new();
    for text in ["a", "b", "c", "d"] {
        bed.create(ROOT, text).expect("made");
    }
    for name in crowd(2, SAME_HASH_MAX as u64) {
        create(&mut bed, ROOT, &name).expect("made");
    }
    bed.turn();
    let all = list(&mut bed, ROOT, 4096);
    assert_eq!(all.len(), SAME_HASH_MAX + 4);
    assert!(all.windows(2).all(|pair| pair[0].cookie < pair[1].cookie));
    for (at, entry) in all.iter().enumerate() {
        let rest = bed.shard.readdir(A, ROOT, entry.cookie, 4096, false).expect("lists").entries;
        let names: Vec<&Name> = rest.iter().map(|entry| &entry.name).collect();
        assert_eq!(names, all[at + 1..].iter().map(|entry| &entry.name).collect::<Vec<_>>());
    }
}

#[test]
fn every_way_to_a_name_is_refused_where_it_would_be_one_too_many() {
    for restarted in [false, true] {
        let mut bed = Bed::new();
        let names = crowd(2, SAME_HASH_MAX as u64 + 2);
        let (inside, outside) = names.split_at(SAME_HASH_MAX);
        for name in inside {
            create(&mut bed, ROOT, name).expect("made");
        }
        let other = bed.create(ROOT, "other").expect("made").attr.inode;
        bed.turn();
        if restarted {
            restart(&mut bed);
        }
        let [more, further] = outside else { panic!("two more") };
        assert_eq!(create(&mut bed, ROOT, more), Err(Errno::ENOSPC));
        let exactly = bed.next(A);
        assert_eq!(refused(bed.shard.mkdir(exactly, ROOT, more, 0o755, CRED)), Errno::ENOSPC);
        let exactly = bed.next(A);
        assert_eq!(refused(bed.shard.symlink(exactly, ROOT, more, b"there", CRED)), Errno::ENOSPC);
        let exactly = bed.next(A);
        assert_eq!(refused(bed.shard.link(exactly, other, ROOT, more)), Errno::ENOSPC);
        let rename = |source, target, flags| Rename {
            source_parent: ROOT,
            source_name: source,
            target_parent: ROOT,
            target_name: target,
            flags,
            cred: CRED,
        };
        let exactly = bed.next(A);
        let other_name = name("other");
        assert_eq!(refused(bed.shard.rename(exactly, &rename(&other_name, more, 0))), Errno::ENOSPC);
        // What makes none more is possible.
        let exactly = bed.next(A);
        bed.shard.rename(exactly, &rename(&inside[0], more, 0)).expect("within the hash");
        let exactly = bed.next(A);
        bed.shard.rename(exactly, &rename(&other_name, more, 0)).expect("over one of the hash");
        assert_eq!(create(&mut bed, ROOT, further), Err(Errno::ENOSPC));
        let exactly = bed.next(A);
        bed.shard.unlink(exactly, ROOT, &inside[1]).expect("unlinked");
        create(&mut bed, ROOT, further).expect("there is room in the same turn");
        assert_eq!(create(&mut bed, ROOT, &inside[1]), Err(Errno::ENOSPC));
        bed.turn();
        let crowd = list(&mut bed, ROOT, 4096).into_iter().filter(|entry| name_hash(&entry.name) == HASH);
        assert_eq!(crowd.count(), SAME_HASH_MAX);
    }
}
