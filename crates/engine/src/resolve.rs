//! One place where a model's settings come together: the caller's wishes, the archive's YAML, the
//! operator's `models={...}`, the defaults. Pure functions; who wins is written next to each value.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::error::RegisterError;
use crate::model::Reconfigure;
use crate::onnx::OnnxModel;
use crate::python::PythonConfig;
use crate::settings::{Declared, Defaults, PolicyName, Settings, Wishes};
use crate::shares::{Shares, TENANTS_MAX};
use crate::store::{BatchingYaml, ModelYaml, Package, ParallelType, PolicyYaml, Runtime, Sha256};

/// TorchServe's window when a batch size is set and no delay.
const DELAY_DEFAULT: Duration = Duration::from_millis(100);

/// How long dead workers are restarted unless the archive says otherwise.
const RETRY_WINDOW: Duration = Duration::from_secs(300);

/// The largest batch that one frame can carry.
const BATCH_SIZE_MAX: u32 = u16::MAX as u32;

/// Items in a batch of a model whose batch dimension is open, unless somebody says otherwise.
const ONNX_BATCH_SIZE: u32 = 32;

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
pub(crate) fn onnx_settings(
    model: &OnnxModel,
    wishes: &Wishes,
    defaults: &Defaults,
) -> Result<Settings, RegisterError> {
    let yaml = ModelYaml::default();
    let limit = model.max_batch();
    let asked = wishes.batch_size.or(limit).unwrap_or(ONNX_BATCH_SIZE);
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
        runtime: "onnx".to_owned(),
        handler: String::new(),
        shares: shares(&wishes, &yaml.batching, None)?,
        sequence_headers: Arc::clone(&defaults.sequence_headers),
        declared: Declared::default(),
    })
}

/// What a worker is told to load: the `Load` message of `protocol/spec.md`.
pub(crate) fn load_message(
    name: &str,
    version: &str,
    package: &Package,
    settings: &Settings,
    python: &PythonConfig,
) -> Value {
    json!({
        "model_name": name,
        "model_version": version,
        "model_dir": package.dir.path(),
        "handler": settings.handler,
        "batch_size": settings.batch_size,
        "gpu_id": null,
        "envelope": package.manifest.envelope.as_ref().or(python.envelope.as_ref()),
        "limit_max_image_pixels": python.limit_max_image_pixels,
        "decode_input": python.decode_input,
        "manifest": package.manifest_json,
        "model_yaml_config": package.yaml_json,
        "server_version": "0.12.0",
        "workers": settings.workers_max.max(1),
        "mode": settings.rides().as_str(),
    })
}

impl Settings {
    /// These settings with a live change applied.
    pub(crate) fn changed(&self, change: &Reconfigure) -> Result<Self, String> {
        let mut settings = self.clone();
        settings.batch_size = change.batch_size.unwrap_or(self.batch_size);
        if let Some(delay) = change.max_batch_delay_ms {
            settings.batch_delay = Duration::from_millis(delay);
            settings.wait_max = Some(settings.batch_delay);
            settings.policy = PolicyName::Window;
        }
        if let Some(latency) = change.max_latency_ms {
            settings.latency_max = (latency > 0).then(|| Duration::from_millis(latency));
            settings.policy = PolicyName::Adaptive;
        }
        settings.queue_max = change.queue_max.unwrap_or(self.queue_max);
        settings.policy = change.policy.unwrap_or(settings.policy);
        checked(settings).map_err(|error| error.to_string())
    }
}

