//! Another number of workers, other batching, on the live model.

use std::sync::Arc;

use jitney_engine::{Model, Reconfigure};

use super::Notice;
use crate::errors::Problem;
use crate::route::ModelRef;
use crate::state::ServerState;

/// What is to change.
pub(crate) struct Scaling<'a> {
    pub(crate) target: ModelRef<'a>,
    /// Other batching, if any.
    pub(crate) change: Option<Reconfigure>,
    /// Fewest and most workers, unless they stay as they are.
    pub(crate) workers: Option<(u32, u32)>,
    /// Whether to wait for the workers.
    pub(crate) synchronous: bool,
}

/// Changes the batching that is asked for, then the workers.
pub(crate) async fn scale(state: &ServerState, scaling: Scaling<'_>) -> Result<Notice, Problem> {
    let ModelRef { model: name, version } = scaling.target;
    let (model, dialect) = (state.engine.model(name, version)?, state.config.dialect);
    let workers = scaling.workers.map_or(0, |(_, max)| max);
    state.engine.check_workers(workers).map_err(Problem::bad_request)?;
    if let Some(change) = scaling.change {
        model.reconfigure(change).await.map_err(Problem::bad_request)?;
    }
    let Some((min, max)) = scaling.workers else {
        return Ok(Notice::done(format!("Model \"{name}\" updated")));
    };
    if !scaling.synchronous {
        in_background(model, min, max);
        return Ok(Notice::in_progress());
    }
    let scaled = model.scale(min, max).await;
    scaled.map_err(|error| Problem::scale(dialect, &error, name, version))?;
    let version = version.map(|version| format!(", version: {version}")).unwrap_or_default();
    Ok(Notice::done(format!("Workers scaled to {min} for model: {name}{version}")))
}

/// One worker unless more are asked for, and no more than that unless they may be.
pub(crate) fn range(min: Option<u32>, max: Option<u32>) -> Result<(u32, u32), Problem> {
    let min = min.unwrap_or(1);
    let max = max.unwrap_or(min);
    if max < min {
        return Err(Problem::bad_request("max_worker cannot be less than min_worker."));
    }
    Ok((min, max))
}

/// The bounds between which the workers of a model follow the load: those that it was registered with. One
/// that was given a number has at least one worker then, and at most one for every processor.
pub(crate) fn automatic_range(
    state: &ServerState,
    target: ModelRef<'_>,
) -> Result<(u32, u32), Problem> {
    let settings = state.engine.model(target.model, target.version)?.settings();
    let (min, max) = (settings.workers_min, settings.workers_max);
    if min < max {
        return Ok((min, max));
    }
    let processors = std::thread::available_parallelism().map_or(1, |it| it.get() as u32);
    Ok((1, max.max(processors)))
}

/// Starts the change and leaves it to the log to tell how it ended.
pub(super) fn in_background(model: Arc<Model>, min: u32, max: u32) {
    model.set_worker_target(min, max);
    tokio::spawn(async move {
        if model.scale(min, max).await.is_err() {
            // Why is in the lines of the workers, once.
            let (name, version) = (model.name(), model.version());
            tracing::warn!(model = name, version, "workers did not start");
        }
    });
}
