//! Sequences: requests that belong together because their worker remembers the ones before.
//!
//! Apart from the batcher, which only knows that a request is pinned to a worker: here is which
//! worker a sequence has, whose turn it is inside it, and when it ends. One request of a sequence is
//! on its way at a time (several where the worker takes them step by step: one of them may end
//! another); the others wait here, in order and within a bound. Time is an argument and what waits is
//! opaque, so that nothing in this file can wait for anything itself.

mod expired;
mod kept;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use slab::Slab;
use tokio::time::Instant;

use self::expired::ExpiredIds;
pub(crate) use self::kept::KeptSequences;
use crate::error::SequenceRejection;
use crate::settings::{SequenceLimits, UnknownSequences};

/// The sequence that a request belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SequenceName {
    pub(crate) id: String,
    /// Whether the client chose it, rather than the server.
    pub(crate) chosen: bool,
    /// Whether the client says that it begins.
    pub(crate) starts: bool,
    /// Whether a server made it, this one or another, for a sequence that it began.
    pub(crate) made: bool,
}

/// The next request of a sequence, to be sent to its worker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Turn<T> {
    /// The sequence; to be named in [`Sequences::answered`] or [`Sequences::put_back`].
    pub(crate) sequence: usize,
    /// Its place among all requests, to be named in [`Sequences::put_back`].
    pub(crate) number: u64,
    pub(crate) worker: u32,
    /// The worker knows nothing of what came before although the client believes so.
    pub(crate) anew: bool,
    pub(crate) deadline: Option<Instant>,
    pub(crate) what: T,
}

/// All sequences of one model version. A key stays valid while one of its sequence is on its way.
pub(crate) struct Sequences<T> {
    limits: SequenceLimits,
    sequences: Slab<Sequence<T>>,
    by_id: HashMap<Arc<str>, usize>,
    /// The same ids, for others.
    kept: KeptSequences,
    expired: ExpiredIds,
    /// Sequences that each worker remembers.
    workers: BTreeMap<u32, usize>,
    /// Sequences whose turn it may be; one that is not finds out when it is looked at.
    due: VecDeque<usize>,
    /// Requests that wait here.
    pub(super) waiting: usize,
    /// Requests that came so far.
    came: u64,
    /// When [`Sequences::expire`] has something to do, at the earliest: no sequence ends and no deadline
    /// passes before this.
    pub(super) alarm: Option<Instant>,
}

impl<T> Sequences<T> {
    pub(crate) fn new(limits: SequenceLimits, kept: KeptSequences) -> Self {
        Self {
            limits,
            kept,
            sequences: Slab::new(),
            by_id: HashMap::new(),
            expired: ExpiredIds::default(),
            workers: BTreeMap::new(),
            due: VecDeque::new(),
            waiting: 0,
            came: 0,
            alarm: None,
        }
    }

    // Workers

    /// A worker is ready to remember sequences.
    pub(crate) fn worker_up(&mut self, worker: u32) {
        self.workers.entry(worker).or_default();
        self.due.extend(self.sequences.iter().map(|(key, _)| key));
    }

    /// What the worker remembers is lost: its sequences go on with another one, from the start.
    pub(crate) fn worker_gone(&mut self, worker: u32) {
        if self.workers.remove(&worker).is_none() {
            return;
        }
        for (key, sequence) in &mut self.sequences {
            if sequence.worker == Some(worker) {
                sequence.worker = None;
                sequence.forgotten = true;
                self.due.push_back(key);
            }
        }
    }

    // Requests

    /// Finds room for a request in its sequence; a new id is a new sequence. Where there is no room
    /// for one, the oldest of those gives way that are idle and that no client has ever named.
    pub(crate) fn find_room(
        &mut self,
        now: Instant,
        name: &SequenceName,
    ) -> Result<usize, SequenceRejection> {
        let key = match self.by_id.get(&*name.id).copied() {
            Some(key) => key,
            None if !name.starts && self.is_over(name) => return Err(SequenceRejection::Expired),
            None if !name.starts && self.is_lost(name) => return Err(SequenceRejection::Unknown),
            None if !self.has_room(now) => {
                return Err(SequenceRejection::TooMany { most: self.limits.sequences });
            }
            None => self.begin(now, name),
        };
        let sequence = &mut self.sequences[key];
        // The one whose turn it is now stands here only until it is taken.
        let next = u64::from(sequence.running < self.limits.abreast);
        if sequence.waiting.len() as u64 >= self.limits.queue + next {
            return Err(SequenceRejection::Backlog { most: self.limits.queue });
        }
        sequence.passing &= !name.chosen;
        Ok(key)
    }

    /// Lets a request wait for its turn in the sequence in which it found room.
    pub(crate) fn join(&mut self, now: Instant, key: usize, deadline: Option<Instant>, what: T) {
        let sequence = &mut self.sequences[key];
        sequence.touched = now;
        sequence.waiting.push_back(SequenceEntry { number: self.came, deadline, what });
        self.came += 1;
        self.waiting += 1;
        self.due.push_back(key);
        self.wake(deadline);
    }

