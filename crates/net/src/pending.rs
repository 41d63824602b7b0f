//! Requests of one connection that wait for their replies.

use std::task::{Context, Poll, Waker};

use ring::buf::{Buf, Slice};
use ring::sync::Permit;
use slab::Slab;
use wire::frame::Header;
use wire::op::Op;

use crate::connection::CallError;
use crate::limits::Limits;
use crate::receive::FrameError;
use crate::sharing::Lent;

/// Bits of a request id that are its slot; those above count requests, so that ids rise strictly.
const SLOT_BITS: u32 = Limits::REQUESTS_MAX.trailing_zeros();
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;

/// A reply as it arrived.
pub(crate) struct Reply {
    pub(crate) header: Header,
    pub(crate) body: Slice,
    /// `None` where there is no payload.
    pub(crate) payload: Option<Buf>,
    /// What the payload left of the caller's buffer.
    pub(crate) rest: Option<Buf>,
}

/// What a request holds until its reply is there.
#[derive(Default)]
pub(crate) struct Held {
    /// Where the reply's payload goes.
    pub(crate) into: Option<Buf>,
    pub(crate) lent: Lent,
    /// Its share of the bounds.
    #[expect(dead_code, reason = "returns to the bounds when it is dropped")]
    pub(crate) permits: Option<(Permit, Permit)>,
}

/// Who will ask for the reply to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waiter {
    Caller,
    Nobody,
}

struct Slot {
    id: u64,
    op: Op,
    held: Held,
    state: State,
}

enum State {
    Waiting(Option<Waker>),
    Done(Result<Reply, CallError>),
    /// The caller went away; the reply is still to come.
    Abandoned,
}

/// All of one connection. Ids rise by more than the slots there are, and begin above 0.
#[derive(Default)]
pub(crate) struct Pending {
    slots: Slab<Slot>,
    count: u64,
}

impl Pending {
    /// The id of a new request.
    pub(crate) fn insert(&mut self, op: Op, held: Held, waiter: Waiter) -> u64 {
        self.count += 1;
        let entry = self.slots.vacant_entry();
        let id = (self.count << SLOT_BITS) | entry.key() as u64;
        assert!(entry.key() as u64 <= SLOT_MASK, "whoever asks has looked whether there is room");
        let state = match waiter {
            Waiter::Caller => State::Waiting(None),
            Waiter::Nobody => State::Abandoned,
        };
        entry.insert(Slot { id, op, held, state });
        id
    }

    /// No request more has a slot.
    pub(crate) fn is_full(&self) -> bool {
        self.slots.len() as u64 > SLOT_MASK
    }

    /// Frees the slot of a request that was never sent.
    pub(crate) fn forget(&mut self, id: u64) {
        if self.slot(id).is_some() {
            self.slots.remove((id & SLOT_MASK) as usize);
        }
    }

