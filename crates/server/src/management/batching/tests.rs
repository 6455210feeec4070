//! Decisions and curves as people read them.

use std::time::Duration;

use jitney_engine::model::PastDecision;
use jitney_engine::{DispatchReason, Rejection};
use serde_json::json;

use super::*;

fn decided(kind: DecisionKind) -> PastDecision {
    let decision = jitney_engine::Decision {
        at: 0,
        kind,
        size: 8,
        waiting: 9,
        skipped: 1,
        predicted: 6_600_000,
        next_free: 2_000_000,
        rate: 812.345,
        slack: Some(30_000_000),
    };
    PastDecision {
        ago: Duration::from_micros(1500),
        wait: Some(Duration::from_millis(3)),
        decision,
    }
}

#[test]
fn every_decision_is_a_sentence_with_its_figures() {
    for (kind, sentence) in [
        (
            DecisionKind::Dispatch(DispatchReason::Everyone),
            "sent 8 items, expected to take 6.60 ms: all expected requests had come; 1 before them \
             were skipped because they would be late",
        ),
        (
            DecisionKind::Wait(5),
            "8 items waited for others, at most 3.00 ms: 812 items arrive per second",
        ),
        (
            DecisionKind::Reject(Rejection::Infeasible),
            "rejected a request of 8 items: it would have been late with 30.00 ms left; the next \
             worker is free in 2.00 ms",
        ),
    ] {
        assert_eq!(DecisionEntry::new(&decided(kind), Unit::Items).words, sentence);
    }
    let weighed = DecisionEntry::new(&decided(DecisionKind::Wait(5)), Unit::Cost).words;
    assert!(weighed.starts_with("8 units of cost waited"), "{weighed}");
}

#[test]
fn the_curve_is_of_the_group_with_the_most_batches() {
    let point = |bucket, size, samples| CurvePoint {
        group: bucket,
        size,
        mean: 5_200_000,
        planned: 5_300_000,
        samples,
    };
    let report = BatcherReport {
        config: Default::default(),
        waiting: 0,
        curve: vec![point(0, 1, 3), point(7, 1, 9), point(7, 2, 1)],
        wait_score: WaitScore { stopped: true, tests: 2, ratio: Some(1.319_04) },
        decisions: Vec::new(),
    };
    let report = BatchingReport::new("m", "1.0", "adaptive", &report);
    let report = serde_json::to_value(&report).unwrap();
    assert_eq!(
        report["curve"],
        json!([
            {"size": 1, "ms": 5.2, "planned_ms": 5.3, "samples": 9},
            {"size": 2, "ms": 5.2, "planned_ms": 5.3, "samples": 1},
        ])
    );
    assert_eq!(report["otherCurves"][0]["bucket"], 0);
    let score = json!({"stopped": true, "tests": 2, "overAtOnce": 1.319});
    assert_eq!(report["waitScore"], score);
    assert!(WaitScoreReport::of(WaitScore::default()).is_none());
}

#[test]
fn padding_is_reported_where_there_is_any() {
    let account = PaddingReport::of(Padding { real: 900, padded: 1200 });
    assert_eq!(
        serde_json::to_value(account).unwrap(),
        json!({"real": 900, "padded": 1200, "waste": 0.25})
    );
    assert!(PaddingReport::of(Padding::default()).is_none());
}
