//! From a path to its inode without a kernel in between: one request for each shard on the way.

use types::error::Errno;
use types::id::InodeId;
use types::walk::WalkNames;
use wire::v1::meta::{self, InodeReply};

use crate::caller::Caller;
use crate::lease::{Lease, Subject, Ticket};
use crate::names::{Known, LOOKS_MAX, Named};
use crate::path::{Next, Way};
use crate::router::{Client, Destination};

/// What a shard said of the last name that was looked up.
struct Last {
    ticket: Ticket,
    name: Subject,
    reply: Box<InodeReply>,
}

impl Client {
    /// What `path` leads to: from the root if it begins with a slash, else from the directory `from`. Symbolic links on the
    /// way are followed; one at its end only where `follows` says so, or a slash comes after it.
    ///
    /// Permissions are not looked at, here as little as elsewhere in this client: who acts for somebody else looks up the names
    /// one by one, and judges by the modes that it is told.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`; `ELOOP` after 40 symbolic links; `EINVAL` for a zero byte.
    pub async fn lookup_path(
        &self,
        caller: &Caller<'_>,
        from: InodeId,
        path: &[u8],
        follows: bool,
    ) -> Result<Named, Errno> {
        for _ in 0..LOOKS_MAX {
            match self.find_way(caller, Way::new(from, path, follows)?).await {
                // Something on the way went between two questions: the path says what is there now.
                Err(Errno::ESTALE) => {}
                resolved => return resolved,
            }
        }
        Err(Errno::ESTALE)
    }

    async fn find_way(&self, caller: &Caller<'_>, mut way: Way) -> Result<Named, Errno> {
        let mut last = None;
        loop {
            match way.next()? {
                Next::Walk { directory, place, names } => {
                    last = self.walk(caller, &mut way, (directory, place), names).await?.or(last);
                }
                Next::Parent(directory) => way.rose(self.parent(caller, directory).await?),
                Next::Target(link) => way.turned(&self.readlink(caller, link).await?)?,
                Next::Found(inode) => return self.arrived(caller, inode, last).await,
            }
        }
    }

    /// One request; `None` where it brought nothing new.
    async fn walk(
        &self,
        caller: &Caller<'_>,
        way: &mut Way,
        (directory, place): (InodeId, Option<InodeId>),
        names: WalkNames,
    ) -> Result<Option<Last>, Errno> {
        let start = place.unwrap_or_else(|| self.shared.splits.part(directory, &names[0]));
        // Who is told of recalls may make use of leases (`inode_lease`); others get none, and need not be looked for.
        let request = meta::Walk { start, names, leases: self.shared.kept.is_enabled() };
        let ticket = self.shared.board.ticket();
        let reply = match self.call(caller, Destination::home(start), &request).await {
            // A part that has not got the name yet, or that has gone with its directory.
            Err(Errno::EREMOTE | Errno::ENOENT) if start != directory => return way.misled().map(|()| None),
            reply => reply?,
        };
        let steps = reply.steps.iter().map(|step| (step.attr.inode, step.attr.kind));
        let walked = way.walked(request.names.len(), steps, reply.end);
        let mut last = None;
        let mut parent = directory;
        for (name, step) in request.names.iter().zip(reply.steps) {
            if !step.elsewhere {
                self.inode_lease(ticket, &step);
            }
            let inode = step.attr.inode;
            last = Some(Last { ticket, name: Subject::name(parent, name), reply: step });
            parent = inode;
        }
        walked.map(|()| last)
    }

    /// What is to be told of the inode at the end of a path.
    async fn arrived(&self, caller: &Caller<'_>, inode: InodeId, last: Option<Last>) -> Result<Named, Errno> {
        match last.filter(|last| last.reply.attr.inode == inode) {
            Some(Last { ticket, name, reply }) => {
                let named = self.named(caller, ticket, name, reply).await?;
                self.shared.sightings.note(named.attr);
                Ok(named)
            }
            // The path came to it by going up, or has no names.
            None => {
                let Known { attr, lease } = self.getattr(caller, inode).await?;
                Ok(Named { attr, lease, name_lease: Lease::NONE })
            }
        }
    }
}
