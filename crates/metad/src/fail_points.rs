//! Fail points: named steps of what several shards do together, at each of which a test can end this service as a crash
//! would: at once, with nothing more written, sent or answered.
//!
//! Where `WEFT_TEST_FAIL_POINTS` names a file when the service starts, that file says which point is armed: `NAME`, or
//! `NAME:N` for the N-th time that a shard passes it. It is looked at whenever a point is passed, so points are armed and
//! disarmed while the service runs, and it need not be there. The service removes it before it ends: a supervisor starts it
//! again with the same environment, and then nothing is armed. Without the variable no file is ever looked at.
//!
//! What the process had written before is in the kernel and survives; what a power cut takes back is tested in the
//! simulation of crate `namespace` (`tests/shards/`), as is each order of messages. Here it is the real services' turn.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use conf::Fatal;
use namespace::transaction::{Message, Reply, Steps};
use types::id::ShardId;
use wire::codec::decode_body;
use wire::op::Op;
use wire::v1::transaction::{Ending, Promise, Transact};

use crate::answer::Answer;

const VARIABLE: &str = "WEFT_TEST_FAIL_POINTS";
/// A message that is handed to an idle connection has gone to the kernel after this many turns of the ring.
const TURNS_TO_LEAVE: usize = 2;

/// A step. The first ones are the coordinator's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FailPoint {
    /// The operation has begun; nothing was sent.
    PrepareLeaves,
    PrepareLeft,
    /// The way up from a directory is known, from another shard.
    ClimbedArrived,
    /// One shard's promise has come, and is not counted yet.
    PromiseArrived,
    /// Nothing happens, and those who may have promised are not told.
    AbortLeaves,
    /// All have promised; the decision is in the turn's batch.
    DecisionNotCommitted,
    /// It is in the log. The client has no answer.
    DecisionCommitted,
    /// It is on disk, and nobody was told. The client has its answer, or is about to.
    DecisionSynced,
    FinishLeft,
    /// A participant has done it, and is not counted yet.
    DoneArrived,
    /// All have, and the decision is forgotten.
    Forgotten,
    /// A participant wants to know what became of its promise.
    AskArrived,
    /// From here on the participant's: nothing is promised yet.
    PrepareArrived,
    ClimbArrived,
    /// The promise is in the turn's batch.
    PromiseNotCommitted,
    PromiseCommitted,
    /// It is on disk, or need not be; the coordinator has no answer.
    PromiseSynced,
    FinishArrived,
    /// Nothing is to happen.
    AbortArrived,
    /// What was decided, or that the promise is forgotten, is in the turn's batch.
    FinishNotCommitted,
    FinishCommitted,
    /// It is on disk; the coordinator does not know.
    FinishSynced,
    /// What became of the promise is known after having asked.
    OutcomeArrived,
}

use FailPoint::*;

const NAMES: [(FailPoint, &str); 23] = [
    (PrepareLeaves, "prepare-leaves"),
    (PrepareLeft, "prepare-left"),
    (ClimbedArrived, "climbed-arrived"),
    (PromiseArrived, "promise-arrived"),
    (AbortLeaves, "abort-leaves"),
    (DecisionNotCommitted, "decision-not-committed"),
    (DecisionCommitted, "decision-committed"),
    (DecisionSynced, "decision-synced"),
    (FinishLeft, "finish-left"),
    (DoneArrived, "done-arrived"),
    (Forgotten, "forgotten"),
    (AskArrived, "ask-arrived"),
    (PrepareArrived, "prepare-arrived"),
    (ClimbArrived, "climb-arrived"),
    (PromiseNotCommitted, "promise-not-committed"),
    (PromiseCommitted, "promise-committed"),
    (PromiseSynced, "promise-synced"),
    (FinishArrived, "finish-arrived"),
    (AbortArrived, "abort-arrived"),
    (FinishNotCommitted, "finish-not-committed"),
    (FinishCommitted, "finish-committed"),
    (FinishSynced, "finish-synced"),
    (OutcomeArrived, "outcome-arrived"),
];

