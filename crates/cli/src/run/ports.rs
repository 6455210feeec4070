//! Where a server gets its listening sockets from, and who gets them after it. It binds them itself, or systemd
//! lends them (`LISTEN_FDS`), or the server that it replaces hands them over (`--handover`).

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use jitney_engine::Engine;
use jitney_net::handover::{Handover, HandoverSocket, Predecessor};
use jitney_net::{Bind, GivenSockets};
use jitney_server::{Server, ServerConfig};
use listenfd::ListenFd;

use super::system;
use crate::env::Env;
use crate::failure::{Failure, cannot};
use crate::plan::{HandoverPlan, ServerPlan};

/// The sockets that the service manager lends to this process. Called before there is another thread, since it also
/// takes their variables out of the environment. Workers inherit none of them.
pub fn lent(env: &Env) -> Result<GivenSockets, Failure> {
    let mut given = GivenSockets::default();
    if env.text("LISTEN_PID") != Some(&*std::process::id().to_string()) {
        return Ok(given);
    }
    let mut lent = ListenFd::from_env();
    let mut names = env.text("LISTEN_FDNAMES").unwrap_or_default().split(':');
    for index in 0..lent.len() {
        let name = names.next().unwrap_or_default().to_owned();
        let taken = take(&mut lent, index).and_then(|socket| given.add(socket, Some(name)));
        let wrong = |error| Failure::usage(format!("socket {} of LISTEN_FDS: {error}", index + 1));
        taken.map_err(wrong)?;
    }
    Ok(given)
}

/// A socket of TCP or, if it is none, a Unix socket.
fn take(lent: &mut ListenFd, index: usize) -> io::Result<OwnedFd> {
    let socket = match lent.take_tcp_listener(index) {
        Ok(socket) => socket.map(OwnedFd::from),
        Err(_) => lent.take_unix_listener(index)?.map(OwnedFd::from),
    };
    socket.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The sockets of a server that is about to start.
pub struct Ports<'a> {
    /// Whose they are.
    pub plan: &'a ServerPlan,
    given: GivenSockets,
    lent: bool,
    predecessor: Option<Predecessor>,
    /// Another descriptor of each, once they are bound.
    bound: Vec<OwnedFd>,
}

impl<'a> Ports<'a> {
    /// Those of a plan, of which some are lent.
    pub fn new(plan: &'a ServerPlan, given: GivenSockets) -> Self {
        Self { plan, lent: given.any_lent(), given, predecessor: None, bound: Vec::new() }
    }

    /// Binds them, unless another server has them until this one has loaded its models. Then there must be enough
    /// memory to run beside it.
    pub async fn bind_if_free(&mut self, server: &Server) -> Result<(), Failure> {
        if let Some(HandoverPlan { path, check_memory }) = &self.plan.handover {
            check_fixed(&self.plan.server)?;
            let wrong = |error| Failure::file("use the --handover socket", path, &error);
            self.predecessor = Predecessor::find(path).await.map_err(wrong)?;
            if let Some(found) = self.predecessor.as_ref().filter(|_| *check_memory) {
                check_memory_for_both(found.worker_memory, system::available_memory())?;
            }
        }
        if self.are_taken() { Ok(()) } else { self.bind(server) }
    }

    /// Whether another server has them.
    pub fn are_taken(&self) -> bool {
        self.predecessor.is_some()
    }

    /// Takes them from the server that has them. If that has ended meanwhile, they are free.
    pub async fn take_over(&mut self, server: &Server) -> Result<(), Failure> {
        let Some(predecessor) = &mut self.predecessor else { return Ok(()) };
        match predecessor.take().await {
            Ok(sockets) => sockets
                .into_iter()
                .try_for_each(|socket| self.given.add(socket, None))
                .map_err(cannot("use the ports of the running server"))?,
            Err(error) => {
                tracing::warn!(%error, "the server that was to be replaced did not hand its ports over");
                self.predecessor = None;
            }
        }
        self.bind(server)
    }

    fn bind(&mut self, server: &Server) -> Result<(), Failure> {
        self.bound =
            server.bind(&mut self.given).map_err(|error| cannot_bind(&error, &self.plan.server))?;
        match self.given.left() {
            left if left.is_empty() => Ok(()),
            left if self.lent => Err(Failure::usage(format!(
                "LISTEN_FDS: this server has no port at {}",
                left.join(", ")
            ))
            .hint("`jitney config serve` shows its addresses; FileDescriptorName= gives a socket to inference, management, metrics, grpc_inference or grpc_management")),
            left => {
                tracing::warn!("ports of the server before this one close: {}", left.join(", "));
                Ok(())
            }
        }
    }

