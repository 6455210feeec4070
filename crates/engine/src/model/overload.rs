//! Notices that a window without a latency target makes requests wait for long, and says once what
//! a target would do.
//!
//! Looks at the oldest request of a finished batch, and only under that policy: elsewhere it costs a
//! comparison.

use std::time::Duration;

use jitney_batcher::Policy;

use crate::pool::WorkerBatch;

/// A wait is long that lasts this many times as long as the batch ran, beyond the window.
const LONG_WAIT: u32 = 8;
/// So many batches in a row with a long wait are an overload and no hiccup.
const LONG_WAITS: u32 = 16;

/// What is known of the load of one model version.
#[derive(Debug, Default)]
pub(super) struct OverloadNotice {
    /// Batches with a long wait, one after another.
    long_waits: u32,
    /// Whether it was logged.
    logged: bool,
}

impl OverloadNotice {
    /// What is to be logged after this batch, if anything.
    pub(super) fn after(
        &mut self,
        policy: &Policy,
        batch: &WorkerBatch,
        compute: Duration,
    ) -> Option<String> {
        let Policy::Window { delay } = policy else { return None };
        if self.logged {
            return None;
        }
        let oldest = batch.requests.first()?;
        let (wait, delay) =
            (batch.dispatched.duration_since(oldest.admitted), Duration::from_nanos(*delay));
        let long = wait > delay + compute * LONG_WAIT;
        self.long_waits = if long { self.long_waits + 1 } else { 0 };
        self.logged = self.long_waits >= LONG_WAITS;
        self.logged.then(|| sentence(wait, compute, objective(delay, compute)))
    }
}

/// A round number of milliseconds that leaves time for the window and a few batches.
fn objective(delay: Duration, compute: Duration) -> u128 {
    let least = (delay + compute * 4).as_millis() + 1;
    let tens = (0..).map(|power| 10_u128.saturating_pow(power));
    tens.flat_map(|ten| [1, 2, 5].map(|digit| digit * ten)).find(|it| *it >= least).unwrap_or(least)
}

fn sentence(wait: Duration, compute: Duration, objective: u128) -> String {
    let (wait, compute) = (wait.as_millis(), compute.as_secs_f64() * 1e3);
    format!(
        "requests wait {wait} ms for a batch that runs {compute:.1} ms: more of them come than the \
         workers can serve, and under a window without a latency target all of them wait; with \
         max_latency_ms={objective}, for example, those that could not be answered within \
         {objective} ms would be rejected at once, and the others would be answered in time"
    )
}

#[cfg(test)]
mod tests {
    use jitney_batcher::{BatchId, Request, RequestId};
    use tokio::time::{Instant, advance};

    use super::*;
    use crate::pending::{Payload, PendingRequest};
    use crate::reply::Reply;
    use crate::testkit::call;

    const WINDOW: Policy = Policy::Window { delay: 10_000_000 };
    const COMPUTE: Duration = Duration::from_millis(11);

    /// What is said after so many batches whose oldest request has waited so long.
    async fn said(policy: Policy, waits_ms: impl IntoIterator<Item = u64>) -> Vec<String> {
        let mut notice = OverloadNotice::default();
        let mut said = Vec::new();
        for wait in waits_ms {
            let (admitted, facts) = (Instant::now(), Request::new(RequestId::new(0, 0)));
            advance(Duration::from_millis(wait)).await;
            let payload = Payload::Raw(call("a").input);
            let request = PendingRequest::new(facts, payload, admitted, Reply::new().0, None);
            let batch = WorkerBatch::full(BatchId(1), vec![request], 1);
            said.extend(notice.after(&policy, &batch, COMPUTE));
        }
        said
    }

    #[tokio::test(start_paused = true)]
    async fn long_waits_in_a_row_are_remarked_on_once() {
        let said = said(WINDOW, [400; 40]).await;
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("wait 400 ms for a batch that runs 11.0 ms"), "{}", said[0]);
        assert!(said[0].contains("max_latency_ms=100,"), "{}", said[0]);
    }

    #[tokio::test(start_paused = true)]
    async fn short_waits_hiccups_and_other_policies_are_not() {
        assert_eq!(said(WINDOW, [90; 40]).await, [""; 0]);
        assert_eq!(said(WINDOW, [400, 400, 400, 20].repeat(20)).await, [""; 0]);
        assert_eq!(said(Policy::Opportunistic, [400; 40]).await, [""; 0]);
    }

    #[test]
    fn the_example_is_a_round_number_with_room_for_the_window_and_some_batches() {
        let millis = Duration::from_millis;
        let example = |delay, compute| objective(millis(delay), millis(compute));
        assert_eq!([example(10, 11), example(100, 50), example(0, 0)], [100, 500, 1]);
    }
}
