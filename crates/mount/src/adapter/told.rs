//! What the kernel is told of inodes and names, for how long it may keep that, and when it has to forget it.

use std::iter;
use std::time::{Duration, Instant};

use client::{Caller, Known, Lease, Named};
use fuse::Context;
use fuse::filesystem::{Attributes, Entry};
use types::attr::Attr;
use types::error::Errno;
use types::id::InodeId;

use super::Adapter;

impl Adapter {
    /// The kernel doubts size and times after a write, but not the mode, by which it decides who may run the file as whom, nor
    /// access control lists; and after other changes only what it knew before: an answer from before the change may reach it
    /// after that, by a program that waited for its CPU.
    pub(super) fn attributes_changed(&self, inode: InodeId) {
        if let Some(notifier) = self.notifier.get() {
            // It knows the inode: it is about to write it, or has just asked for a change.
            let _ = notifier.forget_attributes(inode);
        }
    }

    /// The kernel keeps what it is told of a list, or that there is none, until it forgets the inode or asks for its
    /// attributes.
    pub(super) async fn list(&self, context: &Context, inode: InodeId, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let (list, lease) = as_caller!(context, caller => self.client.get_acl(caller, inode, name).await);
        self.gate.enter();
        if !self.client.may_keep_acl(inode, self.gate.remaining(lease, Instant::now())) {
            // It does not keep what it was told to forget while it waited for that.
            self.attributes_changed(inode);
        }
        list
    }

    /// After an own change in it. The kernel doubts its attributes then by itself, but an answer from before the change may
    /// reach it only after that, by a program that waited for its CPU: that one it does not believe either.
    pub(super) fn directory_changed(&self, directory: InodeId) {
        self.attributes_changed(directory);
    }

    /// What the kernel may keep of what is `known` of an inode, and for how long.
    pub(super) fn attributes(&self, attr: &Attr, lease: Lease, now: Instant) -> Attributes {
        Attributes { attr: *attr, valid: self.gate.remaining(lease, now) }
    }

    /// What the kernel may keep of `named`, and for how long. No wait may follow until the answer is out.
    pub(super) async fn entry(&self, named: &Named) -> Entry {
        self.client.end_listings(iter::once(&named.attr)).await;
        self.gate.enter();
        self.entry_inside(named, Instant::now())
    }

    /// What the kernel may keep of an inode that was found by its file handle, and for how long. No wait may follow
    /// until the answer is out.
    ///
    /// # Errors
    /// `ESTALE` where it has no name: its file handle is good for nothing but what has it open, and of that the kernel
    /// knows.
    pub(super) async fn entry_without_name(&self, known: &Known) -> Result<Entry, Errno> {
        if known.attr.nlink == 0 {
            return Err(Errno::ESTALE);
        }
        self.client.end_listings(iter::once(&known.attr)).await;
        self.gate.enter();
        let Attributes { attr, valid } = self.attributes(&known.attr, known.lease, Instant::now());
        Ok(Entry { attr, attr_valid: valid, name_valid: Duration::ZERO })
    }

    pub(super) fn entry_inside(&self, named: &Named, now: Instant) -> Entry {
        let Attributes { attr, valid } = self.attributes(&named.attr, named.lease, now);
        Entry { attr, attr_valid: valid, name_valid: self.gate.remaining(named.name_lease, now) }
    }
}
