//! One place where a model's settings come together: the caller's wishes, the archive's YAML, the
//! operator's `models={...}`, the defaults. Pure functions; who wins is written next to each value.

mod batching;
mod declared;
mod operator;

use std::sync::Arc;
use std::time::Duration;

use self::batching::{Batching, shares};
use self::declared::declared;
use self::operator::Operator;
use crate::error::RegisterError;
use crate::local::LocalModel;
use crate::settings::{Declared, Defaults, Settings, Wishes};
use crate::shares::Cost;
use crate::store::{BatchingYaml, ModelYaml, Package, Runtime, Sha256};

/// TorchServe's window when a batch size is set and no delay.
const DELAY_DEFAULT: Duration = Duration::from_millis(100);

/// How long dead workers are restarted unless the archive says otherwise.
const RETRY_WINDOW: Duration = Duration::from_secs(300);

/// The largest batch that one frame can carry.
const BATCH_SIZE_MAX: u32 = u16::MAX as u32;

/// Items in a batch of a model whose batch dimension is open, unless somebody says otherwise.
const LOCAL_BATCH_SIZE: u32 = 32;

/// Batches that a worker with an asynchronous handler may hold: enough that waiting for others
/// costs nothing, and few enough that its death costs little.
const ASYNC_SLOTS: u8 = 100;

/// The caller's name wins over the archive's; without either there is no model.
pub(crate) fn name_and_version(
    package: &Package,
    wishes: &Wishes,
) -> Result<(String, String), RegisterError> {
    let asked = wishes.model_name.clone().filter(|name| !name.is_empty());
    let name = asked.or_else(|| package.manifest.model_name.clone());
    let version = wishes.version.clone();
    let version = version.unwrap_or_else(|| package.manifest.version().to_owned());
    let name = name.ok_or(RegisterError::NoName)?;
    if let Some(word) = [&name, &version].into_iter().find(|word| !is_sound(word)) {
        return Err(RegisterError::BadSettings(format!(
            "{word:?} cannot name a model or version: no slashes or control characters, please"
        )));
    }
    Ok((name, version))
}

/// Whether a name can stand in a path.
pub(crate) fn is_sound(word: &str) -> bool {
    !word.is_empty() && !word.contains(|letter: char| letter == '/' || letter.is_control())
}

/// The effective settings of an archive.
pub(crate) fn settings(
    name: &str,
    version: &str,
    package: &Package,
    wishes: &Wishes,
    defaults: &Defaults,
) -> Result<Settings, RegisterError> {
    let yaml = &package.yaml;
    let operator = Operator::about(&defaults.models, name, version);
    let batch = Batching::resolve(wishes, yaml, &operator, defaults);
    let (workers_min, workers_max) = workers(wishes, yaml, &operator, defaults);
    let silence = defaults.silent_yaml_timeout.filter(|_| package.has_yaml());
    let settings = Settings {
        batch_size: batch.size,
        batch_delay: batch.delay.unwrap_or(DELAY_DEFAULT),
        wait_max: batch.delay,
        policy: batch.policy,
        latency_max: batch.latency_max,
        queue_max: wishes.queue_max.or(yaml.job_queue_size).unwrap_or(defaults.queue_max),
        mix_origins: yaml.batching.mix_origins.unwrap_or(defaults.mix_origins),
        isolate: !yaml.sequence_batching.unwrap_or(false),
        job_ticket: yaml.use_job_ticket.unwrap_or(false),
        slots: slots(yaml, batch.size),
        workers_min,
        workers_max,
        // The archive's word about its own times comes first, as in TorchServe.
        response_timeout: yaml.response_timeout.or(silence).unwrap_or(seconds(
            operator.number("responseTimeout").or(wishes.response_timeout_s),
            defaults.response_timeout_s,
        )),
        startup_timeout: yaml.startup_timeout.or(silence).unwrap_or(seconds(
            operator.number("startupTimeout").or(wishes.startup_timeout_s),
            defaults.startup_timeout_s,
        )),
        retry_window: yaml.max_retry_timeout.unwrap_or(RETRY_WINDOW),
        client_timeout: yaml.client_timeout.unwrap_or_default(),
        runtime: runtime(package, wishes)?,
        handler: handler(package, wishes, defaults)?,
        shares: shares(wishes, &yaml.batching, operator.tenants())?,
        sequence_headers: Arc::clone(&defaults.sequence_headers),
        declared: declared(yaml),
    };
    checked(settings)
}

/// The sum that the operator's `models={...}` gives for this version.
pub(crate) fn operators_sha256(
    package: &Package,
    wishes: &Wishes,
    defaults: &Defaults,
) -> Result<Option<Sha256>, RegisterError> {
    let (name, version) = name_and_version(package, wishes)?;
    let operator = Operator::about(&defaults.models, &name, &version);
    operator.text("sha256").map(str::parse).transpose().map_err(RegisterError::BadSettings)
}

