//! The adaptive policy: what it learns, and what it decides by that.
//!
//! `learned` holds what was learned: `curves`, `service`, `fit`, `grid` and `tail` how long a batch
//! takes, `rate`, `returns`, `multiplex`, `return_times` and `evidence` which requests will come. `view`
//! looks at it and at the queue: `situation` chooses which requests a batch would hold, `wait` whether it is
//! worth waiting for more, `rhythm` how clients
//! that come back are best served, by `trials` where the curves leave it open. The `planner` decides, and `log` keeps the last decisions.

mod curves;
mod evidence;
mod fit;
mod grid;
mod learned;
mod log;
mod multiplex;
mod planner;
mod rate;
mod return_times;
mod returns;
mod rhythm;
mod service;
mod situation;
mod tail;
mod trials;
mod view;
mod wait;

pub use curves::CurvePoint;
pub(crate) use learned::Learned;
pub use log::{Decision, DecisionKind};
pub(crate) use planner::Planner;