    /// How many there ever were.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Slots in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The caller of some request waits.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.slots.iter().any(|(_, slot)| matches!(slot.state, State::Waiting(_)))
    }

    /// Its reply has not come yet.
    pub(crate) fn has(&self, id: u64) -> bool {
        self.slots.get((id & SLOT_MASK) as usize).is_some_and(|slot| slot.id == id)
    }

    fn slot(&mut self, id: u64) -> Option<&mut Slot> {
        self.slots.get_mut((id & SLOT_MASK) as usize).filter(|slot| slot.id == id)
    }

    /// The buffer that the reply with this header goes to, and what was lent for it. A slot whose reply is there already
    /// counts as none.
    pub(crate) fn expect(&mut self, header: &Header) -> Result<(Option<Buf>, Lent), FrameError> {
        let slot = self
            .slot(header.request)
            .filter(|slot| !matches!(slot.state, State::Done(_)))
            .ok_or(FrameError::UnknownReply(header.request))?;
        if slot.op != header.op {
            return Err(FrameError::OtherOp { asked: slot.op, got: header.op });
        }
        Ok((slot.held.into.take(), std::mem::take(&mut slot.held.lent)))
    }

    /// The request is answered: wakes its caller, or forgets it where the caller went away.
    pub(crate) fn complete(&mut self, reply: Reply) {
        let id = reply.header.request;
        self.settle(id, Ok(reply));
    }

    fn settle(&mut self, id: u64, outcome: Result<Reply, CallError>) {
        let Some(slot) = self.slot(id) else { return };
        slot.held = Held::default();
        match &mut slot.state {
            State::Waiting(waker) => {
                let waker = waker.take();
                slot.state = State::Done(outcome);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            State::Abandoned => {
                self.slots.remove((id & SLOT_MASK) as usize);
            }
            // The connection had ended when the rest of its last reply came: its caller has yet to look.
            State::Done(_) => {}
        }
    }

    /// The other side may yet touch memory that was lent to it.
    pub(crate) fn has_lent(&self) -> bool {
        self.slots.iter().any(|(_, slot)| !matches!(slot.held.lent, Lent::Nothing))
    }

    /// No reply comes any more. Whether the other side may yet do something of what was asked.
    pub(crate) fn fail_all(&mut self, error: &CallError) -> bool {
        let harmless = |slot: &Slot| slot.op == Op::Ping || matches!(slot.state, State::Done(_));
        let left = self.slots.iter().any(|(_, slot)| !harmless(slot));
        let ids: Vec<u64> = self.slots.iter().map(|(_, slot)| slot.id).collect();
        for id in ids {
            if self.slot(id).is_some_and(|slot| !matches!(slot.state, State::Done(_))) {
                self.settle(id, Err(error.clone()));
            }
        }
        left
    }

    /// The outcome of a request, once.
    pub(crate) fn poll(&mut self, id: u64, cx: &mut Context<'_>) -> Poll<Result<Reply, CallError>> {
        let slot = self.slot(id).expect("a request's slot stays until its outcome is taken");
        if let State::Waiting(waker) = &mut slot.state {
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        match self.slots.remove((id & SLOT_MASK) as usize).state {
            State::Done(outcome) => Poll::Ready(outcome),
            State::Waiting(_) | State::Abandoned => unreachable!("the one caller polls, and the state was looked at"),
        }
    }

    /// The caller goes away. The slot stays until the reply is there, so that it is known when it comes. What was asked,
    /// where no reply was there.
    pub(crate) fn abandon(&mut self, id: u64) -> Option<Op> {
        let slot = self.slot(id)?;
        match slot.state {
            State::Waiting(_) => {
                slot.state = State::Abandoned;
                Some(slot.op)
            }
            State::Done(_) => {
                self.slots.remove((id & SLOT_MASK) as usize);
                None
            }
            State::Abandoned => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use types::id::{Epoch, Generation, GroupId};
    use wire::frame::{Status, VERSION, flags};

    use super::*;

    fn reply_to(request: u64) -> Reply {
        let header = Header {
            version: VERSION,
            op: Op::Read,
            flags: flags::REPLY,
            status: Status::Ok,
            group: GroupId(0),
            request,
            generation: Generation(0),
            epoch: Epoch(0),
            body_len: 0,
            payload_len: 0,
            body_crc: 0,
            payload_crc: 0,
        };
        Reply { header, body: Slice::empty(), payload: None, rest: None }
    }

    /// The rest of a long reply may come in the same moment in which sending fails.
    #[test]
    fn a_reply_that_is_whole_when_the_connection_has_ended_comes_too_late() {
        let mut pending = Pending::default();
        let id = pending.insert(Op::Read, Held::default(), Waiter::Caller);
        let reply = reply_to(id);
        pending.expect(&reply.header).map(drop).expect("it is asked for");
        assert!(pending.fail_all(&CallError::Closed("test".into())));
        pending.complete(reply);
        let polled = pending.poll(id, &mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Err(CallError::Closed(_)))));
        assert_eq!(pending.len(), 0);
    }
}
