//! The effective settings of a model version, in the types that the engine uses. Which value wins is
//! decided in `resolve`; a live change goes through [`ModelSettings::changed`].

mod origins;

use std::sync::Arc;
use std::time::Duration;

use jitney_batcher::{Adaptive, Config as BatcherConfig, Policy};
use jitney_settings::model::{
    CACHE, CLIENT_TIMEOUT, CONTINUOUS_BATCHING, COST, IDLE, LENGTHS, LOAD, LoadTime,
    MAX_BATCH_DELAY, MAX_BATCH_SIZE, MAX_CONCURRENT_BATCHES, MAX_COST, MAX_LATENCY_MS,
    MAX_RETRY_TIMEOUT, MAX_SEQUENCE_QUEUE, MAX_SEQUENCES, MAX_WORKERS, MIX_ORIGINS, PARALLEL_LEVEL,
    PARALLEL_TYPE, POLICY, QUEUE, RESPONSE_TIMEOUT, SAMPLE_COST, SEQUENCE_BATCHING,
    SEQUENCE_MAX_IDLE, SEQUENCE_START_REQUIRED, SEQUENCE_TIMEOUT, SIZES, STARTUP_TIMEOUT,
    STARTUP_WAIT, TENANTS, TRAFFIC, USE_JOB_TICKET, USE_VENV, WORKERS,
};
use jitney_settings::{SettingSource, Values};

pub use self::origins::{EndpointOptions, ModelDefaults, Precedence, RegisterOptions};
use crate::answer_cache::CacheRule;
use crate::call::SequenceHeaders;
use crate::error::RegisterError;
use crate::shares::Shares;
use crate::traffic_split::TrafficSplit;
pub use jitney_settings::PolicyName;

/// The effective settings of one model version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelSettings {
    /// Most items in a batch.
    pub batch_size: u32,
    /// Batch sizes that the model runs at; empty for any.
    pub sizes: Vec<u32>,
    /// Item lengths that a model runs at that pads; empty for any.
    pub lengths: Vec<u32>,
    /// TorchServe's window, which only the policy `window` acts on.
    pub batch_delay: Duration,
    /// How long the adaptive policy may let a request wait for others: a delay that a source set.
    pub wait_max: Option<Duration>,
    /// When batches are sent.
    pub policy: PolicyName,
    /// The latency target, which also is the deadline of requests that bring none.
    pub latency_max: Option<Duration>,
    /// Requests that may wait.
    pub queue_max: u32,
    /// Whether requests of different origins may meet in a batch.
    pub mix_origins: bool,
    /// Whether a failing batch is taken apart to spare the innocent; off for stateful models.
    pub isolate: bool,
    /// Accept a request only when a worker is free for it.
    pub job_ticket: bool,
    /// Batches a worker may hold at a time; more than 1 only for asynchronous handlers and for
    /// continuous batching.
    pub slots: u8,
    /// Workers wanted.
    pub workers_min: u32,
    /// Workers allowed.
    pub workers_max: u32,
    /// Without a request for so long the last worker goes, where there may be none.
    pub idle: Duration,
    /// How long a batch may run.
    pub response_timeout: Duration,
    /// How long a worker may take to load.
    pub startup_timeout: Duration,
    /// How long a request waits while no worker has loaded.
    pub startup_wait: Duration,
    /// How long dead workers are restarted before they are given up.
    pub retry_window: Duration,
    /// How long a client waits at most; zero for ever.
    pub client_timeout: Duration,
    /// `python`, `python3` or `onnx`.
    pub runtime: String,
    /// The handler's entry point; empty for ONNX.
    pub handler: String,
    /// How tenants and items of different weight share it.
    pub shares: Shares,
    /// How the versions of the model share its traffic, where this one says it.
    pub traffic: Option<Arc<TrafficSplit>>,
    /// The rule of its cache as it was given; [`ModelSettings::cache`] is the one in force.
    pub cache: Option<Arc<CacheRule>>,
    /// How requests and answers name their sequences.
    pub sequence_headers: Arc<SequenceHeaders>,
    /// What a description must repeat.
    pub declared: Declared,
    /// Every value with its source, as it was resolved and changed since.
    pub values: Values,
}

