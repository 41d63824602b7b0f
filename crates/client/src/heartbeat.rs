//! Tells the shards that this client lives while it has nothing to ask: a session that is not heard of ends, and with it
//! what it holds open.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};
use std::time::Duration;

use types::id::ShardId;
use wire::op::Ping;
use wire::v1::session::Answered;

use crate::locks::assurance::Sending;
use crate::retry::{Failure, Sent};
use crate::router::{Client, Destination, Payloads};

/// Beats within the time after which a shard forgets a session: a few may be lost.
const BEATS: u32 = 4;
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(15);
/// How often a connection to a shard is looked at that nobody uses: a shard that has restarted gives nobody a lock until
/// all have told what they hold.
const LOOK: Duration = Duration::from_millis(200);

/// Runs until the client is gone or the session ends. One of a mount's threads does it for all.
pub(crate) async fn beat(client: Weak<Client>) {
    let (beating, telling) = (Busy::default(), Busy::default());
    let (mut interval, mut last) = (INTERVAL_MIN, ring::now());
    loop {
        ring::next_look(LOOK.min(interval)).await;
        let Some(client) = client.upgrade() else { return };
        // Each service has its own, and may have another one after a restart.
        interval = client.shared.assurances.shortest_expiry().map_or(INTERVAL_MAX, interval_for);
        if client.shared.has_ended() {
            return;
        }
        for (shard, answered) in client.shared.shards.answered() {
            let client = Rc::clone(&client);
            telling.spawn(shard, async move { client.tell_answered(shard, &answered).await });
        }
        let is_due = ring::now() >= last + interval;
        if is_due {
            last = ring::now();
        }
        // One may be away for long: that is nothing to the others.
        let shards = if is_due { client.shared.shards.seen() } else { client.lost_shards() };
        for shard in shards {
            let client = Rc::clone(&client);
            beating.spawn(shard, async move { client.beat_once(shard).await });
        }
    }
}

/// Shards that are being told something: each by itself, since while one does not answer, the others would forget the session.
#[derive(Clone, Default)]
struct Busy(Rc<RefCell<BTreeSet<ShardId>>>);

impl Busy {
    /// Unless one is under way for this shard.
    fn spawn(&self, shard: ShardId, task: impl Future<Output = ()> + 'static) {
        if self.0.borrow_mut().insert(shard) {
            let busy = self.clone();
            ring::spawn(async move {
                task.await;
                busy.0.borrow_mut().remove(&shard);
            });
        }
    }
}

fn interval_for(expiry: Duration) -> Duration {
    (expiry / BEATS).clamp(INTERVAL_MIN, INTERVAL_MAX)
}

impl Client {
    /// What cannot be reached will be asked again; calls of applications are what reports it.
    async fn beat_once(&self, shard: ShardId) {
        let (destination, sent) = (Destination::Shard(shard), Sending::now());
        match self.attempt(destination, &Ping {}, Payloads::NONE, &Sent::default()).await {
            Ok(_) => self.shared.assurances.heard(shard, sent),
            // Late: this opens it anew and tells what is held.
            Err(Failure::NoSession) => {
                drop(self.attempt(destination, &Ping {}, Payloads::NONE, &Sent::default()).await)
            }
            Err(_) => {}
        }
    }

    /// What does not arrive is told again soon.
    async fn tell_answered(&self, shard: ShardId, answered: &Answered) {
        drop(self.attempt(Destination::Shard(shard), answered, Payloads::NONE, &Sent::default()).await);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cluster::map::ServiceKind;
    use types::cred::Credentials;
    use wire::op::Op;

    use super::*;
    use crate::caller::Caller;
    use crate::test_cluster::{SHARD, Server, join, run};

    #[test]
    fn while_one_shard_is_away_the_others_are_not_asked_more_often() {
        run(async |script, [client, _]| {
            let (mut map, away) = (client.shared.map().as_ref().clone(), ShardId(7));
            let other = Server::start(&mut map, ServiceKind::Metadata);
            map.shards.insert(away, other.group);
            map.epoch.0 += 1;
            client.shared.update_map(Arc::new(map));
            for (shard, script) in [(SHARD, script), (away, &*other.script)] {
                let ask = async {
                    let caller = Caller::patient(Credentials::default());
                    client.call(&caller, Destination::Shard(shard), &Ping {}).await.expect("answered");
                };
                join(ask, async {
                    script.opens_session(1).await;
                    script.does(Op::Ping).await;
                })
                .await;
            }
            assert_eq!(client.lost_shards(), []);
            other.kill();
            ring::sleep(5 * LOOK).await;
            assert_eq!(client.lost_shards(), [away]);
            script.nothing_comes().await;
        });
    }

    #[test]
    fn several_beats_fit_into_the_time_after_which_a_session_is_forgotten() {
        assert_eq!(interval_for(Duration::from_secs(60)), Duration::from_secs(15));
        assert_eq!(interval_for(Duration::from_secs(2)), Duration::from_millis(500));
        assert_eq!(interval_for(Duration::ZERO), INTERVAL_MIN);
        assert_eq!(interval_for(Duration::MAX), INTERVAL_MAX);
    }
}
