//! `--registrations`: models from a list that several servers share. It is read again and again; what changed
//! in it is loaded beside what runs and takes its place when it is ready, and what left it goes.
//!
//! A list that cannot be read, or a model that cannot be loaded, changes nothing else: it is told and tried
//! again. What somebody changes by hand holds until the list changes the same thing.

mod document;
mod follower;
mod loader;
mod reconcile;
mod source;

use std::sync::Arc;
use std::time::Duration;

use jitney_engine::Engine;
use jitney_server::Server;
use jitney_settings::server::REGISTRATIONS;
use jitney_telemetry::Registrations;
use tokio::runtime::Handle;

use crate::definition::Packer;
use crate::env::Env;
use crate::fetch::RemoteFetcher;
use crate::plan::ServerPlan;
use follower::ListFollower;
use loader::Loader;
use source::DocumentSource;

/// Follows the shared list, if the plan has one; ends with the runtime. The server is not ready until all of
/// its models were loaded once.
pub fn follow(
    plan: &ServerPlan,
    env: &Env,
    engine: &Arc<Engine>,
    packer: &Arc<Packer>,
    reports: &Arc<Registrations>,
    server: &Server,
) {
    let Some(registrations) = plan.registrations.clone() else { return };
    let urls = Arc::clone(&plan.engine.urls);
    let fetcher = RemoteFetcher::new(Arc::clone(&urls), env, Handle::current());
    let source = DocumentSource::new(&registrations.source, fetcher);
    let followed = server.follows(REGISTRATIONS.name, &source.shown());
    let loader = Loader { engine: Arc::clone(engine), packer: Arc::clone(packer), followed };
    let follower = ListFollower::new(registrations, source, loader, urls, Arc::clone(reports));
    tokio::spawn(follower.run());
}

/// How often it is asked whether the models of the list are loaded; nobody is told.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Returns when all models of the list were loaded once; at once where there is no list.
pub async fn settled(reports: &Registrations) {
    while reports.read().is_some_and(|report| !report.settled) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