/// ModelSettings of the archive that a description repeats as they were declared. Those about sequences
/// and continuous batching are acted on through [`ModelSettings::sequences`] and [`ModelSettings::worker_mode`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declared {
    /// `pp`, `tp`, `pptp`, `custom` or empty.
    pub parallel_type: String,
    /// Ranks per worker.
    pub parallel_level: u32,
    /// Whether workers are given GPUs.
    pub gpu: bool,
    /// Device ids asked for.
    pub device_ids: Option<Vec<i64>>,
    /// Continuous batching asked for.
    pub continuous_batching: bool,
    /// A virtual environment of its own asked for.
    pub use_venv: bool,
    /// Sequence batching asked for.
    pub stateful: bool,
    /// Idle limit of a sequence, ms.
    pub sequence_max_idle_ms: u64,
    /// Life limit of a sequence, ms.
    pub sequence_timeout_ms: u64,
    /// Sequences at a time.
    pub max_num_sequence: u64,
    /// Waiting requests of a sequence.
    pub max_sequence_job_queue_size: u64,
    /// Which sequences a request may name that are not held.
    pub unknown_sequences: UnknownSequences,
    /// Models that a worker keeps of those that requests ask for; 0 if they ask for none.
    pub multiplexed: u32,
    /// The envelope of its requests, where it has one.
    pub envelope: Option<String>,
}

impl Declared {
    /// What the archive declares; what is known of devices comes later. ModelSettings that count only
    /// together are repeated only together: a parallel type with a level, and what sequences are
    /// allowed with how long they may be silent.
    fn of(values: &Values) -> Self {
        let flag = |setting| values.read(setting).unwrap_or(false);
        let millis =
            |setting| values.read(setting).map_or(0, |time: Duration| time.as_millis() as u64);
        let level = values.read::<u32>(&PARALLEL_LEVEL).filter(|level| *level > 0);
        let parallel = values.read::<String>(&PARALLEL_TYPE).zip(level);
        let (parallel_type, parallel_level) = parallel.unwrap_or_default();
        let base = Self {
            parallel_type,
            parallel_level,
            continuous_batching: flag(&CONTINUOUS_BATCHING),
            use_venv: flag(&USE_VENV),
            stateful: flag(&SEQUENCE_BATCHING),
            ..Self::default()
        };
        if millis(&SEQUENCE_MAX_IDLE) == 0 {
            return base;
        }
        Self {
            sequence_max_idle_ms: millis(&SEQUENCE_MAX_IDLE),
            sequence_timeout_ms: millis(&SEQUENCE_TIMEOUT),
            max_num_sequence: values.value(&MAX_SEQUENCES),
            max_sequence_job_queue_size: values.value(&MAX_SEQUENCE_QUEUE),
            unknown_sequences: match flag(&SEQUENCE_START_REQUIRED) {
                true => UnknownSequences::Rejected,
                false => UnknownSequences::Begin,
            },
            ..base
        }
    }
}

/// The largest batch that one frame can carry.
const BATCH_SIZE_MAX: u32 = u16::MAX as u32;

/// What is kept free of the latency asked for so that answers also arrive in time: a part of it that
/// covers waking the connection's task and writing to it behind a whole batch of others.
fn delivery(objective: Duration) -> u64 {
    nanos(objective / 25).clamp(100_000, 2_000_000)
}

impl ModelSettings {
    /// The settings that follow from resolved values.
    pub(crate) fn new(
        values: Values,
        runtime: String,
        handler: String,
        sequence_headers: Arc<SequenceHeaders>,
    ) -> Result<Self, RegisterError> {
        let declared = Declared::of(&values);
        let mut settings = Self {
            isolate: !declared.stateful,
            slots: slots(&values),
            runtime,
            handler,
            sequence_headers,
            declared,
            ..Self::default()
        };
        settings.take(&values).map_err(RegisterError::BadSettings)?;
        Ok(settings)
    }

    /// These settings with a live change applied. A delay asks for the window and a latency target
    /// for the adaptive policy, unless the change names a policy.
    pub(crate) fn changed(&self, change: &Values) -> Result<Self, String> {
        let implied = if change.has(&MAX_LATENCY_MS) {
            Some(PolicyName::Adaptive)
        } else {
            change.has(&MAX_BATCH_DELAY).then_some(PolicyName::Window)
        };
        let mut change = change.clone();
        if let Some(policy) = implied.filter(|_| !change.has(&POLICY)) {
            change.set(&POLICY, policy.as_str(), SettingSource::Live);
        }
        let mut settings = self.clone();
        settings.take(&change)?;
        Ok(settings)
    }

