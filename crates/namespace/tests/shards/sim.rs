//! The shards, their network, and the shell that metad is to them. One seed decides all.

mod disk;
mod draw;
mod eyes;
mod record;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::RangeInclusive;

use kv::memory::MemoryKv;
use kv::{Kv, KvError, Syncer};
use namespace::check::check_all;
use namespace::error::{Error, Result};
use namespace::schema::parts::deser_value;
use namespace::shard::Shard;
use namespace::transaction::part::Part;
use namespace::transaction::{Message, Outgoing, Reply};
use namespace::view::Recall;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use types::attr::Attr;
use types::error::Errno;
use types::id::{InodeId, SessionId, ShardId};
use types::name::Name;
use types::parts::PartNumber;
use types::time::Timestamp;

use crate::beliefs::Beliefs;
pub(crate) use crate::node::{Answer, CRED, Op};
use crate::node::{Body, EXPIRY_MS, Held, Node, Splits, Told, config};
use crate::seeds;

pub(crate) const ROOT: InodeId = InodeId::ROOT;
/// Where there are leases.
const LEASE_TERM_MS: u64 = 3_000;
/// Between two events.
const STEP_MS: u64 = 5;

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

#[derive(Debug)]
enum Packet {
    Request {
        to: usize,
        body: Body,
    },
    Answer {
        client: u64,
        attempt: u64,
        answer: Option<Answer>,
    },
    Reply {
        to: usize,
        incarnation: u64,
        from: usize,
        message: Message,
        reply: Reply,
    },
    Recalls {
        client: u64,
        from: usize,
        recalls: Vec<Recall>,
    },
    /// Whatever became of the shard since it asked for it.
    Acknowledged {
        to: usize,
        client: u64,
        ids: Vec<u64>,
    },
}

/// How a process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Crash {
    Kill,
    /// The disk keeps some of what was not synced.
    PowerCut,
}

pub(crate) struct Sim {
    seed: u64,
    pub(crate) rng: StdRng,
    nodes: Vec<Node>,
    packets: Vec<Packet>,
    /// Asked for and not yet answered, by client.
    asked: BTreeMap<u64, (u64, Op)>,
    /// What was sent of it last: names are asked for in parts of directories.
    sent: BTreeMap<u64, Op>,
    /// The parts of directories, as clients have learned, with the cursor of those that are being split.
    splits: BTreeMap<InodeId, (Vec<InodeId>, u64)>,
    /// Directories that were split.
    pub(crate) split: u64,
    sequences: BTreeMap<u64, u64>,
    /// The latest one of each client.
    attempts: BTreeMap<u64, u64>,
    pub(crate) answers: BTreeMap<u64, Answer>,
    /// What the last answer to a removal or a rename told of what was removed.
    pub(crate) removed: Option<Attr>,
    pub(crate) now_ms: u64,
    /// Nothing is reordered, dropped or delayed.
    pub(crate) orderly: bool,
    pub(crate) events: u64,
    lease_term_ms: u64,
    splits_itself: Splits,
    pub(crate) beliefs: Beliefs,
    /// Which a client hears when it has its answer.
    late_recalls: BTreeMap<u64, Vec<(usize, Vec<Recall>)>>,
    /// What arrived, if somebody wants to know.
    record: Option<String>,
}

impl Sim {
    pub(crate) fn new(seed: u64, shards: usize) -> Self {
        Self::with(seed, shards, 0, Splits::default())
    }

    /// Directories with more entries than `split_above` are split by themselves.
    pub(crate) fn growing(seed: u64, shards: usize, split_above: u64) -> Self {
        Self::with(seed, shards, 0, Splits { above: split_above, rate: 0 })
    }

    /// So are those whose names change more often than so many times per second.
    pub(crate) fn bustling(seed: u64, shards: usize, split_rate: u64) -> Self {
        Self::with(seed, shards, 0, Splits { above: 0, rate: split_rate })
    }

    /// Clients believe what they were told for as long as they may.
    pub(crate) fn leasing(seed: u64, shards: usize) -> Self {
        Self::with(seed, shards, LEASE_TERM_MS, Splits::default())
    }

