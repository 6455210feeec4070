//! Amazon SageMaker: `/opt/ml/model` with `code/inference.py`, or many models below `/opt/ml/models`, and the
//! variables of AWS's toolkits (docs/coming-from/sagemaker.md). What the user's functions are told by variables,
//! the workers read themselves.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jitney_engine::call::{REQUEST_BYTES_MAX, SequenceHeaders};
use jitney_settings::model::{
    MAX_BATCH_DELAY, MAX_BATCH_SIZE, MAX_WORKERS, RESPONSE_TIMEOUT, STARTUP_TIMEOUT, WORKERS,
};
use jitney_settings::server::{
    DRAIN_TIMEOUT, GRPC_MANAGEMENT_PORT, GRPC_PORT, INFERENCE_PORT, INSTALL_REQUIREMENTS,
    LOG_LEVEL, MANAGEMENT_PORT, MAX_REQUEST_SIZE, METRICS_PORT, MODEL_STORE,
};
use jitney_settings::torchserve::properties;
use jitney_settings::{PropertyEffect, Setting, SettingSource, Values, model, server};

use super::plan::{PlatformPlan, SagemakerRole, in_container, take};
use crate::env::Env;
use crate::failure::{Failure, cannot};
use crate::plan::{EnginePlan, Startup};
use crate::{gpu, machine};

/// The handler of model directories that name none; it travels inside this program.
const HANDLER: &str = "sagemaker_pytorch_serving_container.handler_service";

/// The name under which the one model is served, as AWS's toolkit has it.
const MODEL: &str = "model";
/// Where SageMaker asks, unless it names another port.
const PORT: u64 = 8080;
/// SageMaker sends SIGKILL 30 seconds after SIGTERM.
const DRAIN: Duration = Duration::from_secs(25);
/// How long SageMaker waits for an answer.
const ANSWER: Duration = Duration::from_secs(60);
/// AWS's toolkits give a server this long to start.
const STARTUP: Duration = Duration::from_secs(600);
const MEBIBYTE: u64 = 1 << 20;
/// The largest body that SageMaker sends in real time.
const BODY_MAX: u64 = 6 * MEBIBYTE;

/// The ports beside the one for predictions.
const OTHER_PORTS: [&Setting; 4] =
    [&MANAGEMENT_PORT, &METRICS_PORT, &GRPC_PORT, &GRPC_MANAGEMENT_PORT];

/// Variables of single settings of the one model.
const OF_THE_MODEL: [(&str, &Setting); 5] = [
    ("SAGEMAKER_TS_MIN_WORKERS", &WORKERS),
    ("SAGEMAKER_TS_MAX_WORKERS", &MAX_WORKERS),
    ("SAGEMAKER_TS_BATCH_SIZE", &MAX_BATCH_SIZE),
    ("SAGEMAKER_TS_MAX_BATCH_DELAY", &MAX_BATCH_DELAY),
    ("SAGEMAKER_TS_RESPONSE_TIMEOUT", &RESPONSE_TIMEOUT),
];

/// The same for all models; of two that say the same, the first one counts.
const OF_ALL: [(&str, &Setting); 4] = [
    ("SAGEMAKER_MODEL_SERVER_WORKERS", &WORKERS),
    ("SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS", &RESPONSE_TIMEOUT),
    ("SAGEMAKER_MODEL_SERVER_TIMEOUT", &RESPONSE_TIMEOUT),
    ("SAGEMAKER_STARTUP_TIMEOUT", &STARTUP_TIMEOUT),
];

/// The headers of sessions, which are sequences here, and where handlers read their names.
const SESSION_ID: (&str, &str) = ("X-Amzn-SageMaker-Session-Id", "TS_REQUEST_SEQUENCE_ID");
const SESSION_START: (&str, &str) =
    ("X-Amzn-SageMaker-New-Session-Id", "TS_REQUEST_SEQUENCE_START");
const SESSION_END: (&str, &str) = ("X-Amzn-SageMaker-Closed-Session-Id", "TS_REQUEST_SEQUENCE_END");

/// Where a folder may have functions, unless a variable names another module.
const FUNCTIONS: [&str; 2] = ["code/inference.py", "inference.py"];
/// How files end that the default functions load.
const SCRIPTS: [&str; 2] = ["pt", "pth"];
/// The module with the functions.
const PROGRAM: &str = "SAGEMAKER_PROGRAM";

