//! Changes of the objects of a file beside a truncate by the same mount.
//!
//! The kernel lets no other change begin while it waits for a truncate, but a write that nobody waits for (`O_DIRECT` over
//! `io_submit` or io_uring) goes on. Its pieces reach the objects before they are cut or after that, and so may its answer:
//! what this client makes of size and objects then may be wrong. Nobody waits for that; the objects have the say from then on.

use crate::file::File;

/// The truncates of the objects of one file.
#[derive(Default, Debug)]
pub(crate) struct Cuts {
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

impl File {
    /// Objects are about to be changed.
    pub(crate) fn change_begins(&self) -> Began {
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