/// The file that says which point is armed, if there is to be one.
///
/// # Errors
/// Where it is there and names no point; exit code 2.
pub(crate) fn from_environment() -> Result<Option<PathBuf>, Fatal> {
    let Some(file) = std::env::var_os(VARIABLE).map(PathBuf::from) else { return Ok(None) };
    if let Some(text) = read(&file) {
        parse(&text).map_err(|reason| Fatal::usage(format!("{VARIABLE}: {}: {reason}", file.display())))?;
    }
    tracing::warn!(file = %file.display(), "{VARIABLE} is set: this service ends by itself where that file says so");
    Ok(Some(file))
}

/// What a shard passes. Nothing is looked at where there is no file.
pub(crate) struct FailPoints {
    file: Option<PathBuf>,
    /// What the file said last, and how often that was passed since.
    passed: RefCell<(String, u32)>,
}

impl FailPoints {
    pub(crate) fn new(file: Option<PathBuf>) -> Rc<Self> {
        Rc::new(Self { file, passed: RefCell::default() })
    }

    /// These answers of other shards are about to be handled.
    pub(crate) fn replied(&self, replies: &[(ShardId, Message, Reply)]) {
        for (_, message, reply) in replies {
            match (message, reply) {
                (_, Reply::Prepared(_)) => self.pass(PromiseArrived),
                (_, Reply::Climbed(_)) => self.pass(ClimbedArrived),
                (Message::Finish { commit: true, .. }, Reply::Done) => self.pass(DoneArrived),
                (_, Reply::Outcome(_)) => self.pass(OutcomeArrived),
                _ => {}
            }
        }
    }

    /// This request is about to be executed.
    pub(crate) fn arrives(&self, op: Op, body: &[u8]) {
        if self.file.is_none() {
            return;
        }
        match op {
            Op::Prepare => self.pass(PrepareArrived),
            Op::Climb => self.pass(ClimbArrived),
            Op::AskOutcome => self.pass(AskArrived),
            Op::Transact => {
                let Ok(Transact { finishes, prepares }) = decode_body(body) else { return };
                let arrived = |commit| if commit { FinishArrived } else { AbortArrived };
                finishes.iter().for_each(|finish| self.pass(arrived(finish.commit)));
                prepares.iter().for_each(|_| self.pass(PrepareArrived));
            }
            _ => {}
        }
    }

    /// A batch with these steps is about to be committed.
    pub(crate) fn commits(&self, steps: Steps) {
        self.pass_if(steps.decided, DecisionNotCommitted);
        self.pass_if(steps.promised, PromiseNotCommitted);
        self.pass_if(steps.finished, FinishNotCommitted);
    }

    /// A batch with these steps was committed.
    pub(crate) fn committed(&self, steps: Steps) {
        self.pass_if(steps.decided, DecisionCommitted);
        self.pass_if(steps.promised, PromiseCommitted);
        self.pass_if(steps.finished, FinishCommitted);
        self.pass_if(steps.forgotten, Forgotten);
    }

    /// This message need not wait, or no longer, and is about to be sent.
    pub(crate) fn leaves(&self, message: &Message) {
        match message {
            Message::Prepare { .. } => self.pass(PrepareLeaves),
            Message::Finish { commit: true, .. } => self.pass(DecisionSynced),
            Message::Finish { commit: false, .. } => self.pass(AbortLeaves),
            Message::AskOutcome { .. } | Message::Climb { .. } => {}
        }
    }

    /// This message is being sent.
    pub(crate) fn is_sent(self: &Rc<Self>, message: &Message) {
        let point = match message {
            Message::Prepare { .. } => PrepareLeft,
            Message::Finish { commit: true, .. } => FinishLeft,
            Message::Finish { commit: false, .. } | Message::AskOutcome { .. } | Message::Climb { .. } => return,
        };
        if self.file.is_none() {
            return;
        }
        let this = Rc::clone(self);
        ring::spawn(async move {
            for _ in 0..TURNS_TO_LEAVE {
                ring::next_turn().await;
            }
            this.pass(point);
        });
    }

