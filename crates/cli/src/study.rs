//! `jitney simulate` and `jitney plan`: answers from the simulator instead of a server.
//!
//! These modules read files and flags, and `jitney_sim` simulates. All printed figures come from
//! simulations. No port is opened.

mod capacity;
mod curve_file;
mod flag_values;
mod report;
mod simulate;
#[cfg(test)]
mod tests;
mod workload;

use crate::console;
use crate::failure::{FAILED, Failure};
use crate::flags::study::{PlanFlags, SimulateFlags};
pub use flag_values::arrivals;
use report::StudyReport;

/// `jitney simulate`
pub fn simulate(flags: SimulateFlags) -> Result<u8, Failure> {
    simulate::run(flags).map(print)
}

/// `jitney plan`
pub fn plan(flags: &PlanFlags) -> Result<u8, Failure> {
    capacity::run(flags).map(print)
}

fn print(report: StudyReport) -> u8 {
    console::out(report.text);
    if report.possible { 0 } else { FAILED }
}
