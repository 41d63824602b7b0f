//! Files with their contents in the metadata, and how they grow out of it.

use std::collections::BTreeMap;

use kv::KvError;
use model::{Limits, Model, New};
use namespace::error::{Error, Result};
use namespace::shard::Config;
use namespace::shard::inline::Grown;
use namespace::view::{Create, InodeView, PolicyChange, ScanRecord, Telling, WriteInline};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use types::attr::{FileType, SetAttr};
use types::cred::Credentials;
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::layout::{INLINE_DEFAULT, INLINE_MAX};
use types::name::Name;
use types::time::Timestamp;

use crate::common::{A, B, Bed, CRED, EXPIRY_MS, ROOT, config, held, name, refused};

fn limit(bed: &mut Bed, directory: InodeId, limit: u32) {
    let change = PolicyChange { inline_limit: Some(limit), ..PolicyChange::default() };
    let exactly = bed.next(A);
    bed.shard.set_policy(exactly, directory, &change).expect("set");
}

fn write(bed: &mut Bed, session: SessionId, inode: InodeId, offset: u64, bytes: &[u8]) -> Result<(InodeView, u64)> {
    let exactly = bed.next(session);
    bed.shard.write_inline(exactly, &WriteInline { inode, offset, append: false, bytes })
}

fn append(bed: &mut Bed, inode: InodeId, bytes: &[u8]) -> Result<(InodeView, u64)> {
    let exactly = bed.next(A);
    bed.shard.write_inline(exactly, &WriteInline { inode, offset: 99, append: true, bytes })
}

fn read(bed: &mut Bed, inode: InodeId) -> Vec<u8> {
    bed.shard.read_inline(A, inode, 0, INLINE_MAX).expect("read").1
}

fn truncate(bed: &mut Bed, inode: InodeId, size: u64) -> Result<InodeView> {
    let exactly = bed.next(A);
    bed.shard.set(exactly, inode, &SetAttr { size: Some(size), ..SetAttr::default() }, true)
}

fn leased() -> Bed {
    let mut bed = Bed::with(Config { lease_term_ms: 1000, ..config() });
    for session in [A, B] {
        bed.shard.listen(session, true);
    }
    bed
}

#[test]
fn contents_are_written_read_and_truncated() {
    let mut bed = Bed::new();
    let made = bed.create(ROOT, "f").unwrap();
    let f = made.attr.inode;
    assert_eq!(made.inline_limit, INLINE_DEFAULT);
    assert!(read(&mut bed, f).is_empty());
    bed.turn();
    let now = Timestamp(bed.now);
    let (view, at) = write(&mut bed, A, f, 3, b"abc").unwrap();
    assert_eq!((view.attr.size, view.attr.blocks, at), (6, 1, 3));
    assert_eq!((view.attr.mtime, view.attr.ctime, view.unsettled, view.has_objects), (now, now, false, false));
    assert_eq!(read(&mut bed, f), b"\0\0\0abc", "before the commit too");
    bed.turn();
    assert_eq!(append(&mut bed, f, b"de").unwrap().1, 6);
    assert_eq!(write(&mut bed, A, f, 0, b"x").unwrap().0.attr.size, 8);
    assert_eq!(read(&mut bed, f), b"x\0\0abcde");
    assert_eq!(bed.shard.read_inline(A, f, 3, 2).unwrap().1, b"ab");
    assert_eq!(bed.shard.read_inline(A, f, 8, 2).unwrap().1, b"");
    assert_eq!(bed.shard.read_inline(A, f, u64::MAX, 2).unwrap().1, b"");
    bed.turn();
    assert_eq!(truncate(&mut bed, f, 4).unwrap().attr.size, 4);
    assert_eq!(truncate(&mut bed, f, 600).unwrap().attr.blocks, 2);
    bed.turn();
    assert_eq!(read(&mut bed, f), [&b"x\0\0a"[..], &[0; 596]].concat());
    bed.restart();
    bed.shard.session_tell(A, b"a", &Telling::whole(&[], &[])).unwrap();
    assert_eq!(read(&mut bed, f).len(), 600);
    truncate(&mut bed, f, 0).unwrap();
    bed.turn();
    assert!(read(&mut bed, f).is_empty());
    assert_eq!(bed.stat(f).unwrap().attr.blocks, 0);
}

