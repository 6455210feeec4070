//! A limit for messages that a client or a full disk could cause at any rate: one a second is logged,
//! with the number of those that were not.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const EVERY: Duration = Duration::from_secs(1);

/// Decides which messages of one kind are logged.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<LimitState>);

#[derive(Debug, Default)]
struct LimitState {
    last: Option<Instant>,
    suppressed: u64,
}

impl LogLimit {
    /// Whether a message may be logged now: if so, how many were suppressed since the last one.
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < EVERY) {
            state.suppressed += 1;
            return None;
        }
        state.last = Some(now);
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
}
