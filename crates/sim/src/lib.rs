//! Worlds for the batcher: arrivals, service curves, connections, faults.
//!
//! A discrete-event simulator that drives the very [`Batcher`](jitney_batcher::Batcher) that
//! serves. `jitney simulate` and `jitney plan` use it; `bench/lab` judges the policy with it, beside
//! models of other servers' policies and the bounds of what is possible. It reads no file and prints
//! nothing, and a seed gives the same run on every machine.
#![forbid(unsafe_code)]

pub mod arrivals;
pub mod chart;
pub mod connections;
pub mod curve;
pub mod demand;
pub mod dice;
pub mod fluid;
pub mod gpu;
pub mod jitney;
pub mod job;
pub mod noise;
pub mod outcome;
pub mod pipeline;
pub mod plan;
pub mod policy;
pub mod runner;
pub mod scheduler;
pub mod text_table;
pub mod trace;
pub mod world;

pub use arrivals::Arrivals;
pub use connections::{ConnectionUse, Pools, ReuseOrder, WhenFull};
pub use curve::{ServiceCurve, ms};
pub use demand::{Class, Demand};
pub use gpu::GpuSharing;
pub use jitney::JitneyScheduler;
pub use job::{Job, SimulatedEnd};
pub use noise::Noise;
pub use outcome::Outcome;
pub use pipeline::{Stages, Took};
pub use policy::SimulatedPolicy;
pub use runner::{SimulatedModel, run, run_on_one_gpu};
pub use scheduler::{Orders, Scheduler};
pub use text_table::TextTable;
pub use world::{ClientStart, Clients, Load, Loss, ThinkSpread, World};
