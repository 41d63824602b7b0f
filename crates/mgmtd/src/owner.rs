//! The one owner of the state machine and the store, on a thread of its own: takes events, persists, publishes, answers.
//!
//! Events that wait together are persisted with one sync.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cluster::capacity::Capacities;
use cluster::event::{Answer, Event, Moment};
use cluster::membership::Membership;
use cluster::refusal::Refusal;
use control::View;
use kv::Kv;
use tokio::sync::{oneshot, watch};

use crate::history::History;
use crate::metrics::MgmtMetrics;
use crate::store::Store;

/// Most events in one batch.
const BATCH_MAX: usize = 1024;
/// Most events that wait: more are refused, since those who ask would have given up before their turn.
const QUEUE_MAX: usize = 4096;

/// One event and where its outcome goes.
pub(crate) struct Command {
    pub(crate) event: Event,
    pub(crate) reply: oneshot::Sender<Outcome>,
}

/// What came of an event; dropped instead where the store failed.
pub(crate) struct Outcome {
    pub(crate) result: Result<Answer, Refusal>,
    /// The cluster after it.
    pub(crate) view: View,
}

/// The service's clock: milliseconds since its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Moment {
        Moment(u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// When the thread that takes requests last came to it: a node that it could not hear meanwhile was not silent. A heartbeat
/// waits twice in its queue, as bytes and as a request, so what came before the last beat but one has been heard.
#[derive(Clone, Debug)]
pub(crate) struct Pulse(Arc<[AtomicU64; 2]>);

impl Pulse {
    pub(crate) fn new(now: Moment) -> Self {
        Self(Arc::new([now.0, now.0].map(AtomicU64::new)))
    }

    pub(crate) fn beat(&self, now: Moment) {
        let [before, last] = &*self.0;
        before.store(last.swap(now.0, Ordering::Relaxed), Ordering::Relaxed);
    }

    fn last_but_one(&self) -> Moment {
        Moment(self.0[0].load(Ordering::Relaxed))
    }
}

pub(crate) struct Owner<K: Kv> {
    membership: Membership,
    store: Store<K>,
    clock: Clock,
    /// Ticks are of its time.
    pulse: Pulse,
    view: watch::Sender<View>,
    history: History,
    metrics: MgmtMetrics,
    /// Ticks since the capacities were last published.
    ticks: u32,
}

/// Ends when all senders of its commands are gone, or with the error of the store.
pub(crate) type Running = JoinHandle<Result<(), kv::KvError>>;

/// What those who answer share with the owner.
pub(crate) struct Published {
    pub(crate) views: watch::Receiver<View>,
    pub(crate) history: History,
    /// Theirs to beat.
    pub(crate) pulse: Pulse,
}

impl<K: Kv + Send + 'static> Owner<K>
where
    K::Batch: Send,
{
    pub(crate) fn start(
        membership: Membership,
        store: Store<K>,
        clock: Clock,
        metrics: MgmtMetrics,
        stopped: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<(SyncSender<Command>, Published, Running)> {
        let (sender, commands) = std::sync::mpsc::sync_channel(QUEUE_MAX);
        let first = View::new(membership.map().clone(), Arc::default());
        metrics.show(&first.map);
        let (history, pulse) = (History::default(), Pulse::new(clock.now()));
        history.add(first.clone());
        let (view, views) = watch::channel(first);
        let published = Published { views, history: history.clone(), pulse: pulse.clone() };
        let owner = Self { membership, store, clock, pulse, view, history, metrics, ticks: 0 };
        let thread = std::thread::Builder::new().name("owner".to_owned()).spawn(move || {
            let result = owner.run(&commands);
            stopped();
            result
        })?;
        Ok((sender, published, thread))
    }

    fn run(mut self, commands: &Receiver<Command>) -> Result<(), kv::KvError> {
        let period = Duration::from_millis((self.membership.rules().heartbeat_ms() / 4).clamp(10, 500));
        let mut next_tick = Instant::now() + period;
        loop {
            let first = match commands.recv_timeout(next_tick.saturating_duration_since(Instant::now())) {
                Ok(command) => Some(command),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let batch: Vec<Command> = first.into_iter().chain(commands.try_iter().take(BATCH_MAX)).collect();
            let tick = Instant::now() >= next_tick;
            if tick {
                next_tick = Instant::now() + period;
            }
            self.turn(batch, tick)?;
        }
    }

    /// Applies a batch, then persists, publishes and answers, in this order.
    fn turn(&mut self, batch: Vec<Command>, tick: bool) -> Result<(), kv::KvError> {
        let now = self.clock.now();
        let mut answers = Vec::with_capacity(batch.len());
        let mut publish = false;
        if !batch.is_empty() {
            self.metrics.queue.dec_by(batch.len() as i64);
            self.metrics.batch.record(batch.len() as u64);
        }
        // Whoever has hung up will ask again, if it still matters. That a node was there, it has said all the same.
        let counts = |Command { event, reply }: &Command| matches!(event, Event::Heartbeat(_)) || !reply.is_closed();
        for Command { event, reply } in batch.into_iter().filter(counts) {
            answers.push((self.apply(event, now, &mut publish), reply));
        }
        if tick {
            // It cannot be refused.
            let _ = self.apply(Event::Tick, self.pulse.last_but_one().min(now), &mut publish);
        }
        let started = Instant::now();
        // On failure the state in memory is ahead of the disk: nobody may see it.
        if self.store.save()? {
            self.metrics.sync.observe(started.elapsed());
        }
        self.publish(publish, tick);
        for (result, reply) in answers {
            // Fails where the one who asked has hung up.
            let _ = reply.send(Outcome { result, view: self.view.borrow().clone() });
        }
        Ok(())
    }

    fn apply(&mut self, event: Event, now: Moment, publish: &mut bool) -> Result<Answer, Refusal> {
        let effects = self.membership.apply(event, now)?;
        self.store.add(effects.records);
        *publish |= effects.publish;
        match effects.answer {
            Answer::Refused(refusal) => Err(refusal),
            answer => Ok(answer),
        }
    }

    fn publish(&mut self, map_changed: bool, tick: bool) {
        let capacities = self.capacities_to_publish(tick);
        if !map_changed && capacities.is_none() {
            return;
        }
        let mut view = self.view.borrow().clone();
        if let Some(capacities) = capacities {
            view.capacities = Arc::new(capacities);
        }
        if map_changed {
            view = View::new(self.membership.map().clone(), view.capacities);
            self.history.add(view.clone());
            tracing::debug!(epoch = view.map.epoch.0, "new cluster map");
            self.metrics.show(&view.map);
        }
        self.view.send_replace(view);
    }

    /// Free space changes all the time: news at once, notable changes at the next tick, small ones now and then.
    fn capacities_to_publish(&mut self, tick: bool) -> Option<Capacities> {
        const TICKS_BETWEEN_SMALL_CHANGES: u32 = 20;
        self.ticks += u32::from(tick);
        let (now, known) = (self.membership.capacities(), Arc::clone(&self.view.borrow().capacities));
        let due = self.ticks >= TICKS_BETWEEN_SMALL_CHANGES;
        let same_targets = now.len() == known.len() && now.keys().eq(known.keys());
        let worth_it = !same_targets || (tick && notably_different(&now, &known)) || (due && now != *known);
        if worth_it {
            self.ticks = 0;
        }
        worth_it.then_some(now)
    }
}

/// By a thousandth of some target's size.
fn notably_different(now: &Capacities, known: &Capacities) -> bool {
    now.values().zip(known.values()).any(|(now, known)| {
        now.total_bytes != known.total_bytes || now.free_bytes.abs_diff(known.free_bytes) > now.total_bytes / 1000
    })
}

#[cfg(test)]
mod tests {
    use cluster::event::Registration;
    use cluster::map::{NodeState, Rail, ServiceKind};
    use cluster::membership::Rules;
    use kv::memory::MemoryKv;
    use telemetry::metrics::Metrics;
    use types::id::{NodeId, SessionId};

    use super::*;

    fn owner(rules: Rules) -> Owner<MemoryKv> {
        let (membership, effects) = Membership::create("c", rules, Moment(0));
        let mut store = Store::new(MemoryKv::default());
        store.add(effects.records);
        let first = View::new(membership.map().clone(), Arc::default());
        let (metrics, clock) = (MgmtMetrics::new(&Metrics::new("test")), Clock::start());
        let (view, history, pulse) = (watch::Sender::new(first), History::default(), Pulse::new(clock.now()));
        Owner { membership, store, clock, pulse, view, history, metrics, ticks: 0 }
    }

    #[test]
    fn what_nobody_waits_for_any_more_does_not_happen() {
        let mut owner = owner(Rules::default());
        let (gone, waiting) = (oneshot::channel().0, oneshot::channel());
        let batch = [gone, waiting.0].map(|reply| Command { event: Event::RegisterClient, reply });
        owner.turn(batch.into(), false).expect("it is in memory");
        let outcome = { waiting.1 }.try_recv().expect("answered");
        assert_eq!(outcome.result, Ok(Answer::Session(SessionId(1))));
    }

    #[test]
    fn who_could_not_be_heard_was_not_silent() {
        let offline_after_ms = 400;
        let mut owner = owner(Rules { offline_after_ms, ..Rules::default() });
        let node = Registration {
            cluster: String::new(),
            uuid: "s".to_owned(),
            kind: ServiceKind::Storage,
            id: None,
            alias: String::new(),
            incarnation: 1,
            rails: vec![Rail { interface: "lo".to_owned(), address: [127, 0, 0, 1].into() }],
            metrics: String::new(),
            targets: Vec::new(),
        };
        let (reply, _answer) = oneshot::channel();
        owner.turn(vec![Command { event: Event::RegisterNode(node), reply }], false).expect("it is in memory");
        let mut tick = |beats: bool| {
            std::thread::sleep(Duration::from_millis(20));
            if beats {
                owner.pulse.beat(owner.clock.now());
            }
            owner.turn(Vec::new(), true).expect("it is in memory");
            owner.membership.map().nodes[&NodeId(1)].state
        };
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(2 * offline_after_ms) {
            tick(false);
        }
        let now = [tick(true), tick(true)];
        assert_eq!(now, [NodeState::Online; 2], "nobody listened");
        // Where the test stands still, it is forgiven that as well.
        let begin = Instant::now();
        while tick(true) != NodeState::Offline {
            assert!(begin.elapsed() < Duration::from_secs(30), "it is silent, and nobody says so");
        }
    }
}
