//! One file that is locked through all mounts, for sharing or alone.

use std::fs::{File, TryLockError};

use harness::dice::Dice;
use harness::linear::Thing;

use crate::{Arena, CLIENTS, Floor};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kind {
    Shared,
    Exclusive,
}

/// What each client holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Locks([Option<Kind>; CLIENTS]);

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// And whether it was given.
    Try(Kind, bool),
    Unlock,
}

impl Thing for Locks {
    type Operation = Operation;

    fn after(&self, client: usize, operation: &Operation) -> impl IntoIterator<Item = Self> {
        let mut after = self.clone();
        match operation {
            Operation::Unlock => after.0[client] = None,
            Operation::Try(kind, given) => {
                let both_share = |held: Kind| held == Kind::Shared && *kind == Kind::Shared;
                let others = self.0.iter().enumerate().filter(|(other, _)| *other != client);
                let is_free = others.filter_map(|(_, held)| *held).all(both_share);
                if *given != is_free {
                    return None;
                }
                if *given {
                    after.0[client] = Some(*kind);
                }
            }
        }
        Some(after)
    }
}

pub(crate) struct Hands {
    file: File,
    holds: bool,
}

impl Arena for Locks {
    type Hands = Hands;

    fn prepare(floor: &Floor, round: u64) -> (Self, Vec<Hands>) {
        let name = format!("two/locked-{round}");
        File::create_new(floor.cluster.path(&name)).unwrap();
        let open = |mount: &std::path::PathBuf| File::options().read(true).write(true).open(mount.join(&name)).unwrap();
        let hands = floor.mounts.iter().map(|mount| Hands { file: open(mount), holds: false }).collect();
        (Self([None; CLIENTS]), hands)
    }

    fn act(hands: &mut Hands, dice: &mut Dice) -> Operation {
        if std::mem::take(&mut hands.holds) {
            hands.file.unlock().unwrap();
            return Operation::Unlock;
        }
        let kind = *dice.pick(&[Kind::Shared, Kind::Shared, Kind::Exclusive]);
        let tried = if kind == Kind::Shared { hands.file.try_lock_shared() } else { hands.file.try_lock() };
        hands.holds = match tried {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => panic!("{error}"),
        };
        Operation::Try(kind, hands.holds)
    }
}
