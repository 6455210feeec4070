//! What a listener's connections speak: HTTP with its upgrade to a handle's frames, or gRPC.

use std::sync::{Arc, OnceLock};

use http::Response;
use jitney_net::connection::{ListenerSignal, Peer};
use jitney_net::http::HttpClient;
use jitney_net::{ConnectionAge, ConnectionService, ResponseBody};
use jitney_settings::Dialect;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::auth::BrowserRule;
use crate::errors::{ErrorCode, Problem};
use crate::grpc::GrpcServices;
use crate::route::Apis;
use crate::state::ServerState;
use crate::{grpc, handles, respond};

/// One listener's view of the server.
pub(crate) struct ServerListener {
    pub(crate) state: Arc<ServerState>,
    pub(crate) apis: Apis,
    pub(crate) browsers: BrowserRule,
    pub(crate) protocol: ListenerProtocol,
}

/// What a listener speaks.
pub(crate) enum ListenerProtocol {
    /// HTTP/1.1, upgraded to frames by handles, and HTTP/2.
    Http,
    /// gRPC over HTTP/2.
    Grpc(Arc<GrpcServices>, ConnectionAge),
}

impl ConnectionService for ServerListener {
    async fn serve<S>(
        self: Arc<Self>,
        stream: S,
        peer: Arc<Peer>,
        mut signals: watch::Receiver<ListenerSignal>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match &self.protocol {
            ListenerProtocol::Grpc(services, age) => {
                let services = Arc::clone(services);
                Box::pin(grpc::serve(stream, peer, services, *age, signals)).await;
            }
            ListenerProtocol::Http => {
                let upgrade = OnceLock::new();
                let client = HttpClient { peer: &peer, upgrade: &upgrade };
                jitney_net::http::serve(stream, &self, &client, &mut signals).await;
                if let Some(upgrade) = upgrade.into_inner() {
                    Box::pin(handles::serve(upgrade, &peer, &self.state, signals)).await;
                }
            }
        }
    }

    fn protocols(&self) -> &'static [&'static [u8]] {
        match self.protocol {
            ListenerProtocol::Http => &[b"h2", b"http/1.1"],
            ListenerProtocol::Grpc(..) => &[b"h2"],
        }
    }

    fn drains(&self) -> bool {
        self.state.engine.draining()
    }

    fn https_only(&self) -> Response<ResponseBody> {
        let message = match self.state.config.dialect {
            Dialect::TorchServe => "This TorchServe instance only accepts HTTPS requests",
            Dialect::Jitney => {
                "This port speaks HTTPS only. Write https:// instead of http:// in the address."
            }
        };
        let problem = Problem::new(ErrorCode::HttpsOnly, message);
        respond::problem_as(&problem, &serde_json::json!({ "status": problem.message }))
    }
}
