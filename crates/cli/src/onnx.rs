//! `jitney onnx`: which engine runs ONNX models here, and how to get the faster one.

mod index;
mod install;

use std::path::Path;

use jitney_onnx::RuntimeStatus;

use crate::console;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::onnx::{OnnxCommand, OnnxFlags};
use crate::onnx_library;
use crate::python;

/// Runs the command.
pub fn main(flags: OnnxFlags, env: &Env) -> Result<u8, Failure> {
    match flags.command {
        Some(OnnxCommand::Install(flags)) => install::install(&flags, env),
        None => {
            status(flags.python.as_deref(), env);
            Ok(0)
        }
    }
}

fn status(asked: Option<&Path>, env: &Env) {
    let python = python::find(asked, env);
    let search = onnx_library::search(&python.interpreter, env);
    match RuntimeStatus::look(&search) {
        Ok(Some(found)) => {
            console::out("Engine     ONNX Runtime");
            console::out(format!("Version    {}", found.version.as_deref().unwrap_or("unknown")));
            console::out(format!("Library    {}", found.library.display()));
            console::out(format!("Providers  {}", found.providers.join(", ")));
        }
        missing => {
            console::out("Engine     built-in");
            if let Err(reason) = missing {
                console::out(format!("           ONNX Runtime cannot be loaded: {reason}"));
            }
            let remedy = search.remedy();
            console::out(format!("           {remedy}, which is faster and runs every model"));
        }
    }
}
