//! What each way of filling the slots of a worker has really brought.
//!
//! Workers that prepare one batch while they run another may hold one, two or three of them, and curves
//! cannot tell how many are best: they know nothing of what passes between the stages. So each way is
//! tried for a moment, the best one kept, and the others tried again after longer and longer times, also
//! those of which nothing good is expected: what is expected of a way may be wrong until it is tried.
//! Only clients that come back have a rate that can be compared: it is how fast they are answered.
//!
//! Of models that share a GPU one may gain what another loses. There the rate is what all of them are answered,
//! so that each seeks what is best for all.

use crate::request::Nanos;
use crate::workers::SlotUse;

/// Most slots whose use is weighed. Bound: workers have no more that help.
pub(crate) const AT_A_TIME_MAX: usize = 4;
/// Batches after a change that tell nothing yet, for each worker. Chosen: those that were on their way.
const SETTLE: u32 = 4;
/// The same where the rate is also that of other models. Chosen: they pay for a trial, too, and with four more
/// than the clearer reading brings.
const SETTLE_SHARED: u32 = 2;
/// Batches of a block, for each worker: its rate is one reading. Derived: of one, two and three at a
/// time a whole number of rounds.
const BLOCK: u32 = 6;
/// The same where the rate is also that of other models. Chosen: they try, too, and what is lost meanwhile is lost
/// by all.
const BLOCK_SHARED: u32 = 4;
/// Blocks of a round, whose rates are kept. Bound: the slowest is left out, so that one pause spoils
/// nothing.
const BLOCKS: usize = 3;
/// After one block a trial ends that brings less than this share of the best. Chosen: one block is noisy.
const FAR_TOO_LITTLE: f64 = 0.8;
/// And after two. Chosen: two of them are less so.
const TOO_LITTLE: f64 = 0.93;
/// Another way is better if it brings this many times as much. Chosen: less is chance.
const BETTER: f64 = 1.01;
/// How fast the rate of the way that is kept follows. Chosen: one bad round is chance.
const KEPT: f64 = 0.25;
/// Batches after which a way is tried for the second time. Chosen: a first look may have been at an odd
/// moment, as the start of a process is.
const SECOND_LOOK: u64 = 48;
/// And after which it is tried again, so many more after each trial. Chosen: trials then cost about one
/// percent.
const LOOK: u64 = 256;
/// Once more as many for each such share that it has brought less than the best. Chosen: what is far
/// behind is looked at seldom.
const BEHIND: f64 = 0.05;
/// The most batches after which it is tried again. Chosen: trials then cost less than one percent.
const LOOK_MAX: u64 = 8192;
/// With so many times as many clients, or as few, nothing is known any more. Chosen: other numbers
/// are best served in other ways.
const OTHER: f64 = 1.25;
/// A pause of so many times the usual is none of the worker's. Chosen: clients pause, workers hardly
/// do.
const PAUSE: u64 = 8;

/// After so many batches in a row whose clients may not come back nothing is known any more. Chosen: a
/// few are chance.
const UNKNOWN: u32 = 64;

/// What was tried. The ways are numbered: so many batches at a time, less one; and `Full` behind them.
#[derive(Debug, Default)]
pub(crate) struct Trials {
    ways: [Way; AT_A_TIME_MAX + 1],
    slots: u8,
    current: usize,
    /// Batches since that began, all batches ever; clients now, and when the ways were tried first.
    batches: u32,
    count: u64,
    clients: f64,
    known: f64,
    /// When the block began, when its last batch was dispatched, and what it has had since.
    began: Nanos,
    last: Nanos,
    size: u64,
    items: u64,
    len: u32,
    /// Items that models on the same GPUs have answered since the block began; whether they do so.
    neighbours: u64,
    shared: bool,
    /// The rates of the blocks of this round.
    rates: [f64; BLOCKS],
    blocks: usize,
    /// Rounds of the current way until now.
    rounds: u32,
    /// Batches in a row of which it is unknown whether their clients come back.
    unknown: u32,
}

/// What is known of one way.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    /// Size per nanosecond; 0 where it was not tried.
    rate: f64,
    trials: u32,
    /// From which batch on it is tried again.
    again: u64,
}

impl Trials {
    /// What to do with these slots.
    pub(crate) fn slot_use(&self) -> SlotUse {
        match self.current {
            full if full == usize::from(self.slots) => SlotUse::Full,
            fewer => SlotUse::AtATime(fewer as u8 + 1),
        }
    }