    fn with(seed: u64, shards: usize, lease_term_ms: u64, splits_itself: Splits) -> Self {
        let mut sim = Self {
            seed,
            rng: StdRng::seed_from_u64(seed),
            nodes: Vec::new(),
            packets: Vec::new(),
            asked: BTreeMap::new(),
            sent: BTreeMap::new(),
            splits: BTreeMap::new(),
            split: 0,
            sequences: BTreeMap::new(),
            attempts: BTreeMap::new(),
            answers: BTreeMap::new(),
            removed: None,
            now_ms: 1,
            orderly: false,
            events: 0,
            lease_term_ms,
            splits_itself,
            beliefs: Beliefs::default(),
            late_recalls: BTreeMap::new(),
            record: seeds::alone().map(|_| String::new()),
        };
        for index in 0..shards {
            let kv = MemoryKv::new();
            let config = config(index, lease_term_ms, splits_itself);
            let shard = Shard::open(kv.clone(), config, Timestamp(1), 1).expect("opens");
            sim.nodes.push(Node::new(kv, shard, 1));
        }
        for node in &mut sim.nodes {
            node.introduce(shards);
        }
        sim
    }

    /// Begins an operation of a client that has none under way.
    pub(crate) fn ask(&mut self, client: u64, op: Op) {
        let sequence = self.sequences.entry(client).or_default();
        *sequence += 1;
        let sequence = *sequence;
        assert!(self.asked.insert(client, (sequence, op)).is_none(), "one at a time");
        self.send(client);
    }

    fn send(&mut self, client: u64) {
        let Some((sequence, op)) = self.asked.get(&client).cloned() else { return };
        let op = op.in_places(|parent, name| self.part(parent, name));
        self.sent.insert(client, op.clone());
        let to = usize::from(op.home().0);
        let attempt = self.attempts.entry(client).or_default();
        *attempt += 1;
        self.beliefs.asking(client, &op, self.now_ms);
        let body = Body::Client { client, attempt: *attempt, sequence, op };
        // It may be known that the connection is gone that it asked on before.
        if !self.orderly && self.rng.random_range(0..20) == 0 {
            self.nodes[to].disconnected(client);
        }
        self.packets.push(Packet::Request { to, body });
    }

    /// Runs until the client has its answer.
    pub(crate) fn wait(&mut self, client: u64) -> Answer {
        for _ in 0..200_000 {
            if let Some(answer) = self.answers.remove(&client) {
                return answer;
            }
            self.step();
        }
        panic!("client {client} gets no answer to {:?}", self.asked.get(&client));
    }

    pub(crate) fn run(&mut self, client: u64, op: Op) -> Answer {
        self.ask(client, op);
        self.wait(client)
    }

    /// Asks until what is elsewhere is told.
    pub(crate) fn look(&mut self, client: u64, parent: InodeId, text: &Name) -> Option<InodeId> {
        match self.run(client, Op::Lookup { parent, name: text.clone() }) {
            Answer::Inode(view) => Some(view.attr.inode),
            Answer::Absent(_) | Answer::Refused(Errno::ENOENT) => None,
            other => panic!("{other:?}"),
        }
    }

    /// Gives each of the clients that has none under way an operation. At most `most` inodes come to be `known` from what
    /// they are told.
    pub(crate) fn keep_busy(
        &mut self,
        clients: RangeInclusive<u64>,
        known: &mut Vec<InodeId>,
        most: usize,
        draw: impl Fn(&mut Self, &[InodeId]) -> Op,
    ) {
        for client in clients {
            if let Some(Answer::Inode(view)) = self.answers.remove(&client)
                && !known.contains(&view.attr.inode)
                && known.len() < most
            {
                known.push(view.attr.inode);
            }
            if self.is_idle(client) {
                let op = draw(self, known);
                self.ask(client, op);
            }
        }
    }

    pub(crate) fn is_idle(&self, client: u64) -> bool {
        !self.asked.contains_key(&client)
    }

    /// An answer is on its way.
    pub(crate) fn is_answered(&self, client: u64) -> bool {
        let to =
            |packet: &Packet| matches!(packet, Packet::Answer { client: to, answer: Some(_), .. } if *to == client);
        self.packets.iter().any(to)
    }