    /// Whether a sequence has expired and cannot simply begin again. In TorchServe one whose id the client
    /// chose can: its examples send the next request long after their idle time of 10 ms.
    fn is_over(&self, name: &SequenceName) -> bool {
        let begins_again = self.limits.unknown == UnknownSequences::Begin && !name.made;
        !begins_again && self.expired.contains(&name.id)
    }

    /// Whether a sequence that is not held cannot simply begin here.
    fn is_lost(&self, name: &SequenceName) -> bool {
        match self.limits.unknown {
            UnknownSequences::Begin => false,
            UnknownSequences::BeginOwn => name.made,
            UnknownSequences::Rejected => true,
        }
    }

    fn has_room(&mut self, now: Instant) -> bool {
        if (self.sequences.len() as u64) < self.limits.sequences {
            return true;
        }
        let passing = self.sequences.iter().filter(|(_, it)| it.passing && it.is_idle());
        let oldest = passing.min_by_key(|(_, sequence)| sequence.touched);
        let Some(key) = oldest.map(|(key, _)| key) else { return false };
        self.finish(now, key, false);
        true
    }

    fn begin(&mut self, now: Instant, name: &SequenceName) -> usize {
        let id: Arc<str> = name.id.as_str().into();
        let key = self.sequences.insert(Sequence::begin(Arc::clone(&id), now, !name.chosen));
        self.expired.remove(&id);
        self.kept.insert(&id);
        self.by_id.insert(id, key);
        if !self.limits.life.is_zero() {
            self.wake(Some(now + self.limits.life));
        }
        key
    }

    /// The next request whose turn it is, with its worker. To be called until there is none.
    pub(crate) fn next(&mut self) -> Option<Turn<T>> {
        while let Some(key) = self.due.pop_front() {
            let Some(sequence) = self.sequences.get(key) else { continue };
            let full = sequence.running >= self.limits.abreast || sequence.ended;
            if full || sequence.waiting.is_empty() {
                continue;
            }
            // Without a worker it waits for one to come up, which makes it due again.
            let Some(worker) = sequence.worker.or_else(|| self.least_loaded()) else { continue };
            self.bind(key, worker);
            let sequence = &mut self.sequences[key];
            let Some(SequenceEntry { number, deadline, what }) = sequence.waiting.pop_front()
            else {
                continue;
            };
            sequence.running += 1;
            self.waiting -= 1;
            let anew = std::mem::take(&mut sequence.forgotten);
            // The next of it may be able to go as well.
            self.due.push_back(key);
            return Some(Turn { sequence: key, number, worker, anew, deadline, what });
        }
        None
    }

    /// One of this sequence that was on its way has ended, well or not.
    pub(crate) fn answered(&mut self, now: Instant, key: usize) {
        let Some(sequence) = self.sequences.get_mut(key) else { return };
        (sequence.running, sequence.touched) = (sequence.running.saturating_sub(1), now);
        if sequence.running == 0 && sequence.ended {
            let (cut, id) = (sequence.is_old(now, &self.limits), Arc::clone(&sequence.id));
            self.finish(now, key, cut);
            if cut && !self.by_id.contains_key(&id) {
                self.expired.insert(id);
            }
            return;
        }
        self.due.push_back(key);
        if sequence.is_idle() {
            self.wake(Some(now + self.limits.idle));
        }
    }

    /// One that was on its way never reached its worker: it waits again, before all that came later.
    pub(crate) fn put_back(&mut self, now: Instant, turn: Turn<T>) {
        let Turn { sequence: key, number, worker, deadline, what, .. } = turn;
        self.worker_gone(worker);
        let Some(sequence) = self.sequences.get_mut(key) else { return };
        sequence.running = sequence.running.saturating_sub(1);
        // Whatever ended it would have done so with the answer.
        sequence.ended &= sequence.running > 0;
        sequence.touched = now;
        sequence.put_back(SequenceEntry { number, deadline, what });
        self.waiting += 1;
        self.due.push_back(key);
        self.wake(deadline);
    }

    // Ends

    /// The model says that this sequence is over; what still waits of it begins another.
    pub(crate) fn end(&mut self, now: Instant, id: &str) {
        let Some(key) = self.by_id.get(id).copied() else { return };
        if self.sequences[key].running > 0 {
            self.sequences[key].ended = true;
        } else {
            self.finish(now, key, false);
        }
    }

