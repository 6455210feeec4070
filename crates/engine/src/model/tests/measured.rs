//! What the model's task measures about batches, as the metrics read it.

use super::*;

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
