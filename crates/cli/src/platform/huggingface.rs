//! Hugging Face's inference toolkit: a folder with a model, its task, and the paths `/` and `/predict`.

use std::path::Path;

use jitney_server::RouteAliases;
use jitney_settings::model::{TASK, TRUST};
use jitney_settings::server::{INFERENCE_PORT, INSTALL_REQUIREMENTS};
use jitney_settings::{SettingSource, Values};

use super::plan::{Detected, PlatformPlan, SagemakerRole, in_container, take};
use crate::definition::in_folder;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::serve::Platform;
use crate::plan::Startup;

/// Where Inference Endpoints put the model into a container.
pub(super) const REPOSITORY: &str = "/repository";
/// Where the toolkit looks by itself.
const FOLDER: &str = "/opt/huggingface/model";
/// The toolkit's.
const PORT: u64 = 5000;
const ID: &str = "HF_MODEL_ID";
const TRUSTED: &str = "HF_TRUST_REMOTE_CODE";

/// Containers of other platforms have this variable as well, so it counts where nothing else does.
pub(super) fn detect(env: &Env) -> Option<Detected> {
    env.text(ID).filter(|text| !text.is_empty())?;
    Some(Detected { platform: Platform::HuggingFace, by: ID.to_owned() })
}

/// What the variables say.
pub(super) fn read(env: &Env) -> Result<PlatformPlan, Failure> {
    let below = in_container().with(&INFERENCE_PORT, PORT, SettingSource::Default);
    let aliases = RouteAliases::default()
        .with("/", "/.jitney/invocations")
        .with("/predict", "/.jitney/invocations")
        .with("/health", "/v2/health/ready");
    on_cloud(PlatformPlan { below, aliases, ..PlatformPlan::default() }, env)
}

/// The same on SageMaker, whose folder is there but empty where the hub's model is to be served. Many models are what
/// clients name.
pub(super) fn on_sagemaker(
    mut plan: PlatformPlan,
    env: &Env,
    is_filled: fn(&Path) -> bool,
) -> Result<PlatformPlan, Failure> {
    let is_named = [ID, "HF_TASK", "HF_MODEL_DIR"]
        .iter()
        .any(|name| env.text(name).is_some_and(|text| !text.is_empty()));
    if !is_named || plan.sagemaker != Some(SagemakerRole::OneModel) {
        return Ok(plan);
    }
    plan.models.retain(|model| is_filled(Path::new(&model.url)));
    on_cloud(plan, env)
}

/// The toolkit's model under another platform's routes and port, and its settings for what that platform fetches.
pub(super) fn on_cloud(mut plan: PlatformPlan, env: &Env) -> Result<PlatformPlan, Failure> {
    take(env, "HF_TASK", &TASK, &mut plan.above)?;
    if env.text(TRUSTED).is_some_and(|text| ["1", "true"].contains(&&*text.to_ascii_lowercase())) {
        plan.above.set(&TRUST, true, SettingSource::Variable(TRUSTED.to_owned()));
    }
    plan.below.set(&INSTALL_REQUIREMENTS, true, SettingSource::Default);
    if plan.models.is_empty() {
        let folder = env.path("HF_MODEL_DIR").unwrap_or_else(|| {
            let folders = [REPOSITORY, FOLDER].map(Path::new);
            folders.into_iter().find(|path| path.is_dir()).unwrap_or(folders[1]).to_owned()
        });
        plan.models = model(env, &folder).into_iter().collect();
        plan.artifacts = Some(folder.to_string_lossy().into_owned());
    }
    Ok(plan)
}

/// The model of the folder, else the one of the hub that is named; none where neither is there. A `handler.py` in the
/// folder is there to be run.
fn model(env: &Env, folder: &Path) -> Option<Startup> {
    let found = folder.is_dir().then(|| std::path::absolute(folder).ok()).flatten();
    let name = Some("model".to_owned());
    let Some(folder) = found else {
        let id = env.text(ID).filter(|id| !id.is_empty())?;
        let revision = env.text("HF_REVISION").filter(|it| !it.is_empty());
        let hub = format!("hf:{id}{}", revision.map(|it| format!("@{it}")).unwrap_or_default());
        return Some(Startup { name, definition: Some(hub.clone()), ..Startup::unnamed(&hub) });
    };
    let mut settings = Values::default();
    if folder.join("handler.py").is_file() {
        settings.set(&TRUST, true, SettingSource::Default);
    }
    Some(Startup { name, settings, ..in_folder(&folder) })
}
