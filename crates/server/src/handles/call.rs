//! One call of a handle: runs it and sends what comes back, frame by frame.
//!
//! It runs as a task of its connection; when that ends, or the client cancels, the task is dropped
//! and the request is cancelled. It sends its last frame exactly once.

use std::sync::Arc;

use http::{Method, StatusCode, Version};
use jitney_engine::Model;
use jitney_engine::admission::HeldBytes;
use jitney_engine::call::{
    Answer, AnswerStream, CALL_PARAMETER, CallRoute, HeaderBlock, Input, Origin, OriginKind,
    Output, Parameter,
};
use jitney_engine::tensors::TensorRequest;
use jitney_net::connection::Peer;
use jitney_net::request_id::XRequestId;
use jitney_telemetry::trace::{RequestFacts, RequestTrace};
use jitney_telemetry::{AccessRecord, RecordNames};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::frame::{HandleCall, ServerFrame};
use crate::auth::GuardedOperation;
use crate::errors::{ErrorCode, Problem};
use crate::inference::{self, InferenceRequest};
use crate::keys::Caller;
use crate::open_inference::framed;
use crate::open_inference::request::OpenInferenceRequest;
use crate::plugins::{CallGuard, Intent};
use crate::request_key::RequestKey;
use crate::request_options::{RequestOptions, push_claim, sequence};
use crate::route::ModelRef;
use crate::state::ServerState;

/// A frame about a call, on its way to the connection.
pub(super) struct CallFrame {
    pub(super) id: u64,
    pub(super) frame: ServerFrame,
    /// Its memory while it waits to be written.
    pub(super) held: Option<HeldBytes>,
}

/// A call that is about to be made.
pub(super) struct PendingCall {
    pub(super) state: Arc<ServerState>,
    pub(super) peer: Arc<Peer>,
    /// Who makes it.
    pub(super) caller: Caller,
    /// Whether it belongs to a request that was admitted.
    pub(super) admitted: bool,
    pub(super) model: Arc<Model>,
    pub(super) call: HandleCall,
    pub(super) started: Instant,
    /// Its id.
    pub(super) id: XRequestId,
    /// Its trace, if it is traced.
    pub(super) trace: Option<Arc<RequestTrace>>,
    /// Its memory until the model admits it.
    pub(super) held: Option<HeldBytes>,
}

/// Makes a call once the operator's plugin allows it, or fails it. The plugin may name the tenant,
/// whatever the client claims.
pub(super) async fn run_authorized(
    guard: Arc<CallGuard>,
    id: u64,
    (model, version): (String, Option<String>),
    pending: Result<PendingCall, Problem>,
    sender: mpsc::Sender<CallFrame>,
) {
    let target = ModelRef { model: &model, version: version.as_deref() };
    let found = pending.as_ref().ok().map(|pending| Arc::clone(&pending.model));
    let intent = Intent::with_model(GuardedOperation::Predict, target, found);
    let verdict = guard.authorize(XRequestId::fresh().text(), &intent).await;
    match (verdict, pending) {
        (Ok(tenant), Ok(mut pending)) => {
            if let Some(tenant) = tenant {
                pending.caller = pending.caller.of_tenant(&tenant);
            }
            pending.run(sender).await;
        }
        (Err(denied), Ok(pending)) => pending.end(ServerFrame::Failed(denied), &sender).await,
        (Err(problem), Err(_)) | (Ok(_), Err(problem)) => fail(id, problem, sender).await,
    }
}

/// Fails a call that could not be made.
pub(super) async fn fail(id: u64, problem: Problem, sender: mpsc::Sender<CallFrame>) {
    drop(sender.send(CallFrame { id, frame: ServerFrame::Failed(problem), held: None }).await);
}

/// Begins the trace of a call, if it is traced.
pub(super) fn begin_trace(
    state: &ServerState,
    peer: &Peer,
    call: &HandleCall,
    id: &XRequestId,
    started: Instant,
) -> Option<Arc<RequestTrace>> {
    let tracer = state.parts.tracer.as_ref()?;
    RequestTrace::begin(tracer, &call.headers, started, || {
        let address = peer.address.trim_start_matches('/').to_owned();
        let facts = RequestFacts::new("PYTHON /{model}/{endpoint}")
            .with("rpc.system", "jitney")
            .with("rpc.service", call.model.clone())
            .with("rpc.method", call.endpoint.clone())
            .with("client.address", address)
            .with("jitney.request.id", id.text().to_owned());
        Some(facts)
    })
}

impl PendingCall {
    /// Makes the call. Frames are dropped where the connection has ended, and this task with it.
    pub(super) async fn run(mut self, sender: mpsc::Sender<CallFrame>) {
        let asked = match self.asked() {
            Ok(asked) => asked,
            Err(why) => {
                let problem = Problem::bad_request(why);
                return self.end(ServerFrame::Failed(problem), &sender).await;
            }
        };
        let (mut input, options) = self.input();
        if let Some((request, tensors)) = &asked {
            input.parameters.clear();
            input.tensors = Some(Arc::clone(tensors));
            if let Ok(Some(named)) = request.sequence() {
                input.route.sequence = Some(Box::new(named));
            }
            framed::tell(request, &self.model, &mut input.headers);
        }
        let held = self.held.take();
        let request = InferenceRequest {
            target: self.target(),
            input,
            options,
            client: self.caller.name(),
            key: Some(RequestKey {
                headers: &self.call.headers,
                client: self.caller.name(),
                id: &self.id,
            }),
            quota: self.caller.quota().cloned(),
            origin: Origin { kind: OriginKind::Python, peer: self.peer.number },
            wait_for_queue: true,
            admitted: self.admitted,
            held,
            trace: self.trace.clone(),
        };
        let last = match self.state.inference.predict(&self.model, request).await {
            Ok(Answer { output, timing, stream: None }) => match self.framed(output, &asked) {
                Ok(output) => ServerFrame::Answer(output, timing),
                Err(why) => ServerFrame::Failed(Problem::new(ErrorCode::Internal, why)),
            },
            Ok(Answer { output, timing, stream: Some(stream) }) => {
                let first = ServerFrame::First(output, timing);
                self.send(first, &sender).await;
                self.send_pieces(stream, &sender).await
            }
            Err(problem) => ServerFrame::Failed(problem),
        };
        self.end(last, &sender).await;
    }

