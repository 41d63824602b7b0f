//! A damaged record holds up nothing but what needs it.

use kv::{Batch, Kv};
use namespace::error::Error;
use namespace::transaction::Message;
use namespace::view::{HeldOpen, Telling};
use types::id::{InodeId, ShardId};

use crate::common::{A, B, Bed, ROOT};

/// Makes nonsense of the record of this family.
fn damage(bed: &Bed, family: u8, inode: InodeId, rest: &[u8]) -> Vec<u8> {
    let key = [&[family][..], &inode.0.to_be_bytes(), rest].concat();
    let mut batch = bed.kv.batch();
    batch.put(&key, b"nonsense");
    bed.kv.commit(&mut batch).expect("written");
    key
}

#[test]
fn other_objects_are_removed() {
    let mut bed = Bed::in_objects();
    let f = bed.file(ROOT, "f");
    bed.write_intent(A, f).unwrap();
    bed.unlink(ROOT, "f").unwrap();
    bed.turn();
    let all = bed.shard.deletions(None, 9).unwrap().deletions;
    let key = damage(&bed, b'G', f, &1_u32.to_be_bytes());
    let page = bed.shard.deletions(None, 9).unwrap();
    assert_eq!(page.deletions, [&all[..1], &all[2..]].concat());
    assert_eq!((page.damaged, &*page.first_damage.unwrap().key), (1, &key[..]));
    // Each is told with one page.
    let page = bed.shard.deletions(None, 1).unwrap();
    assert_eq!((&page.deletions[..], page.damaged), (&all[..1], 0));
    let page = bed.shard.deletions(Some((f, 0)), 1).unwrap();
    assert_eq!((&page.deletions[..], page.damaged), (&all[2..3], 1));
    assert_eq!(bed.shard.deletions(Some((f, 2)), 9).unwrap().damaged, 0);
}

/// As of a bad sector: not even its record's neighbours in the block are there.
#[test]
fn what_the_disk_does_not_give_keeps_no_session_alive_and_shuts_nobody_out() {
    let mut bed = Bed::new();
    let (x, y) = (bed.file(ROOT, "x"), bed.file(ROOT, "y"));
    bed.shard.session_open(B, b"").unwrap();
    bed.shard.open_inode(B, x, false).unwrap();
    bed.shard.open_inode(B, y, false).unwrap();
    bed.unlink(ROOT, "x").unwrap();
    bed.turn();
    bed.kv.fail_reads(&[&b"I"[..], &x.0.to_be_bytes()].concat());
    bed.restart();
    bed.shard.session_tell(A, b"", &Telling::whole(&[], &[])).unwrap();
    let open = |inode| HeldOpen { inode, write_intent: false, draft: false };
    let told = bed.shard.session_tell(B, b"", &Telling::whole(&[open(x), open(y)], &[])).unwrap();
    assert!(matches!(told.unreadable[..], [Error::Store(_)]), "{:?}", told.unreadable);
    assert!(bed.tick().grace_ended);
    bed.shard.commit().unwrap();
    bed.wait_ms(crate::common::EXPIRY_MS);
    assert!(bed.shard.touch(A));
    assert_eq!(bed.shard.tick().expired, [B]);
    bed.shard.commit().unwrap();
    assert!(!bed.shard.knows(B));
}

#[test]
fn others_are_listed_where_the_disk_does_not_give_one() {
    let mut bed = Bed::new();
    let files = ["f", "g", "h"].map(|text| bed.file(ROOT, text));
    bed.turn();
    bed.kv.fail_reads(&[&b"I"[..], &files[1].0.to_be_bytes()].concat());
    bed.restart();
    bed.shard.session_open(A, b"").unwrap();
    let page = bed.shard.readdir(A, ROOT, 0, 10, true).unwrap();
    let known = |inode| page.entries.iter().find(|entry| entry.inode == inode).map(|entry| entry.attributes.is_some());
    assert_eq!(files.map(known), [Some(true), Some(false), Some(true)]);
}

#[test]
fn a_shard_starts_and_splits_other_directories() {
    let mut config = crate::common::config();
    config.limits.split_above = 2;
    let mut bed = Bed::with(config);
    let (bad, good) = (bed.dir(ROOT, "bad"), bed.dir(ROOT, "good"));
    bed.turn();
    let key = damage(&bed, b'I', bad, b"");
    damage(&bed, b'P', bad, b"");
    bed.restart();
    bed.shard.session_open(A, b"").unwrap();
    bed.shard.set_shards(vec![ShardId(0), ShardId(1)], vec![ShardId(0), ShardId(1)]);
    for text in ["a", "b", "c"] {
        bed.file(good, text);
    }
    assert!(bad < good && bed.shard.is_splitting());
    let failed = bed.shard.go_on_splitting();
    assert!(matches!(&failed[..], [Error::Damaged(damage)] if *damage.key == key), "{failed:?}");
    let asks = bed.shard.take_outgoing();
    assert!(matches!(asks[..], [ref one] if matches!(one.message, Message::Prepare { .. })), "{asks:?}");
    // It is told seldom, not at each call.
    assert_eq!(bed.shard.go_on_splitting(), []);
    bed.wait_ms(5000);
    assert_eq!(bed.shard.go_on_splitting(), []);
    bed.wait_ms(120_000);
    assert!(matches!(bed.shard.go_on_splitting()[..], [Error::Damaged(_)]));
}
