//! How a model version begins and ends.
//!
//! While no worker is ready, a request waits as long as `startup_wait`, from its admission or from when the last worker
//! was lost, whichever was later. Nothing is done per request: the task looks at those that wait when the first of them
//! may have waited long enough. The end is orderly as long as its grace lasts: what was admitted is answered, then
//! the workers stop; nothing new is taken in meanwhile.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

/// The shortest pause between two looks, also where requests may not wait at all.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// How long requests wait for a worker to come up.
#[derive(Debug)]
pub(super) struct StartupWait {
    /// How long at most.
    pub(super) limit: Duration,
    /// How long the last load took.
    pub(super) last_load: Option<Duration>,
    /// When the task looks at those that wait; none while a worker is ready, or none will be.
    pub(super) look_at: Option<Instant>,
}

impl StartupWait {
    /// From now on they wait, unless they do already.
    pub(super) fn begin(&mut self) {
        if self.look_at.is_none() {
            self.look_again(None);
        }
    }

    /// When a worker is expected whose load began then, where a load was measured.
    pub(super) fn ready_at(&self, loads_from: Option<Instant>) -> Option<Instant> {
        Some(loads_from.unwrap_or_else(Instant::now) + self.last_load?)
    }

    /// Requests that were admitted until then have waited long enough; none if it is not time to look.
    pub(super) fn overdue(&self) -> Option<Instant> {
        let now = Instant::now();
        self.look_at.filter(|at| *at <= now).and_then(|_| now.checked_sub(self.limit))
    }

    /// The oldest request that still waits was admitted then.
    pub(super) fn look_again(&mut self, oldest: Option<Instant>) {
        self.look_at = Some(oldest.unwrap_or_else(Instant::now) + self.limit.max(LOOK_PAUSE));
    }
}

/// How far the end has come.
#[derive(Debug)]
pub(super) struct Closing {
    pub(super) deadline: Instant,
    replies: Vec<oneshot::Sender<()>>,
    /// Whether the batcher drains.
    draining: bool,
    /// Whether the workers were told to stop.
    stopping: bool,
}

impl Closing {
    fn new(deadline: Instant) -> Self {
        Self { deadline, replies: Vec::new(), draining: false, stopping: false }
    }

    /// The end was asked for, perhaps again: then the earlier of the deadlines counts.
    pub(super) fn ask(
        closing: &mut Option<Self>,
        deadline: Instant,
        reply: Option<oneshot::Sender<()>>,
    ) {
        let closing = closing.get_or_insert_with(|| Self::new(deadline));
        closing.deadline = closing.deadline.min(deadline);
        closing.replies.extend(reply);
    }

    /// True once: when no request waits for its turn in a sequence, and the batcher can drain.
    pub(super) fn begins_to_drain(&mut self, in_sequences: u32) -> bool {
        in_sequences == 0 && !std::mem::replace(&mut self.draining, true)
    }

    /// True once: when the batcher has drained, and the workers can stop.
    pub(super) fn stops_workers(&mut self, drained: bool) -> bool {
        drained && !std::mem::replace(&mut self.stopping, true)
    }

    /// Whether nothing is left to do.
    pub(super) fn is_over(&self, no_workers: bool) -> bool {
        self.stopping && no_workers
    }

    /// Tells those who asked for the end.
    pub(super) fn finish(self) {
        for reply in self.replies {
            // A caller that does not wait any more is fine.
            let _ = reply.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_drains_then_stops_the_workers_then_is_over() {
        let mut closing = Closing::new(Instant::now());
        assert!(!closing.begins_to_drain(2), "requests still wait for their turns");
        assert!(closing.begins_to_drain(0) && !closing.begins_to_drain(0));
        assert!(!closing.stops_workers(false) && !closing.is_over(true));
        assert!(closing.stops_workers(true) && !closing.stops_workers(true));
        assert!(!closing.is_over(false) && closing.is_over(true));
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_deadline_counts_and_all_who_asked_are_told() {
        let now = Instant::now();
        let mut closing = None;
        let (reply, told) = oneshot::channel();
        for (seconds, reply) in [(2, None), (1, Some(reply)), (3, None)] {
            Closing::ask(&mut closing, now + Duration::from_secs(seconds), reply);
        }
        let closing = closing.expect("it was asked for");
        assert_eq!(closing.deadline, now + Duration::from_secs(1));
        closing.finish();
        assert!(told.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_may_not_wait_are_looked_at_now_and_then_and_not_without_end() {
        let mut startup = StartupWait { limit: Duration::ZERO, last_load: None, look_at: None };
        startup.begin();
        for _ in 0..3 {
            assert_eq!(startup.overdue(), None);
            assert_eq!(startup.look_at, Some(Instant::now() + LOOK_PAUSE));
            tokio::time::advance(LOOK_PAUSE).await;
            assert_eq!(startup.overdue(), Some(Instant::now()));
            startup.look_again(None);
        }
    }
}
