//! One sequence: who remembers it, what of it waits and runs, and when it is over by itself.
//!
//! It knows nothing of other sequences and decides nothing; [`Sequences`](super::Sequences) does.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use crate::settings::SequenceLimits;

pub(super) struct Sequence<T> {
    pub(super) id: Arc<str>,
    /// Whoever remembers it; none before its first turn and after its worker is lost.
    pub(super) worker: Option<u32>,
    pub(super) begun: Instant,
    /// When something of it last came or was answered.
    pub(super) touched: Instant,
    pub(super) waiting: VecDeque<SequenceEntry<T>>,
    /// How many of it are on their way.
    pub(super) running: usize,
    /// Its memory was lost on the way, so that its next request must begin anew.
    pub(super) forgotten: bool,
    /// It ends when those on their way are answered.
    pub(super) ended: bool,
    /// Its only request so far named no sequence: its client may not even know that it has one.
    pub(super) passing: bool,
}

pub(super) struct SequenceEntry<T> {
    /// When it came, counted in requests.
    pub(super) number: u64,
    pub(super) deadline: Option<Instant>,
    pub(super) what: T,
}

impl<T> Sequence<T> {
    pub(super) fn begin(id: Arc<str>, now: Instant, passing: bool) -> Self {
        Self {
            id,
            worker: None,
            begun: now,
            touched: now,
            waiting: VecDeque::new(),
            running: 0,
            forgotten: false,
            ended: false,
            passing,
        }
    }

    /// Nothing of it is on its way, and nothing waits.
    pub(super) fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.is_empty()
    }

    /// It has lived as long as a sequence may.
    pub(super) fn is_old(&self, now: Instant, limits: &SequenceLimits) -> bool {
        !limits.life.is_zero() && now >= self.begun + limits.life
    }

    /// When it ends if nothing more comes.
    pub(super) fn idle_end(&self, limits: &SequenceLimits) -> Instant {
        self.touched + limits.idle
    }

    /// When something about it is over by itself.
    pub(super) fn next_end(&self, limits: &SequenceLimits) -> Option<Instant> {
        let idle = self.is_idle().then(|| self.idle_end(limits));
        let lives = !limits.life.is_zero() && !self.ended;
        let life = lives.then(|| self.begun + limits.life);
        let deadlines = self.waiting.iter().filter_map(|entry| entry.deadline);
        deadlines.chain(idle).chain(life).min()
    }

    /// Lets one wait again, before all that came later.
    pub(super) fn put_back(&mut self, entry: SequenceEntry<T>) {
        let place = self.waiting.partition_point(|other| other.number < entry.number);
        self.waiting.insert(place, entry);
    }

    /// Takes those out whose deadline is over; how many they are.
    pub(super) fn take_late(&mut self, now: Instant, late: &mut Vec<T>) -> usize {
        let before = late.len();
        let is_late =
            |entry: &SequenceEntry<T>| entry.deadline.is_some_and(|deadline| deadline <= now);
        while let Some(at) = self.waiting.iter().position(is_late) {
            late.extend(self.waiting.remove(at).map(|entry| entry.what));
        }
        late.len() - before
    }
}
