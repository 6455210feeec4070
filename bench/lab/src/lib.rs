//! The laboratory: the tables by which the batching policy is judged, beside the peers' policies
//! with settings that an oracle chose.
//!
//! It drives `jitney-sim` and is part of no program. Its examples print the tables of
//! `bench/batching.md`, its tests hold them.
#![forbid(unsafe_code)]

pub mod grid;
pub mod search;
pub mod tables;
