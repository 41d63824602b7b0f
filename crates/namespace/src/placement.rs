//! Which groups a new file gets: a weighted random choice without repetition.

use std::collections::BTreeMap;

use types::error::Errno;
use types::id::{GroupId, PoolId};
use types::layout::LayoutPolicy;

use crate::view::{GroupSpace, PoolSpace, SpaceClass};

/// Of so many groups a choice looks at all that are left, each time.
const FEW: usize = 16;
/// Draws that may hit a group already chosen before the choice goes through the rest one by one.
const REDRAWS_MAX: u32 = 16;
/// One unit of weight: a group with less free space still counts as one.
const WEIGHT_BYTES: u64 = 1 << 20;

/// The pools, and the dice.
pub(crate) struct Placement {
    pools: BTreeMap<PoolId, Pool>,
    dice: Dice,
    chosen: Vec<GroupId>,
}

/// A pool's groups by class.
#[derive(Default)]
struct Pool {
    normal: Weighted,
    low: Weighted,
    emergency: Weighted,
}

#[derive(Default)]
struct Weighted {
    groups: Vec<GroupId>,
    /// Sum of the weights up to and with each group.
    sums: Vec<u64>,
}

impl Placement {
    pub(crate) fn new(seed: u64) -> Self {
        Self { pools: BTreeMap::new(), dice: Dice(seed), chosen: Vec::new() }
    }

    pub(crate) fn set_pools(&mut self, pools: Vec<PoolSpace>) {
        self.pools = pools.into_iter().map(|space| (space.pool, Pool::new(&space.groups))).collect();
    }

    /// A number below `bound`, which is at least 1.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.dice.below(bound)
    }

    pub(crate) fn knows(&self, pool: PoolId) -> bool {
        self.pools.contains_key(&pool)
    }

    /// At most `policy.stripe_count` different groups of the pool: those with space, then those with little; those with
    /// next to none only where there are no others. The default pool stands for one that was removed, which directories still
    /// may name, and for one that this shard has not heard of yet.
    ///
    /// # Errors
    /// `ENOSPC` where the pool has no group.
    pub(crate) fn choose(&mut self, policy: &LayoutPolicy) -> Result<&[GroupId], Errno> {
        let pool = self.pools.get(&policy.pool).or_else(|| self.pools.get(&PoolId::DEFAULT)).ok_or(Errno::ENOSPC)?;
        let count = usize::from(policy.stripe_count);
        self.chosen.clear();
        pool.normal.draw(&mut self.dice, count, &mut self.chosen);
        pool.low.draw(&mut self.dice, count, &mut self.chosen);
        if self.chosen.is_empty() {
            pool.emergency.draw(&mut self.dice, count, &mut self.chosen);
        }
        if self.chosen.is_empty() { Err(Errno::ENOSPC) } else { Ok(&self.chosen) }
    }
}

impl Pool {
    fn new(groups: &[GroupSpace]) -> Self {
        let mut pool = Self::default();
        for space in groups {
            match space.class {
                SpaceClass::Normal => pool.normal.add(space),
                SpaceClass::Low => pool.low.add(space),
                SpaceClass::Emergency => pool.emergency.add(space),
            }
        }
        pool
    }
}

impl Weighted {
    fn add(&mut self, space: &GroupSpace) {
        let before = self.sums.last().copied().unwrap_or(0);
        self.groups.push(space.group);
        self.sums.push(before.saturating_add((space.free_bytes / WEIGHT_BYTES).max(1)));
    }

    /// Fills `chosen` up to `count` with groups of its own.
    fn draw(&self, dice: &mut Dice, count: usize, chosen: &mut Vec<GroupId>) {
        let own = chosen.len();
        let wanted = count.saturating_sub(own).min(self.groups.len());
        if self.groups.len() <= FEW {
            return self.draw_of_few(dice, wanted, chosen);
        }
        let mut redraws = 0;
        while chosen.len() < own + wanted {
            let group = self.groups[self.pick(dice)];
            if !chosen[own..].contains(&group) {
                chosen.push(group);
            } else if redraws < REDRAWS_MAX {
                redraws += 1;
            } else {
                return self.draw_rest(dice, own + wanted, own, chosen);
            }
        }
    }

    /// Where a file has a stripe on most of the groups there are, or all, nearly every draw would hit one that is taken.
    fn draw_of_few(&self, dice: &mut Dice, wanted: usize, chosen: &mut Vec<GroupId>) {
        let mut left = [0; FEW];
        let (mut total, mut before) = (0, 0);
        for (weight, &sum) in left.iter_mut().zip(&self.sums) {
            *weight = sum - before;
            (total, before) = (sum, sum);
        }
        for _ in 0..wanted {
            let mut point = dice.below(total.max(1));
            for (weight, &group) in left.iter_mut().zip(&self.groups) {
                if point < *weight {
                    chosen.push(group);
                    total -= std::mem::take(weight);
                    break;
                }
                point -= *weight;
            }
        }
    }

