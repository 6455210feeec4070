//! What is known of one REST request while it is answered.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::request::Parts;
use jitney_engine::Model;
use jitney_engine::call::{Origin, OriginKind, Priority, ValueBytes};
use jitney_net::RequestBody;
use jitney_net::connection::{ConnectionStage, Peer};
use jitney_net::http::HttpClient;
use jitney_net::request_id::XRequestId;
use jitney_telemetry::trace::RequestTrace;
use tokio::time::Instant;

use crate::auth::{BrowserRule, Gate, GuardedOperation};
use crate::errors::Problem;
use crate::handles::HandleUpgrade;
use crate::keys::Caller;
use crate::listener::ServerListener;
use crate::query::RequestFields;
use crate::request_key::RequestKey;
use crate::request_options::RequestOptions;
use crate::route::{Apis, ModelRef};
use crate::state::ServerState;

/// One request while it is being answered.
#[derive(Clone, Copy)]
pub(crate) struct RequestContext<'a> {
    pub(crate) state: &'a ServerState,
    /// What its listener offers.
    pub(crate) apis: Apis,
    /// What its listener believes of browsers.
    pub(crate) browsers: BrowserRule,
    pub(crate) peer: &'a Peer,
    /// Where its connection goes if it asks for an upgrade.
    pub(crate) upgrade: &'a OnceLock<HandleUpgrade>,
    pub(crate) parts: &'a Parts,
    pub(crate) id: &'a XRequestId,
    /// Its trace, if it is traced.
    pub(crate) trace: Option<&'a Arc<RequestTrace>>,
    /// Who sent it.
    pub(crate) caller: &'a Caller,
    /// When its head had arrived.
    pub(crate) started: Instant,
    /// The model that a plugin allowed it to use.
    pub(crate) authorized: Option<&'a Arc<Model>>,
    /// Whether nobody waits for its answer: it is bulk, and waits for space in a full queue.
    pub(crate) job: bool,
}

impl<'a> RequestContext<'a> {
    /// A request whose head had arrived when it `started`.
    pub(super) fn new(
        listener: &'a ServerListener,
        client: &HttpClient<'a, HandleUpgrade>,
        parts: &'a Parts,
        id: &'a XRequestId,
        trace: Option<&'a Arc<RequestTrace>>,
        caller: &'a Caller,
        started: Instant,
    ) -> Self {
        let ServerListener { state, apis, browsers, .. } = listener;
        let (apis, browsers, authorized, job) = (*apis, *browsers, None, false);
        let HttpClient { peer, upgrade } = client;
        Self {
            state,
            apis,
            browsers,
            peer,
            upgrade,
            parts,
            id,
            trace,
            caller,
            started,
            authorized,
            job,
        }
    }
}

impl<'a> RequestContext<'a> {
    /// The decoded path, or the one that a path of the platform's choice stands for.
    #[inline]
    pub(crate) fn path(&self) -> Cow<'a, str> {
        self.state.config.aliases.decode(self.parts.uri.path())
    }
}

impl<'a> RequestContext<'a> {
    /// The whole body, within the size limit.
    pub(crate) async fn read(&self, body: RequestBody) -> Result<Bytes, Problem> {
        self.read_value(body).await.map(ValueBytes::into_whole)
    }

    /// The same; a large one in the pieces in which it came.
    pub(crate) async fn read_value(&self, body: RequestBody) -> Result<ValueBytes, Problem> {
        let occupied = body.occupies_connection();
        if occupied {
            self.peer.enter(ConnectionStage::Body);
        }
        let limit = self.state.config.max_request_bytes;
        let read = body.read(limit, self.state.engine.admission(), self.caller.quota()).await;
        if occupied {
            self.peer.enter(ConnectionStage::Busy);
        }
        Ok(read?)
    }

    /// The model that the request names. Where a plugin allowed it, that very version: another may have
    /// become the default since.
    pub(crate) fn model(&self, target: ModelRef<'_>) -> Result<Arc<Model>, Problem> {
        match self.authorized {
            Some(model) => Ok(Arc::clone(model)),
            None => self.state.inference.model(target),
        }
    }

    /// What the request is known by.
    pub(crate) fn request_key(&self) -> RequestKey<'a> {
        RequestKey { headers: &self.parts.headers, client: self.caller.name(), id: self.id }
    }

    /// The version that answers the request: the one it names, or the one of its share.
    #[inline]
    pub(crate) fn model_for(&self, target: ModelRef<'_>) -> Result<Arc<Model>, Problem> {
        match self.authorized {
            Some(model) => Ok(Arc::clone(model)),
            None => {
                let key = self.request_key();
                self.state.inference.model_for(target, |sticky| key.hash(sticky))
            }
        }
    }

    /// Lets the request through a gate, if its key or its token allows what it is about to do.
    pub(crate) fn admit(
        &self,
        gate: Gate,
        operation: GuardedOperation,
        model: Option<&str>,
    ) -> Result<(), Problem> {
        self.state.parts.admit(self.caller, gate, (operation, model), &self.parts.headers)
    }

    /// What the request says about itself, for the tenant that its caller stands for.
    pub(crate) fn options(&self) -> Result<RequestOptions, Problem> {
        let mut options = RequestOptions::read(&self.parts.headers, self.started)?;
        self.caller.settle(&mut options.claim);
        if self.job {
            options.priority = Priority::Bulk;
        }
        Ok(options)
    }

    /// The fields of the query.
    pub(crate) fn query(&self) -> RequestFields {
        RequestFields::from_query(self.parts.uri.query())
    }

    /// Where the request came from.
    pub(crate) fn origin(&self) -> Origin {
        Origin { kind: OriginKind::Http, peer: self.peer.number }
    }
}