    /// A batch of this size, with so many items, was dispatched to one of so many workers with so many
    /// slots, for so many clients that come back; none where it is unknown whether they do. Returns
    /// whether the way to go on with is another one now.
    pub(crate) fn dispatched(
        &mut self,
        now: Nanos,
        clients: Option<u64>,
        (size, items): (u64, u64),
        (workers, slots): (u32, u8),
    ) -> bool {
        let slots = slots.clamp(1, AT_A_TIME_MAX as u8);
        let before = (self.slots, self.current);
        if slots != self.slots {
            *self = Self { slots, current: usize::from(slots) - 1, ..Self::default() };
        }
        self.count += 1;
        self.batches = self.batches.saturating_add(1);
        let usual = (self.last - self.began) / u64::from(self.len.max(1));
        let (settle, block) =
            if self.shared { (SETTLE_SHARED, BLOCK_SHARED) } else { (SETTLE, BLOCK) };
        let paused = self.len > 1 && now - self.last > PAUSE * usual.max(1);
        self.unknown = if clients.is_some() { 0 } else { self.unknown + 1 };
        if self.unknown == UNKNOWN {
            *self = Self { slots, current: usize::from(slots) - 1, ..Self::default() };
        }
        match clients {
            Some(clients) if !paused && self.batches > settle * workers => {
                let clients = clients as f64;
                let step = if self.clients == 0.0 { 1.0 } else { 1.0 / 16.0 };
                self.clients += step * (clients - self.clients);
                self.size += size;
                self.items += items;
                self.len += 1;
            }
            _ => self.begin(now),
        }
        self.last = now;
        if self.len >= block * workers {
            self.block_over(now, workers.into());
        }
        before != (self.slots, self.current)
    }

    /// Models on the same GPUs have answered so many items.
    pub(crate) fn neighbours_answered(&mut self, items: u64) {
        self.neighbours = self.neighbours.saturating_add(items);
        self.shared |= items > 0;
    }

    fn begin(&mut self, now: Nanos) {
        (self.began, self.size, self.items, self.len, self.neighbours) = (now, 0, 0, 0, 0);
    }

    fn block_over(&mut self, now: Nanos, workers: u64) {
        // An item of others is worth as much as one of its own.
        self.shared = self.neighbours > 0;
        let others = self.neighbours as f64 / self.items.max(1) as f64;
        let took = (now - self.began).max(1) as f64;
        self.rates[self.blocks] = self.size as f64 * (1.0 + others) / took;
        self.blocks += 1;
        self.begin(now);
        self.rates[..self.blocks].sort_by(|one, other| other.total_cmp(one));
        let best = self.best();
        let least = match self.blocks {
            1 => FAR_TOO_LITTLE,
            2 => TOO_LITTLE,
            _ => 0.0,
        };
        let too_little = self.rates[0] < least * best;
        let best_itself = self.ways[self.current].rate >= best;
        if self.blocks == BLOCKS || too_little && !best_itself {
            let kept = self.blocks.div_ceil(2);
            self.round_over(self.rates[..kept].iter().sum::<f64>() / kept as f64, workers);
        }
    }

    /// The current way has brought this; chooses the next one.
    fn round_over(&mut self, rate: f64, workers: u64) {
        let [less, more] = [self.clients.min(self.known), self.clients.max(self.known)];
        if more > OTHER * less {
            (self.ways, self.rounds, self.known) = (Default::default(), 0, self.clients);
        }
        let best = self.best().max(rate);
        let way = &mut self.ways[self.current];
        way.rate = match self.rounds {
            0 => rate.max(0.5 * (way.rate + rate)),
            _ => way.rate + KEPT * (rate - way.rate),
        };
        way.trials += u32::from(self.rounds == 0);
        self.rounds += 1;
        let lost = 1.0 + (1.0 - rate / best) / BEHIND;
        let look = (LOOK as f64 * lost) as u64 * u64::from(way.trials.clamp(1, 32));
        let look = if way.trials < 2 { SECOND_LOOK } else { look.min(LOOK_MAX) };
        way.again = self.count + workers * look;
        self.blocks = 0;
        let next = self.next();
        if next != self.current {
            (self.current, self.batches, self.rounds) = (next, 0, 0);
        }
    }

    /// The way to go on with: one that was never tried, one whose time has come, or the best. Of
    /// several whose time has come the worst is the first: those who are served in it wait longest,
    /// so it is over as soon as can be.
    fn next(&self) -> usize {
        let ways = || (0..=usize::from(self.slots)).filter(|_| self.slots > 1);
        let untried = ways().find(|&way| self.ways[way].trials == 0);
        let current = self.ways[self.current].rate;
        let best =
            ways().max_by(|&one, &other| self.ways[one].rate.total_cmp(&self.ways[other].rate));
        let best =
            best.filter(|&way| self.ways[way].rate > BETTER * current).unwrap_or(self.current);
        let due = ways().filter(|&way| way != best && self.ways[way].again <= self.count);
        untried
            .or(due.min_by(|&one, &other| self.ways[one].rate.total_cmp(&self.ways[other].rate)))
            .unwrap_or(best)
    }