    /// The slow way, for where most groups or most of the weight are taken: exact, over what is left.
    fn draw_rest(&self, dice: &mut Dice, until: usize, own: usize, chosen: &mut Vec<GroupId>) {
        let mut rest = Self::default();
        let mut before = 0;
        for (&group, &sum) in self.groups.iter().zip(&self.sums) {
            if !chosen[own..].contains(&group) {
                rest.add(&GroupSpace {
                    group,
                    class: SpaceClass::Normal,
                    free_bytes: (sum - before).saturating_mul(WEIGHT_BYTES),
                });
            }
            before = sum;
        }
        while chosen.len() < until && !rest.groups.is_empty() {
            let at = rest.pick(dice);
            chosen.push(rest.take(at));
        }
    }

    fn pick(&self, dice: &mut Dice) -> usize {
        let total = self.sums.last().copied().unwrap_or(1);
        let point = dice.below(total);
        self.sums.partition_point(|&sum| sum <= point).min(self.groups.len() - 1)
    }

    fn take(&mut self, at: usize) -> GroupId {
        let before = if at == 0 { 0 } else { self.sums[at - 1] };
        let weight = self.sums.remove(at) - before;
        for sum in &mut self.sums[at..] {
            *sum -= weight;
        }
        self.groups.remove(at)
    }
}

/// `SplitMix64` (Steele, Lea, Flood 2014): small, and good enough to spread files.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is at least 1.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(groups: &[(u32, SpaceClass, u64)]) -> Vec<PoolSpace> {
        let groups = groups.iter().map(|&(id, class, free_bytes)| GroupSpace { group: GroupId(id), class, free_bytes });
        vec![PoolSpace { pool: PoolId(1), groups: groups.collect() }]
    }

    fn policy(stripe_count: u16) -> LayoutPolicy {
        LayoutPolicy { stripe_count, ..LayoutPolicy::default() }
    }

    #[test]
    fn never_repeats_a_group_and_takes_all_where_it_must() {
        let mut placement = Placement::new(1);
        placement
            .set_pools(pool(&(1..=10).map(|id| (id, SpaceClass::Normal, u64::from(id) << 40)).collect::<Vec<_>>()));
        for count in 1..=20 {
            for _ in 0..100 {
                let mut chosen = placement.choose(&policy(count)).unwrap().to_vec();
                assert_eq!(chosen.len(), usize::from(count.min(10)));
                chosen.sort();
                chosen.dedup();
                assert_eq!(chosen.len(), usize::from(count.min(10)));
            }
        }
    }

    #[test]
    fn prefers_space_and_uses_the_last_of_it_only_alone() {
        use SpaceClass::{Emergency, Low, Normal};
        let mut placement = Placement::new(2);
        placement.set_pools(pool(&[(1, Normal, 1 << 30), (2, Low, 1 << 40), (3, Emergency, 1 << 50)]));
        for _ in 0..50 {
            assert_eq!(placement.choose(&policy(1)).unwrap(), [GroupId(1)]);
            assert_eq!(placement.choose(&policy(4)).unwrap(), [GroupId(1), GroupId(2)]);
        }
        placement.set_pools(pool(&[(3, Emergency, 0)]));
        assert_eq!(placement.choose(&policy(4)).unwrap(), [GroupId(3)]);
        placement.set_pools(pool(&[]));
        assert_eq!(placement.choose(&policy(4)), Err(Errno::ENOSPC));
        placement.set_pools(Vec::new());
        assert_eq!(placement.choose(&policy(4)), Err(Errno::ENOSPC));
    }

    #[test]
    fn the_default_pool_stands_for_one_that_was_removed() {
        let mut placement = Placement::new(5);
        let [default, mut other] = [1, 2].map(|id| pool(&[(id, SpaceClass::Normal, 1 << 30)]).remove(0));
        other.pool = PoolId(2);
        let of_other = LayoutPolicy { pool: PoolId(2), ..policy(1) };
        placement.set_pools(vec![default.clone(), other]);
        assert_eq!(placement.choose(&of_other).unwrap(), [GroupId(2)]);
        placement.set_pools(vec![default.clone()]);
        assert_eq!(placement.choose(&of_other).unwrap(), [GroupId(1)]);
        placement.set_pools(vec![default, PoolSpace { pool: PoolId(2), groups: Vec::new() }]);
        assert_eq!(placement.choose(&of_other), Err(Errno::ENOSPC), "one without targets is no removed one");
    }

    #[test]
    fn follows_the_weights() {
        let mut placement = Placement::new(3);
        placement.set_pools(pool(&[(1, SpaceClass::Normal, 3 << 40), (2, SpaceClass::Normal, 1 << 40)]));
        let ones = (0..10_000).filter(|_| placement.choose(&policy(1)).unwrap() == [GroupId(1)]).count();
        assert!((7_200..7_800).contains(&ones), "{ones} of 10000");
    }

    #[test]
    fn one_heavy_group_does_not_stall_the_choice() {
        let mut placement = Placement::new(4);
        let mut groups: Vec<_> = (2..=100).map(|id| (id, SpaceClass::Normal, 0)).collect();
        groups.push((1, SpaceClass::Normal, u64::MAX));
        placement.set_pools(pool(&groups));
        for _ in 0..100 {
            assert_eq!(placement.choose(&policy(8)).unwrap().len(), 8);
        }
    }
}
