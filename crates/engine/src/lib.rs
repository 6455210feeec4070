//! Runs models: names and versions, admission, one task per model version, pools of workers.
//!
//! A request's way through this crate, in the order in which the files are best read:
//! [`call`] (what a protocol hands in) → [`admission`] (a permit, or a rejection) → [`model`] (one task,
//! the only writer of a version's state, driving the pure batcher) → `pool` (a supervisor per worker)
//! → [`python`] or [`local`] (the worker, behind [`frames`]) → `model::scatter` (every caller gets its own answer).
//!
//! The crate knows no HTTP and no gRPC; a status that a model stated is passed on. It reads no
//! environment and no flag.

pub mod answer_cache;
pub mod call;
mod changes;
mod cpus;
mod data_threads;
mod dependencies;
mod engine;
pub mod error;
pub mod frames;
mod gathered_wakes;
mod gpu_assignment;
mod histogram;
pub mod local;
pub mod model;
mod model_versions;
pub mod observer;
pub mod outcome;
mod path_table;
mod pending;
mod pool;
mod process;
pub mod python;
mod queue_slots;
mod registry;
mod reply;
mod resolve;
mod rollout;
pub mod settings;
pub mod shadow;
pub mod shares;
pub mod sizes;
pub mod tensors;
#[cfg(test)]
mod testkit;
pub mod traffic_split;
mod wiring;
pub mod workflow;

pub use changes::{ChangeRecorder, Changes};
pub use engine::{
    Engine, EngineConfig, IndexEntry, IndexState, PluginPlan, Registered, ReplaceOrder, Repository,
    RepositoryConfig, RunningPlugins, ServedDirectory, Workflows,
};
pub use histogram::{Distribution, FineCounts};
pub use jitney_batcher::{
    CurvePoint, Decision, DecisionKind, DispatchReason, Policy, Rejection, WaitScore, WantedWorkers,
};
pub use jitney_memory::{admission, quota};
pub use jitney_store as store;
pub use model::{
    BatchStatistics, BatchTotals, BatcherReport, CapacityReport, Counters, EndpointMeasures,
    EndpointView, GpuMemoryConfig, GpuReading, IncidentReport, KeptBody, Measures, Model,
    NotedRequest, Objective, PastDecision, REJECTIONS, Readiness, Reconfigure, SizeStatistics,
    Status, Traffic, WorkerIncident,
};
pub use observer::{ModelTag, Observer};
pub use path_table::{PathTable, PathTarget};
pub use pool::{BatchTimes, CollectorPauses, GraphMemory, LoadProgress, WorkerView};
pub use process::guard_groups;
pub use queue_slots::QueueSlots;
pub use reply::AnswerStream;
pub use workflow::Workflow;
