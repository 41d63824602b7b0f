//! The end of a session.

use tracing::warn;
use types::cred::Credentials;
use types::error::Errno;
use wire::v1::session::SessionClose;

use crate::Shared;
use crate::caller::Caller;
use crate::router::{Client, Destination};

/// A thread that is about to end. It is counted out once, also where its goodbye is given up half-way: the others still have to
/// know which of them is the last.
struct Leaving<'a>(Option<&'a Shared>);

impl Leaving<'_> {
    /// True for the last one.
    fn now(mut self) -> bool {
        self.0.take().is_some_and(Shared::leave)
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.0.take().is_some_and(Shared::leave) {
            warn!("could not end the session in time; it expires by itself");
        }
    }
}

impl Client {
    /// This thread is done. The last thread of the session ends it, so that nothing waits for its expiry. It may be dropped
    /// half-way: what was kept back is left to the other threads then, and so is the session.
    pub async fn shutdown(&self) {
        let leaving = Leaving(Some(&self.shared));
        self.later.finish().await;
        self.write_all_out().await;
        if !leaving.now() {
            return;
        }
        let caller = Caller::patient(Credentials::default());
        let ends = self.shared.shards.asked().into_iter().map(async |shard| {
            let request = SessionClose { session: self.shared.session };
            let ended: Result<_, Errno> = self.call(&caller, Destination::Shard(shard), &request).await;
            if let Err(error) = ended {
                warn!(%shard, "could not end the session: {error}; it expires by itself");
            }
        });
        ring::join_all(ends).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wire::op::{Op, Ping};

    use super::*;
    use crate::test_cluster::{self, SHARD, join};

    #[test]
    fn the_last_thread_ends_the_session_also_where_another_ones_goodbye_was_given_up() {
        test_cluster::run(async |script, [one, other]| {
            let asks = async {
                let asked =
                    one.call(&Caller::patient(Credentials::default()), Destination::Shard(SHARD), &Ping {}).await;
                asked.expect("it is answered");
            };
            join(asks, async {
                script.opens_session(1).await;
                script.does(Op::Ping).await;
            })
            .await;
            let never_answered = one.later.begin();
            assert!(ring::timeout(Duration::from_millis(5), one.shutdown()).await.is_err());
            assert!(!one.shared.has_ended(), "the other one still wants it");
            join(other.shutdown(), async {
                script.opens_session(1).await;
                script.does(Op::SessionClose).await;
            })
            .await;
            assert!(one.shared.has_ended());
            drop(never_answered);
        });
    }

    /// As where a mount is taken away at once.
    #[test]
    fn a_session_whose_opening_nobody_has_waited_for_is_ended() {
        test_cluster::run(async |script, [one, other]| {
            other.shutdown().await;
            let caller = Caller::patient(Credentials::default());
            let asks = one.call(&caller, Destination::Shard(SHARD), &Ping {});
            let given_up = async { assert!(ring::timeout(Duration::from_millis(20), asks).await.is_err()) };
            let mut unanswered = None;
            join(given_up, async { unanswered = Some(script.next(Op::SessionOpen).await) }).await;
            join(one.shutdown(), async {
                script.opens_session(1).await;
                script.does(Op::SessionClose).await;
            })
            .await;
            drop(unanswered);
        });
    }

    #[test]
    fn who_gives_up_its_goodbye_as_the_last_one_is_counted_out_as_well() {
        test_cluster::run(async |script, [one, other]| {
            other.shutdown().await;
            let never_answered = one.later.begin();
            assert!(ring::timeout(Duration::from_millis(5), one.shutdown()).await.is_err());
            assert!(one.shared.has_ended());
            script.nothing_comes().await;
            drop(never_answered);
        });
    }
}
