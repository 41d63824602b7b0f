//! For tests: what a shard says of an empty file, and a client in a cluster without servers, so that whatever it has to
//! ask fails in the end.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::map::ClusterMap;
use types::attr::{Attr, FileType};
use types::flags::FileFlags;
use types::id::{Epoch, GroupId, InodeId, SessionId};
use types::layout::Layout;
use types::time::Timestamp;
use wire::v1::meta::InodeReply;

use crate::config::Config;
use crate::file::File;
use crate::{Client, Shared};

pub(crate) fn run<R>(main: impl AsyncFnOnce(Rc<Client>) -> R) -> R {
    let config = Config { retry_timeout: Duration::from_millis(20), share_memory: false, ..Config::default() };
    let key = net::ClusterKey::from_bytes([7; 32]);
    let identity = net::Identity { incarnation: 1, ..net::Identity::new(key, "client") };
    let map = ClusterMap {
        cluster: String::new(),
        epoch: Epoch(1),
        nodes: Default::default(),
        targets: Default::default(),
        groups: Default::default(),
        pools: Default::default(),
        shards: Default::default(),
        deleted_groups: Default::default(),
    };
    let shared = Shared::new(config, SessionId(1), identity, Arc::new(map));
    ring::Ring::new(&ring::Config::default()).expect("a ring").run(async { main(Client::new(shared)).await })
}

pub(crate) fn layout() -> Layout {
    Layout { chunk_size: 4096, groups: vec![GroupId(1)] }
}

/// What a shard answers of an empty file that nobody writes.
pub(crate) fn reply(inode: InodeId) -> InodeReply {
    let time = Timestamp(5);
    let attr = Attr {
        inode,
        kind: FileType::Regular,
        mode: 0o644,
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
    };
    InodeReply {
        attr,
        unsettled: false,
        written_after: None,
        cutting: false,
        cuts: 0,
        exclusive: false,
        alone: false,
        draft: false,
        has_objects: true,
        bare: false,
        intents: 1,
        layout: Some(layout()),
        lease_ms: 0,
        name_lease_ms: 0,
        elsewhere: false,
        standing: None,
        parent: None,
        inline_limit: 0,
        contents: None,
        flags: FileFlags::NONE,
        capability: false,
    }
}

pub(crate) fn file(inode: InodeId) -> File {
    File::new(&reply(inode), layout())
}
