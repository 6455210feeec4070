//! Requests whose head is here and whose body is still coming, as the batcher knows them.

use super::*;

fn from(peer: u64) -> Origin {
    Origin { kind: OriginKind::Http, peer }
}

/// A model whose clients send their bodies two milliseconds after their heads.
async fn listening() -> Kit {
    let settings = ModelSettings { policy: PolicyName::Adaptive, ..settings() };
    let kit = Kit::serving(1, settings, echo_after(10)).await;
    for peer in 0..60 {
        let announced = kit.model.announce(from(peer)).expect("the policy listens");
        tokio::time::sleep(millis(2)).await;
        let call = crate::call::Call { origin: from(peer), ..call("practice") };
        assert!(kit.model.call(call).await.is_ok());
        announced.came();
        tokio::time::sleep(millis(300)).await;
    }
    kit
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_head_was_seen_is_waited_for() {
    let kit = listening().await;
    let announced = kit.model.announce(from(1000)).expect("the policy listens");
    let first = kit.start(crate::call::Call { origin: from(1001), ..call("first") });
    tokio::time::sleep(millis(1)).await;
    let second = kit.start(crate::call::Call { origin: from(1000), ..call("second") });
    let answers = [first.await, second.await].map(|answer| answer.expect("ends").expect("answer"));
    announced.came();
    assert_eq!(answers.map(|answer| answer.timing.batch_items), [2, 2]);
}

#[tokio::test(start_paused = true)]
async fn one_that_will_not_come_after_all_holds_up_no_other() {
    let kit = listening().await;
    let announced = kit.model.announce(from(1000)).expect("the policy listens");
    let start = Instant::now();
    let waits = kit.start(crate::call::Call { origin: from(1001), ..call("waits") });
    settle().await;
    drop(announced);
    assert!(waits.await.expect("ends").is_ok());
    assert_eq!(start.elapsed(), millis(10));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_announced_where_nothing_would_wait() {
    let kit = Kit::serving(1, settings(), echo_after(10)).await;
    assert!(kit.model.announce(from(1)).is_none());
}
