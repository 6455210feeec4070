//! What is known of one REST request while it is answered.

use bytes::Bytes;
use http::request::Parts;
use jitney_engine::call::{Origin, OriginKind};
use tokio::time::Instant;

use crate::body::RequestBody;
use crate::connection::{ConnectionStage, Peer};
use crate::errors::Problem;
use crate::query::RequestFields;
use crate::request_id::RequestUuid;
use crate::route::Apis;
use crate::state::ServerState;

/// One request while it is being answered.
pub(crate) struct RequestContext<'a> {
    pub(crate) state: &'a ServerState,
    /// What its listener offers.
    pub(crate) apis: Apis,
    pub(crate) peer: &'a Peer,
    pub(crate) parts: &'a Parts,
    pub(crate) id: RequestUuid,
    /// When its head had arrived.
    pub(crate) started: Instant,
}

impl RequestContext<'_> {
    /// The whole body, within the size limit.
    pub(crate) async fn read(&self, body: RequestBody) -> Result<Bytes, Problem> {
        self.peer.enter(ConnectionStage::Body);
        let limit = self.state.config.max_request_bytes;
        let read = body.read(limit, self.state.engine.admission()).await;
        self.peer.enter(ConnectionStage::Busy);
        read
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