/// The engine for SageMaker's model directories: they bring functions instead of a handler, which read bodies
/// themselves. Of those without functions the loaders make models.
pub fn on_sagemaker(mut plan: EnginePlan, env: &Env) -> EnginePlan {
    plan.defaults.handler = Some(HANDLER.to_owned());
    if env.text(PROGRAM).is_none_or(str::is_empty) {
        plan.defaults.handles_folder = is_for_functions;
    }
    plan.defaults.sequence_headers = Arc::new(SequenceHeaders {
        id: SESSION_ID.0.to_owned(),
        start: SESSION_START.0.to_owned(),
        end: SESSION_END.0.to_owned(),
    });
    let names = [SESSION_ID, SESSION_START, SESSION_END].map(|(name, at)| (at.into(), name.into()));
    plan.python.env.extend(names);
    plan.python.decode_input = false;
    plan
}

/// Whether the functions of a folder run it, or the default ones: they load TorchScript, which tells no types.
fn is_for_functions(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let has_end = |end: &str| names.iter().any(|name| name.ends_with(end));
    let is_script = SCRIPTS.iter().any(|end| has_end(&format!(".{end}")));
    let has_types = [".tensors.json", ".example.npy", ".example.npz", "config.json", "MLmodel"];
    FUNCTIONS.iter().any(|file| folder.join(file).is_file())
        || is_script && !has_types.into_iter().any(has_end)
}

/// What the variables say.
pub(super) fn read(env: &Env) -> Result<PlatformPlan, Failure> {
    let role = match env.text("SAGEMAKER_MULTI_MODEL") {
        Some("true") => SagemakerRole::ManyModels,
        _ => SagemakerRole::OneModel,
    };
    let base = env.path("SAGEMAKER_BASE_DIR").unwrap_or_else(|| PathBuf::from("/opt/ml"));
    let (above, remarks) = variables(role, env)?;
    let plan = PlatformPlan {
        below: defaults(role, &above, env),
        above,
        remarks,
        sagemaker: Some(role),
        ..PlatformPlan::default()
    };
    match role {
        SagemakerRole::OneModel => one_model(base.join("model"), plan),
        SagemakerRole::ManyModels => many_models(base.join("models"), plan),
    }
}

fn one_model(folder: PathBuf, plan: PlatformPlan) -> Result<PlatformPlan, Failure> {
    // Whoever names models needs no folder.
    let found = folder.canonicalize().ok().filter(|folder| folder.is_dir());
    let models = found.iter().map(|folder| Startup::named(MODEL, &folder.to_string_lossy()));
    let models = models.collect();
    Ok(PlatformPlan { models, artifacts: Some(folder.to_string_lossy().into_owned()), ..plan })
}

/// A path that a client names has to lie below the store, so the store is where SageMaker puts its models.
fn many_models(folder: PathBuf, mut plan: PlatformPlan) -> Result<PlatformPlan, Failure> {
    std::fs::create_dir_all(&folder).map_err(cannot("make the folder of models"))?;
    let store = folder.to_string_lossy().into_owned();
    plan.above.set(&MODEL_STORE, store.clone(), SettingSource::Default);
    Ok(PlatformPlan { artifacts: Some(store), ..plan })
}

/// A worker per GPU, else per processor; of many models each has one.
fn defaults(role: SagemakerRole, above: &Values, env: &Env) -> Values {
    let tuned = OF_THE_MODEL.iter().any(|(_, setting)| above.has(setting));
    let workers = match gpu::count(env) {
        _ if tuned || role == SagemakerRole::ManyModels => 1,
        0 => machine::cpus(),
        gpus => gpus,
    };
    in_container()
        .with(&INFERENCE_PORT, PORT, SettingSource::Default)
        .with(&DRAIN_TIMEOUT, DRAIN, SettingSource::Default)
        .with(&RESPONSE_TIMEOUT, ANSWER, SettingSource::Default)
        .with(&STARTUP_TIMEOUT, STARTUP, SettingSource::Default)
        .with(&MAX_REQUEST_SIZE, BODY_MAX, SettingSource::Default)
        .with(&INSTALL_REQUIREMENTS, true, SettingSource::Default)
        .with(&WORKERS, u64::from(workers), SettingSource::Default)
}

fn variables(role: SagemakerRole, env: &Env) -> Result<(Values, Vec<String>), Failure> {
    let mut values = Values::default();
    take(env, "SAGEMAKER_BIND_TO_PORT", &INFERENCE_PORT, &mut values)?;
    other_ports(env, &mut values)?;
    if role == SagemakerRole::OneModel {
        for (name, setting) in OF_THE_MODEL {
            take(env, name, setting, &mut values)?;
        }
    }
    for (name, setting) in OF_ALL {
        if !values.has(setting) {
            take(env, name, setting, &mut values)?;
        }
    }
    payload(env, &mut values)?;
    log_level(env, &mut values)?;
    let mut remarks = torchserve(env, &mut values)?;
    remarks.extend(pickle(env)?);
    if env.text("CA_REPOSITORY_ARN").is_some() {
        remarks.push(
            "CA_REPOSITORY_ARN has no effect: name the index of packages in PIP_INDEX_URL"
                .to_owned(),
        );
    }
    Ok((values, remarks))
}

