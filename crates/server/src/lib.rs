//! The PROTOCOLS: REST, gRPC and handles in, calls to the engine out, and back.
//!
//! A request's way through this crate: `listener` gets a connection from `jitney-net`, `rest`, `grpc` or
//! `handles` reads the request, `inference` calls the model, and the answer goes back the same way.
//! [`errors`] maps every failure to a status and a message. The crate decides nothing about batches or
//! workers. It reads no flag and no environment, and no file but the shared memory that clients offer.

mod addresses;
mod audit;
pub mod auth;
mod changes;
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
mod request_key;
mod request_options;
mod respond;
mod rest;
mod route;
mod shared_memory;
mod shown_uri;
mod state;
mod timing;
mod webhook_sender;

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use jitney_engine::admission::Admission;
use jitney_engine::{Engine, Model};
use jitney_jobs::Jobs;
use jitney_net::listen::ListenSocket;
use jitney_net::open_connections::OpenConnections;
use jitney_net::{Bind, BoundSockets, ConnectionLimits, GivenSockets, Listener, accept};
use jitney_telemetry::overview::OverviewSources;
use jitney_telemetry::{ModelWatch, Overview};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::addresses::{ListenerPlan, check_tls, plans};
use crate::auth::BrowserRule;
use crate::grpc::GrpcServices;
use crate::listener::{ListenerProtocol, ServerListener};
use crate::route::Apis;
pub use crate::route::RouteAliases;
use crate::state::ServerState;

pub use crate::addresses::ServerAddresses;
pub use crate::audit::FollowedFiles;
pub use crate::changes::{Changeable, FieldChanges};
pub use crate::config::{Cors, GrpcBind, ServerConfig};
pub use crate::plugins::{PluginError, Plugins};
pub use crate::state::{ModelRoom, RoomShortage, ServerParts};
pub use crate::webhook_sender::{
    WebhookFailure, WebhookMessage, WebhookRejection, WebhookSender, WebhookSending,
};
pub use jitney_jobs::{JobsConfig, JobsDatabase};
pub use rest::{file_example, shell_example};

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

/// A server and its listeners, which are bound before they are served.
///
/// The data plane (whatever offers inference) runs on as many threads as it was bound for; the admin
/// plane (everything else) on one, so that it answers while the data plane is overloaded.
pub struct Server {
    addresses: OnceLock<ServerAddresses>,
    planes: [Arc<OpenConnections>; 2],
    data: Vec<Mutex<Vec<BoundListener>>>,
    admin: Mutex<Vec<BoundListener>>,
    /// The files of Unix sockets, which are removed with the server.
    files: Mutex<Vec<PathBuf>>,
    /// Whether another server has the sockets. Every listener holds a receiver as long as it accepts connections.
    retiring: watch::Sender<bool>,
    /// Every listener holds a receiver until it has ended.
    serving: watch::Sender<()>,
    admission: Arc<Admission>,
    overview: Arc<Overview>,
    state: Arc<ServerState>,
}

/// A listener and what it offers.
struct BoundListener {
    socket: ListenSocket,
    listener: Arc<Listener<ServerListener>>,
    retiring: watch::Receiver<bool>,
    serving: watch::Receiver<()>,
}

impl Server {
    /// Who notes what a file or a folder changes that this setting names.
    pub fn follows(&self, setting: &'static str, location: &str) -> FollowedFiles {
        FollowedFiles { state: Arc::clone(&self.state), setting, location: location.into() }
    }

    /// A server that does not listen yet, with so many threads for predictions (at least one).
    ///
    /// # Errors
    /// There is no certificate for an address that needs one; the text names it.
    pub fn new(
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
        let admission = Arc::clone(engine.admission());
        let jobs = Arc::new(Jobs::new(config.jobs.clone()));
        let overview = overview(&config, &parts, &engine, &jobs, planes[1].limit());
        let state = ServerState::new(config, parts, engine, Arc::clone(&overview), jobs);
        let state = Arc::new(state);
        Ok(Self {
            addresses: OnceLock::new(),
            planes,
            data: (0..data_threads).map(|_| Mutex::default()).collect(),
            admin: Mutex::default(),
            files: Mutex::default(),
            retiring: watch::Sender::new(false),
            serving: watch::Sender::new(()),
            admission,
            overview,
            state,
        })
    }

    /// Binds every address that no given socket listens on, those of predictions once per thread. Can be done once.
    /// Returns another descriptor of every socket, for a server that comes after this one.
    ///
    /// # Errors
    /// An address cannot be bound; the text names it.
    pub fn bind(&self, given: &mut GivenSockets) -> io::Result<Vec<OwnedFd>> {
        let mut addresses = ServerAddresses::configured(&self.state.config);
        let mut duplicates = Vec::new();
        for plan in plans(&self.state.config) {
            let count = if plan.apis.inference { self.data.len() } else { 1 };
            let bound = given.bind(&plan.bind, plan.name(), count)?;
            if plan.is_second {
                tracing::info!("predictions are answered at {}, too", bound.address);
            } else {
                addresses.settle(plan.apis, plan.grpc.is_some(), &bound.address);
            }
            for socket in &bound.sockets {
                duplicates.push(socket.duplicate()?);
            }
            self.add(&plan, bound);
        }
        let _ = self.addresses.set(addresses);
        Ok(duplicates)
    }

