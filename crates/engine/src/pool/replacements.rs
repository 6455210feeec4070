//! Workers that wait until another one takes their place, because they are worn.
//!
//! They are replaced one at a time, the first one that was worn first: each start takes processors and memory from
//! those that serve. It serves on until the new one does. Where there is no memory for both it ends first, if others
//! serve; one that is alone serves on, and it is looked at again.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// How often it is looked whether there is memory now. Chosen: a worker that is worn serves on meanwhile.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Workers that are worn and serve, the first one first.
#[derive(Debug, Default)]
pub(super) struct WornWorkers {
    waiting: VecDeque<u32>,
    /// One that ends first.
    ending: Option<u32>,
    /// There was no memory for a replacement.
    look_at: Option<Instant>,
}

/// How a worker is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WornReplacement {
    /// By one that is ready before it stops.
    Beside(u32),
    /// By one that is started when it has stopped.
    After(u32),
}

impl WornWorkers {
    /// A worker that serves is to be replaced.
    pub(super) fn add(&mut self, worker: u32) {
        self.waiting.push_back(worker);
    }

    /// A worker was started again, and so is not worn any more.
    pub(super) fn forget(&mut self, worker: u32) {
        self.waiting.retain(|it| *it != worker);
    }

    /// When to look again whether one can be replaced.
    pub(super) fn alarm(&self) -> Option<Instant> {
        self.look_at
    }

    /// The one whose turn it is, if these serve, so that nothing loads, and whether there is memory for one more.
    pub(super) fn next(
        &mut self,
        serving: Option<Vec<u32>>,
        has_room: impl FnOnce() -> bool,
    ) -> Option<WornReplacement> {
        self.look_at = None;
        let serving = serving.filter(|_| self.ending.is_none())?;
        self.waiting.retain(|it| serving.contains(it));
        let first = *self.waiting.front()?;
        let fits = has_room();
        if !fits && serving.len() < 2 {
            self.look_at = Some(Instant::now() + LOOK_AGAIN);
            return None;
        }
        self.waiting.pop_front();
        if fits {
            return Some(WornReplacement::Beside(first));
        }
        self.ending = Some(first);
        Some(WornReplacement::After(first))
    }

    /// Whether this worker, which has stopped, was to do so before another one begins.
    pub(super) fn ended(&mut self, worker: u32) -> bool {
        self.ending.take_if(|it| *it == worker).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn without_memory_for_one_more_the_old_one_ends_first_if_others_serve() {
        let mut worn = WornWorkers::default();
        [1, 2, 9].into_iter().for_each(|it| worn.add(it));
        assert_eq!(worn.next(None, || true), None, "another one loads");
        let serving = || Some(vec![1, 2]);
        assert_eq!(worn.next(serving(), || false), Some(WornReplacement::After(1)));
        assert_eq!(worn.next(serving(), || true), None, "one at a time");
        assert!(!worn.ended(2) && worn.ended(1));
        assert_eq!(worn.next(Some(vec![2]), || false), None, "it is alone");
        assert!(worn.alarm().is_some());
        assert_eq!(worn.next(Some(vec![2]), || true), Some(WornReplacement::Beside(2)));
        assert_eq!(
            (worn.next(serving(), || true), worn.alarm()),
            (None, None),
            "the last has gone"
        );
    }
}
