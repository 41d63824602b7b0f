//! The loops of one mount among themselves: who waits for the kernel, and who sleeps until called.
//!
//! One loop, the *scout*, waits for requests; the others sleep. Were they all to wait, the kernel would wake them in
//! turn, and a single caller's requests would wander from CPU to CPU, each at the price of a wake-up that is dearer than
//! the request. A loop that has more to do than it can do calls another; who finds nothing to do sleeps again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ring::mailbox;

use crate::arrivals::Awaited;
use crate::early::EarlyInterrupts;
use crate::worker::Control;

/// Shared by all loops of a mount.
pub(crate) struct Team {
    scout_taken: AtomicBool,
    members: Vec<Member>,
    pub(crate) early: EarlyInterrupts,
}

/// What it writes with every request is in no cache line of another's.
#[repr(align(128))]
struct Member {
    asleep: AtomicBool,
    control: mailbox::Sender<Control>,
    /// Grows; odd from before it takes a request from the kernel until a worker has begun with that, if it is a write. By the
    /// loop alone.
    hand: AtomicU64,
}

/// Loops that had something in hand, and what was their number then.
pub(crate) struct InHand(Vec<(usize, u64)>);

impl InHand {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Team {
    pub(crate) fn new(controls: Vec<mailbox::Sender<Control>>) -> Self {
        let member = |control| Member { asleep: AtomicBool::new(false), control, hand: AtomicU64::new(0) };
        let members = controls.into_iter().map(member).collect();
        Self { scout_taken: AtomicBool::new(false), members, early: EarlyInterrupts::default() }
    }

    /// True where the caller is the scout from now on: nobody else was.
    pub(crate) fn become_scout(&self) -> bool {
        !self.scout_taken.swap(true, Ordering::SeqCst)
    }

    /// The scout cannot go on. Another takes over: one who is awake by itself, as soon as it finds nothing to do.
    pub(crate) fn resign(&self) {
        self.scout_taken.store(false, Ordering::SeqCst);
        self.call();
    }

    /// Who was called cannot go on either. Another is called where there is no scout: nobody else may be awake who would ever
    /// become it.
    pub(crate) fn pass_on(&self) {
        if !self.scout_taken.load(Ordering::SeqCst) {
            self.call();
        }
    }

    /// To be said before sleeping; who is called is no longer asleep. False where the caller may not sleep, but is the
    /// scout: the last one has resigned just now, and found nobody to call.
    pub(crate) fn fall_asleep(&self, index: usize) -> bool {
        self.members[index].asleep.store(true, Ordering::SeqCst);
        let is_scout = self.become_scout();
        if is_scout {
            self.members[index].asleep.store(false, Ordering::SeqCst);
        }
        !is_scout
    }

    /// Wakes one that sleeps, if there is one.
    pub(crate) fn call(&self) {
        for member in &self.members {
            if member.asleep.load(Ordering::SeqCst) && member.asleep.swap(false, Ordering::SeqCst) {
                member.control.send(Control::Come);
                return;
            }
        }
    }

    /// The loop takes a request from the kernel, if there is one. To be said before: the kernel gives each out under a lock, so
    /// that who gets a later one sees this.
    pub(crate) fn takes(&self, index: usize) {
        let hand = &self.members[index].hand;
        let before = hand.load(Ordering::Relaxed);
        hand.store(before + 1 + (before & 1), Ordering::Release);
    }

    /// A worker has begun with what the loop took last; or that is no write, or there was nothing.
    pub(crate) fn has_begun(&self, index: usize) {
        let hand = &self.members[index].hand;
        let before = hand.load(Ordering::Relaxed);
        hand.store(before + (before & 1), Ordering::Release);
    }

    /// What others than loop `own_index` have in hand now.
    pub(crate) fn in_hand(&self, own_index: usize) -> InHand {
        let hands = self.members.iter().map(|member| member.hand.load(Ordering::Acquire)).enumerate();
        InHand(hands.filter(|&(index, hand)| index != own_index && hand & 1 == 1).collect())
    }

    /// Leaves what they have in hand still.
    pub(crate) fn look_again(&self, before: &mut InHand) {
        before.0.retain(|&(index, hand)| self.members[index].hand.load(Ordering::Acquire) == hand);
    }

