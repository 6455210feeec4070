//! Starts the plugins and finds out what they offer. Nothing opens before all of them have answered:
//! a server whose guard did not come up would let everybody in.

use std::sync::Arc;

use jitney_engine::{Engine, PluginPlan};
use jitney_server::Plugins;

use crate::failure::Failure;

/// Starts all of them; nothing where there are none.
pub async fn start(
    plans: &[PluginPlan],
    engine: &Arc<Engine>,
) -> Result<Option<Arc<Plugins>>, Failure> {
    let Some(first) = plans.first() else { return Ok(None) };
    let mut started = Vec::new();
    for plan in plans {
        let plugin = engine.start_plugin(plan).await.map_err(|error| {
            Failure::failed(format!("plugin {} did not start: {error}", plan.source))
                .hint("its traceback is in the log above")
        })?;
        tracing::info!(plugin = plan.name, source = plan.source, "plugin loaded");
        started.push(plugin);
    }
    let gathered = Plugins::gather(started, first.timeout).await;
    gathered
        .map(|plugins| Some(Arc::new(plugins)))
        .map_err(|error| Failure::failed(error.to_string()))
}