    /// This is about to be answered.
    pub(crate) fn answers(&self, answer: &Answer) {
        match answer {
            Answer::Prepared(..) => self.pass(PromiseSynced),
            Answer::Transacted(transacted, _) => {
                transacted.endings.iter().for_each(|ending| self.pass_if(*ending != Ending::Later, FinishSynced));
                let given = |promise: &Promise| matches!(promise, Promise::Given(_));
                transacted.promises.iter().for_each(|promise| self.pass_if(given(promise), PromiseSynced));
            }
            _ => {}
        }
    }

    fn pass_if(&self, passes: bool, point: FailPoint) {
        if passes {
            self.pass(point);
        }
    }

    fn pass(&self, point: FailPoint) {
        if self.fires(point) {
            tracing::error!(?point, "the service ends here, as it was told by the file that {VARIABLE} names");
            std::process::abort();
        }
    }

    /// The service is to end at this point. The file is gone then.
    fn fires(&self, point: FailPoint) -> bool {
        let Some(file) = &self.file else { return false };
        let text = read(file).unwrap_or_default();
        let passed = &mut *self.passed.borrow_mut();
        if passed.0 != text {
            *passed = (text, 0);
            if let Err(reason) = parse(&passed.0) {
                tracing::error!("{}: {reason}", file.display());
            }
        }
        match parse(&passed.0) {
            Ok(Some((armed, times))) if armed == point => {
                passed.1 += 1;
                passed.1 >= times && fs::remove_file(file).is_ok()
            }
            _ => false,
        }
    }
}

fn read(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok()
}

/// Which point is armed, and at which time it is to fire.
fn parse(text: &str) -> Result<Option<(FailPoint, u32)>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let (name, times) = text.split_once(':').unwrap_or((text, "1"));
    let Some((point, _)) = NAMES.iter().find(|(_, known)| *known == name) else {
        let names: Vec<&str> = NAMES.iter().map(|(_, name)| *name).collect();
        return Err(format!("there is no fail point {name:?}, only: {}", names.join(", ")));
    };
    match times.parse() {
        Ok(times) if times > 0 => Ok(Some((*point, times))),
        _ => Err(format!("{text:?}: what follows the colon must be a number from 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_has_a_name_of_its_own_and_others_are_refused_with_all_of_them() {
        for (n, (point, name)) in NAMES.iter().enumerate() {
            assert_eq!(*point as usize, n, "in the order of the points");
            assert_eq!(parse(name), Ok(Some((*point, 1))));
        }
        assert_eq!(parse("done-arrived:3\n"), Ok(Some((DoneArrived, 3))));
        assert_eq!(parse(" \n"), Ok(None));
        let refused = parse("done").expect_err("no point");
        assert!(NAMES.iter().all(|(_, name)| refused.contains(name)), "{refused}");
        for wrong in ["forgotten:", "forgotten:0", "forgotten:-1", "forgotten:x"] {
            assert!(parse(wrong).expect_err(wrong).contains("number from 1"));
        }
    }

    #[test]
    fn what_is_armed_fires_once_at_its_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("point");
        let points = FailPoints::new(Some(file.clone()));
        assert!(!points.fires(Forgotten), "nothing is armed");
        fs::write(&file, "forgotten").expect("a file");
        assert!(!points.fires(DoneArrived) && points.fires(Forgotten));
        assert!(!file.exists() && !points.fires(Forgotten), "once");
        fs::write(&file, "done-arrived:2").expect("a file");
        assert!(!points.fires(DoneArrived) && !points.fires(Forgotten) && points.fires(DoneArrived));
        fs::write(&file, "nonsense").expect("a file");
        assert!(!points.fires(DoneArrived) && file.exists());
        assert!(!FailPoints::new(None).fires(DoneArrived));
    }
}
