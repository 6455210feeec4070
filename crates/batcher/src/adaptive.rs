//! The adaptive policy: what it learns, and what it decides by that.
//!
//! `learned` holds what was learned: `curves` and `service` how long a batch takes, `rate`, `returns`,
//! `return_times` and `evidence` which requests will come. `view` looks at it and at the queue:
//! `situation` chooses which requests a batch would hold, `wait` whether it is worth waiting for more,
//! `rhythm` how clients that come back are best served, by `trials` where the curves leave it open. The
//! `planner` decides, and `log` keeps the last decisions. docs/concepts/policy-numbers.md lists the
//! numbers of all of them; it is made from their comments.

mod curves;
mod evidence;
mod learned;
mod log;
mod planner;
mod rate;
mod return_times;
mod returns;
mod rhythm;
mod service;
mod situation;
mod trials;
mod view;
mod wait;

pub use curves::CurvePoint;
pub(crate) use learned::Learned;
pub use log::{Decision, DecisionKind};
pub(crate) use planner::Planner;
