//! `jitney torchserve`: TorchServe's launcher, word for word where scripts listen. It talks on stdout,
//! as the original does.

mod addresses;
mod banner;
mod config;
mod engine;
mod folder;
mod metrics;
mod models;
mod process;
pub mod properties;
mod restore;
mod security;
mod sources;

use std::ffi::OsString;

use crate::console;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::torchserve::TorchserveFlags;
use crate::plan::ServerPlan;
pub use banner::VERSION;
pub use config::{assemble, configure};
pub use folder::TorchserveFolder;
use process::PidFile;

const ALREADY_RUNNING: &str =
    "TorchServe is already running, please use torchserve --stop to stop TorchServe.";

/// Runs a server to its end.
type ServerRun = fn(ServerPlan, &Env) -> Result<u8, Failure>;

/// Carries the command out and returns the exit code.
pub fn main(flags: &TorchserveFlags, args: &[OsString], env: &Env, run: ServerRun) -> u8 {
    let done = if flags.version {
        console::out(format!("TorchServe Version is {VERSION}"));
        Ok(0)
    } else if flags.stop {
        process::stop(&PidFile::of(env), flags.foreground);
        Ok(0)
    } else {
        start(flags, args, env, run)
    };
    done.unwrap_or_else(|failure| {
        console::out(failure.to_string());
        failure.code
    })
}

/// Configuration is read, and complained about, before anything is left running.
fn start(
    flags: &TorchserveFlags,
    args: &[OsString],
    env: &Env,
    run: ServerRun,
) -> Result<u8, Failure> {
    let pid_file = PidFile::of(env);
    let alone = if flags.detached { Ok(()) } else { reject_second(&pid_file) };
    let plan = config::plan(flags, env);
    let takes_over = plan.as_ref().is_ok_and(|plan| plan.handover.is_some());
    if !takes_over {
        alone?;
    }
    let plan = plan?;
    if flags.foreground || flags.detached {
        if flags.detached {
            process::detach_terminal();
        }
        return serve(plan, env, &pid_file, run);
    }
    // The pid file is the running server's until the new one has started.
    process::in_background(args, (!takes_over).then_some(&pid_file)).map(|()| 0)
}

fn serve(plan: ServerPlan, env: &Env, pid_file: &PidFile, run: ServerRun) -> Result<u8, Failure> {
    let before = pid_file.recorded();
    if let Err(error) = pid_file.write(std::process::id()) {
        console::out(format!("cannot write the pid file: {error}"));
    }
    let ended = run(plan, env);
    pid_file.remove_own(before);
    ended
}

fn reject_second(pid_file: &PidFile) -> Result<(), Failure> {
    match pid_file.recorded() {
        None => Ok(()),
        Some(recorded) if recorded.runs() => Err(Failure::failed(ALREADY_RUNNING)),
        Some(_) => {
            console::out("Removing orphan pid file.");
            pid_file.remove();
            Ok(())
        }
    }
}
