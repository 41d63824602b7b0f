//! Who holds one inode.

use types::id::SessionId;

/// All sessions that hold an inode: mostly one, but also as many as there are.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Holders {
    /// In the order of their sessions.
    all: Vec<Holder>,
    /// How many of them intend to write it, and truncate its objects.
    intents: u32,
    cuts: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Holder {
    pub(super) session: SessionId,
    pub(super) open: bool,
    pub(super) intent: bool,
    /// It is truncating the objects, under its intent.
    pub(super) cuts: bool,
    /// Somebody else has set the modification time under its intent, perhaps to the one that it knows.
    pub(super) overruled: bool,
}

impl Holder {
    /// It holds nothing yet.
    pub(super) fn new(session: SessionId) -> Self {
        Self { session, open: false, intent: false, cuts: false, overruled: false }
    }
}

impl Holders {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Holder> {
        self.all.iter()
    }

    pub(super) fn get(&self, session: SessionId) -> Option<&Holder> {
        self.find(session).ok().map(|at| &self.all[at])
    }

    fn find(&self, session: SessionId) -> Result<usize, usize> {
        self.all.binary_search_by_key(&session, |holder| holder.session)
    }

    /// What `session` holds from now on, which may be nothing.
    pub(super) fn set(&mut self, session: SessionId, holder: Option<Holder>) {
        let place = self.find(session);
        let before = place.ok().map(|at| self.all[at]);
        let count = |is: fn(&Holder) -> bool| {
            let counts = |holder: Option<Holder>| u32::from(holder.is_some_and(|holder| is(&holder)));
            (counts(before), counts(holder))
        };
        let (intents, cuts) = (count(|holder| holder.intent), count(|holder| holder.cuts));
        self.intents = self.intents - intents.0 + intents.1;
        self.cuts = self.cuts - cuts.0 + cuts.1;
        match (place, holder) {
            (Ok(at), Some(holder)) => self.all[at] = holder,
            (Ok(at), None) => drop(self.all.remove(at)),
            (Err(at), Some(holder)) => self.all.insert(at, holder),
            (Err(_), None) => {}
        }
    }

    pub(super) fn any_intends(&self) -> bool {
        self.intents > 0
    }

    pub(super) fn others_intend(&self, session: SessionId) -> bool {
        self.intents > u32::from(self.get(session).is_some_and(|holder| holder.intent))
    }

    pub(super) fn any_cuts(&self) -> bool {
        self.cuts > 0
    }
}