#[test]
fn what_does_not_fit_or_is_not_there_is_refused() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    let full = vec![7; INLINE_DEFAULT as usize];
    write(&mut bed, A, f, 0, &full).unwrap();
    assert_eq!(refused(append(&mut bed, f, b"x")), Errno::EOPNOTSUPP);
    assert_eq!(refused(write(&mut bed, A, f, u64::MAX, b"x")), Errno::EOPNOTSUPP);
    assert_eq!(refused(truncate(&mut bed, f, u64::from(INLINE_DEFAULT) + 1)), Errno::EOPNOTSUPP);
    bed.turn();
    assert_eq!(read(&mut bed, f), full);
    limit(&mut bed, ROOT, 0);
    let g = bed.file(ROOT, "g");
    assert_eq!(bed.stat(g).unwrap().inline_limit, 0);
    assert_eq!(refused(write(&mut bed, A, g, 0, b"x")), Errno::EOPNOTSUPP);
    assert_eq!(refused(truncate(&mut bed, g, 0)), Errno::EOPNOTSUPP);
    assert_eq!(refused(bed.shard.read_inline(A, g, 0, 1)), Errno::EOPNOTSUPP);
    assert_eq!(refused(bed.shard.sync_inline(g)), Errno::EOPNOTSUPP);
    assert_eq!(refused(write(&mut bed, A, ROOT, 0, b"x")), Errno::EISDIR);
    // What was made before keeps its limit.
    assert_eq!(bed.stat(f).unwrap().inline_limit, INLINE_DEFAULT);
    let too_much = PolicyChange { inline_limit: Some(INLINE_MAX + 1), ..PolicyChange::default() };
    let exactly = bed.next(A);
    assert_eq!(refused(bed.shard.set_policy(exactly, ROOT, &too_much)), Errno::EINVAL);
}

#[test]
fn directories_inherit_the_limit() {
    let mut bed = Bed::new();
    limit(&mut bed, ROOT, 100);
    let d = bed.dir(ROOT, "d");
    limit(&mut bed, ROOT, 0);
    let f = bed.file(d, "f");
    assert_eq!(bed.stat(f).unwrap().inline_limit, 100);
    assert_eq!(bed.shard.entry_info(A, d).unwrap().policy.inline_limit, 100);
}

#[test]
fn a_write_happens_once_however_often_it_is_asked_for() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    let exactly = bed.next(A);
    let add = WriteInline { inode: f, offset: 0, append: true, bytes: b"ab" };
    assert_eq!(bed.shard.write_inline(exactly, &add).unwrap().1, 0);
    assert_eq!(bed.shard.write_inline(exactly, &add).unwrap().1, 0);
    let second = bed.next(A);
    let second = namespace::view::Exactly { answered_below: 1, ..second };
    assert_eq!(bed.shard.write_inline(second, &add).unwrap().1, 2);
    bed.turn();
    bed.restart();
    for session in [A, B] {
        bed.shard.session_tell(session, b"", &Telling::whole(&[], &[])).unwrap();
    }
    let (view, at) = bed.shard.write_inline(second, &add).unwrap();
    assert_eq!((view.attr.size, at), (4, 2));
    // Also when the contents are about to leave: it was done before.
    assert_eq!(bed.write_intent(B, f), Err(Error::Growing));
    assert_eq!(bed.shard.write_inline(second, &add).unwrap().1, 2);
}

#[test]
fn a_new_file_for_writing_needs_no_intent_while_its_contents_are_here() {
    let mut bed = Bed::new();
    let text = name("f");
    let create = Create {
        parent: ROOT,
        name: &text,
        kind: FileType::Regular,
        mode: 0o644,
        rdev: 0,
        cred: CRED,
        open: true,
        write_intent: true,
        exclusive: true,
        draft: false,
    };
    let exactly = bed.next(A);
    let view = bed.shard.create(exactly, &create).unwrap();
    assert!(!view.unsettled && !view.exclusive && view.inline_limit > 0);
    bed.turn();
    // An empty one leaves at once.
    let view = bed.write_intent(B, view.attr.inode).unwrap();
    assert!(view.exclusive && view.unsettled && view.inline_limit == 0);
    bed.turn();
    // Whoever asks for its making again has an intent then, as it would have without contents here.
    let again = bed.shard.create(exactly, &create).unwrap();
    assert!(again.unsettled && !again.exclusive && again.inline_limit == 0);
    assert!(!bed.shard.getattr(B, view.attr.inode).unwrap().exclusive);
}

