//! The laboratory: the tables by which the batching policy is judged, beside the peers' policies
//! with settings that an oracle chose.
//!
//! It drives `jitney-sim` and is part of no program. The peers' policies and the bounds of what is
//! possible live here for that reason. Its examples print the tables of `bench/batching.md`, its
//! tests hold them.
#![forbid(unsafe_code)]

pub mod bounds;
pub mod capacity;
pub mod contender;
pub mod grid;
pub mod memory;
pub mod numbers;
pub mod overlap;
pub mod peers;
pub mod scores;
pub mod search;
pub mod shadow;
pub mod tables;
