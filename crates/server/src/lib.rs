//! The PROTOCOLS: REST, gRPC and handles in, calls to the engine out, and back.
//!
//! A request's way through this crate: `listener` gets a connection from `jitney-net`, `rest`, `grpc` or
//! `handles` reads the request, `inference` calls the model, and the answer goes back the same way.
//! [`errors`] maps every failure to a status and a message. The crate decides nothing about batches or
//! workers. It reads no flag and no environment, and no file but the shared memory that clients offer.

mod audit;
pub mod auth;
mod config;
mod dashboard;
pub mod errors;
mod event_stream;
#[cfg(fuzzing)]
pub mod fuzzing;
mod grpc;
mod handles;
mod health;
mod inference;
pub mod keys;
mod listener;
mod management;
mod open_inference;
mod plugins;
mod query;
mod repository;
mod request_options;
mod respond;
mod rest;
mod route;
mod shared_memory;
mod shown_uri;
mod state;
mod timing;

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use jitney_engine::admission::Admission;
use jitney_engine::{Engine, Model};
use jitney_net::listen::{self, ListenSocket};
use jitney_net::open_connections::OpenConnections;
use jitney_net::{Bind, ConnectionAge, ConnectionLimits, Listener, accept};
use jitney_settings::Dialect;
use jitney_telemetry::overview::OverviewSources;
use jitney_telemetry::{ModelWatch, Overview};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::auth::BrowserRule;
use crate::grpc::GrpcServices;
use crate::listener::{ListenerProtocol, ServerListener};
use crate::route::Apis;
use crate::state::ServerState;

pub use crate::config::{Cors, GrpcBind, ServerConfig};
pub use crate::plugins::{PluginError, Plugins};
pub use crate::state::ServerParts;
pub use rest::shell_example;

/// Asks every plugin what it offers; callers later wait for answers no longer than `timeout`.
///
/// # Errors
/// One does not answer, or their offers do not fit together.
pub async fn gather_plugins(
    plugins: Vec<Arc<Model>>,
    timeout: Duration,
) -> Result<Plugins, PluginError> {
    Plugins::gather(plugins, timeout, rest::is_taken).await
}

/// The addresses of a server, with the ports that were free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddresses {
    /// Predictions and health.
    pub inference: Bind,
    /// Models and workers.
    pub management: Bind,
    /// Prometheus text, if anywhere.
    pub metrics: Option<Bind>,
    /// Predictions and health over gRPC, if anywhere.
    pub grpc_inference: Option<Bind>,
    /// Models and workers over gRPC, if anywhere.
    pub grpc_management: Option<Bind>,
}

/// Every listener of a server, bound and not yet served.
///
/// The data plane (whatever offers inference) runs on as many threads as it was bound for; the admin
/// plane (everything else) on one, so that it answers while the data plane is overloaded.
pub struct Server {
    addresses: ServerAddresses,
    data: Vec<Mutex<Vec<BoundListener>>>,
    admin: Mutex<Vec<BoundListener>>,
    admission: Arc<Admission>,
    overview: Arc<Overview>,
    state: Arc<ServerState>,
}

/// A listener and what it offers.
struct BoundListener {
    socket: ListenSocket,
    listener: Arc<Listener<ServerListener>>,
}

impl Server {
    /// Binds every address, the inference one `data_threads` times (at least once).
    ///
    /// # Errors
    /// An address cannot be bound; the text names it.
    pub fn bind(
        config: ServerConfig,
        parts: ServerParts,
        engine: Arc<Engine>,
        data_threads: usize,
    ) -> io::Result<Self> {
        let plans = plans(&config);
        check_tls(&config, &plans)?;
        let data_threads = data_threads.max(1);
        let planes = planes(&config, &plans, data_threads);
        parts.meter.watch_connections(&planes);
        let mut addresses = ServerAddresses::configured(&config);
        let admission = Arc::clone(engine.admission());
        let overview = overview(&config, &parts, &engine, planes[1].limit());
        let state = Arc::new(ServerState::new(config, parts, engine, Arc::clone(&overview)));
        let mut data: Vec<Vec<BoundListener>> = (0..data_threads).map(|_| Vec::new()).collect();
        let mut admin = Vec::new();
        for ListenerPlan { bind, apis, grpc } in plans {
            let count = if apis.inference { data.len() } else { 1 };
            let (address, sockets) = listen::bind(&bind, count)?;
            addresses.settle(apis, grpc.is_some(), &address);
            let open = Arc::clone(&planes[usize::from(!apis.inference)]);
            let browsers = BrowserRule::of(&address);
            let protocol = match grpc {
                None => ListenerProtocol::Http,
                Some(age) => {
                    let services = GrpcServices::new(&state, apis, browsers);
                    ListenerProtocol::Grpc(Arc::new(services), age)
                }
            };
            let listener = Arc::new(listener(&state, apis, browsers, protocol, open));
            for (socket, thread) in sockets.into_iter().zip(&mut data) {
                let bound = BoundListener { socket, listener: Arc::clone(&listener) };
                if apis.inference { thread.push(bound) } else { admin.push(bound) }
            }
        }
        let data = data.into_iter().map(Mutex::new).collect();
        Ok(Self { addresses, data, admin: Mutex::new(admin), admission, overview, state })
    }

