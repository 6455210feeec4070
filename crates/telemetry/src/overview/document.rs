//! The document itself: the server, the machine and every model version at one moment.

use serde::{Deserialize, Serialize};

use super::model_entry::ModelOverview;
use super::problem::ServerProblem;
use super::sampler::OverviewSample;
use super::server_entry::{OverviewSources, ServerOverview};
use super::timestamp::unix_millis;
use super::version_state::VersionState;
use super::worker_entry::WorkerUsages;
use crate::jobs_overview::JobsOverview;
use crate::metrics::{GpuSample, SystemSample};
use crate::registrations::RegistrationsView;

const MEBI: f64 = (1_u64 << 20) as f64;

/// The answer to `GET /overview`. Counts are totals, so that clients make rates of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct OverviewDocument {
    /// Milliseconds of Unix time.
    pub time: u64,
    /// The server itself.
    pub server: ServerOverview,
    /// Null until it was measured.
    pub machine: Option<MachineOverview>,
    /// Its GPUs.
    pub gpus: Vec<GpuOverview>,
    /// Every version of every model.
    pub models: Vec<ModelOverview>,
    /// The shared list that models come from; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub registrations: Option<RegistrationsView>,
    /// The requests that are answered later; absent before the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub jobs: Option<JobsOverview>,
    /// The last of the samples; null before the first.
    pub sample: Option<OverviewSample>,
    /// What is wrong, the worst first.
    pub problems: Vec<ServerProblem>,
}

/// The machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct MachineOverview {
    /// Of all processors together; null where two looks are needed and there was one.
    pub cpu_percent: Option<f64>,
    /// In use.
    pub memory_used_bytes: u64,
    /// All there is.
    pub memory_total_bytes: u64,
    /// Its processors; 0 where that is not known.
    pub processors: u32,
    /// What is free on its root file system.
    pub disk_free_bytes: Option<u64>,
    /// What that file system holds at most.
    pub disk_total_bytes: Option<u64>,
}

/// A GPU; null is what it does not tell.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct GpuOverview {
    /// Its number.
    pub id: u32,
    /// How busy it is.
    pub utilization_percent: Option<f64>,
    /// In use.
    pub memory_used_bytes: Option<u64>,
    /// All there is.
    pub memory_total_bytes: Option<u64>,
}

impl OverviewDocument {
    pub(super) fn read(
        sources: &OverviewSources,
        usages: &WorkerUsages,
        sample: Option<OverviewSample>,
    ) -> Self {
        let (draining, meter) = (sources.engine.draining(), &sources.meter);
        let versions = sources.engine.listed_versions();
        let read = versions.iter().map(|(model, is_default)| {
            let (state, entry) = ModelOverview::read(model, *is_default, draining, usages);
            ((model.name(), state), entry)
        });
        let (states, models): (Vec<(&str, VersionState)>, Vec<_>) = read.unzip();
        let machine = meter.last_sample();
        Self {
            time: unix_millis(),
            server: ServerOverview::read(sources, &states, usages),
            gpus: machine.gpus.iter().map(GpuOverview::new).collect(),
            machine: MachineOverview::of(&machine),
            models,
            registrations: RegistrationsView::of(&sources.registrations),
            jobs: (sources.jobs)(),
            sample,
            problems: Vec::new(),
        }
    }
}

impl MachineOverview {
    fn of(sample: &SystemSample) -> Option<Self> {
        let (total, available) = sample.memory?;
        Some(Self {
            cpu_percent: sample.cpu_percent,
            memory_used_bytes: total.saturating_sub(available),
            memory_total_bytes: total,
            processors: sample.processors,
            disk_free_bytes: sample.disk.map(|(_, free)| free),
            disk_total_bytes: sample.disk.map(|(used, free)| used + free),
        })
    }
}

impl GpuOverview {
    fn new(gpu: &GpuSample) -> Self {
        let bytes = |mebi: f64| (mebi * MEBI) as u64;
        Self {
            id: gpu.index,
            utilization_percent: gpu.percent,
            memory_used_bytes: gpu.memory_mib.map(|(used, _)| bytes(used)),
            memory_total_bytes: gpu.memory_mib.map(|(_, total)| bytes(total)),
        }
    }
}
