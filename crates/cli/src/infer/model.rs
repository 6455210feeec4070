//! Who answers a job's rows: a model loaded here, a running server, or the actors of a Ray job.
//!
//! Here it is decided which, how many rows may be under way there, and what must be ended afterwards.

use std::path::PathBuf;

use jitney_settings::model::{MAX_BATCH_SIZE, RESPONSE_TIMEOUT, STARTUP_TIMEOUT, WORKERS};
use jitney_settings::server::{LOG_LEVEL, MODEL_STORE, PYTHON};
use jitney_settings::{Setting, SettingSource, SettingValue, Values};

use super::parts::Whole;
use super::python::Helper;
use super::target::{Cluster, Here, Target, There};
use super::{format, source};
use crate::console;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::infer::InferFlags;
use crate::logs::Logs;
use crate::machine;
use crate::run::Offline;
use crate::serve::{self, model};

/// The most rows under way, whatever the batches are.
const IN_FLIGHT_MAX: u32 = 1 << 16;

/// Rows that wait for their outcomes from a Ray job, which has its own bounds.
const IN_FLIGHT_RAY: usize = 1024;

/// Rows under way at a running server, whose batches nobody knows.
const IN_FLIGHT_THERE: usize = 64;

/// Who answers, and what has to be ended afterwards.
pub(super) struct Model {
    pub(super) target: Target,
    pub(super) offline: Option<Offline>,
    pub(super) in_flight: usize,
    pub(super) logs: Option<Logs>,
}

/// Starts whoever answers, or finds it.
pub(super) async fn load(
    flags: &InferFlags,
    env: &Env,
    start: source::Start,
    end: Option<u64>,
    helper: &Helper,
) -> Result<Model, Failure> {
    let endpoint = flags.endpoint.as_deref();
    let wanted = |usual: usize| {
        let most = IN_FLIGHT_MAX as usize;
        flags.in_flight.unwrap_or(usual).clamp(1, most)
    };
    if let Some(address) = &flags.ray {
        let whole = Whole {
            input: &flags.input,
            format: format(flags)?,
            start,
            end: end.unwrap_or_default(),
            actors: flags.workers.unwrap_or_else(machine::cpus),
        };
        let target = Target::Cluster(Cluster::start(flags, address, &whole, helper)?);
        return Ok(Model { target, offline: None, in_flight: IN_FLIGHT_RAY, logs: None });
    }
    if is_server(&flags.model) {
        let there = There::new(&flags.model, endpoint, env)?;
        let in_flight = wanted(IN_FLIGHT_THERE);
        return Ok(Model { target: Target::There(there), offline: None, in_flight, logs: None });
    }
    let plan = serve::plan_offline(model::parse(&flags.model)?, settings(flags), env)?;
    let logs = Logs::start(&plan.logs)?;
    plan.remarks.iter().for_each(console::err);
    let offline = match Offline::start(plan, env, flags.workers, IN_FLIGHT_MAX).await {
        Ok(offline) => offline,
        Err(failure) => {
            logs.finish();
            return Err(failure);
        }
    };
    let batch = offline.model.settings().items_max();
    if batch == 1 && flags.batch_size.is_none() {
        console::err("rows go one by one: the model names no batch size, see --batch-size");
    }
    let in_flight = wanted(2 * batch as usize * offline.workers as usize);
    let target = Target::Here(Here::new(offline.model.clone(), endpoint));
    Ok(Model { target, offline: Some(offline), in_flight, logs: Some(logs) })
}

/// A web address that ends like an archive is one; any other is a model that is being served.
fn is_server(model: &str) -> bool {
    let web = model.starts_with("http://") || model.starts_with("https://");
    let path = model.split(['?', '#']).next().unwrap_or_default();
    let archive = [".mar", ".zip", ".tar.gz", ".tgz", ".onnx"];
    web && !archive.iter().any(|ending| path.ends_with(ending))
}

fn settings(flags: &InferFlags) -> Values {
    let text = |path: &Option<PathBuf>| {
        path.as_ref().map(|path| path.to_string_lossy().into_owned().into())
    };
    let level = flags.log_level.as_deref().unwrap_or("error");
    let given: [(&Setting, Option<SettingValue>); 7] = [
        (&WORKERS, flags.workers.map(Into::into)),
        (&MAX_BATCH_SIZE, flags.batch_size.map(Into::into)),
        (&RESPONSE_TIMEOUT, flags.response_timeout.map(|time| time.0.into())),
        (&STARTUP_TIMEOUT, flags.startup_timeout.map(|time| time.0.into())),
        (&PYTHON, text(&flags.python)),
        (&MODEL_STORE, text(&flags.model_store)),
        (&LOG_LEVEL, Some(level.into())),
    ];
    let mut values = Values::default();
    for (setting, value) in given {
        if let (Some(value), Some(flag)) = (value, setting.flag) {
            values.set(setting, value, SettingSource::Flag(format!("--{flag}")));
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_server_unless_it_ends_like_an_archive() {
        for (model, expected) in [
            ("http://host:8080/predictions/m", true),
            ("https://host/m", true),
            ("https://host/m.mar", false),
            ("https://host/m.onnx#sha256=0", false),
            ("s3://bucket/m.mar", false),
            ("app:model", false),
        ] {
            assert_eq!(is_server(model), expected, "{model}");
        }
    }
}
