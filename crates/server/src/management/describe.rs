//! A model's settings and workers, and its handler's own description.

use std::collections::BTreeMap;
use std::sync::Arc;

use jitney_engine::call::Origin;
use jitney_engine::local::{Signature, TensorSpec};
use jitney_engine::settings::ModelSettings;
use jitney_engine::{
    IncidentReport, Measures, Model, Readiness, Status, WorkerIncident, WorkerView,
};
use jitney_settings::Dialect;
use jitney_settings::model::{MAX_REQUESTS_PER_WORKER, MEMORY_LIMIT};
use jitney_telemetry::metrics::Meter;
use jitney_telemetry::overview::CollectorOverview;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::model_links::ModelLinks;
use crate::errors::Problem;
use crate::route::ModelRef;
use crate::state::ServerState;

/// Describes a version, the default one if none is named, or `all` of them. With `customized`, the id and
/// origin of the request, the handler adds to the description.
pub(crate) async fn describe(
    state: &ServerState,
    target: ModelRef<'_>,
    customized: Option<(&str, Origin)>,
) -> Result<Vec<Description>, Problem> {
    if target.version == Some("all") {
        let versions = state.engine.versions(target.model)?;
        return Ok(versions.iter().map(|model| Description::of(state, model)).collect());
    }
    let model = state.inference.model(target)?;
    let mut description = Description::of(state, &model);
    if let Some((id, origin)) = customized {
        let metadata = match model.signature().filter(|_| !model.tag().python) {
            // It has no handler to ask.
            Some(signature) => tensors_of(signature),
            None => {
                let answer = state.inference.describe(&model, target, id, origin).await?;
                // An answer that is no object counts as none.
                serde_json::from_slice(&answer.output.body).unwrap_or_default()
            }
        };
        description.customized_metadata = Some(metadata);
        description.capacity = model.status().capacity.map(|it| it.to_string());
    }
    Ok(vec![description])
}

/// What a model without Python takes and gives.
fn tensors_of(signature: &Signature) -> Map<String, Value> {
    let tensor = |spec: &TensorSpec| {
        let datatype = spec.datatype.as_str();
        json!({ "name": spec.name, "datatype": datatype, "shape": spec.shape_or_minus_one() })
    };
    let tensors = |specs: &[TensorSpec]| Value::from_iter(specs.iter().map(tensor));
    let pairs = [("inputs", &signature.inputs), ("outputs", &signature.outputs)];
    pairs.into_iter().map(|(name, specs)| (name.to_owned(), tensors(specs))).collect()
}

/// The fields in TorchServe's order.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Description {
    model_name: String,
    model_version: String,
    /// None for a workflow's function, which comes from no archive of its own.
    #[serde(skip_serializing_if = "String::is_empty")]
    model_url: String,
    runtime: String,
    min_workers: u32,
    max_workers: u32,
    batch_size: u32,
    max_batch_delay: u64,
    response_timeout: u64,
    startup_timeout: u64,
    max_retry_timeout_in_sec: u64,
    client_timeout_in_mills: u64,
    parallel_type: String,
    parallel_level: u32,
    device_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_ids: Option<Vec<i64>>,
    continuous_batching: bool,
    use_job_ticket: bool,
    use_venv: bool,
    stateful: bool,
    #[serde(rename = "sequenceMaxIdleMSec")]
    sequence_max_idle: u64,
    #[serde(rename = "sequenceTimeoutMSec")]
    sequence_timeout: u64,
    max_num_sequence: u64,
    max_sequence_job_queue_size: u64,
    loaded_at_startup: bool,
    workers: Vec<WorkerEntry>,
    job_queue_status: QueueStatus,
    /// Weights of tenants, where they have some.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tenants: BTreeMap<String, u32>,
    /// Why it has as many workers as it has, where their number follows the load; in TorchServe's dialect only where
    /// more than its keys is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    customized_metadata: Option<Map<String, Value>>,
    /// Not in TorchServe's dialect, whose keys are known.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    health: Option<WorkersHealth>,
    /// The same.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    batches: Option<BatchFacts>,
    /// The same.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    links: Option<ModelLinks>,
}

