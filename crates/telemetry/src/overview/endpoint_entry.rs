//! One endpoint of a definition in the overview: what is its own, where its model's does not hold.

use jitney_engine::{EndpointView, Objective};
use serde::{Deserialize, Serialize};

use crate::model_facts::own_latency;

/// An endpoint of a definition.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct EndpointOverview {
    /// Its largest batch; null if it takes one item at a time.
    pub max_batch_size: Option<u32>,
    /// The latency it keeps; null for none.
    pub max_latency_ms: Option<f64>,
}

impl EndpointOverview {
    /// `latency` is its model's.
    pub(super) fn new(view: &EndpointView, latency: Option<f64>) -> Self {
        let own: Objective = view.objective;
        Self {
            max_batch_size: view.batch_size,
            max_latency_ms: own_latency(own).unwrap_or(latency),
        }
    }
}
