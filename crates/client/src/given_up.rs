//! Changes of names and attributes that nobody waits for any more, since their program was killed, but which a shard may still
//! carry out: it may have kept them waiting for other clients. It does that for this session, of which it takes back nothing.
//! So they are asked for until they are answered. Whoever keeps what this client answers (see [`crate::lease`]) forgets what
//! they concern before that and after, and is told nothing of it meanwhile that it may believe.
//!
//! They are asked for behind what was sent, over the same connection: so none is carried out because of the question. (But what
//! would leave a file open is: see `made_in_doubt` in [`crate::open`].)

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;
use wire::op::Call;

use crate::caller::Caller;
use crate::kept::DOUBT;
use crate::lease::Subject;
use crate::names::{Entry, Looked};
use crate::recall::{forget_inode_aside, forget_names};
use crate::retry::{Attempts, Failure};
use crate::router::{Client, Destination};
use crate::shards::NumberedChange;
use crate::shared::Shared;

/// Between two questions to a shard that has no answer yet.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Between two looks whether the time in which it may be carried out is over.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// So many are asked for at the same time. What of more is kept ends with its leases.
pub(crate) const ASKED_MAX: usize = 1024;

/// What a change makes something else of, as the keeper of answers names it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Concerned {
    pub(crate) inodes: Vec<InodeId>,
    pub(crate) names: Vec<(InodeId, Name)>,
    /// It changes the inodes behind the names, too.
    pub(crate) takes: bool,
}

impl Concerned {
    /// The attributes of `inode`.
    pub(crate) fn inode(inode: InodeId) -> Self {
        Self { inodes: vec![inode], ..Self::default() }
    }

    /// An entry of `parent`, which is kept in `part` of it.
    pub(crate) fn entry(Entry { parent, part, name }: Entry<'_>) -> Self {
        let mut inodes = vec![parent, part];
        inodes.dedup();
        Self { inodes, names: vec![(parent, name.clone())], takes: false }
    }

    /// What concerns the attributes of `inode` as well.
    pub(crate) fn and(mut self, inode: InodeId) -> Self {
        self.inodes.push(inode);
        self
    }

    /// These entries go, or others come in their place.
    pub(crate) fn taken(directories: [InodeId; 2], names: [&(InodeId, Name); 2]) -> Self {
        let mut names = names.map(Clone::clone).to_vec();
        names.dedup();
        let inodes: BTreeSet<_> = directories.into_iter().chain(names.iter().map(|(parent, _)| *parent)).collect();
        Self { inodes: inodes.into_iter().collect(), names, takes: true }
    }

    fn subjects(&self) -> Vec<Subject> {
        let inodes = self.inodes.iter().map(|&inode| Subject::inode(inode));
        inodes.chain(self.names.iter().map(|(parent, name)| Subject::name(*parent, name))).collect()
    }
}

/// Until it is dropped, no lease on these holds.
struct Doubt {
    shared: Arc<Shared>,
    subjects: Vec<Subject>,
}

impl Doubt {
    fn begin(shared: &Arc<Shared>, concerned: &Concerned) -> Self {
        let subjects = concerned.subjects();
        subjects.iter().for_each(|subject| shared.board.begin_doubt(*subject));
        Self { shared: Arc::clone(shared), subjects }
    }
}

impl Drop for Doubt {
    fn drop(&mut self) {
        self.subjects.iter().for_each(|subject| self.shared.board.end_doubt(*subject));
    }
}

