//! Every setting, declared once: name, type with unit, bounds, default, one sentence, and where it may
//! be set.
//!
//! Flags, `JITNEY_*` variables, `jitney.yaml`, `config.properties`, `model-config.yaml`, registration
//! parameters, live updates, snapshots, `jitney config` and the reference page are all made from these
//! declarations. Nothing here reads a file or the environment: callers bring texts and JSON values.

mod cpu_list;
mod device_memory;
mod dialect;
mod kind;
pub mod model;
mod nearest;
mod read;
mod reference;
pub mod server;
mod setting;
mod time_unit;
pub mod torchserve;
mod values;
mod words;
mod worker_cpus;

pub use cpu_list::CpuList;
pub use device_memory::DeviceMemory;
pub use dialect::Dialect;
pub use kind::{AUTO, SettingKind, SettingValue};
pub use model::{Cost, Isolation, OnnxEngine, PolicyName};
pub use nearest::{did_you_mean, nearest};
pub use read::{Batching, check_parameters, from_archive, from_parameters, from_record, to_record};
pub use reference::page;
pub use server::{LogFormat, TlsVersion};
pub use setting::{LooseKeys, PropertyEffect, Setting};
pub use time_unit::TimeUnit;
pub use values::{FromValue, SettingSource, Values};
pub use worker_cpus::WorkerCpus;