    /// One event: a packet arrives or is lost, a shard has its turn, a disk is synced, time passes.
    pub(crate) fn step(&mut self) {
        self.events += 1;
        self.now_ms += STEP_MS;
        if self.orderly {
            return self.step_in_order();
        }
        match self.rng.random_range(0..10) {
            0..4 => self.deliver_some(),
            4..7 => {
                let node = self.rng.random_range(0..self.nodes.len());
                self.turn(node);
            }
            7..9 => {
                let node = self.rng.random_range(0..self.nodes.len());
                self.sync(node);
            }
            _ => self.resend(),
        }
    }

    /// Packets in their order, shards and disks by turns; clients that were refused ask again later.
    fn step_in_order(&mut self) {
        let node = (self.events / 4) as usize % self.nodes.len();
        match self.events % 4 {
            0 | 2 if !self.packets.is_empty() => self.deliver(0),
            1 if self.nodes[node].has_work(self.now_ms) => self.turn(node),
            3 if self.nodes[node].synced < self.nodes[node].commits => self.sync(node),
            _ if self.events.is_multiple_of(64) => {
                self.now_ms += 100;
                self.resend();
            }
            _ => {}
        }
    }

    fn deliver_some(&mut self) {
        if self.packets.is_empty() {
            return;
        }
        let at = self.rng.random_range(0..self.packets.len());
        if self.rng.random_range(0..25) == 0 {
            self.lose(at);
        } else {
            self.deliver(at);
        }
    }

    fn deliver(&mut self, at: usize) {
        let packet = self.packets.remove(at);
        self.note(&packet);
        match packet {
            Packet::Request { to, body } => self.nodes[to].queue.push(body),
            Packet::Answer { client, attempt, answer } => self.answered(client, attempt, answer),
            Packet::Reply { to, incarnation, from, message, reply } => {
                if self.nodes[to].incarnation == incarnation {
                    self.nodes[to].replies.push((from, message, reply));
                }
            }
            Packet::Recalls { client, from, recalls } => {
                // A kernel that moves something between two directories does not hear of names in them meanwhile.
                let between = self.asked.get(&client).and_then(|(_, op)| op.moves_between());
                let (later, recalls): (Vec<_>, Vec<_>) = recalls.into_iter().partition(|recall| {
                    recall.name.is_some() && between.is_some_and(|two| two.contains(&recall.inode))
                });
                if !later.is_empty() {
                    self.late_recalls.entry(client).or_default().push((from, later));
                }
                let ids = recalls.iter().map(|recall| recall.id).collect();
                // Of a name, they name the directory that users see.
                let in_part = |recall: &Recall| {
                    let name = recall.name.as_ref()?;
                    let parts = self.parts_of(recall.inode);
                    let number = PartNumber::of_name(name, parts.len() as u16);
                    Some(Recall { inode: *parts.get(usize::from(number.index))?, ..recall.clone() })
                };
                let of_parts: Vec<Recall> = recalls.iter().filter_map(in_part).collect();
                let recalls = [recalls, of_parts].concat();
                self.beliefs.recalled(client, &recalls);
                self.packets.push(Packet::Acknowledged { to: from, client, ids });
            }
            Packet::Acknowledged { to, client, ids } => {
                self.nodes[to].shard.acknowledge_recalls(SessionId(client), &ids);
            }
        }
    }

    /// Whoever waits for an answer hears that there will be none.
    fn lose(&mut self, at: usize) {
        match self.packets.remove(at) {
            Packet::Request { to, body: Body::Shard { from, message } } => {
                self.nodes[from].replies.push((to, message, Reply::Failed));
            }
            Packet::Reply { to, incarnation, from, message, .. } if self.nodes[to].incarnation == incarnation => {
                self.nodes[to].replies.push((from, message, Reply::Failed));
            }
            _ => {}
        }
    }

