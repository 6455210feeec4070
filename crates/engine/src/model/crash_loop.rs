//! Notices workers that end again and again, so that the log can say so once instead of leaving it to the
//! reader to count.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// So many ends within this time are a loop; it is said again after as long.
const ENDS: usize = 3;
const WINDOW: Duration = Duration::from_secs(60);

/// The most ends that are remembered: no more fit into the time, since starts have pauses.
const ENDS_MAX: usize = 100;

/// The ends of the workers of a model version.
#[derive(Debug, Default)]
pub(super) struct CrashLoops(BTreeMap<u32, RecentEnds>);

#[derive(Debug, Default)]
struct RecentEnds {
    /// Within the window, the oldest first.
    at: VecDeque<Instant>,
    told: Option<Instant>,
}

impl CrashLoops {
    /// A worker has ended, or could not load: how often within a minute, where that is to be said.
    pub(super) fn ended(&mut self, worker: u32, now: Instant) -> Option<usize> {
        let RecentEnds { at, told } = self.0.entry(worker).or_default();
        let recent = |then: Instant| now.duration_since(then) < WINDOW;
        while at.len() >= ENDS_MAX || at.front().is_some_and(|then| !recent(*then)) {
            at.pop_front();
        }
        at.push_back(now);
        if at.len() < ENDS || told.is_some_and(recent) {
            return None;
        }
        *told = Some(now);
        Some(at.len())
    }

    /// The worker does not come again.
    pub(super) fn forget(&mut self, worker: u32) {
        self.0.remove(&worker);
    }
}

/// When something is tried again, in words.
pub(super) fn again(pause: Duration) -> String {
    match pause.as_secs_f64() {
        seconds if seconds < 0.05 => "at once".to_owned(),
        seconds => format!("in {} s", (seconds * 10.0).round() / 10.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_third_end_within_a_minute_is_a_loop_and_said_once_a_minute() {
        let mut loops = CrashLoops::default();
        let mut said = Vec::new();
        for second in 0..130 {
            said.extend(loops.ended(1, Instant::now()).map(|ends| (second, ends)));
            assert_eq!(loops.ended(2, Instant::now() - WINDOW * second), None, "each by itself");
            loops.forget(2);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(said, [(2, 3), (62, 60), (122, 60)]);
    }

    #[tokio::test(start_paused = true)]
    async fn ends_that_are_far_apart_are_none() {
        let mut loops = CrashLoops::default();
        for _ in 0..10 {
            assert_eq!(loops.ended(1, Instant::now()), None);
            tokio::time::advance(WINDOW / 2).await;
        }
    }

    #[test]
    fn a_pause_is_told_in_words() {
        let told = [0, 1000, 2600].map(|millis| again(Duration::from_millis(millis)));
        assert_eq!(told, ["at once", "in 1 s", "in 2.6 s"]);
    }
}