    /// Gives the sockets of a listener to the threads that will serve them.
    fn add(&self, plan: &ListenerPlan, bound: BoundSockets) {
        let BoundSockets { address, sockets, lent } = bound;
        let apis = plan.apis;
        let browsers = BrowserRule::of(&address);
        let protocol = match plan.grpc {
            None => ListenerProtocol::Http,
            Some(age) => {
                let services = GrpcServices::new(&self.state, apis, browsers);
                ListenerProtocol::Grpc(Arc::new(services), age)
            }
        };
        let open = Arc::clone(&self.planes[usize::from(!apis.inference)]);
        let listener = Arc::new(listener(&self.state, apis, browsers, protocol, open));
        for (socket, thread) in sockets.into_iter().zip(self.data.iter().cycle()) {
            let thread = if apis.inference { thread } else { &self.admin };
            locked(thread).push(BoundListener {
                socket,
                listener: Arc::clone(&listener),
                retiring: self.retiring.subscribe(),
                serving: self.serving.subscribe(),
            });
        }
        if let (Bind::Unix(path), false) = (address, lent) {
            locked(&self.files).push(path);
        }
    }

    /// Accepts no more connections, because another server does, and returns when no listener does. Those that are
    /// open are served to their ends.
    pub async fn retire(&self) {
        locked(&self.files).clear();
        self.retiring.send_replace(true);
        self.overview.close();
        self.retiring.closed().await;
    }

    /// Resolves when every listener has ended.
    pub async fn retired(&self) {
        self.serving.closed().await;
    }

    /// Serves the calls of workers on these runtimes of the data plane, from now until the runtimes end;
    /// can be done once.
    pub fn serve_workers(&self, runtimes: &[Handle]) {
        handles::serve_workers(&self.state, runtimes);
    }

    /// Answers jobs on these runtimes of the data plane, from now until the runtimes end; can be done once.
    pub fn serve_jobs(&self, runtimes: &[Handle]) {
        let plans = plans(&self.state.config);
        let offered = plans.iter().find(|plan| plan.grpc.is_none() && plan.apis.inference);
        if let Some(plan) = offered {
            rest::serve_jobs(&self.state, plan.apis, runtimes);
        }
    }

    /// Sends the webhooks of jobs, from now until the current runtime ends; can be done once.
    pub fn serve_webhooks(&self) {
        if let Some(sender) = &self.state.parts.webhooks {
            let (jobs, sender) = (Arc::clone(&self.state.jobs), Arc::clone(sender));
            tokio::spawn(async move { rest::deliver_webhooks(&jobs, &*sender).await });
        }
    }

    /// Notes versions that the server itself sends back, where an audit log is kept; ends with the runtime.
    pub fn note_returns(&self) {
        if self.state.parts.audit.is_some() {
            tokio::spawn(audit::note_returns(Arc::clone(&self.state)));
        }
    }

    /// The server's addresses, once it is bound.
    pub fn addresses(&self) -> &ServerAddresses {
        self.addresses.get_or_init(|| ServerAddresses::configured(&self.state.config))
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
    let jobs = Arc::new(Jobs::new(config.jobs.clone()));
    let overview = overview(&config, &parts, engine, &jobs, 0);
    let state = Arc::new(ServerState::new(config, parts, Arc::clone(engine), overview, jobs));
    handles::serve_workers(&state, runtimes);
}

impl Drop for Server {
    fn drop(&mut self) {
        for path in locked(&self.files).drain(..) {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn overview(
    config: &ServerConfig,
    parts: &ServerParts,
    engine: &Arc<Engine>,
    jobs: &Arc<Jobs>,
    connections_max: usize,
) -> Arc<Overview> {
    let jobs = Arc::clone(jobs);
    let sources = OverviewSources {
        engine: Arc::clone(engine),
        meter: Arc::clone(&parts.meter),
        dialect: config.dialect,
        started: SystemTime::now(),
        token_needed: parts.tokens.is_some() || parts.keys.is_some(),
        model_api: config.model_api,
        registrations: Arc::clone(&parts.registrations),
        jobs: Box::new(move || rest::jobs_overview(&jobs)),
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

fn take(listeners: &Mutex<Vec<BoundListener>>) -> Vec<BoundListener> {
    std::mem::take(&mut locked(listeners))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn run(listeners: Vec<BoundListener>, shutdown: impl Future<Output = ()>) -> io::Result<()> {
    let (end, ended) = watch::channel(false);
    let mut serving = tokio::task::JoinSet::new();
    for BoundListener { socket, listener, retiring, serving: held } in listeners {
        let mut ended = ended.clone();
        let shutdown = async move {
            // An error means that the sender is gone, which also is the end.
            let _ = ended.wait_for(|ended| *ended).await;
        };
        serving.spawn(async move {
            let _held = held;
            accept::serve(socket, listener, retiring, shutdown).await
        });
    }
    let (mut result, mut shutdown) = (Ok(()), std::pin::pin!(shutdown));
    while result.is_ok() {
        tokio::select! {
            () = &mut shutdown => break,
            // A listener ends before the shutdown when it has retired, or when it could not start.
            Some(served) = serving.join_next() => result = flat(served),
        }
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
