//! The adaptive policy: what it decides by what was learned.
//!
//! `view` looks at what was learned and at the queue: `situation` chooses which requests a batch would
//! hold, `wait` whether it is worth waiting for more, `rhythm` how clients that come back are best
//! served. The `planner` decides, and `log` keeps the last decisions. docs/concepts/policy-numbers.md
//! lists the numbers of all of them; it is made from their comments.

mod log;
mod planner;
mod rhythm;
mod situation;
mod view;
mod wait;

pub(crate) use log::DecisionLog;
pub use log::{Decision, DecisionKind};
pub(crate) use planner::Planner;