    /// Ends the sequences whose time is over and returns the requests whose deadline is.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<T> {
        let mut late = Vec::new();
        let keys: Vec<usize> = self.sequences.iter().map(|(key, _)| key).collect();
        for key in keys {
            let sequence = &mut self.sequences[key];
            self.waiting -= sequence.take_late(now, &mut late);
            let old = sequence.is_old(now, &self.limits);
            if sequence.running > 0 {
                sequence.ended |= old;
            } else if old || (sequence.is_idle() && now >= sequence.idle_end(&self.limits)) {
                let id = Arc::clone(&sequence.id);
                self.finish(now, key, old);
                if !self.by_id.contains_key(&id) {
                    self.expired.insert(id);
                }
            }
        }
        self.alarm = self.sequences.iter().filter_map(|(_, it)| it.next_end(&self.limits)).min();
        late
    }

    /// Everything that waits.
    pub(crate) fn all_waiting(&self) -> impl Iterator<Item = &T> {
        let entries = self.sequences.iter().flat_map(|(_, sequence)| &sequence.waiting);
        entries.map(|entry| &entry.what)
    }

    /// Takes out everything that waits and is such.
    pub(crate) fn take(&mut self, is_such: impl Fn(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for (_, sequence) in &mut self.sequences {
            let queue = std::mem::take(&mut sequence.waiting);
            let (such, others): (VecDeque<_>, _) =
                queue.into_iter().partition(|entry| is_such(&entry.what));
            sequence.waiting = others;
            taken.extend(such.into_iter().map(|entry| entry.what));
        }
        self.waiting -= taken.len();
        taken
    }

    /// Forgets a sequence of which nothing is on its way, unless something waits: that is the
    /// beginning of the next sequence of this id. `cut` if the client cannot know.
    fn finish(&mut self, now: Instant, key: usize, cut: bool) {
        let sequence = &mut self.sequences[key];
        if let Some(worker) = sequence.worker.take()
            && let Some(load) = self.workers.get_mut(&worker)
        {
            *load -= 1;
        }
        if sequence.waiting.is_empty() {
            let sequence = self.sequences.remove(key);
            self.by_id.remove(&sequence.id);
            self.kept.remove(&sequence.id);
            return;
        }
        (sequence.begun, sequence.ended, sequence.forgotten) = (now, false, cut);
        self.due.push_back(key);
        if !self.limits.life.is_zero() {
            self.wake(Some(now + self.limits.life));
        }
    }

    fn wake(&mut self, at: Option<Instant>) {
        self.alarm = self.alarm.into_iter().chain(at).min();
    }

    fn least_loaded(&self) -> Option<u32> {
        self.workers.iter().min_by_key(|(_, load)| **load).map(|(worker, _)| *worker)
    }

    fn bind(&mut self, key: usize, worker: u32) {
        let bound = self.sequences[key].worker.replace(worker);
        if bound.is_none()
            && let Some(load) = self.workers.get_mut(&worker)
        {
            *load += 1;
        }
    }
}

/// One sequence: who remembers it, what of it waits and runs, and when it is over by itself. It knows
/// nothing of other sequences and decides nothing; [`Sequences`] does.
struct Sequence<T> {
    id: Arc<str>,
    /// Whoever remembers it; none before its first turn and after its worker is lost.
    worker: Option<u32>,
    begun: Instant,
    /// When something of it last came or was answered.
    touched: Instant,
    waiting: VecDeque<SequenceEntry<T>>,
    /// How many of it are on their way.
    running: usize,
    /// Its memory was lost on the way, so that its next request must begin anew.
    forgotten: bool,
    /// It ends when those on their way are answered.
    ended: bool,
    /// Its only request so far named no sequence: its client may not even know that it has one.
    passing: bool,
}

struct SequenceEntry<T> {
    /// When it came, counted in requests.
    number: u64,
    deadline: Option<Instant>,
    what: T,
}

impl<T> Sequence<T> {
    fn begin(id: Arc<str>, now: Instant, passing: bool) -> Self {
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
    fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.is_empty()
    }

    /// It has lived as long as a sequence may.
    fn is_old(&self, now: Instant, limits: &SequenceLimits) -> bool {
        !limits.life.is_zero() && now >= self.begun + limits.life
    }

    /// When it ends if nothing more comes.
    fn idle_end(&self, limits: &SequenceLimits) -> Instant {
        self.touched + limits.idle
    }

    /// When something about it is over by itself.
    fn next_end(&self, limits: &SequenceLimits) -> Option<Instant> {
        let idle = self.is_idle().then(|| self.idle_end(limits));
        let lives = !limits.life.is_zero() && !self.ended;
        let life = lives.then(|| self.begun + limits.life);
        let deadlines = self.waiting.iter().filter_map(|entry| entry.deadline);
        deadlines.chain(idle).chain(life).min()
    }

    /// Lets one wait again, before all that came later.
    fn put_back(&mut self, entry: SequenceEntry<T>) {
        let place = self.waiting.partition_point(|other| other.number < entry.number);
        self.waiting.insert(place, entry);
    }

    /// Takes those out whose deadline is over; how many they are.
    fn take_late(&mut self, now: Instant, late: &mut Vec<T>) -> usize {
        let before = late.len();
        let is_late =
            |entry: &SequenceEntry<T>| entry.deadline.is_some_and(|deadline| deadline <= now);
        while let Some(at) = self.waiting.iter().position(is_late) {
            late.extend(self.waiting.remove(at).map(|entry| entry.what));
        }
        late.len() - before
    }
}