    /// Each drops `awaited` when it has begun with all that it was sent.
    pub(crate) fn catch_up(&self, awaited: &Awaited) {
        for member in &self.members {
            member.control.send(Control::CatchUp(awaited.clone()));
        }
    }

    /// The connection is gone: nobody need sleep on.
    pub(crate) fn dismiss(&self) {
        for member in &self.members {
            member.control.send(Control::Leave);
        }
    }

    /// The mount cannot go on: each ends when what it has in flight is answered, or after `limit`.
    pub(crate) fn stop(&self, limit: Duration) {
        for member in &self.members {
            member.control.send(Control::Stop(limit));
        }
    }

    /// The request was interrupted: whoever of the others has it shall know, and else who gets it.
    pub(crate) fn interrupt(&self, own_index: usize, unique: u64, now: Instant) {
        // Before it is asked for: who looks in vain has begun with the request by then, and hears of it.
        self.early.keep(unique, now);
        for (index, member) in self.members.iter().enumerate() {
            if index != own_index {
                member.control.send(Control::Interrupt(unique));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_scout_and_no_call_lost() {
        let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| mailbox::mailbox()).unzip();
        let team = Team::new(senders);
        assert!(team.become_scout());
        assert!(!team.become_scout());
        team.call();
        assert!(receivers.iter_mut().all(|receiver| receiver.try_recv().is_none()), "nobody sleeps");
        assert!(team.fall_asleep(1));
        assert!(team.fall_asleep(2));
        team.call();
        assert!(matches!(receivers[1].try_recv(), Some(Control::Come)));
        team.resign();
        assert!(matches!(receivers[2].try_recv(), Some(Control::Come)), "1 is awake already");
        assert!(team.become_scout());
    }

    #[test]
    fn who_is_called_in_place_of_the_scout_and_cannot_go_on_calls_the_next() {
        let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| mailbox::mailbox()).unzip();
        let team = Team::new(senders);
        assert!(team.become_scout() && team.fall_asleep(1) && team.fall_asleep(2));
        team.pass_on();
        assert!(receivers.iter_mut().all(|receiver| receiver.try_recv().is_none()), "there is a scout");
        team.resign();
        assert!(matches!(receivers[1].try_recv(), Some(Control::Come)));
        team.pass_on();
        assert!(matches!(receivers[2].try_recv(), Some(Control::Come)));
        assert!(team.become_scout());
    }

    #[test]
    fn what_others_have_in_hand_is_seen_until_they_have_begun_with_it() {
        let team = Team::new((0..3).map(|_| mailbox::mailbox().0).collect());
        team.takes(0);
        assert!(team.in_hand(0).is_empty(), "its own");
        team.takes(1);
        let mut seen = team.in_hand(0);
        team.look_again(&mut seen);
        assert!(!seen.is_empty());
        team.takes(2);
        // The next one is not what was seen.
        team.takes(1);
        team.look_again(&mut seen);
        assert!(seen.is_empty() && !team.in_hand(0).is_empty());
        let mut seen = team.in_hand(0);
        team.has_begun(1);
        team.has_begun(1);
        team.look_again(&mut seen);
        assert!(!seen.is_empty(), "another one");
        team.has_begun(2);
        team.look_again(&mut seen);
        assert!(seen.is_empty() && team.in_hand(0).is_empty());
    }

    #[test]
    fn who_falls_asleep_after_the_scout_has_resigned_is_the_scout() {
        let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..2).map(|_| mailbox::mailbox()).unzip();
        let team = Team::new(senders);
        assert!(team.become_scout());
        // Loop 1 has looked for requests in vain, and is not the scout.
        assert!(!team.become_scout());
        team.resign();
        assert!(!team.fall_asleep(1));
        assert!(!team.become_scout(), "it is");
        team.call();
        assert!(receivers[1].try_recv().is_none(), "it does not sleep");
    }

    #[test]
    fn who_gets_an_interrupted_request_later_knows() {
        let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| mailbox::mailbox()).unzip();
        let (team, now) = (Team::new(senders), Instant::now());
        team.interrupt(1, 8, now);
        let told = receivers.iter_mut().map(|receiver| matches!(receiver.try_recv(), Some(Control::Interrupt(8))));
        assert_eq!(told.collect::<Vec<_>>(), [true, false, true], "the one has looked");
        assert!(team.early.take(8, now));
    }
}