/// Until the shell says so, the contents are here and nothing changes them.
#[test]
fn growth_has_two_steps_and_others_wait() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    write(&mut bed, A, f, 0, b"abc").unwrap();
    bed.turn();
    assert_eq!(bed.write_intent(A, f), Err(Error::Growing));
    assert_eq!(bed.shard.take_growing(), [], "the mark is not committed");
    bed.turn();
    assert_eq!(bed.shard.take_growing(), [f]);
    assert_eq!(bed.shard.take_growing(), []);
    assert!(bed.stat(f).unwrap().has_objects);
    assert_eq!(bed.write_intent(B, f), Err(Error::Growing));
    assert_eq!(write(&mut bed, B, f, 0, b"x"), Err(Error::Growing));
    assert_eq!(truncate(&mut bed, f, 1), Err(Error::Growing));
    assert_eq!(bed.shard.sync_inline(f), Err(Error::Growing));
    assert_eq!(read(&mut bed, f), b"abc");
    bed.set(f, SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    bed.turn();
    assert_eq!(bed.shard.take_growing(), [], "it is under way");
    let growth = bed.shard.growth(f).unwrap().expect("it is there");
    assert_eq!((growth.contents, growth.limit, growth.older), (b"abc".to_vec(), INLINE_DEFAULT, false));
    assert!(!bed.shard.take_ended_growth());
    bed.shard.end_growth(f, Grown::Done).unwrap();
    assert!(bed.shard.take_ended_growth() && !bed.shard.take_ended_growth());
    let view = bed.write_intent(A, f).unwrap();
    assert!(view.exclusive && view.inline_limit == 0 && view.attr.size == 3 && view.layout.is_some());
    assert_eq!(view.attr.mode, 0o600);
    bed.turn();
    assert_eq!(refused(write(&mut bed, B, f, 0, b"x")), Errno::EOPNOTSUPP);
    assert_eq!(refused(bed.shard.read_inline(B, f, 0, 9)), Errno::EOPNOTSUPP);
    // Its objects go with it.
    bed.settle(A, f, 9, None, true);
    bed.unlink(ROOT, "f").unwrap();
    bed.turn();
    assert_eq!(bed.shard.deletions(None, 99).unwrap().deletions.len(), 4);
}

#[test]
fn a_crash_in_between_begins_the_growth_anew() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    write(&mut bed, A, f, 0, b"abc").unwrap();
    bed.turn();
    assert_eq!(bed.write_intent(A, f), Err(Error::Growing));
    bed.turn();
    // The objects are written now, but nobody says so any more.
    bed.restart();
    bed.shard.session_tell(A, b"a", &Telling::whole(&[], &[])).unwrap();
    assert_eq!((read(&mut bed, f), bed.shard.take_growing()), (b"abc".to_vec(), vec![]));
    truncate(&mut bed, f, 0).unwrap();
    bed.turn();
    // There may be objects: an empty file has to have them cut.
    assert_eq!(bed.write_intent(A, f), Err(Error::Growing));
    bed.turn();
    assert_eq!(bed.shard.take_growing(), [f]);
    let growth = bed.shard.growth(f).unwrap().expect("it is there");
    assert_eq!((growth.contents, growth.older), (vec![], true));
    bed.shard.end_growth(f, Grown::Again).unwrap();
    // And one that is removed has to have them removed.
    write(&mut bed, A, f, 0, b"new").unwrap();
    bed.turn();
    bed.unlink(ROOT, "f").unwrap();
    bed.turn();
    // In the grace after the restart it is kept.
    bed.wait_ms(EXPIRY_MS);
    bed.shard.touch(A);
    bed.tick();
    bed.turn();
    assert_eq!(bed.shard.deletions(None, 99).unwrap().deletions.len(), 4);
}