fn checked(settings: Settings) -> Result<Settings, RegisterError> {
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

/// How batches leave, decided from what was said about it and what was not.
struct Batching {
    size: u32,
    /// The delay that somebody asked for.
    delay: Option<Duration>,
    policy: PolicyName,
    latency_max: Option<Duration>,
}

impl Batching {
    fn resolve(
        wishes: &Wishes,
        yaml: &ModelYaml,
        operator: &Operator<'_>,
        defaults: &Defaults,
    ) -> Self {
        let own: &BatchingYaml = &yaml.batching;
        let size = wishes.batch_size.or(own.max_batch_size).or(yaml.batch_size);
        let size = size.or(operator.batch_size()).unwrap_or(1);
        let operators_delay = operator.number("maxBatchDelay").map(Duration::from_millis);
        let delay = wishes.max_batch_delay_ms.map(Duration::from_millis);
        let delay = delay.or(own.max_batch_delay).or(yaml.max_batch_delay).or(operators_delay);
        let latency_max = wishes.max_latency_ms.map(Duration::from_millis).or(own.max_latency);
        let latency_max = latency_max.or(operator.latency_max());
        let asked = wishes.policy.or(own.policy.map(policy_name));
        let asked = asked.or(operator.policy()).or(defaults.policy);
        // An explicit delay asks for TorchServe's window, an objective or silence for adaptive.
        let implied = match (delay, latency_max) {
            (Some(_), None) => PolicyName::Window,
            (_, Some(_)) | (None, None) => PolicyName::Adaptive,
        };
        let policy = asked.unwrap_or(implied);
        Self { size, delay, policy, latency_max }
    }
}

/// Each word by itself: the caller's, the archive's, the operator's.
fn shares(
    wishes: &Wishes,
    own: &BatchingYaml,
    operators: Option<Vec<(String, u32)>>,
) -> Result<Shares, RegisterError> {
    let tenants = wishes.tenants.clone().or_else(|| own.tenants.clone()).or(operators);
    let tenants = tenants.unwrap_or_default();
    if tenants.len() > TENANTS_MAX || tenants.iter().any(|(_, weight)| *weight == 0) {
        let message = format!(
            "at most {TENANTS_MAX} tenants may have a weight, each a whole number above zero"
        );
        return Err(RegisterError::BadSettings(message));
    }
    let cost = wishes.cost.or(own.cost).unwrap_or_default();
    Ok(Shares { tenants, cost, cost_max: wishes.max_cost.or(own.max_cost) })
}

fn policy_name(policy: PolicyYaml) -> PolicyName {
    match policy {
        PolicyYaml::Adaptive => PolicyName::Adaptive,
        PolicyYaml::Window => PolicyName::Window,
        PolicyYaml::Opportunistic => PolicyName::Opportunistic,
    }
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

/// Settings that count only together are repeated only together: a parallel type with a level, and
/// what sequences are allowed with how long they may be silent.
fn declared(yaml: &ModelYaml) -> Declared {
    let millis = |duration: Option<Duration>| duration.map_or(0, |it| it.as_millis() as u64);
    let parallel = yaml.parallel_type.zip(yaml.parallel_level.filter(|level| *level > 0));
    let base = Declared {
        parallel_type: parallel.map_or("", |(kind, _)| parallel_type(kind)).to_owned(),
        parallel_level: parallel.map_or(0, |(_, level)| level),
        continuous_batching: yaml.continuous_batching.unwrap_or(false),
        use_venv: yaml.use_venv.unwrap_or(false),
        stateful: yaml.sequence_batching.unwrap_or(false),
        ..Declared::default()
    };
    if millis(yaml.sequence_max_idle) == 0 {
        return base;
    }
    Declared {
        sequence_max_idle_ms: millis(yaml.sequence_max_idle),
        sequence_timeout_ms: millis(yaml.sequence_timeout),
        max_num_sequence: yaml.max_num_sequence.unwrap_or(1).into(),
        max_sequence_job_queue_size: yaml.max_sequence_job_queue_size.unwrap_or(1).into(),
        ..base
    }
}

fn parallel_type(parallel: ParallelType) -> &'static str {
    match parallel {
        ParallelType::Pipeline => "pp",
        ParallelType::Tensor => "tp",
        ParallelType::PipelineTensor => "pptp",
        ParallelType::Custom => "custom",
    }
}

/// What `models={...}` says about one version; only numbers above zero count.
#[derive(Default)]
struct Operator<'a>(Option<&'a Map<String, Value>>);

impl<'a> Operator<'a> {
    fn about(models: &'a Map<String, Value>, name: &str, version: &str) -> Self {
        Self(models.get(name).and_then(|versions| versions.get(version)).and_then(Value::as_object))
    }

    fn number(&self, key: &str) -> Option<u64> {
        let value = self.0?.get(key)?;
        // A number in quotes counts too, as it does for TorchServe.
        let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
        number.filter(|number| *number > 0)
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.0?.get(key)?.as_str()
    }

    /// `batching: {enabled, max_batch_size, max_latency_ms, policy}`, as everywhere else.
    fn batching(&self, key: &str) -> Option<&'a Value> {
        self.0?.get("batching")?.get(key)
    }

    fn batch_size(&self) -> Option<u32> {
        if self.batching("enabled").and_then(Value::as_bool) == Some(false) {
            return Some(1);
        }
        let own = self.batching("max_batch_size").and_then(Value::as_u64);
        let own = own.and_then(|size| u32::try_from(size).ok()).filter(|size| *size > 0);
        own.or(self.small("batchSize"))
    }

    fn latency_max(&self) -> Option<Duration> {
        let ms = self.batching("max_latency_ms").and_then(Value::as_f64).filter(|ms| *ms > 0.0)?;
        Duration::try_from_secs_f64(ms / 1e3).ok()
    }

    fn policy(&self) -> Option<PolicyName> {
        self.batching("policy").and_then(Value::as_str).and_then(|name| name.parse().ok())
    }

    fn tenants(&self) -> Option<Vec<(String, u32)>> {
        let weight = |(name, weight): (&String, &Value)| {
            Some((name.clone(), u32::try_from(weight.as_u64()?).ok()?))
        };
        self.batching("tenants")?.as_object()?.iter().map(weight).collect()
    }

    fn small(&self, key: &str) -> Option<u32> {
        u32::try_from(self.number(key)?).ok()
    }
}
