//! The document itself: the server, the machine and every model version at one moment.

use serde::Serialize;

use super::model_entry::ModelOverview;
use super::model_sample::OverviewSample;
use super::server_entry::ServerOverview;
use super::sources::OverviewSources;
use super::timestamp::unix_millis;
use super::version_state::VersionState;
use super::worker_usage::WorkerUsages;
use crate::metrics::{GpuSample, SystemSample};
use crate::registrations::RegistrationsView;

const MEBI: f64 = (1_u64 << 20) as f64;

/// The answer to `GET /overview`. Counts are totals, so that clients make rates of them.
#[derive(Debug, Serialize)]
pub struct OverviewDocument<'a> {
    /// Milliseconds of Unix time.
    time: u64,
    server: ServerOverview,
    /// Null until it was measured.
    machine: Option<MachineEntry>,
    gpus: Vec<GpuEntry>,
    models: Vec<ModelOverview>,
    /// The shared list that models come from; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    registrations: Option<RegistrationsView>,
    /// The last of the samples.
    sample: Option<&'a OverviewSample>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MachineEntry {
    cpu_percent: Option<f64>,
    memory_used_bytes: u64,
    memory_total_bytes: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct GpuEntry {
    id: u32,
    utilization_percent: Option<f64>,
    memory_used_bytes: Option<u64>,
    memory_total_bytes: Option<u64>,
}

impl<'a> OverviewDocument<'a> {
    pub(super) fn read(
        sources: &OverviewSources,
        usages: &WorkerUsages,
        sample: Option<&'a OverviewSample>,
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
            server: ServerOverview::read(sources, &states),
            gpus: machine.gpus.iter().map(GpuEntry::new).collect(),
            machine: MachineEntry::of(&machine),
            models,
            registrations: RegistrationsView::of(&sources.registrations),
            sample,
        }
    }
}

impl MachineEntry {
    fn of(sample: &SystemSample) -> Option<Self> {
        let (total, available) = sample.memory?;
        Some(Self {
            cpu_percent: sample.cpu_percent,
            memory_used_bytes: total.saturating_sub(available),
            memory_total_bytes: total,
        })
    }
}

impl GpuEntry {
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
