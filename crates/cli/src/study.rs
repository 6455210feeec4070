//! `jitney simulate` and `jitney plan`: simulations instead of a server.
//!
//! The files and flags are read here, `jitney_sim` does the work. Nothing here opens a port.

mod capacity;
mod curve_file;
mod progress;
mod simulate;
#[cfg(test)]
mod tests;
mod words;
mod workload;

use std::path::Path;

use crate::console;
use crate::failure::{FAILED, Failure};
use crate::flags::study::{PlanFlags, SimulateFlags};

/// `jitney simulate`
pub fn simulate(flags: SimulateFlags) -> u8 {
    report(simulate::run(flags))
}

/// `jitney plan`
pub fn plan(flags: &PlanFlags) -> u8 {
    report(capacity::run(flags))
}

fn report(result: Result<Finding, Failure>) -> u8 {
    match result {
        Ok(Finding { text, possible }) => {
            console::out(text);
            if possible { 0 } else { FAILED }
        }
        Err(failure) => {
            console::err(format!("error: {failure}"));
            failure.code
        }
    }
}

/// What is printed, and whether the goal can be reached.
#[derive(Debug)]
struct Finding {
    text: String,
    possible: bool,
}

fn read(path: &Path) -> Result<String, Failure> {
    let failed = |error| Failure::usage(format!("cannot read {}: {error}", path.display()));
    std::fs::read_to_string(path).map_err(failed)
}
