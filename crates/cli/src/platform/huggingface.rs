//! Hugging Face's inference toolkit: a folder with a model, its task, and the paths `/` and `/predict`.

use std::path::PathBuf;

use jitney_server::RouteAliases;
use jitney_settings::model::{TASK, TRUST};
use jitney_settings::server::{HOST, INFERENCE_PORT, MANAGEMENT_HOST};
use jitney_settings::{SettingSource, Values};

use super::plan::{Detected, PlatformPlan, take};
use crate::definition::in_folder;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::serve::Platform;
use crate::plan::Startup;

const FOLDER: &str = "/opt/huggingface/model";
const TRUSTED: &str = "HF_TRUST_REMOTE_CODE";

/// Containers of other platforms have these variables as well, so they count where nothing else does.
pub(super) fn detect(env: &Env) -> Option<Detected> {
    let names = ["HF_MODEL_DIR", "HF_TASK", "HF_MODEL_ID"];
    let by = names.into_iter().find(|name| env.text(name).is_some_and(|text| !text.is_empty()))?;
    Some(Detected { platform: Platform::HuggingFace, by: by.to_owned() })
}

/// What the variables say.
pub(super) fn read(env: &Env) -> Result<PlatformPlan, Failure> {
    let mut above = Values::default();
    take(env, "PORT", &INFERENCE_PORT, &mut above)?;
    take(env, "HF_TASK", &TASK, &mut above)?;
    if env.text(TRUSTED).is_some_and(|text| ["1", "true"].contains(&&*text.to_ascii_lowercase())) {
        above.set(&TRUST, true, SettingSource::Variable(TRUSTED.to_owned()));
    }
    let below = Values::default().with(&HOST, "0.0.0.0".to_owned(), SettingSource::Default).with(
        &MANAGEMENT_HOST,
        "127.0.0.1".to_owned(),
        SettingSource::Default,
    );
    let folder = env.path("HF_MODEL_DIR").unwrap_or_else(|| PathBuf::from(FOLDER));
    let found = folder.is_dir().then(|| std::path::absolute(&folder).ok()).flatten();
    if let (None, Some(id)) = (&found, env.text("HF_MODEL_ID")) {
        return Err(Failure::usage(format!("HF_MODEL_ID={id}: models are not fetched from the hub"))
            .hint(format!("fetch it when the image is made (hf download {id} --local-dir DIR) and name DIR in HF_MODEL_DIR")));
    }
    let model = |folder: &PathBuf| Startup { name: Some("model".to_owned()), ..in_folder(folder) };
    let models = found.iter().map(model).collect();
    let aliases = RouteAliases::default()
        .with("/", "/.jitney/invocations")
        .with("/predict", "/.jitney/invocations")
        .with("/health", "/v2/health/ready");
    let artifacts = Some(folder.to_string_lossy().into_owned());
    Ok(PlatformPlan { above, below, models, artifacts, aliases, ..PlatformPlan::default() })
}
