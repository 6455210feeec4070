//! The samples of the last ten minutes, for those who come later. Bounded by their number and, where there
//! are very many models, by the number of figures.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::model_sample::OverviewSample;

/// How often a sample is taken.
pub(super) const SAMPLE_EVERY: Duration = Duration::from_secs(2);
/// Ten minutes.
const SAMPLES_MAX: usize = 300;
/// Samples of one model each: 200 models for ten minutes, about 15 MB.
const FIGURES_MAX: usize = 200 * SAMPLES_MAX;

/// The last samples, oldest first.
#[derive(Debug, Default)]
pub(super) struct SampleHistory {
    samples: VecDeque<Arc<OverviewSample>>,
    figures: usize,
}

impl SampleHistory {
    pub(super) fn push(&mut self, sample: OverviewSample) {
        self.figures += sample.len();
        self.samples.push_back(Arc::new(sample));
        while self.samples.len() > SAMPLES_MAX
            || (self.figures > FIGURES_MAX && self.samples.len() > 1)
        {
            let oldest = self.samples.pop_front();
            self.figures -= oldest.map_or(0, |oldest| oldest.len());
        }
    }

    /// The newest.
    pub(super) fn last(&self) -> Option<Arc<OverviewSample>> {
        self.samples.back().cloned()
    }

    pub(super) fn view(&self) -> HistoryEntry<'_> {
        HistoryEntry { every_seconds: SAMPLE_EVERY.as_secs(), samples: &self.samples }
    }
}

/// The history as it is told.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HistoryEntry<'a> {
    every_seconds: u64,
    #[serde(serialize_with = "in_order")]
    samples: &'a VecDeque<Arc<OverviewSample>>,
}

fn in_order<S: Serializer>(
    samples: &VecDeque<Arc<OverviewSample>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(samples.iter().map(Arc::as_ref))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_oldest_make_room() {
        let mut history = SampleHistory::default();
        for time in 0..=SAMPLES_MAX as u64 {
            history.push(OverviewSample::empty(time));
        }
        let told = json!(history.view());
        assert_eq!(told["everySeconds"], 2);
        let samples = told["samples"].as_array().unwrap();
        assert_eq!(samples.len(), SAMPLES_MAX);
        assert_eq!(samples[0], json!({"time": 1, "models": {}}));
        assert_eq!(history.last().map(|last| last.len()), Some(0));
    }
}
