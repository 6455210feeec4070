//! The `batching` section of a model's YAML: what Jitney adds to TorchServe's settings.

use std::time::Duration;

use super::fields::Fields;

/// The keys of the section, for the warning about others.
const KEYS: [&str; 11] = [
    "enabled",
    "policy",
    "max_batch_size",
    "max_latency_ms",
    "max_batch_delay",
    "cost",
    "max_cost",
    "sample_cost",
    "tenants",
    "mix_origins",
    "max_concurrent_batches",
];

/// A setting of definitions only: handlers get rows, which nobody joins.
const DECORATORS: &str = "batch_dim";
const DECORATORS_HINT: &str = "; a definition says it in its decorator";

/// Most items in a batch of a model that enables batching without a size: BentoML's default.
const BATCH_SIZE_ENABLED: u32 = 100;

/// When batches of a model are dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyName {
    /// A latency objective instead of a window.
    Adaptive,
    /// TorchServe's batch size and delay, the delay counted from the oldest request's arrival.
    Window,
    /// A free worker takes what is there.
    Opportunistic,
}

impl PolicyName {
    /// The names users type.
    pub const WORDS: [(&str, Self); 3] = [
        ("adaptive", Self::Adaptive),
        ("window", Self::Window),
        ("opportunistic", Self::Opportunistic),
    ];

    /// The name users type.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Window => "window",
            Self::Opportunistic => "opportunistic",
        }
    }
}

impl std::str::FromStr for PolicyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::WORDS.into_iter().find(|(word, _)| *word == text);
        known.map(|(_, policy)| policy).ok_or_else(|| {
            format!("unknown batching policy {text:?}; known: adaptive, window, opportunistic")
        })
    }
}

/// What an item weighs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cost {
    /// All weigh the same.
    #[default]
    Items,
    /// The bytes of its values; a batch takes as long as all of them together.
    Bytes,
    /// What the request says (tokens, pixels); a batch takes as long as all of them together.
    Tokens,
    /// The length that the request says; a batch takes as long as if all had the longest.
    Length,
}

impl Cost {
    /// The words users type.
    pub const WORDS: [(&str, Self); 4] = [
        ("items", Self::Items),
        ("bytes", Self::Bytes),
        ("tokens", Self::Tokens),
        ("length", Self::Length),
    ];

    /// The word users type.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Items => "items",
            Self::Bytes => "bytes",
            Self::Tokens => "tokens",
            Self::Length => "length",
        }
    }
}

impl std::str::FromStr for Cost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::WORDS.into_iter().find(|(word, _)| *word == text);
        known
            .map(|(_, cost)| cost)
            .ok_or_else(|| format!("unknown cost {text:?}; known: items, bytes, tokens, length"))
    }
}

/// How the model wants to be batched; `None` where it does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchingYaml {
    /// When a batch departs.
    pub policy: Option<PolicyName>,
    /// The most items in a batch, at least 1; 1 where `enabled` is false.
    pub max_batch_size: Option<u32>,
    /// `max_latency_ms`: the objective.
    pub max_latency: Option<Duration>,
    /// `max_batch_delay` in milliseconds; 0 means that the model does not say.
    pub max_batch_delay: Option<Duration>,
    /// What an item weighs.
    pub cost: Option<Cost>,
    /// Most cost in a batch.
    pub max_cost: Option<u64>,
    /// What the sample of the start-up sweep weighs.
    pub sample_cost: Option<u64>,
    /// Weights of tenants, in the order of the file.
    pub tenants: Option<Vec<(String, u32)>>,
    /// Whether requests from different doors may share a batch.
    pub mix_origins: Option<bool>,
    /// Batches that one worker may hold at a time, at most 255; more than 1 runs them side by side.
    pub max_concurrent_batches: Option<u8>,
}

impl BatchingYaml {
    /// Reads the section, which may be missing.
    pub(super) fn from_fields(document: &Fields<'_>) -> Self {
        let Some(fields) = document.section("batching", "batching.") else {
            return Self::default();
        };
        for key in fields.keys().filter(|key| !KEYS.contains(key)) {
            let known = KEYS.join(", ");
            let hint = if key == DECORATORS { DECORATORS_HINT } else { "" };
            tracing::warn!(%known, "model config: batching.{key} is no setting, ignored{hint}");
        }
        let latency = fields.positive("max_latency_ms");
        let size = fields.raised("max_batch_size", 1);
        let elsewhere = document.keys().any(|key| key == "batchSize");
        Self {
            policy: fields.choice("policy", &PolicyName::WORDS),
            max_batch_size: match (fields.flag("enabled"), size) {
                (Some(false), _) => Some(1),
                (Some(true), None) if !elsewhere => Some(BATCH_SIZE_ENABLED),
                _ => size,
            },
            max_latency: latency.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok()),
            max_batch_delay: fields.batch_delay("max_batch_delay"),
            cost: fields.choice("cost", &Cost::WORDS),
            max_cost: fields.at_least("max_cost", 1).map(u64::from),
            sample_cost: fields.at_least("sample_cost", 1).map(u64::from),
            tenants: fields.section("tenants", "batching.tenants.").map(|it| tenants(&it)),
            mix_origins: fields.flag("mix_origins"),
            max_concurrent_batches: fields
                .raised("max_concurrent_batches", 1)
                .map(|batches| u8::try_from(batches).unwrap_or(u8::MAX)),
        }
    }
}

fn tenants(fields: &Fields<'_>) -> Vec<(String, u32)> {
    let weight = |name: &str| Some((name.to_owned(), fields.at_least(name, 1)?));
    fields.keys().filter_map(weight).collect()
}
