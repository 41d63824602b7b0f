//! Changes of objects that nobody waits for any more, since their program was killed or the bound was over, but which may
//! still be carried out. The connection that they were sent over ends; until the server has ended there what it was asked
//! for, nothing else is done to the object: a later change would be undone by the earlier one.

use std::sync::Arc;
use std::time::Duration;

use types::id::ObjectId;
use wire::v1::storage::TargetStat;

use crate::few::Counted;
use crate::looks::Looks;
use crate::retry::{Failure, Sent};
use crate::router::{Client, Destination, Payloads};
use crate::shared::Shared;

/// Between two questions to a server that cannot be reached.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// The objects of which a change is in doubt, for all threads of a mount.
#[derive(Default)]
pub(crate) struct Doubts(Counted<ObjectId>);

/// One of them, until it is dropped.
struct Doubt {
    shared: Arc<Shared>,
    object: ObjectId,
}

impl Doubts {
    pub(crate) fn are_on(&self, object: ObjectId) -> bool {
        self.0.has(&object)
    }

    pub(crate) async fn while_on(&self, object: ObjectId) {
        let mut looks = Looks::default();
        while self.are_on(object) {
            looks.pause().await;
        }
    }
}

impl Drop for Doubt {
    fn drop(&mut self) {
        self.shared.doubts.0.end(&self.object);
    }
}

impl Client {
    /// A change of this object was given up. Whoever answers over a new connection to its server has ended what was asked for
    /// over the old one.
    pub(crate) fn doubt(&self, object: Destination) {
        let Destination::Object(group, id) = object else { return };
        self.shared.doubts.0.begin(id);
        // Who asks from here on waits for the end of the doubt.
        self.shared.with_file(id.inode, |file| file.streams.clear());
        let doubt = Doubt { shared: Arc::clone(&self.shared), object: id };
        self.in_background(async move |client| {
            let ask = async || client.attempt(object, &TargetStat { group }, Payloads::NONE, &Sent::default()).await;
            // Any answer will do, also that the target is gone.
            while let Err(Failure::Unreachable(_) | Failure::NoRoute) = ask().await
                && !client.shared.has_ended()
            {
                ring::sleep(ASK_AGAIN).await;
            }
            drop(doubt);
        });
    }
}

#[cfg(test)]
mod tests {
    use types::id::InodeId;

    use super::*;

    #[test]
    fn the_last_doubt_of_an_object_ends_it() {
        let doubts = Doubts::default();
        let object = |stripe| ObjectId { inode: InodeId(1), stripe };
        let (one, other) = (object(0), object(1));
        doubts.0.begin(one);
        doubts.0.begin(one);
        doubts.0.begin(other);
        doubts.0.end(&one);
        assert!(doubts.are_on(one) && doubts.are_on(other));
        doubts.0.end(&one);
        assert!(!doubts.are_on(one) && doubts.are_on(other));
        doubts.0.end(&other);
        assert!(!doubts.are_on(other));
    }
}
