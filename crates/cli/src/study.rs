//! `jitney simulate` and `jitney plan`: answers from the simulator instead of a server.
//!
//! These modules read files and flags, and `jitney_sim` simulates. All printed figures come from
//! simulations. Only `jitney plan URL` asks a server: it measures how long batches take.

mod capacity;
mod curve_file;
mod measurement;
mod proposal;
mod report;
mod simulate;
#[cfg(test)]
mod tests;
mod workload;

use crate::console;
use crate::env::Env;
use crate::failure::{FAILED, Failure};
use crate::flags::study::{PlanFlags, SimulateFlags};
use report::StudyReport;

/// `jitney simulate`
pub fn simulate(flags: SimulateFlags) -> Result<u8, Failure> {
    simulate::run(flags).map(print)
}

/// `jitney plan`
pub fn plan(flags: &PlanFlags, env: &Env) -> Result<u8, Failure> {
    capacity::run(flags, env).map(print)
}

fn print(report: StudyReport) -> u8 {
    console::out(report.text);
    if report.possible { 0 } else { FAILED }
}