    /// Lets the server that is replaced go, now that this one accepts connections, and waits for the next one.
    pub async fn opened(self, engine: &Arc<Engine>) -> Successor {
        let engine = Arc::clone(engine);
        let worker_memory = Box::new(move || system::shared_memory(&engine));
        let handover = Handover { sockets: self.bound, worker_memory };
        let path = self.plan.handover.as_ref().map(|plan| &plan.path);
        let waiting = path.map(|path| (path, HandoverSocket::open(path, handover)));
        if let Some(predecessor) = self.predecessor
            && let Err(error) = predecessor.release().await
        {
            tracing::warn!(%error, "the server before this one was gone");
        }
        let socket = waiting.and_then(|(path, opened)| {
            let failed = |error: &io::Error| {
                tracing::warn!(%error, "no server can take the ports over at {}", path.display());
            };
            opened.inspect_err(failed).ok()
        });
        Successor { socket, lent: self.lent }
    }
}

/// The server that will have the ports next.
pub struct Successor {
    socket: Option<HandoverSocket>,
    /// Whether the service manager keeps the ports for it.
    pub lent: bool,
}

impl Successor {
    /// Resolves when it has the ports; never if none can have them.
    pub async fn has_taken_over(&mut self) {
        match &mut self.socket {
            Some(socket) => socket.given().await,
            None => std::future::pending().await,
        }
    }
}

fn cannot_bind(error: &io::Error, config: &ServerConfig) -> Failure {
    let in_use = error.kind() == io::ErrorKind::AddrInUse;
    Failure::failed(error.to_string()).maybe_hint(in_use.then(|| in_use_hint(config)))
}

/// Names all ports that are in use, so that nobody meets them one at a time.
fn in_use_hint(config: &ServerConfig) -> String {
    let taken = |at: SocketAddr| {
        TcpListener::bind(at).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    };
    let taken: Vec<_> = ports(config)
        .filter(|(_, at)| taken(*at))
        .map(|(name, at)| format!("{} ({name})", at.port()))
        .collect();
    format!(
        "in use by other programs: {}; `jitney config serve` lists the settings of all ports, and port 0 is \
         any free one",
        taken.join(", ")
    )
}

/// The ports of a server, each with what it is for.
fn ports(config: &ServerConfig) -> impl Iterator<Item = (&'static str, SocketAddr)> {
    let binds = [
        ("inference", Some(&config.inference)),
        ("inference", config.also_inference.as_ref()),
        ("management", Some(&config.management)),
        ("metrics", config.metrics.as_ref()),
        ("gRPC inference", config.grpc_inference.as_ref().map(|grpc| &grpc.bind)),
        ("gRPC inference", config.also_grpc.as_ref().map(|grpc| &grpc.bind)),
        ("gRPC management", config.grpc_management.as_ref().map(|grpc| &grpc.bind)),
    ];
    binds.into_iter().filter_map(|(name, bind)| match bind {
        Some(Bind::Tcp(at) | Bind::Tls(at)) => Some((name, *at)),
        Some(Bind::Unix(_)) | None => None,
    })
}

/// Free ports would be others for the next server.
fn check_fixed(config: &ServerConfig) -> Result<(), Failure> {
    match ports(config).any(|(_, at)| at.port() == 0) {
        true => Err(Failure::usage("--handover needs ports with numbers, not port 0")),
        false => Ok(()),
    }
}

/// The new server's workers are taken to need what the old one's do.
fn check_memory_for_both(used: u64, available: Option<u64>) -> Result<(), Failure> {
    match available {
        Some(available) if available < used => Err(Failure::failed(format!(
            "the workers of the running server use {} MiB of memory, and {} MiB are available: both servers cannot run at once",
            used >> 20,
            available >> 20
        ))
        .hint("stop the running server first, or start with --handover-check-memory=false")),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_must_hold_both_servers_where_it_is_known() {
        assert!(check_memory_for_both(5 << 20, Some(5 << 20)).is_ok());
        assert!(check_memory_for_both(5 << 20, None).is_ok());
        let refused = check_memory_for_both(5 << 20, Some(4 << 20)).expect_err("too little");
        assert!(refused.message.contains("use 5 MiB of memory, and 4 MiB are available"));
    }

    #[test]
    fn only_fixed_ports_can_be_handed_over() {
        let bind = |text: &str| text.parse::<Bind>().expect("an address");
        let fixed = ServerConfig {
            inference: bind("127.0.0.1:8080"),
            management: bind("unix:/run/jitney"),
            metrics: None,
            grpc_inference: Some(bind("127.0.0.1:7070").into()),
            grpc_management: None,
            ..ServerConfig::default()
        };
        assert!(check_fixed(&fixed).is_ok());
        let free = ServerConfig { metrics: Some(bind("127.0.0.1:0")), ..fixed.clone() };
        assert!(check_fixed(&free).is_err());
        let free = ServerConfig { grpc_inference: Some(bind("[::]:0").into()), ..fixed };
        assert!(check_fixed(&free).is_err());
    }

    #[test]
    fn descriptors_of_another_process_are_not_taken() {
        let other = Env::from([("LISTEN_PID", "1"), ("LISTEN_FDS", "1")]);
        assert!(lent(&other).is_ok_and(|given| given.left().is_empty()));
    }
}