#[test]
fn a_refusal_is_told_once_and_a_failed_commit_leaves_no_growth() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    write(&mut bed, A, f, 0, b"abc").unwrap();
    bed.turn();
    assert_eq!(bed.write_intent(A, f), Err(Error::Growing));
    bed.turn();
    bed.shard.take_growing();
    bed.shard.end_growth(f, Grown::Refused(Errno::ENOSPC)).unwrap();
    assert_eq!(refused(bed.write_intent(A, f)), Errno::ENOSPC);
    assert_eq!(bed.write_intent(A, f), Err(Error::Growing));
    bed.kv.fail_commit(1, KvError::Io("test".into()));
    // The mark was committed before, but the growth is one of this turn.
    assert!(bed.shard.commit().is_err() || bed.shard.take_growing() == [f]);
    bed.kv.heal();
    // One that is told too late is told to nobody.
    bed.shard.end_growth(f, Grown::Refused(Errno::ENOSPC)).unwrap();
    bed.wait_ms(2000);
    assert_eq!(bed.write_intent(A, f), Err(Error::Growing));
    bed.turn();
    assert_eq!(bed.shard.take_growing(), [f]);
    // A file that has gone meanwhile.
    bed.unlink(ROOT, "f").unwrap();
    bed.turn();
    assert_eq!(bed.shard.growth(f).unwrap(), None);
    bed.shard.end_growth(f, Grown::Done).unwrap();
    assert_eq!(refused(bed.write_intent(A, f)), Errno::ESTALE);
    let g = bed.file(ROOT, "g");
    write(&mut bed, A, g, 0, b"abc").unwrap();
    bed.turn();
    assert_eq!(bed.write_intent(A, g), Err(Error::Growing));
    bed.kv.fail_commit(1, KvError::Io("test".into()));
    assert!(bed.shard.commit().is_err());
    bed.kv.heal();
    assert!(bed.shard.take_ended_growth() && bed.shard.take_growing().is_empty());
    assert!(!bed.stat(g).unwrap().has_objects);
    write(&mut bed, A, g, 3, b"d").unwrap();
    bed.turn();
    assert_eq!(read(&mut bed, g), b"abcd");
}

#[test]
fn removed_contents_leave_nothing() {
    let mut bed = Bed::new();
    let (f, g) = (bed.file(ROOT, "f"), bed.file(ROOT, "g"));
    for file in [f, g] {
        write(&mut bed, A, file, 0, b"abc").unwrap();
    }
    bed.shard.open_inode(A, f, false).unwrap();
    bed.unlink(ROOT, "f").unwrap();
    bed.turn();
    assert_eq!(append(&mut bed, f, b"d").unwrap().0.attr.nlink, 0);
    bed.turn();
    assert_eq!(read(&mut bed, f), b"abcd");
    bed.shard.close_inode(A, f, None).unwrap();
    bed.turn();
    // By a rename over it.
    let h = bed.file(ROOT, "h");
    bed.rename((ROOT, "h"), (ROOT, "g"), 0).unwrap();
    bed.turn();
    let page = bed.shard.scan(b"", 99).unwrap();
    let contents = |record: &ScanRecord| matches!(record, ScanRecord::Contents { .. });
    assert!(!page.records.iter().any(contents));
    assert_eq!(bed.shard.deletions(None, 9).unwrap().deletions, []);
    write(&mut bed, A, h, 0, b"12").unwrap();
    bed.turn();
    let page = bed.shard.scan(b"", 1).unwrap();
    assert_eq!(page.records, [ScanRecord::Contents { inode: h, length: 2 }]);
    assert!(!bed.shard.scan(&page.next.expect("more"), 99).unwrap().records.iter().any(contents));
}

#[test]
fn a_write_takes_leases_back_and_an_open_brings_contents() {
    let mut bed = leased();
    let f = bed.file(ROOT, "f");
    write(&mut bed, A, f, 0, b"abc").unwrap();
    bed.turn();
    let opened = bed.shard.open_inode(B, f, true).unwrap();
    assert!(opened.lease_ms > 0 && opened.contents == Some(b"abc".to_vec()));
    assert_eq!(bed.shard.open_inode(B, f, false).unwrap().contents, None);
    assert_eq!(write(&mut bed, A, f, 0, b"x"), Err(Error::Recalling));
    assert_eq!(truncate(&mut bed, f, 1), Err(Error::Recalling));
    assert_eq!(read(&mut bed, f), b"abc");
    let ids: Vec<u64> = bed.shard.recalls(B).iter().map(|recall| recall.id).collect();
    bed.shard.acknowledge_recalls(B, &ids);
    write(&mut bed, A, f, 0, b"x").unwrap();
    bed.turn();
    // Just after a recall there are none.
    bed.wait_ms(3000);
    let (view, bytes) = bed.shard.read_inline(B, f, 0, 9).unwrap();
    assert!(view.lease_ms > 0 && bytes == b"xbc");
    assert_eq!(write(&mut bed, A, f, 0, b"y"), Err(Error::Recalling));
    // Without a lease they would be of no use.
    bed.shard.listen(A, false);
    assert_eq!(bed.shard.open_inode(A, f, true).unwrap().contents, None);
}

