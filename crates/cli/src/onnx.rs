//! `jitney onnx`: which engine runs ONNX models here, and how to get the faster one.

mod index;
mod install;

use std::path::{Path, PathBuf};

use jitney_onnx::{RuntimeStatus, needs_runtime};
use jitney_settings::Values;
use jitney_settings::model::{ONNX_ENGINE, ONNX_LIBRARY};

use crate::console;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::onnx::{InstallFlags, OnnxCommand, OnnxFlags};
use crate::onnx_library;
use crate::plan::{ServerPlan, Startup};
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

/// Offers to fetch ONNX Runtime where it is missing and a file cannot be served without it; scikit-learn's
/// are such. Who declines, or cannot be asked, reads the same in the log of the model that does not load.
pub fn offer(plan: &ServerPlan, yes: bool, env: &Env) -> Result<(), Failure> {
    // Before any file is read: a server that nobody watches starts as fast as ever.
    if onnx_library::IS_STATIC || !(yes || console::can_ask()) {
        return Ok(());
    }
    let file = |model: &Startup| Some(PathBuf::from(model.url.strip_prefix("file://")?));
    let open = plan.models.iter().filter(|model| !chooses_engine(&model.settings));
    let mut files = open.filter(|model| model.url.ends_with(".onnx")).filter_map(file);
    let Some(needy) = files.find(|file| needs_runtime(file)) else { return Ok(()) };
    if onnx_library::search(&plan.engine.python.interpreter, env).is_there() {
        return Ok(());
    }
    let question = format!("{} needs ONNX Runtime, which is not here. Fetch it?", needy.display());
    if yes || console::confirmed(&question) {
        install::install(&InstallFlags::default(), env)?;
    }
    Ok(())
}

/// Whether somebody said which engine it is.
fn chooses_engine(settings: &Values) -> bool {
    settings.has(&ONNX_LIBRARY) || settings.has(&ONNX_ENGINE)
}
