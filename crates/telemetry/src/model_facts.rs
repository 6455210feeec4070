//! Facts about a model version in the form in which documents about it tell them.

use std::collections::BTreeMap;
use std::time::Duration;

use jitney_engine::{Model, Objective, Policy};
use serde::{Deserialize, Serialize};

/// A model as another one's document names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ModelLink {
    /// Its name.
    pub model: String,
    /// None for whichever answers by default.
    pub version: Option<String>,
}

/// The models that a model calls, each once.
pub fn called_models(model: &Model) -> Vec<ModelLink> {
    let mut called: Vec<ModelLink> = Vec::new();
    for it in model.depends_on() {
        let link = ModelLink { model: it.model.clone(), version: it.version.clone() };
        if !called.contains(&link) {
            called.push(link);
        }
    }
    called
}

/// An endpoint's latency, where it is not simply the model's.
pub fn own_latency(objective: Objective) -> Option<Option<f64>> {
    match objective {
        Objective::Models => None,
        Objective::Own(latency) => Some(Some(duration_millis(latency))),
        Objective::Free => Some(None),
    }
}

/// The latency that a policy keeps, and how long it lets a request wait for others, in nanoseconds.
pub fn policy_times(policy: &Policy) -> (Option<u64>, Option<u64>) {
    match *policy {
        Policy::Adaptive(adaptive) => (adaptive.objective, adaptive.window.or(adaptive.max_wait)),
        Policy::Window { delay } => (None, Some(delay)),
        Policy::Opportunistic => (None, None),
    }
}

/// What was counted at all.
pub fn counted<const N: usize>(all: [(&'static str, u64); N]) -> BTreeMap<String, u64> {
    let some = all.into_iter().filter(|(_, count)| *count > 0);
    some.map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Milliseconds with three digits behind the point.
pub fn millis(nanos: u64) -> f64 {
    (nanos as f64 / 1e3).round() / 1e3
}

/// The same of a duration.
pub fn duration_millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