/// A power cut of the shard's host alone: a client has an intent, and with it a proof that the contents had left.
#[test]
fn an_intent_from_before_a_power_cut_tells_that_the_contents_had_left() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    write(&mut bed, A, f, 0, b"abc").unwrap();
    bed.turn();
    bed.restart();
    bed.shard.session_tell(A, b"a", &Telling::whole(&[held(f, true)], &[])).unwrap();
    let view = bed.stat(f).unwrap();
    assert!(view.unsettled && view.has_objects && view.inline_limit == 0);
    bed.turn();
}

/// A client has an intent from before a power cut of the shard's host, and comes back so late that another one was
/// given the file meanwhile, with the contents from before.
#[test]
fn an_intent_from_before_a_power_cut_takes_nothing_that_others_have_written_since() {
    for cuts in [false, true] {
        let mut bed = Bed::new();
        let (f, other) = (bed.file(ROOT, "f"), bed.file(ROOT, "other"));
        write(&mut bed, A, f, 0, b"abc").unwrap();
        bed.turn();
        bed.shard.session_open(B, b"b").unwrap();
        bed.turn();
        bed.restart();
        bed.shard.session_tell(B, b"b", &Telling::whole(&[], &[])).unwrap();
        bed.wait_ms(20_000);
        if cuts {
            let exactly = bed.next(B);
            let change = SetAttr { size: Some(2), ..SetAttr::default() };
            bed.shard.set(exactly, f, &change, true).unwrap();
        } else {
            write(&mut bed, B, f, 0, b"x").unwrap();
        }
        bed.turn();
        let retold =
            bed.shard.session_tell(A, b"a", &Telling::whole(&[held(f, true), held(other, false)], &[])).unwrap();
        assert!(!retold.opened.keeps_intents, "it is told");
        assert_eq!(read(&mut bed, f), if cuts { b"ab".to_vec() } else { b"xbc".to_vec() });
        bed.turn();
    }
}

/// The objects of the files of a shard, and a client that uses both as it should.
struct World {
    rng: StdRng,
    bed: Bed,
    model: Model,
    objects: BTreeMap<InodeId, Vec<u8>>,
    /// The model's id and the shard's.
    files: Vec<(InodeId, InodeId)>,
    grown: u64,
}