/// At which sizes the model runs, what its workers measured and when they are replaced; only what there is to say.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BatchFacts {
    /// Batch sizes in items.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sizes: Vec<u32>,
    /// Item lengths.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lengths: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stages: Option<StageSums>,
    /// Bytes that one worker may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_requests_per_worker: Option<u32>,
}

/// What the stages of all batches took that workers have measured.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StageSums {
    batches: u64,
    prepare_seconds: f64,
    model_seconds: f64,
}

impl BatchFacts {
    fn of(model: &Model) -> Self {
        let settings = model.settings();
        Self {
            sizes: model.allowed_sizes().to_vec(),
            lengths: settings.lengths.clone(),
            stages: StageSums::of(&model.measures()),
            memory_limit: settings.values.read(&MEMORY_LIMIT),
            max_requests_per_worker: settings.values.read(&MAX_REQUESTS_PER_WORKER),
        }
    }
}

impl StageSums {
    fn of(measures: &Measures) -> Option<Self> {
        let (batches, seconds) = (measures.model_us.count(), |micros: u64| micros as f64 / 1e6);
        (batches > 0).then(|| Self {
            batches,
            prepare_seconds: seconds(measures.prepare_us.sum),
            model_seconds: seconds(measures.model_us.sum),
        })
    }
}

/// Whether the model can serve, and what went wrong with its workers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WorkersHealth {
    ready: bool,
    /// Why, or why not.
    state: String,
    restarts: u64,
    load_failures: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error_time: Option<String>,
    /// The exit status or the signal, if that was the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_exit: Option<String>,
}

