//! The tables by which the policy is judged, each a function of a seed and a number of requests.
//!
//! They hold text, ready to print; the title explains the figures. Long ones report their progress.

pub mod closed;
pub mod g99;
pub mod latency;
pub mod others;
pub mod overload;
mod setting;
pub mod stages;
pub mod traffic;

pub use setting::{Scenario, bert, cpu, r50, step8};

/// How much work to put into a table, and whom to tell how far it is.
pub struct Effort<'a> {
    /// The seed of the arrivals.
    pub seed: u64,
    /// Requests per run.
    pub count: usize,
    /// Whether settings of the peers are searched, or only ours is measured.
    pub peers: bool,
    /// Told after every cell.
    pub progress: &'a mut dyn FnMut(&str),
}
