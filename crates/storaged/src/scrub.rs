//! Goes over the objects of a lane and verifies them: all of them when an administrator asks (`weft scrub`), those of which
//! something is in doubt by itself. It takes its turn at each object like any request, and keeps to a rate.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use types::error::Errno;
use types::id::ObjectId;
use wire::codec::Bytes;
use wire::v1::scrub::{NAMED_MAX, ScrubCorrupt, ScrubRun, ScrubStart, ScrubStarted, ScrubStatusReply};

use crate::engine::{Checked, Leftover, ObjectStore};
use crate::order::Access;
use crate::served::Served;
use crate::sums::blocks::BLOCK;

/// Bytes of an object that are looked at in one turn.
const STEP: u64 = 512 << 10;
/// Objects of one page of the listing.
const PAGE: usize = 1024;
/// How much of the time that a step took longer than the rate wants is made up for.
const LAG_MAX: Duration = Duration::from_secs(1);
/// Bytes a second, when nobody asked for it.
const TEND_RATE: u64 = 32 << 20;
/// How often idle objects are made clean, and from when on they count as such: by then, the kernel has written most of
/// what they have.
const TEND_EVERY: Duration = Duration::from_secs(30);

/// The last run of one lane on one target.
#[derive(Default)]
pub(crate) struct Scrub {
    run: RefCell<Option<ScrubRun>>,
    stop: Cell<bool>,
    /// The service ends.
    is_over: Cell<bool>,
}

impl Scrub {
    pub(crate) fn status(&self) -> ScrubStatusReply {
        ScrubStatusReply { run: self.run.borrow().clone() }
    }

    /// Ends this run soon; 0: whichever it is.
    pub(crate) fn stop(&self, number: u64) {
        if self.run.borrow().as_ref().is_some_and(|run| run.running && (number == 0 || number == run.run)) {
            self.stop.set(true);
        }
    }

    /// Ends whatever goes over objects, soon and for good.
    pub(crate) fn end(&self) {
        self.is_over.set(true);
        self.stop.set(true);
    }

    fn record(&self, change: impl FnOnce(&mut ScrubRun)) {
        if let Some(run) = self.run.borrow_mut().as_mut() {
            change(run);
        }
    }
}

/// Begins a run.
pub(crate) fn start<S: ObjectStore + 'static>(served: &Rc<Served<S>>, request: &ScrubStart) -> ScrubStarted {
    let refuse = |text: &str| ScrubStarted { refused: Bytes(text.as_bytes().to_vec()) };
    if !served.store.keeps_checksums() {
        return refuse("checksums are off there: set `checksums = true` in the configuration of its storage service");
    }
    if served.target.check_present().is_err() {
        return refuse("its directory is not there: see the log of its storage service");
    }
    if served.scrub.run.borrow().as_ref().is_some_and(|run| run.running) {
        return refuse("a scrub is under way there: wait for its end (--status), or stop it with --stop");
    }
    served.scrub.stop.set(false);
    *served.scrub.run.borrow_mut() = Some(ScrubRun {
        run: request.run,
        rate: request.rate,
        targets: request.targets,
        running: true,
        stopped: false,
        failure: Bytes(Vec::new()),
        elapsed_ms: 0,
        objects_total: 0,
        bytes_total: 0,
        objects: 0,
        bytes: 0,
        adopted: 0,
        corrupt: 0,
        named: Vec::new(),
    });
    ring::spawn(run(Rc::clone(served), request.rate));
    ScrubStarted { refused: Bytes(Vec::new()) }
}