    /// The tensors that a model of Triton's Python backend sends to another model, if it is such a call.
    fn asked(&mut self) -> Result<Option<(OpenInferenceRequest, Arc<TensorRequest>)>, String> {
        if self.call.content_type != framed::CONTENT_TYPE {
            return Ok(None);
        }
        let (name, body) = (self.model.name(), std::mem::take(&mut self.call.body));
        let request = framed::read(&body, &mut self.state.shared_reader());
        let request = request.map_err(|why| format!("Model {name:?}: {why}"))?;
        if !self.model.takes_tensors() {
            return Err(format!("Model {name:?} takes no tensors."));
        }
        let tensors = request.tensors(&self.model)?;
        Ok(Some((request, Arc::new(tensors))))
    }

    /// The output in the form of the call.
    fn framed(
        &self,
        output: Output,
        asked: &Option<(OpenInferenceRequest, Arc<TensorRequest>)>,
    ) -> Result<Output, String> {
        let (Some((request, _)), Some(tensors)) = (asked, &output.tensors) else {
            return Ok(output);
        };
        let answer = framed::outputs(tensors.clone(), &output.headers, request, &self.model);
        let body = framed::write(&answer.select(request, &self.model)?, request)?;
        let headers = vec![("Content-Type".to_owned(), framed::CONTENT_TYPE.to_owned())];
        Ok(Output { body, headers, tensors: None, ..output })
    }

    async fn end(&self, last: ServerFrame, sender: &mpsc::Sender<CallFrame>) {
        self.log(&last);
        self.send(last, sender).await;
    }

    async fn send(&self, frame: ServerFrame, sender: &mpsc::Sender<CallFrame>) {
        let held = Some(self.state.engine.admission().keep(frame.body_len() as u64));
        drop(sender.send(CallFrame { id: self.call.id, frame, held }).await);
    }

    /// Sends the further pieces of a stream; returns its last frame.
    async fn send_pieces(
        &self,
        mut stream: AnswerStream,
        sender: &mpsc::Sender<CallFrame>,
    ) -> ServerFrame {
        while let Some(piece) = stream.next().await {
            match piece {
                Ok(piece) => self.send(ServerFrame::Chunk(piece), sender).await,
                Err(error) => {
                    let dialect = self.state.config.dialect;
                    let problem = inference::failure(dialect, &self.model, self.target(), &error);
                    return ServerFrame::Failed(problem);
                }
            }
        }
        ServerFrame::End
    }

    fn target(&self) -> ModelRef<'_> {
        ModelRef { model: &self.call.model, version: self.call.version.as_deref() }
    }

    fn log(&self, last: &ServerFrame) {
        let status = match last {
            ServerFrame::Failed(problem) => problem.status,
            ServerFrame::Answer(..)
            | ServerFrame::First(..)
            | ServerFrame::Chunk(_)
            | ServerFrame::End => 200,
        };
        if let Some(trace) = &self.trace {
            trace.end("http.response.status_code", status.into(), status >= 500);
        }
        let (config, parts) = (&self.state.config, &self.state.parts);
        parts.meter.responded(StatusCode::from_u16(status).unwrap_or_default());
        let Some(log) = &parts.access_log else { return };
        let Ok(method) = Method::from_bytes(b"PYTHON") else { return };
        log.write(&AccessRecord {
            address: &self.peer.address,
            method: &method,
            uri: &format_args!("/{}/{}", self.call.model, self.call.endpoint),
            version: Version::HTTP_11,
            status,
            took: self.started.elapsed(),
            names: RecordNames::of(config.dialect, &self.id, self.trace.as_ref()),
        });
    }

    /// Takes body, claim and content type out of the call.
    fn input(&mut self) -> (Box<Input>, RequestOptions) {
        let call = &mut self.call;
        let mut claim = std::mem::take(&mut call.claim);
        self.caller.settle(&mut claim);
        let mut headers = HeaderBlock::default();
        for (name, value) in call.headers.iter().filter(|(name, _)| !self.caller.hides(name)) {
            headers.push(name.as_str(), value.as_bytes());
        }
        push_claim(&claim, &mut headers);
        let names = self.model.sequence_headers();
        let sequence = names.and_then(|names| sequence(&call.headers, &names));
        let route = CallRoute { sequence, ..CallRoute::to_endpoint(&call.endpoint) };
        let value = std::mem::take(&mut call.body).into();
        let parameter = if call.content_type.is_empty() {
            Parameter { name: CALL_PARAMETER.into(), content_type: "".into(), value }
        } else {
            let content_type = std::mem::take(&mut call.content_type).into();
            Parameter { name: "body".into(), content_type, value }
        };
        let id = self.id.text().to_owned();
        let deadline = call.timeout.and_then(|timeout| self.started.checked_add(timeout));
        let options = RequestOptions { deadline, priority: call.priority, claim };
        (
            Box::new(Input { id, headers, route, parameters: vec![parameter], tensors: None }),
            options,
        )
    }
}