    /// Takes over every value that there is: the one place where settings become fields.
    fn take(&mut self, values: &Values) -> Result<(), String> {
        values.apply(&MAX_BATCH_SIZE, &mut self.batch_size);
        values.apply(&SIZES, &mut self.sizes);
        values.apply(&LENGTHS, &mut self.lengths);
        values.apply(&MAX_BATCH_DELAY, &mut self.batch_delay);
        if values.source(&MAX_BATCH_DELAY) != SettingSource::Default {
            values.apply(&MAX_BATCH_DELAY, &mut self.wait_max);
        }
        values.apply(&POLICY, &mut self.policy);
        values.apply(&MAX_LATENCY_MS, &mut self.latency_max);
        self.latency_max = self.latency_max.filter(|latency| !latency.is_zero());
        values.apply(&QUEUE, &mut self.queue_max);
        values.apply(&MIX_ORIGINS, &mut self.mix_origins);
        values.apply(&USE_JOB_TICKET, &mut self.job_ticket);
        values.apply(&WORKERS, &mut self.workers_min);
        values.apply(&MAX_WORKERS, &mut self.workers_max);
        values.apply(&IDLE, &mut self.idle);
        values.apply(&RESPONSE_TIMEOUT, &mut self.response_timeout);
        values.apply(&STARTUP_TIMEOUT, &mut self.startup_timeout);
        values.apply(&STARTUP_WAIT, &mut self.startup_wait);
        values.apply(&MAX_RETRY_TIMEOUT, &mut self.retry_window);
        values.apply(&CLIENT_TIMEOUT, &mut self.client_timeout);
        values.apply(&COST, &mut self.shares.cost);
        values.apply(&MAX_COST, &mut self.shares.cost_max);
        values.apply(&SAMPLE_COST, &mut self.shares.sample_cost);
        if let Some(tenants) = values.read::<Vec<(String, u32)>>(&TENANTS) {
            self.shares = self.shares.weighing(&tenants)?;
        }
        if let Some(traffic) = values.read::<String>(&TRAFFIC) {
            self.traffic = Some(Arc::new(traffic.parse()?));
        }
        if let Some(cache) = values.read::<String>(&CACHE) {
            self.cache = Some(Arc::new(cache.parse()?));
        }
        if !(1..=BATCH_SIZE_MAX).contains(&self.batch_size) {
            return Err(format!("batch_size must be between 1 and {BATCH_SIZE_MAX}"));
        }
        self.values = values.clone().or(&self.values);
        Ok(())
    }

    /// The rule of its cache, where it has one. Answers of sequences depend on what came before.
    pub fn cache(&self) -> Option<&Arc<CacheRule>> {
        self.cache.as_ref().filter(|rule| rule.entries > 0 && self.sequences().is_none())
    }

    /// Whether the model is loaded when somebody asks for it.
    pub(crate) fn on_demand(&self) -> bool {
        self.values.value::<LoadTime>(&LOAD) == LoadTime::OnDemand
    }

    /// The part of the settings that the batcher acts on.
    pub fn batcher(&self) -> BatcherConfig {
        let sequences = self.sequences().map_or(0, |limits| limits.sequences);
        let queue_max = self.queue_max.max(u32::try_from(sequences).unwrap_or(u32::MAX));
        let planned = Adaptive {
            objective: self.latency_max.map(nanos),
            delivery: self.latency_max.map_or(0, delivery),
            ..Adaptive::default()
        };
        let delay = nanos(self.batch_delay);
        let policy = match self.policy {
            // Only whoever knows how long batches take can reject what would be late.
            PolicyName::Window if self.latency_max.is_some() && self.plans() => {
                Policy::Adaptive(Adaptive { window: Some(delay), ..planned })
            }
            PolicyName::Window => Policy::Window { delay },
            PolicyName::Adaptive if self.plans() => {
                Policy::Adaptive(Adaptive { max_wait: self.wait_max.map(nanos), ..planned })
            }
            PolicyName::Adaptive | PolicyName::Opportunistic => Policy::Opportunistic,
        };
        self.shares.apply(BatcherConfig {
            policy,
            max_items: self.items_max(),
            sizes: self.sizes.clone(),
            lengths: self.lengths.clone(),
            max_queue: if self.job_ticket { 0 } else { queue_max },
            mix_origins: self.mix_origins,
            isolate: self.isolate,
            models: self.declared.multiplexed,
            // The time of one more start and one more answer.
            suspect_time: nanos(self.startup_timeout.saturating_add(self.response_timeout)),
            ..BatcherConfig::default()
        })
    }