async fn run<S: ObjectStore>(served: Rc<Served<S>>, rate: u64) {
    let scrub = &served.scrub;
    let begun = ring::now();
    let outcome = go_over_all(&served, rate, begun).await;
    scrub.record(|run| {
        run.running = false;
        run.stopped = scrub.stop.get();
        run.elapsed_ms = millis(begun.elapsed());
        if let Err(errno) = outcome {
            run.failure = Bytes(format!("the objects cannot be listed: {errno}").into_bytes());
        }
    });
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

async fn go_over_all<S: ObjectStore>(served: &Rc<Served<S>>, rate: u64, begun: Instant) -> Result<(), Errno> {
    let scrub = &served.scrub;
    for_each_object(served, Listed::Objects, async |_, size| {
        scrub.record(|run| {
            run.objects_total += 1;
            run.bytes_total += size;
        });
    })
    .await?;
    // Counting them may have taken long, and has read nothing of them.
    let walk = Walk::new(rate, ring::now());
    for_each_object(served, Listed::Objects, async |object, size| {
        let watch = Watch { is_stopped: &|| scrub.stop.get(), report: &|found| scrub.record(|run| found.add_to(run)) };
        go_over(served, object, size, &walk, &watch).await;
        scrub.record(|run| {
            run.objects += 1;
            run.elapsed_ms = millis(begun.elapsed());
        });
    })
    .await?;
    remove_leftovers(served).await
}

/// Checksums whose object was never made, or is no more: somebody died in between, or the object is lost.
async fn remove_leftovers<S: ObjectStore>(served: &Rc<Served<S>>) -> Result<(), Errno> {
    let mut removed = 0u64;
    for_each_object(served, Listed::Checksums, async |object, _| {
        // Most have their object, and do not have to wait for their turn to say so.
        if !served.store.stat(&[object]).await.is_ok_and(|found| found == [None]) {
            return;
        }
        let _turn = served.table.begin(object, Access::Barrier).await;
        match served.store.remove_leftover(object).await {
            Ok(Leftover::Removed) => removed += 1,
            Ok(Leftover::Lost { named, count }) => {
                let found = Found { corrupt: name(served, object, &named, true).await, ..Found::default() };
                served.scrub.record(|run| {
                    run.corrupt += count - found.corrupt.len() as u64;
                    found.add_to(run);
                });
            }
            Ok(Leftover::Kept) | Err(_) => {}
        }
    })
    .await?;
    if removed > 0 {
        tracing::info!(target = %served.target.id(), removed, "removed checksums of objects that are not there");
    }
    Ok(())
}

/// What is listed.
#[derive(Clone, Copy)]
enum Listed {
    Objects,
    Checksums,
}

/// Until the run is stopped.
///
/// # Errors
/// Where the target has gone, or nothing of it can be listed.
async fn for_each_object<S: ObjectStore>(
    served: &Rc<Served<S>>,
    what: Listed,
    mut visit: impl AsyncFnMut(ObjectId, u64),
) -> Result<(), Errno> {
    let mut after = None;
    loop {
        served.target.check_present()?;
        let page = match what {
            Listed::Objects => served.store.list(after, PAGE, served.share).await?,
            Listed::Checksums => served.store.list_checksums(after, PAGE, served.share).await?,
        };
        if let Some(errno) = page.failed {
            let text = format!("some objects, or folders of them, cannot be read: {errno}");
            served.scrub.record(|run| run.failure = Bytes(text.into_bytes()));
        }
        for (object, stored) in &page.objects {
            if served.scrub.stop.get() {
                return Ok(());
            }
            visit(*object, stored.size).await;
        }
        after = page.objects.last().map(|(object, _)| *object);
        if page.end {
            return Ok(());
        }
    }
}

/// What one step has found.
#[derive(Default)]
struct Found {
    bytes: u64,
    adopted: u64,
    corrupt: Vec<ScrubCorrupt>,
    failure: Option<Errno>,
}

impl Found {
    fn add_to(self, run: &mut ScrubRun) {
        run.bytes += self.bytes;
        run.adopted += self.adopted;
        run.corrupt += self.corrupt.len() as u64;
        let room = NAMED_MAX.saturating_sub(run.named.len());
        run.named.extend(self.corrupt.into_iter().take(room));
        if let Some(errno) = self.failure {
            run.failure = Bytes(format!("some objects could not be looked at: {errno}").into_bytes());
        }
    }
}

/// Keeps to a rate.
struct Walk {
    /// Bytes a second; 0: without bound.
    rate: u64,
    /// When what was read up to now should have been.
    due: Cell<Instant>,
}

impl Walk {
    fn new(rate: u64, begun: Instant) -> Self {
        Self { rate, due: Cell::new(begun) }
    }

    /// How long to wait after `bytes` more.
    fn pause(&self, bytes: u64, now: Instant) -> Duration {
        if self.rate == 0 {
            return Duration::ZERO;
        }
        // What a disk that stood still has kept us from reading is not read the faster after that.
        let begun = now.checked_sub(LAG_MAX).map_or(self.due.get(), |earliest| self.due.get().max(earliest));
        let due = begun + Duration::from_secs_f64(bytes as f64 / self.rate as f64);
        self.due.set(due);
        due.saturating_duration_since(now)
    }
}

/// Whoever has objects gone over.
struct Watch<'a> {
    is_stopped: &'a dyn Fn() -> bool,
    report: &'a dyn Fn(Found),
}

