//! The size of a striped file as it was at one moment, from objects that are asked one by one. Pure.
//!
//! Nobody stops the writers meanwhile. An object that was asked early may be longer by the time the one that decides on the
//! size is asked; then the answer of that one is the size of no moment: a later write near the beginning would be seen
//! without an earlier one further on. So all but the deciding object are asked once more. Between truncates objects only
//! grow. Where none of them reaches further even then, none did when the deciding one answered, and the size is that of this
//! moment. Else another one decides, and the rest are asked again.

use layout::logical_end;
use types::layout::Layout;
use wire::v1::storage::ObjectStat;

/// So often all objects (but one) are asked, before a size is told that may lack what others wrote meanwhile. It takes
/// somebody who makes the file longer during each of them.
const LOOKS_MAX: usize = 8;

/// One gathering. Ask what [`Sweep::wanted`] names, tell the answers to [`Sweep::saw`], until nothing is wanted.
#[derive(Debug)]
pub(crate) struct Sweep<'a> {
    layout: &'a Layout,
    objects: Vec<ObjectStat>,
    /// The stripe that reached furthest at the last look, and how far; `None` before the first, and of an empty file.
    deciding: Option<(u32, u64)>,
    looks: usize,
    is_done: bool,
}

impl<'a> Sweep<'a> {
    pub(crate) fn new(layout: &'a Layout) -> Self {
        Self { layout, objects: Vec::new(), deciding: None, looks: 0, is_done: false }
    }

    /// The stripes to ask now.
    pub(crate) fn wanted(&self) -> Vec<u32> {
        let all = 0..self.layout.groups.len() as u32;
        let deciding = self.deciding.map(|(stripe, _)| stripe);
        if self.is_done { Vec::new() } else { all.filter(|&stripe| Some(stripe) != deciding).collect() }
    }

    /// What those said that were wanted, in the same order, each asked after the last look was over.
    ///
    /// # Panics
    /// Where these are not as many as were wanted.
    pub(crate) fn saw(&mut self, answers: Vec<ObjectStat>) {
        let wanted = self.wanted();
        assert_eq!(answers.len(), wanted.len(), "an answer of each");
        if self.objects.is_empty() {
            self.objects = answers;
        } else {
            wanted.into_iter().zip(answers).for_each(|(stripe, answer)| self.objects[stripe as usize] = answer);
        }
        let ends =
            (0u32..).zip(&self.objects).map(|(stripe, object)| (stripe, logical_end(self.layout, stripe, object.size)));
        let deciding = ends.filter(|&(_, end)| end > 0).max_by_key(|&(_, end)| end);
        self.looks += 1;
        // A file that was empty all over was so when the look began.
        self.is_done =
            deciding.is_none() || deciding == self.deciding || self.objects.len() == 1 || self.looks == LOOKS_MAX;
        self.deciding = deciding;
    }

    /// The last answer of each object, in the order of the stripes.
    pub(crate) fn into_objects(self) -> Vec<ObjectStat> {
        self.objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use types::id::GroupId;
    use types::time::Timestamp;

    const STRIPES: u32 = 3;

    fn layout() -> Layout {
        Layout { chunk_size: 4096, groups: (1..=STRIPES).map(GroupId).collect() }
    }

    fn object(size: u64) -> ObjectStat {
        ObjectStat { exists: true, version: 1, size, blocks: 0, mtime: Timestamp(0) }
    }

    /// Objects that are asked one after the other in any order while writes come to an end, one after the other, anywhere in
    /// between.
    #[derive(Clone)]
    struct World {
        sizes: [u64; STRIPES as usize],
        writes: Vec<(u32, u64)>,
        looks: Vec<Vec<ObjectStat>>,
        /// Of the look under way.
        wanted: Vec<u32>,
        answers: Vec<(u32, u64)>,
        were: BTreeSet<u64>,
        looks_max: usize,
    }

    impl World {
        fn size(&self) -> u64 {
            layout::file_size(&layout(), self.sizes)
        }

        /// Goes on in every way there is; how many of them told a size that never was.
        fn go_on(mut self) -> u64 {
            self.were.insert(self.size());
            let mut wrong = 0;
            if let [(stripe, size), rest @ ..] = &self.writes[..] {
                let mut next = Self { writes: rest.to_vec(), ..self.clone() };
                let at = &mut next.sizes[*stripe as usize];
                *at = (*at).max(*size);
                wrong += next.go_on();
            }
            for (index, &stripe) in self.wanted.iter().enumerate() {
                let mut next = self.clone();
                next.wanted.remove(index);
                next.answers.push((stripe, self.sizes[stripe as usize]));
                wrong += if next.wanted.is_empty() { next.look_is_over() } else { next.go_on() };
            }
            wrong
        }

        fn look_is_over(mut self) -> u64 {
            self.answers.sort_unstable();
            self.looks.push(self.answers.drain(..).map(|(_, size)| object(size)).collect());
            let layout = layout();
            let mut sweep = Sweep::new(&layout);
            self.looks.iter().for_each(|look| sweep.saw(look.clone()));
            self.wanted = sweep.wanted();
            if self.wanted.is_empty() || self.looks.len() == self.looks_max {
                let told = layout::file_size(&layout, sweep.into_objects().iter().map(|object| object.size));
                return u64::from(!self.were.contains(&told));
            }
            self.go_on()
        }
    }

    /// Over all pairs of writes behind a first one to any object.
    fn wrong_sizes(looks_max: usize) -> u64 {
        let sizes = [100, 4096, 5000];
        let writes: Vec<(u32, u64)> = (0..STRIPES).flat_map(|stripe| sizes.map(|size| (stripe, size))).collect();
        let world = |writes| World {
            sizes: [50, 0, 0],
            writes,
            looks: Vec::new(),
            wanted: (0..STRIPES).collect(),
            answers: Vec::new(),
            were: BTreeSet::new(),
            looks_max,
        };
        let pairs = writes.iter().flat_map(|&first| writes.iter().map(move |&second| vec![first, second]));
        pairs.map(|pair| world(pair).go_on()).sum()
    }

    #[test]
    fn a_size_is_that_of_some_moment_whatever_is_written_meanwhile() {
        assert_eq!(wrong_sizes(LOOKS_MAX), 0);
        assert!(wrong_sizes(1) > 0, "one look is not enough, or this test shows nothing");
    }

    #[test]
    fn few_are_asked_twice() {
        let layout = layout();
        let mut empty = Sweep::new(&layout);
        empty.saw(vec![object(0); 3]);
        assert!(empty.wanted().is_empty());

        let mut still = Sweep::new(&layout);
        still.saw(vec![object(4096), object(7), object(0)]);
        assert_eq!(still.wanted(), [0, 2], "all but the one with the end");
        still.saw(vec![object(4096), object(0)]);
        assert!(still.wanted().is_empty());

        let alone = Layout { chunk_size: 4096, groups: vec![GroupId(1)] };
        let mut single = Sweep::new(&alone);
        single.saw(vec![object(9)]);
        assert!(single.wanted().is_empty());
    }

    #[test]
    fn a_file_that_grows_all_the_time_is_told_of_in_the_end() {
        let layout = layout();
        let mut sweep = Sweep::new(&layout);
        let mut size = 0;
        let mut looks = 0;
        while !sweep.wanted().is_empty() {
            size += 3 * 4096;
            looks += 1;
            let answers = sweep.wanted().iter().map(|_| object(size)).collect();
            sweep.saw(answers);
        }
        assert_eq!(looks, LOOKS_MAX);
    }
}