    fn answered(&mut self, client: u64, attempt: u64, answer: Option<Answer>) {
        if !self.asked.contains_key(&client) || self.attempts.get(&client) != Some(&attempt) {
            return;
        }
        match answer {
            Some(Answer::Refused(Errno::EREMOTE)) if !self.sent[&client].places().is_empty() => self.ask_parts(client),
            Some(answer) => {
                self.split += u64::from(matches!(answer, Answer::Parts(_)));
                if self.asked.remove(&client).is_some() {
                    self.believe(client, &answer);
                }
                let answer = match answer {
                    Answer::Changed(changed) => {
                        self.removed = changed.removed.map(|attr| *attr);
                        Answer::Done
                    }
                    answer => answer,
                };
                for (from, recalls) in self.late_recalls.remove(&client).unwrap_or_default() {
                    self.packets.push(Packet::Recalls { client, from, recalls });
                }
                self.answers.insert(client, answer);
            }
            None if self.orderly => {}
            None => self.send(client),
        }
    }

    /// What it asked for is in parts: it learns of which, and asks there.
    fn ask_parts(&mut self, client: u64) {
        let Some((_, op)) = self.asked.get(&client).cloned() else { return };
        for (parent, _) in op.places() {
            self.learn_parts(parent);
        }
        let sequence = self.sequences.entry(client).or_default();
        *sequence += 1;
        self.asked.insert(client, (*sequence, op));
        self.send(client);
    }

    /// Clients that wait for long ask again.
    fn resend(&mut self) {
        let waiting: Vec<u64> = self.asked.keys().copied().collect();
        for client in waiting {
            if self.orderly || self.rng.random_range(0..4) == 0 {
                self.send(client);
            }
        }
        for index in 0..self.nodes.len() {
            self.recall(index, self.attempts.keys().copied().collect());
            // A coordinator does not wait for ever.
            if self.rng.random_range(0..8) == 0 {
                self.give_up_waiting(index);
            }
        }
    }

    fn recall(&mut self, index: usize, clients: Vec<u64>) {
        for client in clients {
            let recalls = self.nodes[index].shard.recalls(SessionId(client));
            if !recalls.is_empty() {
                self.packets.push(Packet::Recalls { client, from: index, recalls });
            }
        }
    }

    fn give_up_waiting(&mut self, index: usize) {
        let callers: Vec<(usize, Message)> =
            self.nodes[index].recalling.values().flatten().filter_map(Body::caller).collect();
        for (from, message) in callers {
            self.nodes[from].replies.push((index, message, Reply::Failed));
        }
    }

    pub(crate) fn turn(&mut self, index: usize) {
        let now_ms = self.now_ms;
        let fails = !self.orderly && self.rng.random_range(0..40) == 0;
        let node = &mut self.nodes[index];
        node.shard.begin_turn(Timestamp(now_ms as i64), now_ms);
        node.shard.go_on_dividing();
        for (from, message, reply) in std::mem::take(&mut node.replies) {
            node.shard.replied(ShardId(from as u16), &message, reply).expect("the store is whole");
        }
        if now_ms >= node.last_tick_ms + 500 {
            node.last_tick_ms = now_ms;
            node.tick();
        }
        node.go_on();
        if self.orderly || self.rng.random_range(0..3) == 0 {
            assert_eq!(node.shard.go_on_splitting(), [], "the store is whole");
        }
        let mut answers = Vec::new();
        for body in std::mem::take(&mut node.queue) {
            if let Body::Client { client, attempt, .. } = &body
                && self.attempts.get(client) != Some(attempt)
            {
                continue;
            }
            match node.execute(&body) {
                Err(Error::Blocked(transaction)) => {
                    node.shard.await_end(transaction);
                    node.parked.entry(transaction).or_default().push(body);
                }
                Err(Error::Recalling) => node.recalling.entry(node.shard.awaited()).or_default().push(body),
                result => answers.push((body, result)),
            }
        }
        let alerts: Vec<u64> = std::iter::from_fn(|| node.shard.next_alert()).map(|session| session.0).collect();
        let mut failed = false;
        if !node.shard.is_clean() {
            if fails {
                node.kv.fail_commit(1, KvError::Io("test".into()));
            }
            failed = node.shard.commit().is_err();
            node.kv.heal();
            node.commits += u64::from(!failed);
        }
        for (body, result) in answers {
            let result = if failed { Err(Error::Again) } else { result };
            self.answer(index, body, result);
        }
        self.recall(index, alerts);
        self.hand_out(index);
        if self.lease_term_ms > 0 {
            self.check_beliefs();
        }
    }

