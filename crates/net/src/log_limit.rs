//! A limit for messages that a client or a full disk could cause at any rate: one a second is logged, or a few,
//! with the number of those that were not.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const EVERY: Duration = Duration::from_secs(1);

/// Decides which messages of one kind are logged.
#[derive(Debug)]
pub struct LogLimit {
    most: u32,
    state: Mutex<LimitState>,
}

#[derive(Debug, Default)]
struct LimitState {
    /// When the first message of this second was logged, and how many were since.
    since: Option<Instant>,
    logged: u32,
    suppressed: u64,
}

impl Default for LogLimit {
    fn default() -> Self {
        Self::per_second(1)
    }
}

impl LogLimit {
    /// So many messages a second.
    pub fn per_second(most: u32) -> Self {
        Self { most, state: Mutex::default() }
    }

    /// Whether a message may be logged now: if so, how many were suppressed since the last one.
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.since.is_none_or(|since| now.saturating_duration_since(since) >= EVERY) {
            (state.since, state.logged) = (Some(now), 0);
        }
        if state.logged >= self.most {
            state.suppressed += 1;
            return None;
        }
        state.logged += 1;
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_a_second_passes_and_tells_how_many_did_not() {
        let (limit, start) = (LogLimit::default(), Instant::now());
        let at = |millis| limit.pass_at(start + Duration::from_millis(millis));
        assert_eq!(at(0), Some(0));
        assert_eq!([1, 500, 999].map(at), [None; 3]);
        assert_eq!(at(1000), Some(3));
        assert_eq!(at(1001), None);
        assert_eq!(at(5000), Some(1));
    }

    #[test]
    fn several_a_second_pass_where_that_is_asked_for() {
        let (limit, start) = (LogLimit::per_second(2), Instant::now());
        let at = |millis| limit.pass_at(start + Duration::from_millis(millis));
        assert_eq!([0, 1, 2, 999].map(at), [Some(0), Some(0), None, None]);
        assert_eq!([1000, 1001, 1002].map(at), [Some(2), Some(0), None]);
    }
}