impl WorkersHealth {
    fn new(readiness: &Readiness, incidents: &IncidentReport) -> Self {
        let last = incidents.last.as_deref();
        let time = |last: &WorkerIncident| humantime::format_rfc3339_millis(last.at).to_string();
        Self {
            ready: readiness.is_ready(),
            state: readiness.to_string(),
            restarts: incidents.restarts,
            load_failures: incidents.load_failures,
            last_error: last.map(|last| last.error.clone()),
            last_error_time: last.map(time),
            last_exit: last.and_then(|last| Some(last.exit?.to_string())),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WorkerEntry {
    id: String,
    start_time: String,
    status: &'static str,
    memory_usage: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    gpu: bool,
    gpu_usage: String,
    /// Not in TorchServe's dialect.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    more: Option<WorkerFacts>,
}

/// What a worker says of itself; only what there is to say.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WorkerFacts {
    /// How far it is with loading and warming up.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu_id: Option<u32>,
    /// The processors that it is kept to.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu_memory_bytes: Option<u64>,
    /// How many graphs it captured, and what memory they hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    graphs: Option<Value>,
    /// How often its garbage collector ran, and how long that took.
    #[serde(skip_serializing_if = "Option::is_none")]
    garbage_collection: Option<CollectorOverview>,
}

impl WorkerFacts {
    fn of(worker: &WorkerView) -> Self {
        let progress = worker.progress.as_ref();
        Self {
            progress: progress
                .map(|step| json!({ "done": step.done, "of": step.of, "what": step.what })),
            gpu_id: worker.gpu,
            cpus: worker.cpus.as_ref().map(ToString::to_string),
            gpu_memory_bytes: worker.gpu_memory,
            graphs: worker.graphs.map(|it| json!({ "count": it.count, "bytes": it.bytes })),
            garbage_collection: worker.pauses.map(Into::into),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueStatus {
    remaining_capacity: u32,
    pending_requests: u32,
}

/// Who is described, apart from settings and status, so that tests need no engine.
struct DescribedModel<'a> {
    model: &'a str,
    version: &'a str,
    url: &'a str,
    at_startup: bool,
}

impl Description {
    fn of(state: &ServerState, model: &Arc<Model>) -> Self {
        let dialect = state.config.dialect;
        let links = (dialect == Dialect::Jitney).then(|| ModelLinks::of(&state.engine, model));
        Self { links, ..Self::new(model, &state.parts.meter, dialect) }
    }

    fn new(model: &Model, meter: &Meter, dialect: Dialect) -> Self {
        let name = DescribedModel {
            model: model.name(),
            version: model.version(),
            url: &model.identity().url,
            at_startup: model.identity().at_startup,
        };
        let mut status = model.status();
        for worker in &mut status.workers {
            worker.memory = worker.pid.and_then(|pid| meter.memory(pid)).unwrap_or(worker.memory);
        }
        let mut description = Self::from_parts(&name, &model.settings(), &status);
        for (entry, worker) in description.workers.iter_mut().zip(&status.workers) {
            let usage = worker.gpu.and_then(|gpu| meter.gpu_usage(gpu));
            entry.gpu_usage = usage.unwrap_or_else(|| "N/A".to_owned());
            if dialect == Dialect::Jitney {
                entry.more = Some(WorkerFacts::of(worker));
                if !worker.ready {
                    entry.status = "LOADING";
                }
            }
        }
        if dialect == Dialect::Jitney {
            description.batches = Some(BatchFacts::of(model));
            description.capacity = status.capacity.map(|it| it.to_string());
            description.health = Some(WorkersHealth::new(&model.readiness(), &status.incidents));
        }
        description
    }

    fn from_parts(name: &DescribedModel<'_>, settings: &ModelSettings, status: &Status) -> Self {
        let declared = &settings.declared;
        Self {
            model_name: name.model.to_owned(),
            model_version: name.version.to_owned(),
            model_url: name.url.to_owned(),
            runtime: settings.runtime.clone(),
            min_workers: status.workers_min,
            max_workers: status.workers_max,
            batch_size: settings.batch_size,
            max_batch_delay: settings.batch_delay.as_millis() as u64,
            response_timeout: settings.response_timeout.as_secs(),
            startup_timeout: settings.startup_timeout.as_secs(),
            max_retry_timeout_in_sec: settings.retry_window.as_secs(),
            client_timeout_in_mills: settings.client_timeout.as_millis() as u64,
            parallel_type: declared.parallel_type.clone(),
            parallel_level: declared.parallel_level,
            device_type: if declared.gpu { "gpu" } else { "cpu" },
            device_ids: declared.device_ids.clone(),
            continuous_batching: declared.continuous_batching,
            use_job_ticket: settings.job_ticket,
            use_venv: declared.use_venv,
            stateful: declared.stateful,
            sequence_max_idle: declared.sequence_max_idle_ms,
            sequence_timeout: declared.sequence_timeout_ms,
            max_num_sequence: declared.max_num_sequence,
            max_sequence_job_queue_size: declared.max_sequence_job_queue_size,
            loaded_at_startup: name.at_startup,
            workers: status.workers.iter().map(WorkerEntry::new).collect(),
            job_queue_status: QueueStatus {
                remaining_capacity: status.queue_max.saturating_sub(status.waiting),
                pending_requests: status.waiting,
            },
            tenants: settings.shares.tenants.iter().cloned().collect(),
            capacity: None,
            customized_metadata: None,
            health: None,
            batches: None,
            links: None,
        }
    }
}

impl WorkerEntry {
    fn new(worker: &WorkerView) -> Self {
        Self {
            id: worker.id.to_string(),
            start_time: humantime::format_rfc3339_millis(worker.started).to_string(),
            status: if worker.ready { "READY" } else { "UNLOADING" },
            memory_usage: worker.memory,
            pid: worker.pid,
            gpu: worker.gpu.is_some(),
            gpu_usage: "N/A".to_owned(),
            more: None,
        }
    }
}

#[cfg(test)]
mod tests;
