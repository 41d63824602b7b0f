//! Which block comes next, and what is in it. Pure.

/// Each so many bytes of a file begin with a number that tells file and place.
const STAMP_EVERY: usize = 4096;

/// The order in which one thread goes through its file.
pub(super) struct Order {
    /// Blocks of the file.
    blocks: u64,
    /// For the next block.
    state: State,
}

enum State {
    Sequential(u64),
    /// xorshift64*.
    Random(u64),
}

impl Order {
    pub(super) fn sequential(blocks: u64) -> Self {
        Self { blocks, state: State::Sequential(0) }
    }

    /// Each block is as likely as any other, every time. The same `seed` gives the same order.
    pub(super) fn random(blocks: u64, seed: u64) -> Self {
        Self { blocks, state: State::Random(mixed(seed)) }
    }

    /// Number of the next block; after the last comes the first.
    pub(super) fn next(&mut self) -> u64 {
        match &mut self.state {
            State::Sequential(next) => {
                let block = *next;
                *next = (block + 1) % self.blocks;
                block
            }
            State::Random(state) => {
                let random = step(state);
                // The upper half of the product: uniform enough without a division.
                ((u128::from(random) * u128::from(self.blocks)) >> 64) as u64
            }
        }
    }
}

/// Bytes that no disk can compress or has already.
pub(super) fn fill(block: &mut [u8], seed: u64) {
    let mut state = mixed(seed);
    for word in block.chunks_mut(8) {
        word.copy_from_slice(&step(&mut state).to_le_bytes()[..word.len()]);
    }
}

/// Makes `block` the one that belongs at `offset` of the file of `thread`.
pub(super) fn stamp(block: &mut [u8], thread: u32, offset: u64) {
    for (page, at) in block.chunks_mut(STAMP_EVERY).zip((offset..).step_by(STAMP_EVERY)) {
        page[..8].copy_from_slice(&number(thread, at).to_le_bytes());
    }
}

/// Whether all of `block` belongs there.
pub(super) fn is_stamped(block: &[u8], thread: u32, offset: u64) -> bool {
    let mut pages = block.chunks(STAMP_EVERY).zip((offset..).step_by(STAMP_EVERY));
    pages.all(|(page, at)| page[..8] == number(thread, at).to_le_bytes())
}

fn number(thread: u32, offset: u64) -> u64 {
    mixed(offset ^ u64::from(thread) << 56 ^ u64::from(thread))
}

/// The finaliser of splitmix64; never 0, which would be xorshift's end.
fn mixed(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).max(1)
}

fn step(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_goes_round() {
        let mut order = Order::sequential(3);
        let taken: Vec<u64> = (0..7).map(|_| order.next()).collect();
        assert_eq!(taken, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn random_reaches_every_block_about_as_often() {
        let mut order = Order::random(10, 7);
        let mut counts = [0; 10];
        (0..10_000).for_each(|_| counts[order.next() as usize] += 1);
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
        let (mut one, mut same, mut other) =
            (Order::random(1 << 40, 7), Order::random(1 << 40, 7), Order::random(1 << 40, 8));
        let first = one.next();
        assert_eq!(first, same.next());
        assert_ne!(first, other.next());
    }

    #[test]
    fn a_block_tells_where_it_belongs() {
        let mut block = vec![0; 3 * STAMP_EVERY];
        fill(&mut block, 1);
        assert!(!is_stamped(&block, 0, 0));
        stamp(&mut block, 5, 1 << 20);
        assert!(is_stamped(&block, 5, 1 << 20));
        assert!(!is_stamped(&block, 6, 1 << 20), "another file's");
        assert!(!is_stamped(&block, 5, 2 << 20), "another place's");
        block[2 * STAMP_EVERY] ^= 1;
        assert!(!is_stamped(&block, 5, 1 << 20), "the last page counts");
    }

    #[test]
    fn contents_do_not_repeat() {
        let mut block = vec![0; 1 << 16];
        fill(&mut block, 3);
        let words: std::collections::BTreeSet<&[u8]> = block.chunks(8).collect();
        assert_eq!(words.len(), block.len() / 8);
    }
}