/// The effective settings of a model that runs in this process.
pub(crate) fn local_settings(
    model: &dyn LocalModel,
    wishes: &Wishes,
    defaults: &Defaults,
) -> Result<Settings, RegisterError> {
    let yaml = ModelYaml::default();
    let limit = model.max_batch_size();
    let asked = wishes.batch_size.or(limit).unwrap_or(LOCAL_BATCH_SIZE);
    let wishes = Wishes {
        batch_size: Some(limit.map_or(asked, |limit| asked.min(limit))),
        ..wishes.clone()
    };
    let batch = Batching::resolve(&wishes, &yaml, &Operator::default(), defaults);
    let (workers_min, workers_max) = workers(&wishes, &yaml, &Operator::default(), defaults);
    checked(Settings {
        batch_size: batch.size,
        batch_delay: batch.delay.unwrap_or(DELAY_DEFAULT),
        wait_max: batch.delay,
        policy: batch.policy,
        latency_max: batch.latency_max,
        queue_max: wishes.queue_max.unwrap_or(defaults.queue_max),
        mix_origins: defaults.mix_origins,
        isolate: true,
        job_ticket: false,
        slots: 1,
        workers_min,
        workers_max,
        response_timeout: seconds(wishes.response_timeout_s, defaults.response_timeout_s),
        startup_timeout: seconds(wishes.startup_timeout_s, defaults.startup_timeout_s),
        retry_window: RETRY_WINDOW,
        client_timeout: Duration::ZERO,
        runtime: model.runtime().to_owned(),
        handler: String::new(),
        shares: shares(&wishes, &padded(model), None)?,
        sequence_headers: Arc::clone(&defaults.sequence_headers),
        declared: Declared::default(),
    })
}

/// A model that may be padded is batched by length.
fn padded(model: &dyn LocalModel) -> BatchingYaml {
    let cost = model.pads().then_some(Cost::Length);
    BatchingYaml { cost, ..BatchingYaml::default() }
}

/// The settings, if they can be had.
pub(crate) fn checked(settings: Settings) -> Result<Settings, RegisterError> {
    if !(1..=BATCH_SIZE_MAX).contains(&settings.batch_size) {
        let message = format!("batch_size must be between 1 and {BATCH_SIZE_MAX}");
        return Err(RegisterError::BadSettings(message));
    }
    Ok(settings)
}

/// What the model says, then the default of asynchronous handlers. A continuous batch is as large as
/// its worker has slots, and twice that where it holds sequences, as in TorchServe.
fn slots(yaml: &ModelYaml, batch_size: u32) -> u8 {
    let sequences = yaml.sequence_batching.unwrap_or(false);
    if yaml.continuous_batching.unwrap_or(false) {
        let live = batch_size.saturating_mul(if sequences { 2 } else { 1 });
        u8::try_from(live).unwrap_or(u8::MAX)
    } else {
        let usual = if yaml.async_communication.unwrap_or(false) { ASYNC_SLOTS } else { 1 };
        yaml.batching.max_concurrent_batches.unwrap_or(usual)
    }
}

fn seconds(asked: Option<u64>, default: u64) -> Duration {
    Duration::from_secs(asked.unwrap_or(default))
}

/// The archive's numbers win when they make sense together; then the operator's for models that
/// are loaded at start-up; then the caller's.
fn workers(
    wishes: &Wishes,
    yaml: &ModelYaml,
    operator: &Operator<'_>,
    defaults: &Defaults,
) -> (u32, u32) {
    if let (Some(min), Some(max)) = (yaml.min_workers, yaml.max_workers)
        && min > 0
        && max >= min
    {
        return (min, max);
    }
    let fallback = if wishes.at_startup { defaults.startup_workers } else { defaults.workers };
    let operators_min = if wishes.at_startup { operator.small("minWorkers") } else { None };
    let min = wishes.initial_workers.or(operators_min).unwrap_or(fallback);
    let operators_max = if wishes.at_startup { operator.small("maxWorkers") } else { None };
    let max = wishes.max_workers.or(operators_max).unwrap_or(min);
    (min, max.max(min))
}

/// Refuses a runtime that does not exist, before anything is looked up or fetched.
pub(crate) fn check_runtime(wishes: &Wishes) -> Result<Option<Runtime>, RegisterError> {
    let read =
        |word: &String| Runtime::parse(word).map_err(|_| RegisterError::BadRuntime(word.clone()));
    wishes.runtime.as_ref().map(read).transpose()
}

fn runtime(package: &Package, wishes: &Wishes) -> Result<String, RegisterError> {
    let runtime = check_runtime(wishes)?.unwrap_or(package.manifest.runtime);
    match runtime {
        Runtime::Python | Runtime::Python3 => Ok(runtime.as_str().to_owned()),
        Runtime::Lsp => Err(RegisterError::BadSettings(
            "runtime LSP (the C++ backend) is not supported; use python".to_owned(),
        )),
    }
}

fn handler(
    package: &Package,
    wishes: &Wishes,
    defaults: &Defaults,
) -> Result<String, RegisterError> {
    let asked = wishes.handler.clone().or_else(|| package.manifest.handler.clone());
    asked.or_else(|| defaults.handler.clone()).ok_or_else(|| {
        RegisterError::BadSettings(
            "the archive names no handler; give one with handler=FILE.py".to_owned(),
        )
    })
}
