//! Platforms that say little more than `PORT`: Cloud Run, Knative, App Runner, ECS and others.

use std::time::Duration;

use jitney_settings::model::RESPONSE_TIMEOUT;
use jitney_settings::server::{DRAIN_TIMEOUT, INFERENCE_PORT};
use jitney_settings::{SettingSource, Values};

use super::plan::{Detected, PlatformPlan, in_container, take};
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::serve::Platform;

const PORT: &str = "PORT";
/// Set by Cloud Run and by Knative.
const SERVICE: &str = "K_SERVICE";
/// Set by ECS, with Fargate and without.
const TASK: &str = "ECS_CONTAINER_METADATA_URI_V4";
/// Cloud Run ends a container 10 seconds after SIGTERM.
const DRAIN: Duration = Duration::from_secs(8);
/// How long Cloud Run waits for an answer, unless the service says otherwise.
const ANSWER: Duration = Duration::from_secs(300);
/// ECS does after 30, unless the task says otherwise.
const DRAIN_OF_TASKS: Duration = Duration::from_secs(25);

/// Kubernetes sets variables like `PORT=tcp://…` beside services; those are not meant for us.
fn has_port(env: &Env) -> bool {
    env.text(PORT).is_some_and(|text| !text.is_empty() && !text.contains("://"))
}

/// Who ends the container decides, so `PORT` alone counts last.
pub(super) fn detect(env: &Env) -> Option<Detected> {
    let (platform, by) = match (has_port(env), env.text(SERVICE), env.text(TASK)) {
        (true, Some(_), _) => (Platform::CloudRun, SERVICE),
        (_, _, Some(_)) => (Platform::Ecs, TASK),
        (true, None, None) => (Platform::Port, PORT),
        (false, _, None) => return None,
    };
    Some(Detected { platform, by: by.to_owned() })
}

/// Listens where the platform looks, on all addresses; management stays on this machine's.
pub(super) fn read(detected: &Detected, env: &Env) -> Result<PlatformPlan, Failure> {
    let mut above = Values::default();
    if has_port(env) {
        take(env, PORT, &INFERENCE_PORT, &mut above)?;
    }
    let mut below = in_container();
    if detected.platform == Platform::CloudRun {
        below.set(&DRAIN_TIMEOUT, DRAIN, SettingSource::Default);
        below.set(&RESPONSE_TIMEOUT, ANSWER, SettingSource::Default);
    } else if detected.platform == Platform::Ecs {
        below.set(&DRAIN_TIMEOUT, DRAIN_OF_TASKS, SettingSource::Default);
    }
    Ok(PlatformPlan { above, below, ..PlatformPlan::default() })
}
