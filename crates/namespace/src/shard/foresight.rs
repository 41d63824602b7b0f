//! Looks ahead at what the requests of a turn will look at. Edges and inodes in memory lie far apart: executed one after
//! the other, each request waits for memory several times; asked for together, they come together.

use kv::Kv;
use types::id::InodeId;

use crate::edges::Slot;
use crate::shard::Shard;
use types::name_hash::name_hash;

/// What was foreseen and is not near yet.
#[derive(Default)]
pub(crate) struct Foresight {
    names: Vec<Slot>,
    inodes: Vec<InodeId>,
}

impl<K: Kv> Shard<K> {
    /// A request will look for this name, and for what it stands for.
    pub fn foresee_name(&mut self, parent: InodeId, name: &[u8]) {
        self.foresight.names.push((parent, name_hash(name)));
    }

    /// A request will look at this inode.
    pub fn foresee_inode(&mut self, inode: InodeId) {
        self.foresight.inodes.push(inode);
    }

    /// Brings near what was foreseen, as far as it is in memory. What of it is true the requests find out.
    pub fn approach(&mut self) {
        let Foresight { names, inodes } = &mut self.foresight;
        self.namespace.edges.approach(names, |child| inodes.push(child));
        self.namespace.inodes.approach(inodes);
        names.clear();
        inodes.clear();
    }
}
