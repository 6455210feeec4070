//! Where a job sends its rows: a model in this process, a model of a running server, or a Ray job.
//! Each gives every row exactly one result; a [`Failure`] means that no further row can be answered,
//! and ends the job.

mod in_process;
mod ray;
mod server;

use super::row::{InputRow, RowResult, StartPosition};
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::infer::{InferFlags, InputFormat};
use crate::flags::settings::{flag_values, path_value};
use crate::logs::{self, StartedLog};
use crate::python::PythonHelper;
use crate::run::OfflineEngine;
use crate::serve::{self, model};
use crate::{console, machine};
use in_process::InProcessModel;
use jitney_settings::Values;
use jitney_settings::model::{
    MAX_BATCH_SIZE, RESPONSE_TIMEOUT, STARTUP_TIMEOUT, TASK, TRUST, WORKERS,
};
use jitney_settings::server::{LOG_FORMAT, LOG_LEVEL, MODEL_STORE, PYTHON};
use ray::{RayInput, RayJob};
use server::ServerModel;

/// The most rows in flight, whatever the batch size is.
const IN_FLIGHT_MAX: u32 = 1 << 16;

/// Rows in flight with Ray, which has limits of its own.
const IN_FLIGHT_RAY: usize = 1024;

/// Rows in flight at a running server, whose batch size is not known.
const IN_FLIGHT_SERVER: usize = 64;

/// Where rows are sent.
#[derive(Clone)]
pub enum Backend {
    /// A model in this process.
    InProcess(InProcessModel),
    /// A model of a running server.
    Server(ServerModel),
    /// A Ray job.
    Ray(RayJob),
}

impl Backend {
    /// Whether rows become tables, whose columns have types, as a file of the same rows has over HTTP. A parameter
    /// that is no table reads text by its own hint.
    pub fn takes_tables(&self) -> bool {
        match self {
            Self::InProcess(model) => model.takes_tables(),
            Self::Server(_) | Self::Ray(_) => false,
        }
    }

    /// The result of one row.
    pub async fn infer(self, row: InputRow) -> Result<RowResult, Failure> {
        match (self, row.content.request()) {
            (Self::Ray(job), _) => job.infer(&row).await,
            (_, Err(reason)) => Ok(RowResult::bad_input(reason)),
            (Self::InProcess(model), Ok((kind, body))) => model.infer(row.number, kind, body).await,
            (Self::Server(model), Ok((kind, body))) => model.infer(kind, body).await,
        }
    }
}

/// A started backend, and what has to be ended after the job.
pub struct StartedBackend {
    /// Where rows are sent.
    pub backend: Backend,
    /// The most rows in flight.
    pub in_flight: usize,
    /// The engine of a local model, and its log.
    pub engine: Option<(OfflineEngine, StartedLog)>,
}

/// Starts the backend that the flags name; the input is read from `start` to `end`.
pub async fn start(
    flags: &InferFlags,
    format: InputFormat,
    env: &Env,
    start: StartPosition,
    end: Option<u64>,
    python: &PythonHelper,
) -> Result<StartedBackend, Failure> {
    let endpoint = flags.endpoint.as_deref();
    let in_flight =
        |default: usize| flags.in_flight.unwrap_or(default).clamp(1, IN_FLIGHT_MAX as usize);
    if flags.ray.is_some() {
        let actors = flags.workers.unwrap_or_else(machine::cpus);
        let end = end.unwrap_or_default();
        let input = RayInput { input: &flags.input, format, start, end, actors };
        let backend = Backend::Ray(RayJob::start(flags, &input, python)?);
        return Ok(StartedBackend { backend, in_flight: IN_FLIGHT_RAY, engine: None });
    }
    if is_server(&flags.model) {
        let backend = Backend::Server(ServerModel::new(&flags.model, endpoint, env)?);
        let in_flight = in_flight(IN_FLIGHT_SERVER);
        return Ok(StartedBackend { backend, in_flight, engine: None });
    }
    let plan = serve::plan_offline(model::parse(&flags.model)?, settings(flags), env)?;
    let logs = logs::start(&plan.logs)?;
    plan.remarks.iter().for_each(console::err);
    let engine = match OfflineEngine::start(plan, env, flags.workers, IN_FLIGHT_MAX).await {
        Ok(engine) => engine,
        Err(failure) => {
            logs.finish();
            return Err(failure);
        }
    };
    let batch = engine.model.settings().items_max();
    if batch == 1 && flags.batch_size.is_none() {
        console::err(
            "every batch has one row, because the model sets no batch size; see --batch-size",
        );
    }
    let in_flight = in_flight(2 * batch as usize * engine.workers as usize);
    let backend = Backend::InProcess(InProcessModel::new(engine.model.clone(), endpoint));
    Ok(StartedBackend { backend, in_flight, engine: Some((engine, logs)) })
}

/// Whether flags about loading a model are given for one that others load.
pub fn check(flags: &InferFlags) -> Result<(), Failure> {
    let elsewhere = flags.ray.is_some() || is_server(&flags.model);
    if !elsewhere || !(flags.trust || flags.task.is_some()) {
        return Ok(());
    }
    Err(Failure::usage("--trust and --task are for models that this program loads itself").hint(
        "a running server has settings of its own; on Ray's nodes set JITNEY_TRUST and JITNEY_TASK",
    ))
}

/// Whether a model is one of a running server: a web address, unless it ends like a model file.
fn is_server(model: &str) -> bool {
    let web = model.starts_with("http://") || model.starts_with("https://");
    let path = model.split(['?', '#']).next().unwrap_or_default();
    let archive = [".mar", ".zip", ".tar.gz", ".tgz", ".onnx"];
    web && !archive.iter().any(|ending| path.ends_with(ending))
}

fn settings(flags: &InferFlags) -> Values {
    let level = flags.log_level.as_deref().unwrap_or("error");
    flag_values([
        (&WORKERS, "workers", flags.workers.map(Into::into)),
        (&MAX_BATCH_SIZE, "batch-size", flags.batch_size.map(Into::into)),
        (&RESPONSE_TIMEOUT, "response-timeout", flags.response_timeout.map(|time| time.0.into())),
        (&STARTUP_TIMEOUT, "startup-timeout", flags.startup_timeout.map(|time| time.0.into())),
        (&TRUST, "trust", flags.trust.then(|| true.into())),
        (&TASK, "task", flags.task.clone().map(Into::into)),
        (&PYTHON, "python", path_value(flags.python.as_deref())),
        (&MODEL_STORE, "model-store", path_value(flags.model_store.as_deref())),
        (&LOG_LEVEL, "log-level", Some(level.into())),
        (&LOG_FORMAT, "log-format", flags.log_format.clone().map(Into::into)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_server_unless_it_ends_like_an_archive() {
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
