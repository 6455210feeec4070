//! What processes of one kind share, whatever their model is: the program, Python, its libraries.
//!
//! A process that is started while another of its kind is there finds these pages in memory. So they count once for
//! every kind, and not with each of the loads that go on at the same time.

/// Bytes by kind of process: without Python, and with it.
#[derive(Debug, Default)]
pub(super) struct SharedPages([u64; 2]);

impl SharedPages {
    /// These are there: whether each runs Python, and what it shares beside its model's files. With one of a kind
    /// alone nothing is learned: it shares with nobody.
    pub(super) fn learn(&mut self, processes: impl Iterator<Item = (bool, u64)>) {
        let (mut least, mut count) = ([u64::MAX; 2], [0; 2]);
        for (python, shared) in processes {
            let kind = usize::from(python);
            (least[kind], count[kind]) = (least[kind].min(shared), count[kind] + 1);
        }
        for kind in (0..2).filter(|kind| count[*kind] > 1) {
            self.0[kind] = least[kind];
        }
    }

    /// Counts loads where processes of these kinds have loaded.
    pub(super) fn count(&self, loaded: [bool; 2]) -> LoadCount<'_> {
        LoadCount { pages: self, there: loaded }
    }
}

/// Counts loads, one after another.
pub(super) struct LoadCount<'a> {
    pages: &'a SharedPages,
    there: [bool; 2],
}

impl LoadCount<'_> {
    /// What a load takes of which this is all: the first one of a kind brings what the others find.
    pub(super) fn bytes(&mut self, python: bool, all: u64) -> u64 {
        let kind = usize::from(python);
        match std::mem::replace(&mut self.there[kind], true) {
            true => all.saturating_sub(self.pages.0[kind]),
            false => all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kind_shares_counts_with_the_first_of_its_loads() {
        let mut pages = SharedPages::default();
        pages.learn([(true, 10), (true, 8), (false, 5)].into_iter());
        let mut loads = pages.count([false; 2]);
        assert_eq!(
            [loads.bytes(true, 25), loads.bytes(true, 25), loads.bytes(true, 6)],
            [25, 17, 0]
        );
        assert_eq!(
            [loads.bytes(false, 9), loads.bytes(false, 9)],
            [9, 9],
            "one alone tells nothing"
        );
        assert_eq!(pages.count([false, true]).bytes(true, 25), 17, "one has loaded");
        pages.learn([(true, 3)].into_iter());
        assert_eq!(
            pages.count([true; 2]).bytes(true, 25),
            17,
            "the last one alone changes nothing"
        );
    }
}
