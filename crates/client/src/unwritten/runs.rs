//! Bytes at their places in a file, the newest ones where several were put to one place. Pure.

use std::collections::BTreeMap;

/// Each run is a request of its own, and takes memory of its own: as much as so many bytes.
pub(crate) const RUN_WEIGHT: usize = 4 << 10;

/// Runs of bytes, none of which touches the next one.
#[derive(Default, Debug)]
pub(crate) struct Runs {
    runs: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
}

impl Runs {
    /// What it takes to keep and to write them: their bytes, and [`RUN_WEIGHT`] for each.
    pub(crate) fn weight(&self) -> usize {
        self.bytes + RUN_WEIGHT * self.runs.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// In the order of their offsets.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.runs.iter().map(|(&offset, run)| (offset, &run[..]))
    }

    /// Puts `data` to `offset`, over what is there.
    pub(crate) fn put(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let reaches = |(begin, run): (&u64, &Vec<u8>)| (begin + run.len() as u64 >= offset).then_some(*begin);
        let before = self.runs.range(..=offset).next_back().and_then(reaches);
        let begin = before.unwrap_or(offset);
        let mut run = self.runs.remove(&begin).unwrap_or_default();
        self.bytes -= run.len();
        let at = (offset - begin) as usize;
        let over = (run.len() - at).min(data.len());
        run[at..at + over].copy_from_slice(&data[..over]);
        run.extend_from_slice(&data[over..]);
        while let Some((&next, _)) = self.runs.range(offset..).next() {
            let end = begin + run.len() as u64;
            if next > end {
                break;
            }
            let tail = self.runs.remove(&next).unwrap_or_default();
            self.bytes -= tail.len();
            run.extend_from_slice(tail.get((end - next) as usize..).unwrap_or_default());
        }
        self.bytes += run.len();
        self.runs.insert(begin, run);
    }

    /// Drops what is at `size` or after it.
    pub(crate) fn cut(&mut self, size: u64) {
        let beyond = self.runs.split_off(&size);
        self.bytes -= beyond.values().map(Vec::len).sum::<usize>();
        if let Some((begin, run)) = self.runs.iter_mut().next_back() {
            let len = run.len();
            run.truncate(usize::try_from(size - begin).unwrap_or(usize::MAX));
            self.bytes -= len - run.len();
        }
    }

    /// Puts all of `newer` over these.
    pub(crate) fn put_all(&mut self, newer: &Runs) {
        for (offset, run) in newer.iter() {
            self.put(offset, run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(runs: &Runs) -> Vec<(u64, Vec<u8>)> {
        runs.iter().map(|(offset, run)| (offset, run.to_vec())).collect()
    }

    #[test]
    fn what_follows_grows_one_run() {
        let mut runs = Runs::default();
        runs.put(10, b"abc");
        runs.put(13, b"de");
        runs.put(8, b"xy");
        assert_eq!(all(&runs), [(8, b"xyabcde".to_vec())]);
        runs.put(20, b"z");
        assert_eq!((runs.iter().count(), runs.weight()), (2, 8 + 2 * RUN_WEIGHT));
    }

    proptest! {
        #[test]
        fn is_as_bytes_written_one_after_the_other(
            writes in prop::collection::vec((0usize..200, prop::collection::vec(1u8.., 0..40)), 0..30),
            half in 0usize..30,
            cut in prop::option::of(0usize..250),
        ) {
            let mut model = vec![0u8; 300];
            let (mut older, mut newer) = (Runs::default(), Runs::default());
            for (number, (offset, data)) in writes.iter().enumerate() {
                model[*offset..offset + data.len()].copy_from_slice(data);
                if number < half { older.put(*offset as u64, data) } else { newer.put(*offset as u64, data) }
            }
            older.put_all(&newer);
            if let Some(cut) = cut {
                older.cut(cut as u64);
                model[cut..].fill(0);
            }
            let mut seen = vec![0u8; 300];
            let mut end = None;
            for (offset, run) in older.iter() {
                prop_assert!(end.is_none_or(|end| offset > end), "runs that touch");
                end = Some(offset + run.len() as u64);
                seen[offset as usize..offset as usize + run.len()].copy_from_slice(run);
            }
            prop_assert_eq!(&seen, &model);
            let bytes = older.weight() - RUN_WEIGHT * older.iter().count();
            prop_assert_eq!(bytes, model.iter().filter(|&&byte| byte != 0).count());
        }
    }
}
