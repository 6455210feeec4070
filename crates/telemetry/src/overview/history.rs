//! The samples of the last ten minutes, for those who come later, and what else is remembered of the versions.
//! Bounded by their number and, where there are very many models, by the number of figures.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::sampler::OverviewSample;
use super::version_record::{VersionLook, VersionRecord};

/// How often a sample is taken.
pub(super) const SAMPLE_EVERY: Duration = Duration::from_secs(2);
/// Ten minutes.
const SAMPLES_MAX: usize = 300;
/// Samples of one model each: 200 models for ten minutes, about 15 MB.
const FIGURES_MAX: usize = 200 * SAMPLES_MAX;

/// How far samples that are further apart reach back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PastRange {
    /// An hour, every 20 seconds.
    Hour,
    /// A day, every five minutes.
    Day,
}

impl PastRange {
    /// The range with this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "hour" => Some(Self::Hour),
            "day" => Some(Self::Day),
            _ => None,
        }
    }

    /// The time between two samples.
    pub(super) fn every(self) -> Duration {
        match self {
            Self::Hour => Duration::from_secs(20),
            Self::Day => Duration::from_secs(300),
        }
    }
}

/// The last samples.
#[derive(Debug)]
pub(super) struct SampleHistory {
    told: OverviewHistory,
    figures: usize,
    /// Of the versions that are registered.
    records: HashMap<String, VersionRecord>,
}

/// The samples that a stream begins with.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct OverviewHistory {
    /// The time between two of them.
    pub every_seconds: u64,
    /// Oldest first.
    #[cfg_attr(test, ts(as = "Vec<OverviewSample>"))]
    pub samples: VecDeque<OverviewSample>,
}

impl Default for SampleHistory {
    fn default() -> Self {
        Self::new(SAMPLE_EVERY)
    }
}

impl SampleHistory {
    pub(super) fn new(every: Duration) -> Self {
        let every_seconds = every.as_secs();
        let told = OverviewHistory { every_seconds, samples: VecDeque::new() };
        Self { told, figures: 0, records: HashMap::new() }
    }

    /// Takes a sample, and what else was seen of the versions in it.
    pub(super) fn push(&mut self, sample: OverviewSample, looks: HashMap<String, VersionLook>) {
        let mut before = std::mem::take(&mut self.records);
        for (key, look) in looks {
            let mut record = before.remove(&key).unwrap_or_default();
            record.look(sample.time, &look);
            self.records.insert(key, record);
        }
        self.figures += sample.models.len();
        let samples = &mut self.told.samples;
        samples.push_back(sample);
        while samples.len() > SAMPLES_MAX || (self.figures > FIGURES_MAX && samples.len() > 1) {
            let oldest = samples.pop_front();
            self.figures -= oldest.map_or(0, |oldest| oldest.models.len());
        }
    }

    /// The newest.
    pub(super) fn last(&self) -> Option<OverviewSample> {
        self.told.samples.back().cloned()
    }

    pub(super) fn samples(&self) -> &VecDeque<OverviewSample> {
        &self.told.samples
    }

    pub(super) fn record(&self, key: &str) -> Option<&VersionRecord> {
        self.records.get(key)
    }

    pub(super) fn told(&self) -> &OverviewHistory {
        &self.told
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_oldest_make_room() {
        let mut history = SampleHistory::default();
        for time in 0..=SAMPLES_MAX as u64 {
            let sample = OverviewSample { time, ..OverviewSample::default() };
            history.push(sample, HashMap::new());
        }
        let told = json!(history.told());
        assert_eq!(told["everySeconds"], 2);
        let samples = told["samples"].as_array().unwrap();
        assert_eq!(samples.len(), SAMPLES_MAX);
        assert_eq!(samples[0], json!({"time": 1, "models": {}}));
        assert_eq!(history.last().map(|last| last.time), Some(SAMPLES_MAX as u64));
    }
}
