//! The buffer that the next request is received into.

use std::cell::RefCell;

use ring::buf::Buf;

use crate::abi::{self, InHeader, WriteIn};
use crate::transport::Message;

const PAGE: usize = 4096;
/// Messages begin here in their buffer, so that the data of a write lies at the beginning of a page.
const MESSAGE_START: usize = PAGE - size_of::<InHeader>() - size_of::<WriteIn>();
/// Room for the arguments of requests other than writes, beyond `max_write`.
const ARGUMENTS_MAX: usize = PAGE;

/// Gives the same buffer out again and again, and a new one where the last is still in use.
pub(crate) struct Spare {
    buffer: RefCell<Option<Buf>>,
    len: usize,
}

impl Spare {
    /// For requests with up to `max_write` bytes of data.
    pub(crate) fn new(max_write: u32) -> Self {
        let len = (MESSAGE_START + abi::READ_BUFFER_MIN).max(PAGE + max_write as usize + ARGUMENTS_MAX);
        Self { buffer: RefCell::default(), len }
    }

    pub(crate) fn take(&self) -> Buf {
        self.buffer.borrow_mut().take().unwrap_or_else(|| {
            let mut region = Buf::shareable(self.len);
            region.split_off(MESSAGE_START)
        })
    }

    pub(crate) fn put_back(&self, message: Message) {
        *self.buffer.borrow_mut() = Some(message.into_buf());
    }
}