/// One object from its beginning to its end, step by step; what is written to it meanwhile is right already. `listed`: the
/// size that it had in the listing, for where the disk does not tell it any more.
async fn go_over<S: ObjectStore>(
    served: &Rc<Served<S>>,
    object: ObjectId,
    listed: u64,
    walk: &Walk,
    watch: &Watch<'_>,
) {
    let (mut offset, mut in_doubt, mut whole) = (0, false, true);
    let since = served.store.going_over();
    loop {
        if (watch.is_stopped)() {
            return;
        }
        let Some(step) = look(served, object, offset, listed, watch).await else { return };
        in_doubt |= step.in_doubt;
        whole &= step.whole;
        // Also where no time is to be lost, others have their turn.
        match walk.pause(step.bytes, ring::now()) {
            Duration::ZERO => ring::next_turn().await,
            pause => ring::sleep(pause).await,
        }
        let reached = offset + STEP;
        offset = match served.store.next_to_check(object, reached).await {
            Ok(next) => next.unwrap_or(step.size),
            Err(_) => reached,
        };
        // Right unseen, and part of what there is to do.
        (watch.report)(Found { bytes: offset.min(step.size).saturating_sub(reached), ..Found::default() });
        if offset >= step.size {
            break;
        }
    }
    if in_doubt && whole {
        let _turn = served.table.begin(object, Access::Barrier).await;
        if !served.table.is_buried(object)
            && let Err(errno) = served.store.believe(object, since).await
        {
            tracing::warn!(%object, target = %served.target.id(), %errno, "the checksums of an object stay in doubt");
        }
    }
}

/// What became of one step.
struct Step {
    /// Of the object, in bytes.
    size: u64,
    /// That were looked at.
    bytes: u64,
    in_doubt: bool,
    /// All of it was looked at, and has its checksums.
    whole: bool,
}

/// One step, which is reported. `None` where the object is gone, or nothing can be done about it.
async fn look<S: ObjectStore>(
    served: &Rc<Served<S>>,
    object: ObjectId,
    offset: u64,
    listed: u64,
    watch: &Watch<'_>,
) -> Option<Step> {
    match check(served, object, offset, STEP).await? {
        Ok(checked) => {
            let corrupt = name(served, object, &checked.corrupt, false).await;
            let (bytes, failure) = (checked.bytes, checked.unwritten);
            (watch.report)(Found { bytes, adopted: checked.adopted, corrupt, failure });
            Some(Step { size: checked.size, bytes, in_doubt: checked.in_doubt, whole: failure.is_none() })
        }
        Err(Errno::EIO) => {
            // The disk need not give the object at all.
            let there = served.store.stat(&[object]).await.ok().and_then(|found| found.first().copied().flatten());
            let size = there.map_or(listed, |stored| stored.size);
            let range = offset..(offset + STEP).min(size.max(offset + 1));
            let bytes = range.end.min(size).saturating_sub(offset);
            let corrupt = match there {
                Some(_) => unreadable(served, object, range, watch.is_stopped).await,
                None if served.table.is_buried(object) => return None,
                None => name(served, object, &range.step_by(BLOCK as usize).collect::<Vec<u64>>(), true).await,
            };
            (watch.report)(Found { bytes, corrupt, ..Found::default() });
            Some(Step { size, bytes, in_doubt: false, whole: false })
        }
        Err(errno) => {
            (watch.report)(Found { failure: Some(errno), ..Found::default() });
            None
        }
    }
}

/// When it is its turn; `None` where the object is gone.
async fn check<S: ObjectStore>(
    served: &Rc<Served<S>>,
    object: ObjectId,
    offset: u64,
    len: u64,
) -> Option<Result<Checked, Errno>> {
    let _turn = served.table.begin(object, Access::read(offset, offset + len)).await;
    if served.table.is_buried(object) {
        return None;
    }
    Some(served.store.check(object, offset, len).await)
}

