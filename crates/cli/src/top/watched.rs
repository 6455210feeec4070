//! What `jitney top` knows: the newest overview, the samples of the last ten minutes, and why the
//! batches of the chosen model were sent.

use std::collections::VecDeque;

use jitney_telemetry::overview::{ModelOverview, OverviewDocument, OverviewSample};
use serde::Deserialize;

use crate::remote::rates::RemoteRates;

/// Ten minutes at one sample per second.
const SAMPLES_MAX: usize = 600;

/// Rates are of this many milliseconds.
const WINDOW_MS: u64 = 5000;

/// What is known of a server.
#[derive(Clone, Debug, Default)]
pub struct WatchedServer {
    /// As it is typed.
    pub address: String,
    /// The newest document; none before the first.
    pub overview: Option<OverviewDocument>,
    /// Oldest first.
    samples: VecDeque<OverviewSample>,
    /// Why nothing new comes.
    pub lost: Option<String>,
    /// The last decisions of a model, by its key.
    pub why: Option<(String, RemoteBatching)>,
}

/// The part of `/models/{m}/batching` that is shown.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RemoteBatching {
    /// How the policy decides.
    pub how: String,
    /// Newest first.
    pub decisions: Vec<RemoteDecision>,
}

/// A decision of a batcher.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteDecision {
    /// How long ago.
    pub ago_ms: f64,
    /// In a sentence.
    pub words: String,
}

impl WatchedServer {
    /// Nothing is known yet.
    pub fn new(address: String) -> Self {
        Self { address, ..Self::default() }
    }

    /// Takes the samples that the server kept.
    pub fn take_history(&mut self, samples: impl IntoIterator<Item = OverviewSample>) {
        self.samples.clear();
        samples.into_iter().for_each(|sample| self.take_sample(sample));
    }

    /// Takes a new document.
    pub fn take_overview(&mut self, overview: OverviewDocument) {
        overview.sample.iter().cloned().for_each(|sample| self.take_sample(sample));
        self.overview = Some(overview);
        self.lost = None;
    }

    fn take_sample(&mut self, sample: OverviewSample) {
        if self.samples.back().is_some_and(|last| sample.time <= last.time) {
            return;
        }
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// The models of the newest document.
    pub fn models(&self) -> &[ModelOverview] {
        self.overview.as_ref().map_or(&[], |overview| overview.models.as_slice())
    }

    /// The traffic of a model in the last seconds.
    pub fn rates(&self, key: &str) -> RemoteRates {
        let last = self.samples.back().map_or(0, |sample| sample.time);
        let from = self.samples.partition_point(|sample| sample.time + WINDOW_MS < last);
        // The window is longer than two samples of a server that takes one every few seconds.
        let from = from.min(self.samples.len().saturating_sub(2));
        RemoteRates::of(key, self.samples.range(from..))
    }

    /// Requests per second between neighbouring samples, oldest first, at most this many.
    pub fn traffic(&self, key: &str, most: usize) -> Vec<f64> {
        let from = self.samples.len().saturating_sub(most + 1);
        let pairs = self.samples.range(from..).zip(self.samples.range(from..).skip(1));
        let rate = |(before, after)| RemoteRates::of(key, [before, after].into_iter()).requests;
        pairs.map(rate).collect()
    }
}
