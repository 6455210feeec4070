//! Azure Machine Learning: an entry script with `init()` and `run()`, or a folder with a model for a container that
//! brings no script (docs/coming-from/azure-ml.md). What the script is told by variables, the workers read themselves.

use std::path::PathBuf;
use std::time::Duration;

use jitney_server::RouteAliases;
use jitney_settings::model::{RESPONSE_TIMEOUT, STARTUP_TIMEOUT, WORKERS};
use jitney_settings::server::{CORS_ALLOWED_ORIGIN, DRAIN_TIMEOUT, INFERENCE_PORT, LOG_LEVEL};
use jitney_settings::{SettingSource, Values};

use super::plan::{PlatformPlan, in_container, take};
use crate::definition::in_folder;
use crate::env::Env;
use crate::failure::Failure;
use crate::plan::Startup;

/// The definition that runs an entry script; it travels inside this program.
const DEFINITION: &str = "azureml_inference_server_http.score:served";
/// Where Azure's own images put the entry script.
const APP_ROOT: &str = "/var/azureml-app";
/// The port of Azure's own images.
const PORT: u64 = 5001;
/// How long an endpoint waits for an answer at most. Azure's server would let `run()` go on for an hour.
const ANSWER: Duration = Duration::from_secs(180);
const DRAIN: Duration = Duration::from_secs(25);
/// How long Azure's server waits for a worker.
const STARTUP: Duration = Duration::from_secs(300);
const SCRIPT: &str = "AZUREML_ENTRY_SCRIPT";
const TIMEOUT: &str = "SCORING_TIMEOUT_MS";
const LEVEL: &str = "AZUREML_LOG_LEVEL";

/// What the variables say.
pub(super) fn read(env: &Env) -> Result<PlatformPlan, Failure> {
    let mut above = Values::default();
    take(env, "WORKER_COUNT", &WORKERS, &mut above)?;
    take(env, "WORKER_TIMEOUT", &STARTUP_TIMEOUT, &mut above)?;
    take(env, "AML_CORS_ORIGINS", &CORS_ALLOWED_ORIGIN, &mut above)?;
    milliseconds(env, &mut above)?;
    log_level(env, &mut above)?;
    let below = in_container().with(&DRAIN_TIMEOUT, DRAIN, SettingSource::Default).with(
        &RESPONSE_TIMEOUT,
        ANSWER,
        SettingSource::Default,
    );
    // Azure's server writes SERVER_PORT itself, whatever it was.
    let ignored = [
        "SERVER_PORT",
        "SEPERATE_HEALTH_ENDPOINT",
        "AML_APP_INSIGHTS_ENABLED",
        "AZUREML_CONFIG_FILE",
    ];
    let ignored = ignored.iter().filter(|name| env.text(name).is_some());
    let remarks = ignored.map(|name| format!("{name} has no effect here")).collect();
    let plan = PlatformPlan { above, below, remarks, ..PlatformPlan::default() };
    match env.text(SCRIPT).filter(|text| !text.is_empty()) {
        Some(script) => with_script(env, script, plan),
        None => Ok(with_folder(env, plan)),
    }
}

fn with_script(env: &Env, script: &str, plan: PlatformPlan) -> Result<PlatformPlan, Failure> {
    let root = env.path("AML_APP_ROOT").unwrap_or_else(|| PathBuf::from(APP_ROOT));
    let path = root.join(script);
    if !path.is_file() {
        return Err(Failure::usage(format!(
            "{SCRIPT}={script}: there is no file {}",
            path.display()
        ))
        .hint("name the script below AML_APP_ROOT, or by its whole path"));
    }
    let below = plan
        .below
        .with(&INFERENCE_PORT, PORT, SettingSource::Default)
        .with(&STARTUP_TIMEOUT, STARTUP, SettingSource::Default)
        .with(&WORKERS, 1_u64, SettingSource::Default);
    let served =
        Startup { definition: Some(DEFINITION.to_owned()), ..Startup::named("score", DEFINITION) };
    let artifacts = Some(path.to_string_lossy().into_owned());
    Ok(PlatformPlan { below, models: vec![served], artifacts, ..plan })
}

/// A container with a model and no script: its paths are whatever the deployment names; `/score` is the usual one.
fn with_folder(env: &Env, plan: PlatformPlan) -> PlatformPlan {
    let folder = env.path("AZUREML_MODEL_DIR").unwrap_or_default();
    let found = folder.canonicalize().ok().filter(|folder| folder.is_dir());
    let model = |folder| Startup { name: Some("model".to_owned()), ..in_folder(folder) };
    let models = found.iter().map(|folder| model(folder)).collect();
    let aliases = RouteAliases::default().with("/score", "/invocations");
    let artifacts = Some(folder.to_string_lossy().into_owned());
    PlatformPlan { models, artifacts, aliases, ..plan }
}

fn milliseconds(env: &Env, values: &mut Values) -> Result<(), Failure> {
    let Some(text) = env.text(TIMEOUT).filter(|text| !text.is_empty()) else { return Ok(()) };
    let wrong =
        |_| Failure::usage(format!("{TIMEOUT} must be a number of milliseconds, not {text:?}"));
    let time = Duration::from_millis(text.parse::<u32>().map_err(wrong)?.into());
    values.set(&RESPONSE_TIMEOUT, time, SettingSource::Variable(TIMEOUT.to_owned()));
    Ok(())
}

/// Python's names.
fn log_level(env: &Env, values: &mut Values) -> Result<(), Failure> {
    let Some(text) = env.text(LEVEL).filter(|text| !text.is_empty()) else { return Ok(()) };
    let level = match text.to_ascii_lowercase().as_str() {
        "debug" => "debug",
        "info" => "info",
        "warning" | "warn" => "warn",
        "error" | "critical" => "error",
        _ => {
            let message =
                format!("{LEVEL} must be one of Python's levels, such as INFO, not {text:?}");
            return Err(Failure::usage(message));
        }
    };
    values.set(&LOG_LEVEL, level.to_owned(), SettingSource::Variable(LEVEL.to_owned()));
    Ok(())
}
