//! Changes of the objects of a file beside a truncate, and beside questions for its size, by the same mount.
//!
//! The kernel lets no other change begin while it waits for a truncate, but a write that nobody waits for (`O_DIRECT` over
//! `io_submit` or io_uring) goes on. Its pieces reach the objects before they are cut or after that, and so may its answer:
//! what this client makes of size and objects then may be wrong. Nobody waits for that; the objects have the say from then on.
//!
//! While a change makes a file longer, other mounts may see that in the objects already. So this one asks them for the size as
//! well until it knows what the change came to.

use std::sync::Arc;

use types::error::Errno;
use types::id::InodeId;

use crate::file::File;
use crate::router::Client;
use crate::shared::Shared;

/// The truncates of the objects of one file, and what makes it longer.
#[derive(Default, Debug)]
pub(crate) struct Cuts {
    /// How many changes are under way that make the file longer than is known here.
    growing: u32,
    /// There is no more than one: it has its turn at the end of the file.
    under_way: bool,
    ended: u64,
    /// How often the shard was told that one is going to begin.
    announced: u64,
}

/// What there was when a change began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    beside_cut: bool,
    ended: u64,
}

/// A change under way that makes a file longer than is known here, until it is dropped.
pub(crate) struct Growth {
    shared: Arc<Shared>,
    inode: InodeId,
}

impl Drop for Growth {
    fn drop(&mut self) {
        self.shared.with_file(self.inode, |file| file.cuts.growing = file.cuts.growing.saturating_sub(1));
    }
}

impl Client {
    /// Objects are about to be changed, up to `end` in the file. The second is to be dropped once [`File::change_ended`] was
    /// called, or the change has failed.
    ///
    /// # Errors
    /// `EBADF` where the file is not open.
    pub(crate) fn change_begins(&self, inode: InodeId, end: u64) -> Result<(Began, Option<Growth>), Errno> {
        let began = self.shared.with_file(inode, |file| {
            let grows = end > file.size;
            file.cuts.growing += u32::from(grows);
            (file.change_begins(), grows)
        });
        let (began, grows) = began.ok_or(Errno::EBADF)?;
        Ok((began, grows.then(|| Growth { shared: Arc::clone(&self.shared), inode })))
    }
}

impl File {
    /// The objects may have more by now than is known here.
    pub(crate) fn is_growing(&self) -> bool {
        self.cuts.growing > 0
    }

    /// Objects are about to be changed.
    fn change_begins(&self) -> Began {
        Began { beside_cut: self.cuts.under_way, ended: self.cuts.ended }
    }

    /// They were, after what this client knows of the file has followed.
    pub(crate) fn change_ended(&mut self, began: Began) {
        if began.beside_cut || self.cuts.under_way || self.cuts.ended != began.ended {
            self.lose_exclusivity();
        }
    }

    /// The shard is about to be told that objects are going to be cut.
    pub(crate) fn cut_is_announced(&mut self) {
        self.cuts.announced += 1;
    }

    pub(crate) fn cuts_announced(&self) -> u64 {
        self.cuts.announced
    }

    /// Objects are about to be cut.
    pub(crate) fn cut_begins(&mut self) {
        self.cuts.under_way = true;
    }

    /// They were, or it failed.
    pub(crate) fn cut_ended(&mut self) {
        self.cuts.under_way = false;
        self.cuts.ended += 1;
    }
}

#[cfg(test)]
mod tests {
    use types::error::Errno;
    use types::id::InodeId;
    use types::time::Timestamp;

    use crate::file::Intent;
    use crate::test_client;

    /// What happens to one file, in this order.
    #[derive(Clone, Copy)]
    enum Step {
        Begins,
        Ends,
        CutBegins,
        CutEnds,
    }

    /// Whether it is still known what the objects have.
    fn is_known_after(steps: &[Step]) -> bool {
        let mut file = test_client::file(InodeId(77));
        file.intent = Intent::Held { exclusive: true, recorded: false, synced: 0, intents: 1 };
        file.size = 8192;
        let mut began = file.change_begins();
        for step in steps {
            match step {
                Step::Begins => began = file.change_begins(),
                Step::Ends => {
                    file.wrote(4096, 4096, Timestamp(9));
                    file.change_ended(began);
                }
                Step::CutBegins => file.cut_begins(),
                Step::CutEnds => {
                    file.truncated(4096);
                    file.cut_ended();
                }
            }
        }
        file.is_exclusive()
    }

    #[test]
    fn a_file_grows_until_the_last_change_that_makes_it_longer_is_over() {
        test_client::run(async |client| {
            let (shared, file) = (&client.shared, InodeId(77));
            assert_eq!(client.change_begins(file, 100).err(), Some(Errno::EBADF), "it is not open");
            shared.with_new_file(file, || test_client::file(file), |file| file.size = 100);
            let grows = || shared.file_is(file, |file| file.is_growing());
            let within = client.change_begins(file, 100).expect("open");
            assert!(!grows());
            let first = client.change_begins(file, 101).expect("open");
            let second = client.change_begins(file, 200).expect("open");
            drop((within, first));
            assert!(grows());
            drop(second);
            assert!(!grows());
        });
    }

    #[test]
    fn the_objects_have_the_say_after_a_change_beside_a_truncate() {
        use Step::{Begins, CutBegins, CutEnds, Ends};
        for overlapping in [
            [Begins, CutBegins, CutEnds, Ends],
            [Begins, CutBegins, Ends, CutEnds],
            [CutBegins, Begins, CutEnds, Ends],
            [CutBegins, Begins, Ends, CutEnds],
        ] {
            assert!(!is_known_after(&overlapping));
        }
        assert!(is_known_after(&[Begins, Ends, CutBegins, CutEnds, Begins, Ends]), "one after the other");
    }
}