    fn best(&self) -> f64 {
        self.ways.iter().map(|way| way.rate).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    /// One worker with three slots, and what a batch of 16 takes in each way.
    struct Play {
        trials: Trials,
        now: Nanos,
        took: [u64; 4],
        /// What other models on the GPU answer meanwhile.
        neighbours: [u64; 4],
    }

    impl Play {
        fn new(took: [u64; 4]) -> Self {
            Self { trials: Trials::default(), now: 0, took, neighbours: [0; 4] }
        }

        /// Plays so many batches of so many clients; returns the ways in which they ran.
        fn batches(&mut self, count: usize, clients: u64) -> Vec<usize> {
            let mut one = |_| {
                let way = self.trials.current;
                self.now += self.took[way] * MS;
                self.trials.neighbours_answered(self.neighbours[way]);
                self.trials.dispatched(self.now, Some(clients), (16, 16), (1, 3));
                way
            };
            (0..count).map(&mut one).collect()
        }
    }

    fn share(ways: &[usize], best: usize) -> f64 {
        ways.iter().filter(|way| **way == best).count() as f64 / ways.len() as f64
    }

    #[test]
    fn every_way_is_tried_and_the_best_kept() {
        for (took, best) in
            [([6, 9, 9, 9], 0), ([9, 6, 9, 9], 1), ([9, 9, 6, 9], 2), ([9, 9, 9, 6], 3)]
        {
            let mut play = Play::new(took);
            let tried = play.batches(160, 16);
            assert!((0..4).all(|way| tried.contains(&way)), "{tried:?}");
            let kept = play.batches(1000, 16);
            assert!(share(&kept, best) >= 0.9, "{best}: {kept:?}");
        }
    }

    #[test]
    fn the_way_is_kept_in_which_all_models_of_a_gpu_are_answered_most() {
        let mut play = Play::new([9, 6, 9, 9]);
        play.neighbours = [32, 0, 8, 8];
        play.batches(160, 16);
        assert!(share(&play.batches(1000, 16), 0) >= 0.9);
        play.neighbours = [32, 32, 8, 8];
        play.batches(5000, 16);
        assert!(share(&play.batches(1000, 16), 1) >= 0.9, "its own gain costs the others nothing");
    }

    #[test]
    fn a_trial_takes_fourteen_batches_where_other_models_pay_for_it_too() {
        let mut play = Play::new([9; 4]);
        play.neighbours = [8; 4];
        let tried = play.batches(3 * 14 + 1, 16);
        assert!((0..4).all(|way| tried.contains(&way)), "{tried:?}");
    }

    #[test]
    fn a_way_that_becomes_worse_is_left() {
        let mut play = Play::new([9, 6, 9, 9]);
        play.batches(400, 16);
        play.took = [9, 20, 9, 9];
        play.batches(100, 16);
        assert!(share(&play.batches(400, 16), 1) < 0.2);
    }

    #[test]
    fn slow_first_batches_and_single_pauses_are_not_held_against_a_way() {
        let mut play = Play::new([90, 60, 60, 90]);
        play.batches(12, 16);
        play.took = [9, 8, 6, 9];
        play.batches(200, 16);
        for _ in 0..10 {
            assert!(share(&play.batches(50, 16), 2) > 0.5);
            play.now += 170 * MS;
        }
    }

    #[test]
    fn other_numbers_of_clients_are_tried_anew() {
        let mut play = Play::new([9, 6, 9, 9]);
        play.batches(400, 16);
        let again = play.batches(200, 64);
        assert!((0..4).all(|way| again.contains(&way)), "{again:?}");
    }

    #[test]
    fn without_clients_that_come_back_all_slots_are_filled() {
        let mut play = Play::new([6, 9, 9, 9]);
        play.batches(400, 16);
        assert_eq!(play.trials.slot_use(), SlotUse::AtATime(1));
        for _ in 0..100 {
            play.now += 6 * MS;
            play.trials.dispatched(play.now, None, (16, 16), (1, 3));
        }
        assert_eq!(play.trials.slot_use(), SlotUse::AtATime(3));
    }

    #[test]
    fn a_worker_with_one_slot_has_nothing_to_choose() {
        let mut trials = Trials::default();
        for batch in 0..200 {
            trials.dispatched(batch * MS, Some(16), (16, 16), (1, 1));
            assert_eq!(trials.slot_use(), SlotUse::AtATime(1));
        }
    }
}