/// Where several containers share one address, ours takes no port that was not given to it.
fn other_ports(env: &Env, values: &mut Values) -> Result<(), Failure> {
    const RANGE: &str = "SAGEMAKER_SAFE_PORT_RANGE";
    let source = |name: &str| SettingSource::Variable(name.to_owned());
    let Some(text) = env.text(RANGE).filter(|text| !text.is_empty()) else {
        if values.has(&INFERENCE_PORT) {
            for setting in OTHER_PORTS {
                values.set(setting, 0_u64, source("SAGEMAKER_BIND_TO_PORT"));
            }
        }
        return Ok(());
    };
    let bounds = text.split_once('-').and_then(|(low, high)| {
        Some((low.trim().parse::<u16>().ok()?, high.trim().parse::<u16>().ok()?))
    });
    let Some((low, high)) = bounds.filter(|(low, high)| low <= high) else {
        return Err(Failure::usage(format!(
            "{RANGE} must be LOW-HIGH, such as 9000-9999, not {text:?}"
        )));
    };
    let taken: Option<u16> = values.read(&INFERENCE_PORT);
    let mut free = (low..=high).filter(|port| Some(*port) != taken);
    for setting in OTHER_PORTS {
        let port = free.next().ok_or_else(|| {
            Failure::usage(format!(
                "{RANGE}={text} has too few ports: the server takes 4 beside its own"
            ))
        })?;
        values.set(setting, u64::from(port), source(RANGE));
    }
    Ok(())
}

/// Mebibytes; 0 is as much as there can be.
fn payload(env: &Env, values: &mut Values) -> Result<(), Failure> {
    const NAME: &str = "SAGEMAKER_MAX_PAYLOAD_IN_MB";
    let Some(text) = env.text(NAME).filter(|text| !text.is_empty()) else { return Ok(()) };
    let wrong =
        |_| Failure::usage(format!("{NAME} must be a whole number of mebibytes, not {text:?}"));
    let bytes = match text.parse::<u32>().map_err(wrong)? {
        0 => REQUEST_BYTES_MAX,
        mebibytes => u64::from(mebibytes) * MEBIBYTE,
    };
    values.set(&MAX_REQUEST_SIZE, bytes, SettingSource::Variable(NAME.to_owned()));
    Ok(())
}

/// The workers read it themselves (`sagemaker_inference.decoder`); whoever opens this door is told so, once.
fn pickle(env: &Env) -> Result<Option<String>, Failure> {
    const NAME: &str = "JITNEY_SAGEMAKER_ALLOW_PICKLE";
    match env.text(NAME) {
        None | Some("" | "false") => Ok(None),
        Some("true") => Ok(Some(format!(
            "{NAME}=true: objects in bodies of application/x-npy are unpickled, so whoever may send a request can \
             run code in the workers"
        ))),
        Some(text) => Err(Failure::usage(format!("{NAME} must be true or false, not {text:?}"))),
    }
}

/// Python's numbers.
fn log_level(env: &Env, values: &mut Values) -> Result<(), Failure> {
    const NAME: &str = "SAGEMAKER_CONTAINER_LOG_LEVEL";
    let Some(text) = env.text(NAME).filter(|text| !text.is_empty()) else { return Ok(()) };
    let wrong = |_| {
        Failure::usage(format!("{NAME} must be one of Python's levels, such as 20, not {text:?}"))
    };
    let level = match text.parse::<u32>().map_err(wrong)? {
        0..20 => "debug",
        20..30 => "info",
        30..40 => "warn",
        _ => "error",
    };
    values.set(&LOG_LEVEL, level.to_owned(), SettingSource::Variable(NAME.to_owned()));
    Ok(())
}

/// `TS_*`, TorchServe's own variables, where they name something that a server here has.
fn torchserve(env: &Env, values: &mut Values) -> Result<Vec<String>, Failure> {
    let mut without = Vec::new();
    for setting in properties() {
        let Some(name) = setting.torchserve_variable().filter(|name| env.text(name).is_some())
        else {
            continue;
        };
        let ours = server::SETTINGS.iter().chain(model::SETTINGS).any(|it| it.name == setting.name);
        if ours && setting.effect == PropertyEffect::Acts {
            take(env, &name, setting, values)?;
        } else {
            without.push(name);
        }
    }
    let remark =
        (!without.is_empty()).then(|| format!("without effect here: {}", without.join(", ")));
    Ok(remark.into_iter().collect())
}
