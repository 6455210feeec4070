//! `jitney onnx`: which engine runs ONNX models here, and how to get the faster one.

mod index;
mod install;

use std::path::{Path, PathBuf};

use jitney_onnx::{LibraryPlaces, RuntimeStatus};
use serde_json::{Map, Value, json};

use crate::console;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::onnx::{OnnxCommand, OnnxFlags};
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

/// What workers are told about where the library may be.
pub fn options(interpreter: &Path, env: &Env) -> Map<String, Value> {
    let places = json!(places(interpreter, env));
    Map::from_iter([("places".to_owned(), places)])
}

/// Where the library may be on this machine.
fn places(interpreter: &Path, env: &Env) -> LibraryPlaces {
    let program = std::env::current_exe().ok();
    LibraryPlaces {
        setting: None,
        variable: env.path("ORT_DYLIB_PATH"),
        prefix: program.and_then(|program| Some(program.parent()?.parent()?.to_owned())),
        python: Some(interpreter.to_owned()),
        cache: cache(env),
    }
}

/// The directory that `jitney onnx install` fills.
fn cache(env: &Env) -> Option<PathBuf> {
    let cache = env.path("XDG_CACHE_HOME").filter(|cache| cache.is_absolute());
    let cache = cache.or_else(|| env.path("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("jitney"))
}

fn status(asked: Option<&Path>, env: &Env) {
    let python = python::find(asked, env);
    match RuntimeStatus::look(&places(&python.interpreter, env)) {
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
            console::out(
                "           `jitney onnx install` fetches ONNX Runtime, which is faster and runs every model",
            );
        }
    }
}
