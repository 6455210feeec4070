//! What the dashboard, `jitney top`, `jitney status` and `jitney models` show: the server, the machine and
//! every model version in one document, and how the models did in the last ten minutes, hour and day.
//!
//! Nothing is counted here: the models count, and their totals are read. A sampler on the admin plane reads
//! them every two seconds. While somebody follows the overview it is written once a second, for all who do.

mod compute_times;
mod diagnosis;
mod document;
mod history;
mod live_setting;
mod live_stream;
mod memory_trail;
mod model_entry;
mod problem;
mod quantile;
mod sampler;
mod server_entry;
#[cfg(test)]
mod tests;
mod timestamp;
mod version_record;
mod version_state;
mod worker_entry;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::time::MissedTickBehavior;

pub use self::document::{GpuOverview, MachineOverview, OverviewDocument};
pub use self::history::{OverviewHistory, PastRange};
use self::history::{SAMPLE_EVERY, SampleHistory};
pub use self::live_setting::LiveSetting;
use self::live_stream::LiveStreams;
pub use self::model_entry::{
    CurveEntry, DistributionEntry, EndpointOverview, ModelOverview, SizeCount, VersionTotals,
};
pub use self::problem::{ProblemTone, ServerProblem};
use self::sampler::Sampler;
pub use self::sampler::{ModelSample, OverviewSample};
pub use self::server_entry::{OverviewSources, ServerOverview};
use self::worker_entry::WorkerUsages;
pub use self::worker_entry::{CollectorOverview, WorkerOverview, WorkerProgress};
use crate::follow::{FollowError, LiveStream};

/// How often the document is written while somebody follows it.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// How many of these times come to one sample.
const WRITES_PER_SAMPLE: u64 = SAMPLE_EVERY.as_secs() / WRITE_EVERY.as_secs();

/// The overview of one server.
pub struct Overview {
    sources: OverviewSources,
    /// Written by the samplers alone.
    history: Mutex<SampleHistory>,
    hour: Mutex<SampleHistory>,
    day: Mutex<SampleHistory>,
    /// The same.
    usages: ArcSwap<WorkerUsages>,
    streams: LiveStreams,
}

impl Overview {
    /// The overview of a server with so many connections for management.
    pub fn new(sources: OverviewSources, connections_max: usize) -> Self {
        Self {
            streams: LiveStreams::new(connections_max),
            sources,
            history: Mutex::default(),
            hour: Mutex::new(SampleHistory::new(PastRange::Hour.every())),
            day: Mutex::new(SampleHistory::new(PastRange::Day.every())),
            usages: ArcSwap::default(),
        }
    }

    /// Samples the models, and writes the document while somebody follows it; without end.
    pub async fn run(&self) {
        let mut sampler = Sampler::default();
        let mut past = [PastRange::Hour, PastRange::Day].map(|range| (range, Sampler::default()));
        let mut ticks = tokio::time::interval(WRITE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let OverviewSources { engine, meter, .. } = &self.sources;
        for tick in 0_u64.. {
            ticks.tick().await;
            if tick.is_multiple_of(WRITES_PER_SAMPLE) {
                let (sample, looks, usages) = sampler.sample(engine, meter, &self.usages.load());
                self.usages.store(Arc::new(usages));
                self.history().push(sample, looks);
            }
            for (range, sampler) in &mut past {
                if tick.is_multiple_of(range.every().as_secs()) {
                    let (sample, ..) = sampler.sample(engine, meter, &self.usages.load());
                    lock(self.kept(*range)).push(sample, HashMap::new());
                }
            }
            let followed = self.streams.any();
            meter.set_followed(followed);
            if followed {
                self.streams.send(self.event());
            }
        }
    }

    /// Tells those who follow the overview its last state, and that this was the last.
    pub fn close(&self) {
        let event = if self.streams.any() { self.event() } else { Bytes::new() };
        self.streams.close(&event);
    }

    /// Resolves when the server's listeners close.
    pub async fn closing(&self) {
        self.streams.closing().await;
    }

    /// Reads everything.
    pub fn read(&self) -> OverviewDocument {
        let history = self.history();
        let mut read = OverviewDocument::read(&self.sources, &self.usages.load(), history.last());
        read.problems = diagnosis::problems(&read, &history);
        read
    }

    /// The samples of an hour or of a day.
    pub fn past(&self, range: PastRange) -> OverviewHistory {
        lock(self.kept(range)).told().clone()
    }

    fn kept(&self, range: PastRange) -> &Mutex<SampleHistory> {
        match range {
            PastRange::Hour => &self.hour,
            PastRange::Day => &self.day,
        }
    }

    /// What one follower is told: the history and the state at once, then the state once a second.
    ///
    /// # Errors
    /// Too many follow it, or the server ends.
    pub fn follow(&self) -> Result<(Bytes, LiveStream), FollowError> {
        let stream = self.streams.open()?;
        let history = live_stream::event("history", self.history().told());
        Ok((Bytes::from([history, self.event()].concat()), stream))
    }

    fn event(&self) -> Bytes {
        live_stream::event("overview", &self.read())
    }

    fn history(&self) -> MutexGuard<'_, SampleHistory> {
        lock(&self.history)
    }
}

fn lock(history: &Mutex<SampleHistory>) -> MutexGuard<'_, SampleHistory> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}