impl Client {
    /// Sends a numbered change of what is `concerned`. Where that is given up, it is asked for behind the caller's back.
    pub(crate) async fn change<C: Call + Clone + 'static>(
        &self,
        caller: &Caller<'_>,
        destination: Destination,
        numbered: &NumberedChange,
        request: &C,
        concerned: impl FnOnce() -> Concerned,
    ) -> Result<C::Reply, Errno> {
        let doubt = Cell::new(None);
        let result = self.call(&caller.noting(&doubt), destination, request).await;
        if let (Err(_), Some(sent)) = (&result, doubt.get()) {
            caller.note_doubt(sent);
            self.given_up(destination, request.clone(), numbered.again(), sent, concerned());
        }
        result
    }

    fn given_up<C: Call + 'static>(
        &self,
        destination: Destination,
        request: C,
        numbered: NumberedChange,
        sent: Attempts,
        concerned: Concerned,
    ) {
        if self.shared.board.doubts() >= ASKED_MAX {
            return;
        }
        // Before anybody hears that it was given up.
        let doubt = Doubt::begin(&self.shared, &concerned);
        self.in_background(async move |client| {
            client.forget_concerned(&concerned).await;
            let behind = client.behind_names(&concerned).await;
            let doubt_of_those = Doubt::begin(&client.shared, &behind);
            client.forget_concerned(&behind).await;
            let is_answered = client.is_answered(destination, &request, sent).await;
            drop(numbered);
            // Else it comes to its end with the connection, or the next change ends its number.
            while !is_answered && sent.last.elapsed() < DOUBT && !client.shared.has_ended() {
                ring::sleep(LOOK_AGAIN).await;
            }
            client.forget_concerned(&concerned).await;
            client.forget_concerned(&behind).await;
            drop((doubt, doubt_of_those));
        });
    }

    /// What the change that is `concerned` takes names from.
    async fn behind_names(&self, concerned: &Concerned) -> Concerned {
        let mut behind = Concerned::default();
        let caller = Caller::patient(Credentials::default());
        for (parent, name) in concerned.names.iter().filter(|_| concerned.takes) {
            // Where it is gone already, nobody can tell; a file with other names says how many within the term of a lease.
            if let Ok(Looked::Found(named)) = self.lookup(&caller, *parent, name.clone()).await {
                behind.inodes.push(named.attr.inode);
            }
        }
        behind
    }

    /// Waits for the answer to a change that was `sent`; false where there will be none.
    async fn is_answered<C: Call>(&self, destination: Destination, request: &C, sent: Attempts) -> bool {
        while !self.shared.has_ended() {
            match self.answer_over_the_same(destination, request, sent).await {
                Some(Ok(_) | Err(Failure::Errno(_))) => return true,
                Some(Err(Failure::NoSession)) => return false,
                Some(Err(_)) => ring::sleep(ASK_AGAIN).await,
                None => return false,
            }
        }
        false
    }

    /// Carries out `change`, which nobody waits for. Until it is over, and what was told of it forgotten, no lease on what is
    /// `concerned` holds.
    pub(crate) async fn in_doubt<R>(self: &Rc<Self>, concerned: &Concerned, change: impl Future<Output = R>) -> R {
        let doubt = Doubt::begin(&self.shared, concerned);
        let result = change.await;
        self.forget_concerned(concerned).await;
        drop(doubt);
        result
    }

    /// What was told of this before now is believed no more.
    async fn forget_concerned(self: &Rc<Self>, concerned: &Concerned) {
        let shared = &self.shared;
        shared.board.recall(concerned.subjects().into_iter());
        for &inode in &concerned.inodes {
            self.forgotten(inode);
            // It may be a directory.
            shared.kept.forget(&shared.board, inode);
            shared.listings.changed(inode);
            shared.listings.forgotten(inode);
        }
        let Some(keeper) = shared.keeper.get() else { return };
        for &inode in &concerned.inodes {
            // Not by this thread, for which whoever has its pages locked may wait: he may just have opened it.
            forget_inode_aside(keeper, inode).await;
        }
        if !concerned.names.is_empty() {
            forget_names(keeper, concerned.names.clone()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::lease::Lease;
    use crate::test_client;

    #[test]
    fn what_a_change_that_was_given_up_concerns_is_not_believed_until_it_is_answered() {
        test_client::run(async |client| {
            let (shared, directory) = (&client.shared, InodeId(7));
            let name = Name::new(&b"x"[..]).expect("a name");
            let concerned = Concerned::entry(Entry { parent: directory, part: directory, name: &name });
            let holds = |subject| {
                let lease = Lease::granted(shared.board.ticket(), subject, 10_000);
                shared.board.holds(lease, Instant::now())
            };
            let subjects = [Subject::name(directory, &name), Subject::inode(directory)];
            let (one, other) = (Doubt::begin(shared, &concerned), Doubt::begin(shared, &concerned));
            assert!(subjects.iter().all(|&subject| !holds(subject)) && holds(Subject::inode(InodeId(8))));
            drop(one);
            assert!(subjects.iter().all(|&subject| !holds(subject)), "there is another one");
            let asked_before = Lease::granted(shared.board.ticket(), subjects[0], 10_000);
            client.forget_concerned(&concerned).await;
            drop(other);
            assert!(subjects.iter().all(|&subject| holds(subject)));
            assert!(!shared.board.holds(asked_before, Instant::now()), "it may be from before the change");
        });
    }
}
