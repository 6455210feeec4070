//! The model's own settings, `model-config.yaml`: the typed view of what the frontend uses.
//!
//! The handler sees the whole document, with every key; this view is for us. Wrong types are said
//! in the log and ignored. A document that is no YAML is an error: guessing what it meant would
//! serve a model with settings that nobody chose.

use std::time::Duration;

use serde_json::{Map, Value};
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};

use super::{batching::BatchingYaml, error::StoreError, fields::Fields};

/// The settings that the frontend reads; `None` where the model does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelYaml {
    /// `minWorkers`, at least 1.
    pub min_workers: Option<u32>,
    /// `maxWorkers`.
    pub max_workers: Option<u32>,
    /// `batchSize`, at least 1.
    pub batch_size: Option<u32>,
    /// `maxBatchDelay` in milliseconds; 0 means that the model does not say.
    pub max_batch_delay: Option<Duration>,
    /// `responseTimeout` in seconds, above zero.
    pub response_timeout: Option<Duration>,
    /// `startupTimeout` in seconds, above zero.
    pub startup_timeout: Option<Duration>,
    /// `deviceType`; whether there is such a device is for the caller to know.
    pub device_type: Option<DeviceType>,
    /// `deviceIds`; whether they exist is for the caller to know.
    pub device_ids: Option<Vec<u32>>,
    /// `parallelType`.
    pub parallel_type: Option<ParallelType>,
    /// `parallelLevel`, or `torchrun.nproc-per-node` where the model says it there.
    pub parallel_level: Option<u32>,
    /// `maxRetryTimeoutInSec`: how long a failing worker is restarted.
    pub max_retry_timeout: Option<Duration>,
    /// `clientTimeoutInMills`; zero means never.
    pub client_timeout: Option<Duration>,
    /// `jobQueueSize`, above zero.
    pub job_queue_size: Option<u32>,
    /// `useJobTicket`: accept a request only if a worker is waiting.
    pub use_job_ticket: Option<bool>,
    /// `sequenceBatching`.
    pub sequence_batching: Option<bool>,
    /// `sequenceMaxIdleMSec`; zero means that there are no sequences.
    pub sequence_max_idle: Option<Duration>,
    /// `sequenceTimeoutMSec`: a sequence's whole life; zero means without end.
    pub sequence_timeout: Option<Duration>,
    /// `maxSequenceJobQueueSize`, per sequence, at least 1.
    pub max_sequence_job_queue_size: Option<u32>,
    /// `maxNumSequence`: sequences at a time, at least 1.
    pub max_num_sequence: Option<u32>,
    /// `continuousBatching`.
    pub continuous_batching: Option<bool>,
    /// `asyncCommunication`.
    pub async_communication: Option<bool>,
    /// `useVenv`.
    pub use_venv: Option<bool>,
    /// `batching`: what Jitney adds to TorchServe's settings.
    pub batching: BatchingYaml,
}

/// Where a model wants to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceType {
    /// `cpu`.
    Cpu,
    /// `gpu`.
    Gpu,
}

/// How a model is spread over several devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParallelType {
    /// `pp`: by layers.
    Pipeline,
    /// `tp`: inside the layers.
    Tensor,
    /// `pptp`: both.
    PipelineTensor,
    /// `custom`: the handler knows.
    Custom,
}

impl ModelYaml {
    /// The typed view of a document.
    pub(super) fn from_json(document: &Map<String, Value>) -> Self {
        let fields = Fields::new(document);
        let millis = |key| Some(Duration::from_millis(fields.at_least(key, 0)?.into()));
        let seconds = |key, least| Some(Duration::from_secs(fields.at_least(key, least)?.into()));
        Self {
            min_workers: fields.raised("minWorkers", 1),
            max_workers: fields.raised("maxWorkers", 0),
            batch_size: fields.raised("batchSize", 1),
            max_batch_delay: fields.batch_delay("maxBatchDelay"),
            response_timeout: seconds("responseTimeout", 1),
            startup_timeout: seconds("startupTimeout", 1),
            device_type: device_type(&fields),
            device_ids: fields.indices("deviceIds"),
            parallel_type: parallel_type(&fields),
            parallel_level: parallel_level(&fields),
            max_retry_timeout: seconds("maxRetryTimeoutInSec", 0),
            client_timeout: millis("clientTimeoutInMills"),
            job_queue_size: fields.at_least("jobQueueSize", 1),
            use_job_ticket: fields.flag("useJobTicket"),
            sequence_batching: fields.flag("sequenceBatching"),
            sequence_max_idle: millis("sequenceMaxIdleMSec"),
            sequence_timeout: millis("sequenceTimeoutMSec"),
            max_sequence_job_queue_size: fields.raised("maxSequenceJobQueueSize", 1),
            max_num_sequence: fields.raised("maxNumSequence", 1),
            continuous_batching: fields.flag("continuousBatching"),
            async_communication: fields.flag("asyncCommunication"),
            use_venv: fields.flag("useVenv"),
            batching: BatchingYaml::from_fields(&fields),
        }
    }
}

fn device_type(fields: &Fields<'_>) -> Option<DeviceType> {
    fields.choice("deviceType", &[("cpu", DeviceType::Cpu), ("gpu", DeviceType::Gpu)])
}

fn parallel_type(fields: &Fields<'_>) -> Option<ParallelType> {
    let words = [
        ("pp", ParallelType::Pipeline),
        ("tp", ParallelType::Tensor),
        ("pptp", ParallelType::PipelineTensor),
        ("custom", ParallelType::Custom),
    ];
    fields.choice("parallelType", &words)
}

fn parallel_level(fields: &Fields<'_>) -> Option<u32> {
    let torchrun = fields.section("torchrun", "torchrun.");
    let level = torchrun.and_then(|torchrun| torchrun.at_least("nproc-per-node", 1));
    level.or_else(|| fields.at_least("parallelLevel", 0))
}

/// Reads a document as PyYAML would: `yes` is a flag, `010` is eight, of two equal keys the later
/// one counts. An empty document is an empty mapping.
pub fn parse(text: &str) -> Result<Map<String, Value>, StoreError> {
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        legacy_octal_numbers: true,
        emit_comments: false,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options(text, options) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err(StoreError::InvalidConfig { why: "it is not a mapping".to_owned() }),
        Err(error) => Err(StoreError::InvalidConfig { why: error.to_string() }),
    }
}
