//! The cloud platform whose container this is: found by the variables and folders that it gives, and what follows
//! for `jitney serve` where nobody says otherwise. Pure but for the look into folders, which is an argument.
//!
//! Precedence: flag, `JITNEY_*`, the platform's variables, the configuration file, the platform's defaults, ours.

mod azure;
mod huggingface;
mod mlserver;
mod plan;
mod port;
mod sagemaker;
mod vertex;

use std::path::Path;

use clap::ValueEnum;

use crate::console;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::serve::Platform;

pub use plan::{Detected, PlatformPlan, SagemakerRole};
pub use sagemaker::on_sagemaker;

/// What shows that a platform is there.
enum Mark {
    /// A variable that is set.
    Variable(&'static str),
    /// A variable with this value.
    Value(&'static str, &'static str),
    /// A folder with something in it.
    Folder(&'static str),
}

impl Mark {
    fn found(&self, env: &Env, is_filled: impl Fn(&Path) -> bool) -> Option<&'static str> {
        match self {
            Self::Variable(name) => env.text(name).filter(|text| !text.is_empty()).map(|_| *name),
            Self::Value(name, value) => env.text(name).filter(|text| text == value).map(|_| *name),
            Self::Folder(path) => is_filled(Path::new(path)).then_some(*path),
        }
    }
}

/// The platforms that say what to serve. Two of them at once are a mistake, but for Hugging Face's on SageMaker or
/// Vertex AI.
const MARKS: &[(Platform, &[Mark])] = &[
    (
        Platform::Sagemaker,
        &[
            Mark::Variable("SAGEMAKER_MULTI_MODEL"),
            Mark::Variable("SAGEMAKER_BIND_TO_PORT"),
            Mark::Variable("SAGEMAKER_PROGRAM"),
            Mark::Variable("SAGEMAKER_BASE_DIR"),
            Mark::Folder("/opt/ml/model"),
        ],
    ),
    (
        Platform::Vertex,
        &[
            Mark::Value("AIP_MODE", "PREDICTION"),
            Mark::Variable("AIP_PREDICT_ROUTE"),
            Mark::Variable("AIP_HEALTH_ROUTE"),
            Mark::Variable("AIP_HTTP_PORT"),
        ],
    ),
    (
        Platform::AzureMl,
        &[Mark::Variable("AZUREML_ENTRY_SCRIPT"), Mark::Variable("AZUREML_MODEL_DIR")],
    ),
    (
        Platform::Mlserver,
        &[
            Mark::Variable("MLSERVER_MODEL_NAME"),
            Mark::Variable("MLSERVER_MODEL_URI"),
            Mark::Variable("MLSERVER_MODEL_IMPLEMENTATION"),
            Mark::Variable("MLSERVER_MODELS_DIR"),
            Mark::Variable("MLSERVER_HTTP_PORT"),
        ],
    ),
    (
        Platform::HuggingFace,
        &[
            Mark::Variable("HF_TASK"),
            Mark::Variable("HF_MODEL_DIR"),
            Mark::Folder(huggingface::REPOSITORY),
        ],
    ),
];

/// Finds the platform. Who asks for one gets it; `none` is asked for, too. `HF_MODEL_ID`, `PORT` and ECS's
/// variable count where nothing else does: other platforms have them beside their own.
pub fn detect(
    asked: Option<Platform>,
    env: &Env,
    is_filled: impl Fn(&Path) -> bool,
) -> Result<Option<Detected>, Failure> {
    if let Some(platform) = asked {
        let detected = Detected { platform, by: "--platform".to_owned() };
        return Ok(Some(detected).filter(|it| it.platform != Platform::None));
    }
    let found = MARKS.iter().filter_map(|(platform, marks)| {
        let by = first(marks, env, &is_filled)?.to_owned();
        Some(Detected { platform: *platform, by })
    });
    let found: Vec<Detected> = found.collect();
    match found.as_slice() {
        [] => Ok(huggingface::detect(env).or_else(|| port::detect(env))),
        [one] => Ok(Some(one.clone())),
        [Detected { platform: cloud @ (Platform::Sagemaker | Platform::Vertex), by }, model]
            if model.platform == Platform::HuggingFace =>
        {
            let by = format!("{by} with {}", model.by);
            Ok(Some(Detected { platform: *cloud, by }))
        }
        many => {
            let shown: Vec<String> =
                many.iter().map(|it| format!("{} by {}", it.platform.name(), it.by)).collect();
            Err(Failure::usage(format!("this looks like two platforms: {}", shown.join(", ")))
                .hint("say which one with --platform or JITNEY_PLATFORM, or remove a variable"))
        }
    }
}

fn first(marks: &[Mark], env: &Env, is_filled: impl Fn(&Path) -> bool) -> Option<&'static str> {
    marks.iter().find_map(|mark| mark.found(env, &is_filled))
}

/// Whether Hugging Face's variables or folder are there, beside those of another platform.
fn has_hugging_face(env: &Env) -> bool {
    let mut rows = MARKS.iter().filter(|(platform, _)| *platform == Platform::HuggingFace);
    rows.any(|(_, marks)| first(marks, env, is_filled).is_some())
}

/// Whether a folder has something in it.
pub fn is_filled(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// What `--platform` or `JITNEY_PLATFORM` asks for.
pub fn asked(flag: Option<Platform>, env: &Env) -> Result<Option<Platform>, Failure> {
    let Some(text) = env.text("JITNEY_PLATFORM").filter(|_| flag.is_none()) else {
        return Ok(flag);
    };
    Platform::from_str(text, true).map(Some).map_err(|_| {
        let known = Platform::value_variants().iter().map(|platform| platform.name());
        let known: Vec<&str> = known.collect();
        Failure::usage(format!("JITNEY_PLATFORM must be one of {}, not {text:?}", known.join(", ")))
    })
}

/// `jitney platform`: prints the name of the platform and what shows it.
pub fn main(env: &Env) -> Result<u8, Failure> {
    let detected = detect(asked(None, env)?, env, is_filled)?;
    let name = detected.as_ref().map_or(Platform::None, |it| it.platform).name();
    console::out(name);
    if let Some(detected) = detected {
        console::err(format!("by {}", detected.by));
    }
    Ok(0)
}

/// What the platform says.
pub fn read(detected: &Detected, env: &Env) -> Result<PlatformPlan, Failure> {
    match detected.platform {
        Platform::Sagemaker => huggingface::on_sagemaker(sagemaker::read(env)?, env, is_filled),
        Platform::Vertex if has_hugging_face(env) => huggingface::on_cloud(vertex::read(env)?, env),
        Platform::Vertex => vertex::read(env),
        Platform::AzureMl => azure::read(env),
        Platform::Mlserver => mlserver::read(env),
        Platform::HuggingFace => huggingface::read(env),
        Platform::CloudRun | Platform::Ecs | Platform::Port => port::read(detected, env),
        Platform::None => Ok(PlatformPlan::default()),
    }
}

#[cfg(test)]
mod tests;
