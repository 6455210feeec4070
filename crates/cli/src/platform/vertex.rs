//! Vertex AI: a port, a path for predictions, a path for health, and a folder of a bucket with the model.

use std::time::Duration;

use jitney_server::RouteAliases;
use jitney_settings::server::{DRAIN_TIMEOUT, INFERENCE_PORT, MAX_REQUEST_SIZE};
use jitney_settings::{SettingSource, Values};

use super::plan::{PlatformPlan, in_container, take};
use crate::env::Env;
use crate::failure::Failure;
use crate::plan::Startup;

/// The name under which the model is served.
const MODEL: &str = "model";
/// The port where a model names none.
const PORT: u64 = 8080;
/// The largest body that Vertex AI sends, 10 MB, in either way of counting.
const BODY_MAX: u64 = 10 << 20;
const DRAIN: Duration = Duration::from_secs(25);

/// What the variables say.
pub(super) fn read(env: &Env) -> Result<PlatformPlan, Failure> {
    let mut above = Values::default();
    take(env, "AIP_HTTP_PORT", &INFERENCE_PORT, &mut above)?;
    let below = in_container()
        .with(&INFERENCE_PORT, PORT, SettingSource::Default)
        .with(&DRAIN_TIMEOUT, DRAIN, SettingSource::Default)
        .with(&MAX_REQUEST_SIZE, BODY_MAX, SettingSource::Default);
    let mut aliases = RouteAliases::default();
    for (name, row) in
        [("AIP_PREDICT_ROUTE", "/.jitney/invocations"), ("AIP_HEALTH_ROUTE", "/v2/health/ready")]
    {
        let Some(path) = env.text(name).filter(|text| !text.is_empty()) else { continue };
        if !path.starts_with('/') {
            let message = format!("{name} must be a path that begins with a slash, not {path:?}");
            return Err(Failure::usage(message));
        }
        aliases = aliases.with(path, row);
    }
    let uri = env.text("AIP_STORAGE_URI").filter(|text| !text.is_empty());
    let models = uri.map(|uri| Startup::named(MODEL, &format!("{}/", uri.trim_end_matches('/'))));
    let artifacts = models.as_ref().map(|model| model.url.clone());
    let models = models.into_iter().collect();
    Ok(PlatformPlan { above, below, models, artifacts, aliases, ..PlatformPlan::default() })
}