/// The blocks of a step that the disk does not give: one by one, since a disk fails in sectors. Each has its own turn: a disk
/// may take some seconds for it, and others wait.
async fn unreadable<S: ObjectStore>(
    served: &Rc<Served<S>>,
    object: ObjectId,
    range: Range<u64>,
    is_stopped: &dyn Fn() -> bool,
) -> Vec<ScrubCorrupt> {
    let mut bad = Vec::new();
    for at in range.step_by(BLOCK as usize) {
        if is_stopped() {
            break;
        }
        match check(served, object, at, BLOCK).await {
            Some(Ok(checked)) => bad.extend(name(served, object, &checked.corrupt, false).await),
            Some(Err(Errno::EIO)) => bad.extend(name(served, object, &[at], true).await),
            Some(Err(_)) => {}
            None => break,
        }
    }
    bad
}

async fn name<S: ObjectStore>(
    served: &Rc<Served<S>>,
    object: ObjectId,
    offsets: &[u64],
    unreadable: bool,
) -> Vec<ScrubCorrupt> {
    if offsets.is_empty() {
        return Vec::new();
    }
    let path = served.store.place(object).await.map(|(path, _)| path).unwrap_or_default();
    let path = Bytes(path.into_os_string().into_encoded_bytes());
    offsets.iter().map(|&offset| ScrubCorrupt { object, offset, path: path.clone(), unreadable }).collect()
}

/// For as long as the lane runs: lets idle objects become clean, and goes over those that are in doubt. These may be long,
/// so neither waits for the other.
pub(crate) async fn tend<S: ObjectStore + 'static>(served: Rc<Served<S>>) {
    ring::spawn(let_become_clean(Rc::clone(&served)));
    loop {
        ring::sleep(TEND_EVERY).await;
        if served.target.check_present().is_err() {
            continue;
        }
        go_over_doubtful(&served).await;
    }
}

/// Those that are in doubt. No administrator has asked for it, or stops it: it ends with the service.
pub(crate) async fn go_over_doubtful<S: ObjectStore>(served: &Rc<Served<S>>) {
    let walk = Walk::new(TEND_RATE, ring::now());
    let is_stopped = || served.scrub.is_over.get();
    let mut seen = BTreeSet::new();
    while !is_stopped()
        && let Some(object) = served.store.doubtful()
    {
        go_over(served, object, 0, &walk, &Watch { is_stopped: &is_stopped, report: &|_| {} }).await;
        // One whose disk takes no checksums is in doubt again at once: it has time.
        if !seen.insert(object) {
            break;
        }
    }
}

async fn let_become_clean<S: ObjectStore>(served: Rc<Served<S>>) {
    loop {
        ring::sleep(TEND_EVERY).await;
        if served.target.check_present().is_ok()
            && let Some(idle_since) = ring::now().checked_sub(TEND_EVERY)
        {
            served.store.clean(idle_since).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_keeps_to_its_rate() {
        let begun = Instant::now();
        let walk = Walk::new(1 << 20, begun);
        assert_eq!(walk.pause(1 << 20, begun), Duration::from_secs(1));
        assert_eq!(walk.pause(1 << 20, begun + Duration::from_millis(1500)), Duration::from_millis(500));
        assert_eq!(walk.pause(0, begun + Duration::from_secs(9)), Duration::ZERO);
        // Of these nine seconds one counts.
        assert_eq!(walk.pause(3 << 20, begun + Duration::from_secs(9)), Duration::from_secs(2));
        assert_eq!(walk.pause(1 << 20, begun + Duration::from_secs(11)), Duration::from_secs(1));
        assert_eq!(Walk::new(0, begun).pause(u64::MAX >> 1, begun), Duration::ZERO);
    }

    #[test]
    fn only_so_many_are_named_and_all_are_counted() {
        let mut run = ScrubRun {
            run: 1,
            rate: 0,
            targets: 1,
            running: true,
            stopped: false,
            failure: Bytes(Vec::new()),
            elapsed_ms: 0,
            objects_total: 0,
            bytes_total: 0,
            objects: 0,
            bytes: 0,
            adopted: 0,
            corrupt: 0,
            named: Vec::new(),
        };
        let object = ObjectId { inode: types::id::InodeId(1), stripe: 0 };
        let one = |n| ScrubCorrupt { object, offset: n * BLOCK, path: Bytes(Vec::new()), unreadable: false };
        for step in 0..3 {
            let corrupt = (0..600).map(|n| one(step * 600 + n)).collect();
            Found { bytes: 7, adopted: 1, corrupt, failure: None }.add_to(&mut run);
        }
        assert_eq!((run.bytes, run.adopted, run.corrupt, run.named.len()), (21, 3, 1800, NAMED_MAX));
    }
}
