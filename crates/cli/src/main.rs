//! The binary `jitney`: the only place that reads flags, files and the environment, and that knows
//! every concrete part. Commands become a plan, a plan becomes a running server.
//!
//! Exit codes: 0 fine, 1 failed, 2 wrong flags of `torchserve` or `archive`, 64 any other wrong use,
//! 130 told twice to end.

mod address;
mod archive;
mod check;
mod config;
mod console;
mod definition;
mod env;
mod failure;
mod fetch;
mod flags;
mod gpu;
mod infer;
mod key_file;
mod logs;
mod machine;
mod metrics;
mod plan;
mod plugins;
mod python;
mod run;
mod serve;
mod startup;
mod study;
mod tls;
mod torchserve;
mod units;
mod url_rule;
mod worker_env;

use std::ffi::OsString;
use std::process::ExitCode;

use env::Env;
use failure::Failure;
use flags::Command;
use plan::Plan;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let env = Env::capture();
    ExitCode::from(match flags::parse(&args) {
        Ok(cli) => dispatch(cli.command, &args, &env),
        Err((error, code)) => {
            // Help and complaints choose their own stream; one that is closed is nobody's error.
            let _ = error.print();
            code
        }
    })
}

fn dispatch(command: Command, args: &[OsString], env: &Env) -> u8 {
    match command {
        Command::Serve(flags) => carry_out(serve::plan(*flags, env), env),
        Command::Check(flags) => check::main(&flags, env),
        Command::Infer(flags) => infer::main(*flags, env),
        Command::Demo(flags) => carry_out(serve::plan_demo(flags, env), env),
        Command::Torchserve(flags) => torchserve::main(&flags, args, env),
        Command::Archive(flags) => archive::model(&flags),
        Command::ArchiveWorkflow(flags) => archive::workflow(&flags),
        Command::Config(flags) => config::main(*flags, env),
        Command::Simulate(flags) => study::simulate(*flags),
        Command::Plan(flags) => study::plan(&flags),
    }
}

fn carry_out(plan: Result<Plan, Failure>, env: &Env) -> u8 {
    plan.and_then(|plan| run::run(plan, env)).unwrap_or_else(|failure| {
        console::err(format!("error: {failure}"));
        failure.code
    })
}