impl World {
    fn new(seed: u64, limit_of_root: u32) -> Self {
        let mut bed = Bed::new();
        limit(&mut bed, ROOT, limit_of_root);
        bed.turn();
        let model = Model::new(Limits::default(), Credentials::default(), Timestamp(1));
        let rng = StdRng::seed_from_u64(seed);
        Self { rng, bed, model, objects: BTreeMap::new(), files: Vec::new(), grown: 0 }
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.bed.now)
    }

    fn step(&mut self, number: usize) {
        if self.files.len() < 4 {
            self.make(number);
            return;
        }
        let at = self.rng.random_range(0..self.files.len());
        let (model, file) = self.files[at];
        match self.rng.random_range(0..20) {
            0 => self.remove(at),
            1..4 => {
                let size = self.rng.random_range(0..9000);
                let size = if self.rng.random_bool(0.5) { size / 20 } else { size };
                let change = SetAttr { size: Some(size), ..SetAttr::default() };
                self.model.setattr(model, &change, self.now()).expect("truncates");
                self.truncate(file, size);
            }
            4 => self.restart(),
            _ => {
                let small = self.rng.random_bool(0.8);
                let offset = self.rng.random_range(0..if small { 300 } else { 7000 });
                let length = self.rng.random_range(1..if small { 100 } else { 3000 });
                let bytes = vec![number as u8; length];
                self.model.write(model, offset, &bytes, false, self.now()).expect("writes");
                self.write(file, offset, &bytes);
            }
        }
    }

    fn make(&mut self, number: usize) {
        let text = format!("f{number}");
        let new = New::Node { kind: FileType::Regular, mode: 0o644, rdev: 0 };
        let made = self.model.create(ROOT, &name(&text), &new, CRED, self.now()).expect("makes").inode;
        self.model.open(made).expect("opens");
        let file = self.bed.make(ROOT, &text, FileType::Regular, true, true).expect("makes").attr.inode;
        self.files.push((made, file));
    }

    /// It is open, so it lives on until it is closed.
    fn remove(&mut self, at: usize) {
        let (model, file) = self.files[at];
        let mut names = self.model.readdir(ROOT, 0, 99).expect("lists").into_iter();
        match names.find(|entry| entry.attr.inode == model) {
            Some(entry) => {
                self.model.unlink(ROOT, &entry.name, self.now()).expect("removes");
                let exactly = self.bed.next(A);
                let text = Name::new(&entry.name).expect("a name");
                self.bed.shard.unlink(exactly, ROOT, &text).expect("removes");
            }
            None => {
                self.model.close(model).expect("closes");
                self.bed.shard.close_inode(A, file, None).expect("closes");
                self.bed.turn();
                let doomed = self.bed.shard.deletions(None, 9999).expect("reads").deletions;
                let has_objects = self.objects.remove(&file).is_some();
                assert!(!has_objects || doomed.iter().any(|one| one.inode == file), "its objects stay for ever");
                self.bed.shard.deletions_done(&doomed);
                self.files.remove(at);
            }
        }
    }

    fn write(&mut self, file: InodeId, offset: u64, bytes: &[u8]) {
        match write(&mut self.bed, A, file, offset, bytes) {
            Ok(_) => return,
            Err(Error::Refused(Errno::EOPNOTSUPP)) => {}
            Err(other) => panic!("{other}"),
        }
        self.intend(file);
        let object = self.objects.entry(file).or_default();
        let end = offset as usize + bytes.len();
        object.resize(object.len().max(end), 0);
        object[offset as usize..end].copy_from_slice(bytes);
        let size = object.len() as u64;
        self.bed.settle(A, file, size, None, true);
    }

    fn truncate(&mut self, file: InodeId, size: u64) {
        match truncate(&mut self.bed, file, size) {
            Ok(_) => return,
            Err(Error::Refused(Errno::EOPNOTSUPP)) => {}
            Err(other) => panic!("{other}"),
        }
        self.intend(file);
        self.objects.entry(file).or_default().resize(size as usize, 0);
        self.bed.set(file, SetAttr { size: Some(size), ..SetAttr::default() }).expect("truncates");
        self.bed.settle(A, file, size, None, true);
    }

    /// As often as it takes: the shard's process may be killed in the middle.
    fn intend(&mut self, file: InodeId) {
        while let Err(error) = self.bed.write_intent(A, file) {
            assert_eq!(error, Error::Growing);
            self.bed.turn();
            assert_eq!(self.bed.shard.take_growing(), [file]);
            let growth = self.bed.shard.growth(file).expect("reads").expect("it is there");
            self.objects.insert(file, growth.contents);
            if self.rng.random_bool(0.3) {
                self.restart();
                continue;
            }
            self.bed.shard.end_growth(file, Grown::Done).expect("ends");
            self.grown += 1;
        }
    }

    fn restart(&mut self) {
        self.bed.turn();
        self.bed.restart();
        let opens: Vec<_> = self.files.iter().map(|&(_, file)| held(file, false)).collect();
        for session in [A, B] {
            self.bed
                .shard
                .session_tell(session, b"", &Telling::whole(if session == A { &opens } else { &[] }, &[]))
                .expect("opens");
        }
        self.bed.tick();
        self.bed.turn();
    }

    fn compare(&mut self) {
        for (model, file) in self.files.clone() {
            let expected = self.model.read(model, 0, usize::MAX).expect("reads").to_vec();
            let view = self.bed.stat(file).expect("it is there");
            assert_eq!(view.attr.size, expected.len() as u64);
            if view.inline_limit > 0 {
                assert!(expected.len() <= view.inline_limit as usize);
                assert_eq!(read(&mut self.bed, file), expected);
            } else {
                assert_eq!(self.objects.get(&file).map_or(&[][..], Vec::as_slice), expected);
            }
        }
    }
}

#[test]
fn random_writes_agree_with_the_model() {
    for limit in [0, 128, INLINE_DEFAULT, INLINE_MAX] {
        let mut grown = 0;
        for seed in 0..15 {
            let mut world = World::new(seed, limit);
            for number in 0..250 {
                world.step(number);
                if number % 3 == 0 {
                    world.bed.turn();
                    world.compare();
                }
            }
            grown += world.grown;
        }
        assert!((limit == 128 || limit == INLINE_DEFAULT) == (grown > 0), "{grown} files grew past {limit}");
    }
}
