//! A bounded table of values that expire. Time comes as an argument.
//!
//! What goes first is decided by second chance: values leave in the order in which they came, but one that was asked
//! for since its last turn gets another. So a look costs no more than a mark.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::rule::CacheRule;

/// By what a request is known again: a hash of everything that its answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AnswerKey(pub [u8; 32]);

#[derive(Debug)]
pub(super) struct Shelf<T> {
    entries_max: usize,
    bytes_max: u64,
    ttl: Duration,
    slots: HashMap<AnswerKey, ShelfSlot<T>>,
    /// The keys of all slots, each once.
    order: VecDeque<AnswerKey>,
    bytes: u64,
}

#[derive(Debug)]
struct ShelfSlot<T> {
    value: T,
    bytes: u64,
    expires: Instant,
    /// Whether it was asked for since its last turn.
    used: bool,
}

impl<T> Shelf<T> {
    /// An empty one; without a rule it takes nothing.
    pub(super) fn new(rule: Option<&CacheRule>) -> Self {
        Self {
            entries_max: rule.map_or(0, |rule| rule.entries),
            bytes_max: rule.map_or(0, |rule| rule.bytes),
            ttl: rule.map_or(Duration::ZERO, |rule| rule.ttl),
            slots: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a value of so many bytes can stand here.
    pub(super) fn takes(&self, bytes: u64) -> bool {
        self.entries_max > 0 && bytes <= self.bytes_max
    }

    pub(super) fn get(&mut self, key: &AnswerKey, now: Instant) -> Option<&T> {
        let slot = self.slots.get_mut(key).filter(|slot| slot.expires > now)?;
        slot.used = true;
        Some(&slot.value)
    }

    /// Puts a value here, in the place of the one that has this key. Others leave as far as they must.
    pub(super) fn put(&mut self, key: AnswerKey, value: T, bytes: u64, now: Instant) {
        if !self.takes(bytes) {
            return;
        }
        // What it replaces keeps its turn, and its bytes are free.
        let old = self.slots.get_mut(&key);
        let (more, freed) = old.map_or((1, 0), |old| (0, std::mem::take(&mut old.bytes)));
        self.bytes -= freed;
        let expired = |shelf: &Self| {
            let first = shelf.order.front().and_then(|key| shelf.slots.get(key));
            first.is_some_and(|slot| slot.expires <= now)
        };
        while self.slots.len() + more > self.entries_max
            || self.bytes + bytes > self.bytes_max
            || expired(self)
        {
            self.give_turn(now);
        }
        self.bytes += bytes;
        let slot = ShelfSlot { value, bytes, expires: now + self.ttl, used: false };
        if self.slots.insert(key, slot).is_none() {
            self.order.push_back(key);
        }
    }

    /// The first in the order leaves, or gets its second chance.
    fn give_turn(&mut self, now: Instant) {
        let Some(key) = self.order.pop_front() else { return };
        match self.slots.get_mut(&key) {
            Some(slot) if slot.used && slot.expires > now => {
                slot.used = false;
                self.order.push_back(key);
            }
            _ => self.bytes -= self.slots.remove(&key).map_or(0, |slot| slot.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u16) -> AnswerKey {
        let mut key = [0; 32];
        key[..2].copy_from_slice(&number.to_le_bytes());
        AnswerKey(key)
    }

    fn shelf(entries: usize, bytes: u64, seconds: u64) -> Shelf<u16> {
        let ttl = Duration::from_secs(seconds);
        Shelf::new(Some(&CacheRule { entries, bytes, ttl, headers: Vec::new(), shared: false }))
    }

    fn kept(shelf: &mut Shelf<u16>, now: Instant) -> Vec<u16> {
        (0..1000).filter(|number| shelf.get(&key(*number), now) == Some(number)).collect()
    }

    #[test]
    fn what_nobody_asked_for_leaves_first() {
        let (mut shelf, now) = (shelf(3, 1000, 60), Instant::now());
        (1..=3).for_each(|number| shelf.put(key(number), number, 1, now));
        assert_eq!(shelf.get(&key(1), now), Some(&1));
        shelf.put(key(4), 4, 1, now);
        assert_eq!(kept(&mut shelf, now), [1, 3, 4]);
        // All were asked for: the order decides, and what is new has its time.
        shelf.put(key(5), 5, 1, now);
        assert_eq!(kept(&mut shelf, now), [1, 4, 5]);
    }

    #[test]
    fn bytes_are_bounded_and_a_value_beyond_them_is_not_taken() {
        let (mut shelf, now) = (shelf(100, 10, 60), Instant::now());
        (1..=3).for_each(|number| shelf.put(key(number), number, 4, now));
        assert_eq!((kept(&mut shelf, now), shelf.bytes()), (vec![2, 3], 8));
        shelf.put(key(4), 4, 11, now);
        assert_eq!(kept(&mut shelf, now), [2, 3]);
        shelf.put(key(2), 2, 6, now);
        assert_eq!((kept(&mut shelf, now), shelf.bytes()), (vec![2, 3], 10));
        let mut none = Shelf::new(None);
        none.put(key(1), 1, 0, now);
        assert!(kept(&mut none, now).is_empty());
    }

    #[test]
    fn values_expire_and_make_room() {
        let (mut shelf, now) = (shelf(100, 1000, 60), Instant::now());
        shelf.put(key(1), 1, 5, now);
        let (before, after) = (now + Duration::from_secs(59), now + Duration::from_secs(60));
        assert_eq!(shelf.get(&key(1), before), Some(&1));
        assert_eq!(shelf.get(&key(1), after), None);
        shelf.put(key(2), 2, 5, after);
        assert_eq!((shelf.slots.len(), shelf.order.len(), shelf.bytes()), (1, 1, 5));
        shelf.put(key(2), 3, 6, after);
        assert_eq!((shelf.get(&key(2), after).copied(), shelf.bytes()), (Some(3), 6));
    }

    #[test]
    fn whatever_happens_the_bounds_hold_and_the_sum_is_right() {
        let (mut shelf, mut now) = (shelf(20, 500, 30), Instant::now());
        let mut dice = fastrand::Rng::with_seed(11);
        for _ in 0..20_000 {
            now += Duration::from_millis(dice.u64(..400));
            let number = dice.u16(..60);
            match dice.bool() {
                true => drop(shelf.get(&key(number), now).copied()),
                false => shelf.put(key(number), number, dice.u64(..90), now),
            }
            let sum = shelf.slots.values().map(|slot| slot.bytes).sum::<u64>();
            assert!(shelf.slots.len() <= 20 && shelf.bytes() <= 500);
            assert_eq!((shelf.bytes(), shelf.order.len()), (sum, shelf.slots.len()));
        }
    }
}