    /// Whatever a client believes is so, and not in doubt.
    fn check_beliefs(&mut self) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let doubtful = node.doubtful();
            self.beliefs.check(ShardId(index as u16), &mut node.shard, &doubtful, self.now_ms);
        }
    }

    fn answer(&mut self, index: usize, body: Body, result: Result<Told>) {
        let node = &mut self.nodes[index];
        match body {
            Body::Client { client, attempt, .. } => {
                let answer = match result {
                    Ok(Told::Client(answer)) => Some(answer),
                    Err(Error::Refused(errno)) => Some(Answer::Refused(errno)),
                    Ok(Told::Shard(_)) | Err(Error::Again) => None,
                    Err(error) => panic!("{error}"),
                };
                self.packets.push(Packet::Answer { client, attempt, answer });
            }
            Body::Shard { from, message } => {
                let reply = match result {
                    Ok(Told::Shard(reply)) => reply,
                    Err(Error::Refused(errno)) => Reply::Refused(errno),
                    Ok(Told::Client(_)) | Err(Error::Again) => Reply::Failed,
                    Err(error) => panic!("{error}"),
                };
                let is_done_at_once = matches!(&message, Message::Prepare { parts, .. }
                    if parts.iter().all(Part::is_done_at_once));
                let waits = matches!(reply, Reply::Prepared(_) | Reply::Done | Reply::Lost | Reply::Outcome(_));
                let waits = waits && !is_done_at_once;
                if waits && node.commits > node.synced {
                    node.held.push_back((node.commits, Held::Reply(from, message, reply)));
                } else {
                    self.reply(index, from, message, reply);
                }
            }
        }
    }

    fn reply(&mut self, index: usize, to: usize, message: Message, reply: Reply) {
        let incarnation = self.nodes[to].incarnation;
        self.packets.push(Packet::Reply { to, incarnation, from: index, message, reply });
    }

    fn hand_out(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        for outgoing in node.shard.take_outgoing() {
            if outgoing.after_sync && node.commits > node.synced {
                node.held.push_back((node.commits, Held::Outgoing(outgoing)));
            } else {
                self.packets.push(request(index, outgoing));
            }
        }
        for transaction in node.shard.take_ended() {
            node.queue.extend(node.parked.remove(&transaction).unwrap_or_default());
        }
    }

    pub(crate) fn sync(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.shard.store().syncer().sync().expect("syncs");
        node.synced = node.commits;
        for (_, held) in std::mem::take(&mut node.held) {
            match held {
                Held::Outgoing(outgoing) => self.packets.push(request(index, outgoing)),
                Held::Reply(to, message, reply) => self.reply(index, to, message, reply),
            }
        }
    }

    pub(crate) fn crash(&mut self, index: usize, how: Crash) {
        if how == Crash::PowerCut {
            let unsynced = self.nodes[index].kv.unsynced();
            let kept = self.rng.random_range(0..=unsynced);
            self.nodes[index].kv.crash_keeping(kept);
        }
        self.restart(index);
    }

    fn restart(&mut self, index: usize) {
        let shards = self.nodes.len();
        let node = &mut self.nodes[index];
        let (kv, incarnation, now_ms) = (node.kv.clone(), node.incarnation + 1, self.now_ms);
        let config = config(index, self.lease_term_ms, self.splits_itself);
        let shard = Shard::open(kv.clone(), config, Timestamp(now_ms as i64), now_ms).expect("opens");
        let old = std::mem::replace(node, Node::new(kv, shard, incarnation));
        node.introduce(shards);
        // Its callers hear of it.
        let parked = old.parked.into_values().flatten();
        let held = old.held.into_iter().filter_map(|(_, held)| match held {
            Held::Reply(from, message, _) => Some((from, message)),
            Held::Outgoing(_) => None,
        });
        let waiting = old.queue.into_iter().chain(parked).chain(old.recalling.into_values().flatten());
        let callers: Vec<(usize, Message)> = waiting.filter_map(|body| body.caller()).chain(held).collect();
        for (from, message) in callers {
            self.nodes[from].replies.push((index, message, Reply::Failed));
        }
    }

    /// A shard hears that a client is gone; what it asked other shards for goes on.
    pub(crate) fn leave(&mut self, index: usize, client: u64) {
        let (now_ms, node) = (self.now_ms, &mut self.nodes[index]);
        node.shard.begin_turn(Timestamp(now_ms as i64), now_ms);
        node.shard.session_close(SessionId(client)).expect("closes");
        node.shard.commit().expect("commits");
        node.commits += 1;
        self.hand_out(index);
    }

    /// A client is killed, and all shards know it.
    pub(crate) fn kill(&mut self, client: u64) {
        self.asked.remove(&client);
        self.answers.remove(&client);
        self.beliefs.forget(client);
        *self.attempts.entry(client).or_default() += 1;
        for node in &mut self.nodes {
            node.disconnected(client);
        }
    }

    /// Lets everything come to its end, with a good network, and checks what must hold then.
    pub(crate) fn quiesce(&mut self) {
        let orderly = std::mem::replace(&mut self.orderly, true);
        for _ in 0..40_000 {
            if self.is_at_rest() {
                break;
            }
            self.step();
        }
        assert!(self.is_at_rest(), "all comes to its end: {}", self.unfinished());
        self.orderly = orderly;
        // The grace after a restart ends.
        self.now_ms += EXPIRY_MS;
        for index in 0..self.nodes.len() {
            let (now_ms, node) = (self.now_ms, &mut self.nodes[index]);
            node.shard.begin_turn(Timestamp(now_ms as i64), now_ms);
            node.tick();
            if !node.shard.is_clean() {
                node.shard.commit().expect("commits");
                node.commits += 1;
            }
            self.hand_out(index);
            self.sync(index);
        }
        self.check();
    }

    /// Nothing is under way.
    pub(crate) fn is_at_rest(&self) -> bool {
        let busy = |node: &Node| node.is_busy() || node.synced < node.commits;
        self.packets.is_empty() && self.asked.is_empty() && !self.nodes.iter().any(busy) && self.transactions() == 0
    }

    fn transactions(&self) -> usize {
        let count = |node: &Node| {
            let mut count = 0;
            let visit = |_: &[u8], _: &[u8]| {
                count += 1;
                std::ops::ControlFlow::Continue(())
            };
            node.kv.scan(b"T", b"U", visit).expect("readable");
            count
        };
        self.nodes.iter().map(count).sum()
    }

    /// What is still under way, for people.
    fn unfinished(&self) -> String {
        let mut text = format!("{} packets, asked {:?}", self.packets.len(), self.asked);
        for (index, node) in self.nodes.iter().enumerate() {
            let _ = write!(text, "; shard {index}: {} queued, parked {:?}, records", node.queue.len(), node.parked);
            let visit = |key: &[u8], value: &[u8]| {
                let _ = write!(text, " {key:02x?}={value:02x?}");
                std::ops::ControlFlow::Continue(())
            };
            node.kv.scan(b"T", b"U", visit).expect("readable");
        }
        text
    }

    pub(crate) fn check(&self) {
        let stores: Vec<(ShardId, &MemoryKv)> =
            self.nodes.iter().enumerate().map(|(index, node)| (ShardId(index as u16), &node.kv)).collect();
        assert_eq!(check_all(&stores).expect("readable"), []);
    }

    /// All inodes that any shard has, but for parts of directories.
    pub(crate) fn inodes(&self) -> u64 {
        let all: u64 = self.nodes.iter().map(|node| node.shard.inode_count()).sum();
        all - self.all_parts().len() as u64
    }

    /// The parts of all split directories.
    pub(crate) fn all_parts(&self) -> Vec<InodeId> {
        let mut parts = Vec::new();
        for node in &self.nodes {
            let visit = |key: &[u8], value: &[u8]| {
                parts.extend(deser_value(key, value).expect("a list"));
                std::ops::ControlFlow::Continue(())
            };
            node.kv.scan(b"P", b"Q", visit).expect("readable");
        }
        parts
    }
}

fn request(index: usize, outgoing: Outgoing) -> Packet {
    let body = Body::Shard { from: index, message: outgoing.message };
    Packet::Request { to: usize::from(outgoing.to.0), body }
}