    /// How many requests may wait: none where each needs a free worker at once.
    pub fn waiting_max(&self) -> u32 {
        if self.job_ticket { 0 } else { self.queue_max }
    }

    /// Whether there is anything to plan: batches of several, or a latency to keep, on workers that
    /// run one batch after another. Elsewhere `adaptive` takes what is there.
    pub fn plans(&self) -> bool {
        let worthwhile = self.items_max() > 1 || self.latency_max.is_some();
        worthwhile && self.worker_mode() == WorkerMode::Single
    }

    /// Whether it matters that a request is on its way.
    pub(crate) fn listens(&self) -> bool {
        self.policy == PolicyName::Adaptive && self.items_max() > 1 && self.plans()
    }

    /// The limits of sequences, for a model that keeps them.
    pub fn sequences(&self) -> Option<SequenceLimits> {
        let Declared { stateful, sequence_max_idle_ms, sequence_timeout_ms, .. } = &self.declared;
        (*stateful && *sequence_max_idle_ms > 0).then(|| SequenceLimits {
            idle: Duration::from_millis(*sequence_max_idle_ms),
            life: Duration::from_millis(*sequence_timeout_ms),
            sequences: self.declared.max_num_sequence.max(1),
            queue: self.declared.max_sequence_job_queue_size.max(1),
            unknown: self.declared.unknown_sequences,
            // Requests that are taken step by step may belong to one sequence: the second can be
            // about the first, for example to cancel it.
            abreast: if self.worker_mode() == WorkerMode::Continuous {
                self.slots.into()
            } else {
                1
            },
        })
    }

    /// How a worker takes what it is given.
    pub fn worker_mode(&self) -> WorkerMode {
        if self.declared.continuous_batching {
            WorkerMode::Continuous
        } else if self.slots > 1 {
            WorkerMode::Concurrent
        } else {
            WorkerMode::Single
        }
    }

    /// Most items in what a worker is given at a time: with continuous batching it is given them one
    /// by one and makes the batches itself.
    pub fn items_max(&self) -> u32 {
        match self.worker_mode() {
            WorkerMode::Continuous => 1,
            WorkerMode::Concurrent | WorkerMode::Single => self.batch_size,
        }
    }

    /// Most items that may wait: those of as many full batches as requests may wait.
    pub fn items_waiting_max(&self) -> u64 {
        u64::from(self.queue_max) * u64::from(self.items_max())
    }
}

/// Batches that a worker holds at a time. A continuous batch is as large as its worker has slots, and
/// twice that where it holds sequences, as in TorchServe.
fn slots(values: &Values) -> u8 {
    let flag = |setting| values.read(setting).unwrap_or(false);
    if !flag(&CONTINUOUS_BATCHING) {
        return values.read(&MAX_CONCURRENT_BATCHES).unwrap_or(1);
    }
    let size = values.value::<u32>(&MAX_BATCH_SIZE);
    let live = size.saturating_mul(if flag(&SEQUENCE_BATCHING) { 2 } else { 1 });
    u8::try_from(live).unwrap_or(u8::MAX)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// How many sequences, how long they live, how much of each may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceLimits {
    /// A sequence ends when nothing of it came for so long.
    pub idle: Duration,
    /// A sequence ends after so long, whatever comes; zero for never.
    pub life: Duration,
    /// Sequences at a time.
    pub sequences: u64,
    /// Requests of one sequence that may wait behind those that are on their way.
    pub queue: u64,
    /// Requests of one sequence that may be on their way at a time.
    pub abreast: usize,
    /// What becomes of a request whose sequence is not held.
    pub unknown: UnknownSequences,
}

/// What becomes of a request that names a sequence that is not held and does not say that it begins one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownSequences {
    /// It begins the sequence, as in TorchServe.
    #[default]
    Begin,
    /// The same, unless a server made the id: then the sequence was begun somewhere else, or is lost.
    BeginOwn,
    /// It is rejected.
    Rejected,
}

/// How a worker takes its batches; the `mode` of the worker protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerMode {
    /// One after another.
    Single,
    /// Many at a time, each by itself: asynchronous handlers.
    Concurrent,
    /// Many at a time, all of them together step by step: continuous batching.
    Continuous,
}

impl WorkerMode {
    /// The word of the worker protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Concurrent => "concurrent",
            Self::Continuous => "continuous",
        }
    }
}
