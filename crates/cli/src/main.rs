//! The binary `jitney`: the only crate that reads flags, the server's configuration and the environment,
//! and that connects all parts. A command becomes a plan, and a plan becomes a running server.
//!
//! Exit codes: 0 success, 1 failure, 2 wrong flags of `torchserve` or `archive`, 64 any other wrong
//! usage, 69 the server cannot be reached, 77 it does not take the token, 130 interrupted.

mod address;
mod archive;
mod bench;
mod completions;
mod config;
mod console;
mod containerize;
mod definition;
mod doctor;
mod durable_file;
mod env;
mod failure;
mod fetch;
mod flag_values;
mod flags;
mod follow;
mod gpu;
mod infer;
mod inspect;
mod key_file;
mod keys;
mod logs;
mod machine;
mod onnx;
mod onnx_library;
mod onnx_worker;
mod parts;
mod plan;
mod platform;
mod plugins;
mod progress;
mod python;
mod remote;
mod run;
mod serve;
mod snapshot;
mod study;
mod subprocess;
mod tls;
mod top;
mod torchserve;
mod traces;
mod units;
mod url_rule;
mod webhooks;

use std::ffi::OsString;
use std::process::ExitCode;

use env::Env;
use flags::Command;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let env = Env::capture();
    ExitCode::from(match flags::parse(&args) {
        Ok(cli) => dispatch(cli.command, &args, &env),
        Err((error, code)) => {
            // clap chooses the stream; a closed one is no error of this program.
            let _ = error.print();
            code
        }
    })
}

fn dispatch(command: Command, args: &[OsString], env: &Env) -> u8 {
    let ended = match command {
        Command::Serve(flags) => {
            let yes = flags.yes;
            serve::plan(*flags, env).and_then(|plan| {
                onnx::offer(&plan, yes, env)?;
                run::run(plan, env)
            })
        }
        Command::Inspect(flags) => inspect::inspect(&flags, env),
        Command::Containerize(flags) => containerize::containerize(&flags, env),
        Command::Check(flags) => python::check(flags, env),
        Command::Infer(flags) => infer::infer(&flags, env),
        Command::Demo(flags) => serve::plan_demo(flags, env).and_then(|plan| run::run(plan, env)),
        Command::Torchserve(flags) => Ok(torchserve::main(&flags, args, env, run::run)),
        Command::Platform => platform::main(env),
        Command::Archive(flags) => archive::model(&flags),
        Command::ArchiveWorkflow(flags) => archive::workflow(&flags),
        Command::Config(flags) => config::main(*flags, env),
        Command::Bench(flags) => bench::bench(&flags),
        Command::Simulate(flags) => study::simulate(*flags),
        Command::Plan(flags) => study::plan(&flags, env),
        Command::Onnx(flags) => onnx::main(flags, env),
        Command::Status(flags) => remote::status(&flags, env),
        Command::Top(flags) => top::main(&flags, env),
        Command::Models(flags) => remote::models(&flags, env),
        Command::Register(flags) => remote::register(&flags, env),
        Command::Scale(flags) => remote::scale(&flags, env),
        Command::Traffic(flags) => remote::traffic(&flags, env),
        Command::Set(flags) => remote::set(&flags, env),
        Command::Default(flags) => remote::set_default(&flags, env),
        Command::Unregister(flags) => remote::unregister(&flags, env),
        Command::Logs(flags) => remote::logs(&flags, env),
        Command::Jobs(flags) => remote::jobs(&flags, env),
        Command::Keys(flags) => keys::main(&flags),
        Command::Doctor(flags) => doctor::main(&flags, env),
        Command::Completions(flags) => completions::print(&flags),
        Command::OnnxWorker => onnx_worker::run(env),
        Command::GuardGroups => run::guard_groups(),
    };
    ended.unwrap_or_else(|failure| {
        console::err(format!("error: {failure}"));
        failure.code
    })
}
