//! A latency target beside a window: the window says when, the target says who.

use super::*;
use crate::call::Call;

/// A batch of four takes 20 ms, the window is 10 ms and the target 100 ms.
async fn serving() -> Kit {
    let policy = PolicyName::Window;
    let of =
        ModelSettings { policy, latency_max: Some(millis(100)), queue_max: 1000, ..settings() };
    let kit = Kit::serving(1, ModelSettings { batch_size: 4, ..of }, echo_after(20)).await;
    for bodies in [&["a"][..], &["a", "b"], &["a", "b", "c"], &["a", "b", "c", "d"]].repeat(4) {
        assert!(kit.call_all(bodies).await.iter().all(Result::is_ok));
    }
    kit
}

#[tokio::test(start_paused = true)]
async fn a_lone_request_still_waits_for_its_window() {
    let kit = serving().await;
    let timing = kit.call("a").await.unwrap().timing;
    assert_eq!(timing.reason, DispatchReason::Window);
    assert!(timing.queue >= millis(10) && timing.queue < millis(13), "{:?}", timing.queue);
}

#[tokio::test(start_paused = true)]
async fn under_overload_each_request_is_answered_in_time_or_rejected_early() {
    let kit = serving().await;
    let started = Instant::now();
    let calls: Vec<_> = (0..60).map(|_| kit.start(call("a"))).collect();
    let mut answered = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(answer) => {
                answered += 1;
                let latency = answer.timing.queue + answer.timing.compute;
                assert!(latency <= millis(100), "{latency:?}");
            }
            Err(CallError::Rejected { reason, .. }) => {
                assert!(
                    [Rejection::Overload, Rejection::Infeasible].contains(&reason),
                    "{reason:?}"
                );
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!((12..=20).contains(&answered), "{answered} of 60 in {:?}", started.elapsed());
    let total = kit.model.statistics().total();
    assert_eq!(total.answered_requests, kit.model.status().counters.answered);
}

#[tokio::test(start_paused = true)]
async fn an_answer_after_its_deadline_is_counted_as_late() {
    let kit = Kit::serving(1, settings(), echo_after(50)).await;
    let within = |ms| Call { deadline: Some(Instant::now() + millis(ms)), ..call("a") };
    let late = || kit.model.status().counters.late;
    assert!(kit.model.call(call("a")).await.is_ok());
    assert!(kit.model.call(within(70)).await.is_ok());
    assert_eq!(late(), 0);
    assert!(kit.model.call(within(40)).await.is_ok());
    assert_eq!(late(), 1);
    let left = kit.start(within(40));
    settle().await;
    advance(millis(20)).await;
    settle().await;
    left.abort();
    advance(millis(100)).await;
    settle().await;
    assert_eq!(late(), 1, "a client that went away is not answered late");
}
