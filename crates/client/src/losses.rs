//! Who has yet to be told of what was lost of a file: every open file that was there then, once, whoever of them synced
//! first. A database that hears of no error takes what it has written for safe. Pure.

/// Open files are known by numbers that rise in the order in which they were opened.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Open files up to this number are told of the last loss.
    upto: u64,
    told: Vec<u64>,
}

impl Losses {
    /// Something was lost when files up to number `opened` were open.
    pub(crate) fn happened(&mut self, opened: u64) {
        self.upto = opened;
        self.told.clear();
    }

    /// Whether this open file is to be told, which it has been then.
    pub(crate) fn tells(&mut self, number: u64) -> bool {
        let news = number <= self.upto && !self.told.contains(&number);
        if news {
            self.told.push(number);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_open_file_is_told_once_of_each_loss() {
        let mut losses = Losses::default();
        assert!(![1, 2, 3].into_iter().any(|number| losses.tells(number)));
        losses.happened(2);
        assert!(losses.tells(2) && !losses.tells(2));
        assert!(!losses.tells(3), "it was opened later");
        losses.happened(3);
        assert!(losses.tells(3) && losses.tells(2) && losses.tells(1), "the first was not told of either");
        assert!(![1, 2, 3].into_iter().any(|number| losses.tells(number)));
    }
}
