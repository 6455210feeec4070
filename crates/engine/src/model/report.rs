//! What a model's batcher has learned and decided, for people who want to understand it.
//!
//! A copy, made on request. It explains and decides nothing; the server puts it into words.

use std::time::Duration;

use jitney_batcher::{Batcher, Config, CurvePoint, Decision, DecisionKind, WaitScore};

/// A copy of what a model's batcher knows.
#[derive(Clone, Debug)]
pub struct BatcherReport {
    /// The settings in force.
    pub config: Config,
    /// Requests that wait.
    pub waiting: u32,
    /// The learned service times, one curve per group, ascending in size.
    pub curve: Vec<CurvePoint>,
    /// What waiting for larger batches has brought.
    pub wait_score: WaitScore,
    /// The last decisions of the adaptive policy, oldest first.
    pub decisions: Vec<PastDecision>,
}

/// A decision, and how long ago it was.
#[derive(Clone, Copy, Debug)]
pub struct PastDecision {
    /// How long ago.
    pub ago: Duration,
    /// For a wait: until when it could have lasted, from the decision on.
    pub wait: Option<Duration>,
    /// What, and the figures behind it.
    pub decision: Decision,
}

impl BatcherReport {
    /// Looks at a batcher; `now` is the time on its clock.
    pub(super) fn of(batcher: &Batcher, now: u64) -> Self {
        let decided = |decision: &Decision| PastDecision {
            ago: Duration::from_nanos(now.saturating_sub(decision.at)),
            wait: match decision.kind {
                DecisionKind::Wait(until) => {
                    Some(Duration::from_nanos(until.saturating_sub(decision.at)))
                }
                DecisionKind::Dispatch(_) | DecisionKind::Reject(_) => None,
            },
            decision: *decision,
        };
        let findings = batcher.findings();
        Self {
            config: batcher.config().clone(),
            waiting: batcher.waiting(),
            curve: findings.curve().collect(),
            wait_score: findings.wait_score(),
            decisions: findings.decisions().map(decided).collect(),
        }
    }

    /// The curve of the group with the most batches.
    pub fn main_curve(&self) -> impl Iterator<Item = &CurvePoint> {
        let main = main_group(&self.curve);
        self.curve.iter().filter(move |point| Some(point.group) == main)
    }
}

/// The group with the most batches.
pub fn main_group(curve: &[CurvePoint]) -> Option<u16> {
    let seen = |group: u16| -> u64 {
        curve.iter().filter(|it| it.group == group).map(|it| u64::from(it.samples)).sum()
    };
    curve.iter().map(|point| point.group).max_by_key(|group| (seen(*group), u16::MAX - group))
}
