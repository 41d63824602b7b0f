//! A cluster of three shards, each in a service of its own, two of which die.

use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use harness::cluster::{Cluster, Shape};
use harness::own_metad::OwnMetad;
use harness::wait;

use super::operation::{Case, Operation, SHARDS};

/// For one operation with all deaths and starts.
const PATIENCE: Duration = Duration::from_secs(60);
/// The messages about one operation are over after this: each waits for a sync, which are made every 10 ms here.
const QUIET: Duration = Duration::from_millis(60);
/// A coordinator tells a participant again that has not answered so long; not while the next operation is under way.
const TOLD_AGAIN: Duration = Duration::from_millis(1700);
const POLL: Duration = Duration::from_millis(2);

pub(crate) struct Trial {
    /// By shard; gone before the cluster, whose supervisor would start others.
    metads: Vec<OwnMetad>,
    cluster: Cluster,
    second: PathBuf,
    cases: Vec<Case>,
}

impl Trial {
    pub(crate) fn new() -> Self {
        let mut cluster = Cluster::of(Shape { metadata: SHARDS as u32, targets: 2, ..Shape::default() });
        let place = |path: &str, shard: usize| {
            cluster.weft(&["entry", "set", path, "--placement", &format!("shard:{shard}")]).expect_ok();
        };
        for shard in 0..SHARDS {
            place("/", shard);
            cluster.folder(&format!("in-{shard}"));
            place(&format!("/in-{shard}"), (shard + 1) % SHARDS);
        }
        let second = cluster.mount_again(&[]).point;
        let keepers: Vec<String> = (0..SHARDS as u64).map(|shard| cluster.keeper(shard)).collect();
        cluster.freeze_supervisor();
        let metads = keepers.iter().map(|name| OwnMetad::replace(&cluster, name)).collect();
        cluster.wait_for_mount();
        Self { metads, cluster, second, cases: Vec::new() }
    }

    /// The operation is asked for, and the coordinator (`true`) or the first participant dies at each of these points, in
    /// this order; each is started again at once.
    pub(crate) fn dies_at(&mut self, operation: Operation, deaths: &[(bool, &str)]) {
        let what = format!("{operation:?}, {deaths:?}");
        let case = Case { operation, number: self.cases.len(), root: self.cluster.mount_point() };
        let shards = operation.shards();
        let of = |coordinator: bool| if coordinator { shards.0 } else { shards.1 };
        let open = case.prepare().unwrap_or_else(|error| panic!("{what}: cannot be prepared: {error}"));
        thread::sleep(QUIET);
        let mut left = deaths.iter();
        let mut next = left.next();
        if let Some((coordinator, point)) = next {
            self.metads[of(*coordinator)].arm(point);
        }
        let begin = Instant::now();
        let doing = {
            let case = case.clone();
            thread::spawn(move || case.act())
        };
        while let Some((coordinator, point)) = next {
            assert!(begin.elapsed() < PATIENCE, "{what}: {point} is not passed\n{}", self.cluster.logs());
            let shard = of(*coordinator);
            if !self.metads[shard].has_ended() {
                thread::sleep(POLL);
                continue;
            }
            assert_eq!(self.metads[shard].armed(), None, "{what}: it ended elsewhere");
            next = left.next();
            if let Some((coordinator, point)) = next {
                self.metads[of(*coordinator)].arm(point);
            }
            self.metads[shard].start_again();
        }
        let told = within(&what, doing);
        case.check_told(&told, &what);
        for root in [&self.cluster.mount_point(), &self.second] {
            case.check(root).unwrap_or_else(|error| panic!("{what}: {}: {error}", root.display()));
        }
        case.check_open(&open).unwrap_or_else(|error| panic!("{what}: what is open: {error}"));
        assert!(self.metads.iter_mut().all(|metad| !metad.has_ended()), "{what}: another one has ended");
        self.cases.push(case);
        if deaths.last().is_some_and(|death| is_told_again(operation, death)) {
            thread::sleep(TOLD_AGAIN);
        }
    }

    /// All that was done is there for a mount that has seen none of it, and nothing else.
    pub(crate) fn end(mut self) {
        let fresh = self.cluster.mount_again(&[]).point;
        for case in &self.cases {
            case.check(&fresh).unwrap_or_else(|error| panic!("{case:?}: {error}"));
        }
        self.cluster.assert_sound();
    }
}

/// A participant that died before it answered is told again, and the checks have not waited for that: what they look at there
/// is locked only until it is done, and at what is removed they do not look.
fn is_told_again(operation: Operation, (coordinator, point): &(bool, &str)) -> bool {
    let when_done = matches!(*point, "finish-committed" | "finish-synced");
    let unseen = operation == Operation::Rmdir && point.starts_with("finish");
    !coordinator && operation != Operation::Refused && (when_done || unseen)
}

fn within(what: &str, doing: thread::JoinHandle<io::Result<()>>) -> io::Result<()> {
    wait::until(&format!("the end of {what}"), PATIENCE, || doing.is_finished().then_some(()));
    doing.join().unwrap()
}
