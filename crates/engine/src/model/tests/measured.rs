//! What the model's task measures about batches, as the metrics read it.

use super::*;
use crate::model::{BatchTotals, SizeStatistics};

#[tokio::test(start_paused = true)]
async fn requests_and_batches_are_measured() {
    let kit = Kit::serving(1, settings(), echo_after(5)).await;
    kit.call_all(&["a", "b", "c", "d"]).await;
    let measures = kit.model.measures();
    assert_eq!((measures.queue_us.count(), measures.latency_us.count()), (4, 4));
    assert_eq!((measures.compute_us.count(), measures.compute_us.sum), (1, 5000));
    assert_eq!((measures.batch_items.count(), measures.batch_items.sum), (1, 4));
    assert_eq!(measures.compute_last_us, Some(5000));
    let full = 1000 * 4 / u64::from(settings().batch_size);
    assert_eq!(measures.fill_permille.sum, full);
}

/// The sizes, with the batches dispatched, answered and failed, and the names of the reasons.
fn sizes(kit: &Kit) -> Vec<(u32, [u64; 3], Vec<&'static str>)> {
    let seen = |it: &SizeStatistics| {
        let BatchTotals { batches, answered_batches, failed_batches, .. } = it.totals;
        let reasons = it.totals.dispatches().into_iter().filter(|(_, count)| *count > 0);
        let reasons = reasons.map(|(reason, _)| reason).collect();
        (it.largest, [batches, answered_batches, failed_batches], reasons)
    };
    kit.model.statistics().sizes.iter().map(seen).collect()
}

#[tokio::test(start_paused = true)]
async fn batches_are_counted_by_size_and_reason_under_every_policy() {
    for (policy, reason) in [
        (PolicyName::Window, "window"),
        (PolicyName::Opportunistic, "idle"),
        (PolicyName::Adaptive, "idle"),
    ] {
        let of = ModelSettings { policy, latency_max: None, ..settings() };
        let most = of.batch_size;
        let kit = Kit::serving(1, of, echo_after(5)).await;
        kit.call("a").await.unwrap();
        assert_eq!(sizes(&kit), [(1, [1, 1, 0], vec![reason])], "{policy:?}");
        let total = kit.model.statistics().total();
        assert_eq!((total.items, total.room, total.answered_requests), (1, most.into(), 1));
        assert_eq!(total.compute_ns, 5_000_000);
        let measures = kit.model.measures();
        assert_eq!(total.queue_ns / 1000, measures.queue_us.sum, "{policy:?}");
    }
    let alone = ModelSettings { batch_size: 1, ..settings() };
    let kit = Kit::serving(1, alone, echo_after(5)).await;
    kit.call_all(&["a", "b", "c"]).await;
    assert_eq!(sizes(&kit), [(1, [3, 3, 0], vec!["full"])]);
    // They wait for 0, 5 and 10 ms.
    assert_eq!(kit.model.statistics().total().queue_ns / 1_000_000, 15);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_fails_and_its_halves_are_counted_with_their_sizes() {
    let raise_on_bad = |batch: &ScriptedBatch| {
        if batch.bodies.iter().any(|body| body == "bad") { Act::Raise } else { Act::Echo }
    };
    let kit = Kit::serving(1, settings(), raise_on_bad).await;
    kit.call_all(&["a", "bad", "c", "d"]).await;
    let told = sizes(&kit);
    assert_eq!(told[0], (1, [2, 1, 1], vec!["retry"]));
    assert_eq!(told[1], (2, [2, 1, 1], vec!["retry"]));
    assert_eq!((told[2].0, told[2].1, told.len()), (4, [1, 0, 1], 3));
    let total = kit.model.statistics().total();
    assert_eq!((total.answered_items, total.answered_requests), (3, 3));
    let counters = kit.model.status().counters;
    assert_eq!((counters.answered, counters.failed), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn the_request_that_failed_is_noted_and_those_beside_it_are_not() {
    let raise_on_bad = |batch: &ScriptedBatch| {
        if batch.bodies.iter().any(|body| body == "bad") { Act::Raise } else { Act::Echo }
    };
    let kit = Kit::serving(1, settings(), raise_on_bad).await;
    kit.call_all(&["a", "bad", "c", "d"]).await;
    let [failed, _] = kit.model.noted_requests();
    assert_eq!(failed.len(), 1);
    assert!(failed[0].error.is_some(), "{failed:?}");
    assert_eq!(
        failed[0].timing.as_ref().unwrap().batch_items,
        1,
        "it stood alone in its last batch"
    );
}

#[tokio::test(start_paused = true)]
async fn the_ten_slowest_are_noted_with_their_batch() {
    let alone = ModelSettings { batch_size: 1, ..settings() };
    let kit = Kit::serving(1, alone, echo_after(5)).await;
    kit.call_all(&["x"; 12]).await;
    let [failed, slow] = kit.model.noted_requests();
    let took: Vec<_> = slow.iter().map(|request| request.latency.as_millis()).collect();
    assert_eq!(took, [60, 55, 50, 45, 40, 35, 30, 25, 20, 15]);
    let timing = slow[0].timing.as_ref().unwrap();
    assert_eq!((timing.queue, timing.compute, timing.batch_items), (millis(55), millis(5), 1));
    assert!(failed.is_empty());
    tokio::time::advance(millis(700_000)).await;
    assert!(kit.model.noted_requests()[1].is_empty(), "they are of the last minutes");
}

#[tokio::test(start_paused = true)]
async fn a_rejection_is_counted_by_its_reason_wherever_it_comes_from() {
    let kit = Kit::idle(settings(), echo_after(5));
    assert!(kit.call("a").await.is_err());
    drop(kit.model.scale(1, 1).await);
    let late = crate::call::Call { deadline: Some(Instant::now() + millis(1)), ..call("b") };
    assert!(kit.model.call(late).await.is_err());
    let rejections: Vec<_> =
        kit.model.measures().rejections.into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(rejections, [("expired", 1), ("no_worker", 1)]);
    assert_eq!(kit.model.status().counters.rejected, 2);
}

#[tokio::test(start_paused = true)]
async fn the_doors_count_calls_apart_by_whether_they_named_the_version() {
    let kit = Kit::idle(settings(), echo_after(5));
    kit.model.traffic(true).asked();
    kit.model.traffic(true).answered(millis(1), millis(3));
    let read = |named: bool| {
        let traffic = kit.model.traffic(named);
        let [requests, queue, latency] =
            [&traffic.requests, &traffic.queue_us, &traffic.latency_us];
        [requests, queue, latency].map(|counter| counter.load(Ordering::Relaxed))
    };
    assert_eq!((read(false), read(true)), ([0, 0, 0], [1, 1000, 3000]));
}