    /// Serves the calls of workers on these runtimes of the data plane, from now until the runtimes end;
    /// can be done once.
    pub fn serve_workers(&self, runtimes: &[Handle]) {
        handles::serve_workers(&self.state, runtimes);
    }

    /// The server's addresses.
    pub fn addresses(&self) -> &ServerAddresses {
        &self.addresses
    }

    /// Serves the data plane's listeners of this thread until `shutdown` resolves and what is under
    /// way has ended or the grace is over. Each index can be run once.
    ///
    /// # Errors
    /// The sockets do not fit the runtime.
    pub async fn run_data(
        &self,
        index: usize,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()> {
        match self.data.get(index) {
            Some(listeners) => run(take(listeners), shutdown).await,
            None => Ok(()),
        }
    }

    /// Serves management and metrics, unless they share the inference address, samples the models for the
    /// dashboard and the log, and cuts clients that are too slow; can be run once.
    ///
    /// # Errors
    /// The sockets do not fit the runtime.
    pub async fn run_admin(&self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let closing = async {
            shutdown.await;
            self.overview.close();
        };
        tokio::select! {
            served = run(take(&self.admin), closing) => served,
            () = cut_slow_clients(&self.admission) => Ok(()),
            () = self.overview.run() => Ok(()),
            () = ModelWatch::default().run(&self.state.engine, &self.state.parts.meter) => Ok(()),
        }
    }
}

/// Serves the calls of workers on these runtimes, for an engine that listens on no port.
pub fn serve_workers(config: ServerConfig, engine: &Arc<Engine>, runtimes: &[Handle]) {
    let parts = ServerParts::default();
    let overview = overview(&config, &parts, engine, 0);
    let state = Arc::new(ServerState::new(config, parts, Arc::clone(engine), overview));
    handles::serve_workers(&state, runtimes);
}

impl Drop for Server {
    fn drop(&mut self) {
        let ServerAddresses { inference, management, metrics, grpc_inference, grpc_management } =
            &self.addresses;
        let perhaps = [metrics, grpc_inference, grpc_management].into_iter().flatten();
        for bind in [inference, management].into_iter().chain(perhaps) {
            if let Bind::Unix(path) = bind {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

impl ServerAddresses {
    fn configured(config: &ServerConfig) -> Self {
        let bind = |grpc: &Option<GrpcBind>| grpc.as_ref().map(|grpc| grpc.bind.clone());
        Self {
            inference: config.inference.clone(),
            management: config.management.clone(),
            metrics: config.metrics.clone(),
            grpc_inference: bind(&config.grpc_inference),
            grpc_management: bind(&config.grpc_management),
        }
    }

    fn settle(&mut self, apis: Apis, grpc: bool, address: &Bind) {
        let addresses = if grpc {
            [
                (apis.inference, self.grpc_inference.as_mut()),
                (apis.management, self.grpc_management.as_mut()),
                (false, None),
            ]
        } else {
            [
                (apis.inference, Some(&mut self.inference)),
                (apis.management, Some(&mut self.management)),
                (apis.metrics, self.metrics.as_mut()),
            ]
        };
        for (offered, bound) in addresses {
            if let (true, Some(bound)) = (offered, bound) {
                *bound = address.clone();
            }
        }
    }
}

fn overview(
    config: &ServerConfig,
    parts: &ServerParts,
    engine: &Arc<Engine>,
    connections_max: usize,
) -> Arc<Overview> {
    let sources = OverviewSources {
        engine: Arc::clone(engine),
        meter: Arc::clone(&parts.meter),
        dialect: config.dialect,
        started: SystemTime::now(),
        token_needed: parts.tokens.is_some() || parts.keys.is_some(),
        model_api: config.model_api,
        registrations: Arc::clone(&parts.registrations),
        log_book: parts.log_book.clone(),
    };
    Arc::new(Overview::new(sources, connections_max))
}

fn listener(
    state: &Arc<ServerState>,
    apis: Apis,
    browsers: BrowserRule,
    protocol: ListenerProtocol,
    open: Arc<OpenConnections>,
) -> Listener<ServerListener> {
    let config = &state.config;
    Listener {
        service: Arc::new(ServerListener { state: Arc::clone(state), apis, browsers, protocol }),
        open,
        admission: Arc::clone(state.engine.admission()),
        next_number: Arc::clone(&state.peers),
        tls: config.tls.clone(),
        head_timeout: config.head_timeout,
        shutdown_grace: config.shutdown_grace,
    }
}

/// The connections of the data plane and of the admin plane. Each accept loop holds a permit while it waits
/// for the next client, hence as many more than are open.
fn planes(
    config: &ServerConfig,
    plans: &[ListenerPlan],
    data_threads: usize,
) -> [Arc<OpenConnections>; 2] {
    let limits = ConnectionLimits::new(config.max_connections, config.open_files);
    let ConnectionLimits { data, admin } = limits;
    let open_files = config.open_files.unwrap_or(u64::MAX);
    tracing::info!(data, admin, open_files, "connections at a time");
    let inference = plans.iter().filter(|planned| planned.apis.inference).count();
    let loops = [inference * data_threads, plans.len() - inference];
    let open = |limit, loops| OpenConnections::new(limit + loops, config.idle_timeout);
    [open(data, loops[0]), open(admin, loops[1])]
}

/// A listener that is to be bound.
struct ListenerPlan {
    bind: Bind,
    apis: Apis,
    /// Set where it speaks gRPC.
    grpc: Option<ConnectionAge>,
}

/// Which listeners there are.
fn plans(config: &ServerConfig) -> Vec<ListenerPlan> {
    let rest =
        rest_plans(config).into_iter().map(|(bind, apis)| ListenerPlan { bind, apis, grpc: None });
    rest.chain(grpc_plans(config)).collect()
}

fn grpc_plans(config: &ServerConfig) -> Vec<ListenerPlan> {
    let planned = |grpc: &GrpcBind, apis| ListenerPlan {
        bind: grpc.bind.clone(),
        apis,
        grpc: Some(grpc.age),
    };
    let open_health = config.dialect == Dialect::Jitney;
    let inference = Apis { inference: true, oip: config.oip, open_health, ..Apis::default() };
    let management = Apis { management: true, open_health, ..Apis::default() };
    match (&config.grpc_inference, &config.grpc_management) {
        (Some(one), Some(other)) if one.bind.is_same(&other.bind) => {
            vec![planned(one, Apis { management: true, ..inference })]
        }
        (one, other) => {
            let one = one.iter().map(|grpc| planned(grpc, inference));
            one.chain(other.iter().map(|grpc| planned(grpc, management))).collect()
        }
    }
}

/// The HTTP listeners. APIs with one address share one; where inference and management do, metrics
/// are offered too, as in TorchServe.
fn rest_plans(config: &ServerConfig) -> Vec<(Bind, Apis)> {
    let (oip, sagemaker) = (config.oip, config.sagemaker);
    let combined = config.inference.is_same(&config.management);
    let (natural, open_health) = (config.natural, config.dialect == Dialect::Jitney);
    let home = open_health;
    let inference =
        Apis { inference: true, oip, natural, sagemaker, open_health, home, ..Apis::default() };
    let mut plans = vec![(config.inference.clone(), inference)];
    let management = Apis { management: true, oip, open_health, home, ..Apis::default() };
    if combined {
        plans[0].1.management = true;
    } else {
        plans.push((config.management.clone(), management));
    }
    if let Some(metrics) = &config.metrics {
        plans[0].1.metrics = combined;
        match plans.iter_mut().find(|(bind, _)| bind.is_same(metrics)) {
            Some((_, apis)) => apis.metrics = true,
            None => plans.push((metrics.clone(), Apis { metrics: true, ..Apis::default() })),
        }
    }
    plans
}

/// An HTTPS listener needs a certificate.
fn check_tls(config: &ServerConfig, plans: &[ListenerPlan]) -> io::Result<()> {
    match plans.iter().map(|plan| &plan.bind).find(|bind| matches!(bind, Bind::Tls(_))) {
        Some(bind) if config.tls.is_none() => {
            Err(io::Error::other(format!("{bind} needs a certificate and a key")))
        }
        Some(_) | None => Ok(()),
    }
}

fn take(listeners: &Mutex<Vec<BoundListener>>) -> Vec<BoundListener> {
    std::mem::take(&mut listeners.lock().unwrap_or_else(PoisonError::into_inner))
}

async fn run(listeners: Vec<BoundListener>, shutdown: impl Future<Output = ()>) -> io::Result<()> {
    let (end, ended) = watch::channel(false);
    let mut serving = tokio::task::JoinSet::new();
    for BoundListener { socket, listener } in listeners {
        let mut ended = ended.clone();
        serving.spawn(accept::serve(socket, listener, async move {
            // An error means that the sender is gone, which also is the end.
            let _ = ended.wait_for(|ended| *ended).await;
        }));
    }
    let mut result = Ok(());
    tokio::select! {
        () = shutdown => {}
        // A listener ends before the shutdown only when it could not start.
        Some(served) = serving.join_next() => result = flat(served),
    }
    end.send_replace(true);
    while let Some(served) = serving.join_next().await {
        result = result.and(flat(served));
    }
    result
}

/// Looks for clients that send or read too slowly; without end.
async fn cut_slow_clients(admission: &Admission) {
    let mut looks = tokio::time::interval(admission.rules().look_every());
    loop {
        looks.tick().await;
        admission.cut_overdue();
    }
}

fn flat(served: Result<io::Result<()>, tokio::task::JoinError>) -> io::Result<()> {
    served.unwrap_or_else(|panic| Err(io::Error::other(panic)))
}
