//! A gRPC request as the services see it: who calls, when, and with which metadata. How it becomes a call
//! of the inference service, and how the answer becomes a gRPC response.

use std::sync::Arc;
use std::time::Duration;

use http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use jitney_engine::Model;
use jitney_engine::admission::HeldBytes;
use jitney_engine::call::{
    Answer, CallRoute, Claim, HeaderBlock, Input, Origin, OriginKind, Parameter, SequenceRef,
    Timing,
};
use jitney_net::request_id::XRequestId;
use jitney_settings::Dialect;
use jitney_telemetry::trace::RequestTrace;
use tokio::time::Instant;
use tonic::{Request, Response};

use super::call_log::TimingTrailer;
use crate::audit::NamedModel;
use crate::auth::{Gate, GuardedOperation};
use crate::errors::{ErrorCode, Problem};
use crate::inference::{InferenceRequest, InferenceService};
use crate::keys::Caller;
use crate::plugins::{CallGuard, Intent};
use crate::request_key::RequestKey;
use crate::request_options::{self, RequestOptions, push_tenant};
use crate::route::ModelRef;
use crate::timing;

/// The caller of a request; the services find it among the request's extensions.
#[derive(Clone)]
pub(super) struct GrpcCaller {
    pub(super) id: XRequestId,
    /// When the request's head had arrived.
    pub(super) started: Instant,
    peer: u64,
    /// Its trace, if it is traced.
    pub(super) trace: Option<Arc<RequestTrace>>,
    /// Who authorizes its messages, if anybody does.
    pub(super) guard: Option<Arc<CallGuard>>,
    /// What its method does.
    pub(super) operation: GuardedOperation,
    /// Where its message's model is noted for the audit log.
    pub(super) named: Option<Arc<NamedModel>>,
    /// The key that opens the method.
    pub(super) gate: Gate,
    /// Who calls.
    pub(super) who: Caller,
}

impl GrpcCaller {
    /// The caller of a request with this metadata.
    pub(super) fn new(
        dialect: Dialect,
        metadata: &HeaderMap,
        peer: u64,
        operation: GuardedOperation,
    ) -> Self {
        let id = XRequestId::of(dialect, metadata);
        let (trace, guard, named) = (None, None, None);
        let (gate, who) = (Gate::Open, Caller::ANYBODY);
        let started = Instant::now();
        Self { id, started, peer, trace, guard, operation, named, gate, who }
    }

    pub(super) fn origin(&self) -> Origin {
        Origin { kind: OriginKind::Grpc, peer: self.peer }
    }
}

/// A request without its message.
pub(super) struct GrpcRequest {
    pub(super) caller: GrpcCaller,
    metadata: HeaderMap,
    /// The message's memory while a plugin is asked about it.
    pub(super) held: Option<HeldBytes>,
}

/// What a service asks of a model.
pub(super) struct ModelCall<'a> {
    pub(super) target: ModelRef<'a>,
    pub(super) parameters: Vec<Parameter>,
    /// Whether the body is the Open Inference Protocol's JSON.
    pub(super) open_inference: bool,
    /// The sequence it belongs to.
    pub(super) sequence: Option<SequenceRef>,
}

impl GrpcRequest {
    /// Takes the message out of a request.
    pub(super) fn open<T>(request: Request<T>) -> Result<(Self, T), Problem> {
        let (metadata, extensions, message) = request.into_parts();
        Ok((Self::new(metadata.into_headers(), extensions)?, message))
    }

    /// Takes the message out of a request that is for no model, once it is authorized.
    pub(super) async fn message<T>(request: Request<T>) -> Result<T, Problem> {
        let (mut request, message) = Self::open(request)?;
        request.authorize(Intent::plain(request.caller.operation)).await?;
        Ok(message)
    }

    /// A request whose message was read before.
    pub(super) fn plain(head: http::request::Parts) -> Result<Self, Problem> {
        Self::new(head.headers, head.extensions)
    }

    fn new(metadata: HeaderMap, mut extensions: Extensions) -> Result<Self, Problem> {
        let caller = extensions.remove::<GrpcCaller>();
        let caller =
            caller.ok_or_else(|| Problem::new(ErrorCode::Internal, "The call has no caller."))?;
        Ok(Self { caller, metadata, held: None })
    }

    /// One message of a stream: the stream's request with an id of its own.
    pub(super) fn of_message(&self) -> Self {
        let caller = GrpcCaller { id: XRequestId::fresh(), ..self.caller.clone() };
        Self { caller, metadata: self.metadata.clone(), held: None }
    }

    /// Authorizes the message: by the caller's key, and by a plugin, if one does that. It may name the tenant,
    /// whatever the client claims.
    pub(super) async fn authorize(&mut self, intent: Intent<'_>) -> Result<(), Problem> {
        if let (Some(named), Some(model)) = (&self.caller.named, intent.model_name()) {
            let _ = named.set((model.to_owned(), intent.version().map(str::to_owned)));
        }
        self.caller.who.check_again(self.caller.gate, intent.operation, intent.model_name())?;
        let Some(guard) = &self.caller.guard else { return Ok(()) };
        let tenant = Box::pin(guard.authorize(self.caller.id.text(), &intent)).await?;
        if let Some(tenant) = tenant {
            self.caller.who = self.caller.who.of_tenant(&tenant);
        }
        Ok(())
    }

    /// Takes memory for a message that waits for a plugin.
    pub(super) fn hold(
        &mut self,
        service: &InferenceService,
        model: &str,
        bytes: impl FnOnce() -> usize,
    ) -> Result<(), Problem> {
        if self.caller.guard.is_some() {
            self.held = Some(service.hold(model, bytes() as u64)?);
        }
        Ok(())
    }

    /// The model that the message names, once the message is authorized.
    pub(super) async fn model(
        &mut self,
        service: &InferenceService,
        target: ModelRef<'_>,
    ) -> Result<Arc<Model>, Problem> {
        let found = self.found(service, target);
        if self.caller.guard.is_some() {
            let known = found.as_ref().ok().map(Arc::clone);
            self.authorize(Intent::with_model(self.caller.operation, target, known)).await?;
        } else {
            let GrpcCaller { who, gate, operation, .. } = &mut self.caller;
            who.check_again(*gate, *operation, Some(target.model))?;
        }
        found
    }

    /// What the request is known by.
    fn request_key(&self) -> RequestKey<'_> {
        let GrpcCaller { id, who, .. } = &self.caller;
        RequestKey { headers: &self.metadata, client: who.name(), id }
    }

    fn found(
        &self,
        service: &InferenceService,
        target: ModelRef<'_>,
    ) -> Result<Arc<Model>, Problem> {
        if target.model.is_empty() {
            return Err(Problem::bad_request("Parameter model_name is required."));
        }
        let key = self.request_key();
        match self.caller.operation.predicts() {
            true => service.model_for(target, |sticky| key.hash(sticky)),
            false => service.model(target),
        }
    }

    /// Authorizes a message about a model that may not be there.
    pub(super) async fn authorize_about(
        &mut self,
        service: &InferenceService,
        target: ModelRef<'_>,
    ) -> Result<(), Problem> {
        let model = service.model(target).ok();
        self.authorize(Intent::with_model(self.caller.operation, target, model)).await
    }

    /// Calls the model. The future is dropped with the call, which cancels the request.
    pub(super) async fn predict(
        &mut self,
        service: &InferenceService,
        model: &Arc<Model>,
        call: ModelCall<'_>,
    ) -> Result<Answer, Problem> {
        let held = self.held.take();
        let request = InferenceRequest { held, ..self.call(model, call)? };
        service.predict(model, request).await
    }

    /// The request for the inference service.
    pub(super) fn call<'a>(
        &'a self,
        model: &Model,
        call: ModelCall<'a>,
    ) -> Result<InferenceRequest<'a>, Problem> {
        let ModelCall { target, parameters, open_inference, sequence } = call;
        let options = self.options()?;
        let headers = headers(&self.metadata, &self.caller.who, &options.claim);
        let sequence = self.sequence(model, sequence);
        let route = CallRoute { open_inference, sequence, ..CallRoute::default() };
        Ok(InferenceRequest {
            target,
            input: Box::new(Input {
                id: self.caller.id.text().to_owned(),
                headers,
                route,
                parameters,
                tensors: None,
            }),
            options,
            client: self.caller.who.name(),
            key: Some(self.request_key()),
            quota: self.caller.who.quota().cloned(),
            origin: self.caller.origin(),
            wait_for_queue: false,
            admitted: false,
            held: None,
            trace: self.caller.trace.clone(),
        })
    }

    /// The sequence that a message names, else its metadata for a model with sequences.
    pub(super) fn sequence(
        &self,
        model: &Model,
        named: Option<SequenceRef>,
    ) -> Option<Box<SequenceRef>> {
        let named = named.filter(|sequence| !sequence.id.is_empty()).map(Box::new);
        let header = || request_options::sequence(&self.metadata, &*model.sequence_headers()?);
        named.or_else(header)
    }

    /// The options of the metadata; the earlier of gRPC's own deadline and ours counts.
    fn options(&self) -> Result<RequestOptions, Problem> {
        let mut options = RequestOptions::read(&self.metadata, self.caller.started)?;
        self.caller.who.settle(&mut options.claim);
        let Some(value) = self.metadata.get("grpc-timeout") else { return Ok(options) };
        let timeout = value.to_str().ok().and_then(timeout).ok_or_else(|| {
            Problem::bad_request("Metadata grpc-timeout must be at most 8 digits and a unit.")
        })?;
        let deadline = self.caller.started.checked_add(timeout);
        options.deadline = options.deadline.into_iter().chain(deadline).min();
        Ok(options)
    }
}

/// The model that a message names. gRPC has no absent version, only an empty text.
pub(super) fn target<'a>(model: &'a str, version: &'a str) -> ModelRef<'a> {
    ModelRef { model, version: Some(version).filter(|version| !version.is_empty()) }
}

/// An answer with its timing for the trailers and the handler's headers as metadata.
pub(super) fn response<T>(
    message: T,
    timing: &Timing,
    headers: &[(String, String)],
) -> Response<T> {
    let mut extensions = Extensions::default();
    extensions.insert(TimingTrailer(timing::header(timing)));
    let mut response = Response::from_parts(Default::default(), message, extensions);
    let metadata: &mut HeaderMap = response.metadata_mut().as_mut();
    for (name, value) in headers {
        add(metadata, name, value);
    }
    response
}

/// Adds a header that the handler set, unless it would break the answer.
fn add(metadata: &mut HeaderMap, name: &str, value: &str) {
    let name = HeaderName::from_bytes(name.as_bytes()).ok().filter(is_free);
    // gRPC's values are plain ASCII.
    let value = HeaderValue::from_str(value).ok().filter(|value| value.to_str().is_ok());
    if let (Some(name), Some(value)) = (name, value) {
        metadata.append(name, value);
    }
}

/// HTTP/2 forbids connection headers, and the rest belongs to gRPC.
fn is_free(name: &HeaderName) -> bool {
    const TAKEN: [&str; 9] = [
        "connection",
        "content-length",
        "content-type",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let name = name.as_str();
    !TAKEN.contains(&name) && !name.starts_with("grpc-") && !name.ends_with("-bin")
}

/// Reads `100m`: digits, then one of H, M, S, m, u, n.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let plain = (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| plain)?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

/// The client's metadata as the handler's headers, without what belongs to the protocol.
pub(super) fn headers(metadata: &HeaderMap, caller: &Caller, claim: &Claim) -> HeaderBlock {
    let mut headers = HeaderBlock::new();
    let shows_all = caller.shows_all();
    for (name, value) in metadata {
        if !shows_all && caller.hides(name) {
            continue;
        }
        let name = name.as_str();
        let protocol = name.starts_with("grpc-") || ["te", "content-type"].contains(&name);
        if !protocol && !name.ends_with("-bin") {
            headers.push(name, value.as_bytes());
        }
    }
    if !shows_all {
        push_tenant(claim, &mut headers);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_digits_and_a_unit() {
        for (text, expected) in [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("250m", Some(Duration::from_millis(250))),
            ("4u", Some(Duration::from_micros(4))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("123456789n", None),
            ("m", None),
            ("", None),
            ("10", None),
            ("-1S", None),
            ("+1S", None),
            ("1ü", None),
        ] {
            assert_eq!(timeout(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_earlier_deadline_counts() {
        let metadata = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| {
                (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())
            });
            pairs.collect::<HeaderMap>()
        };
        let wait = |pairs| {
            let metadata = metadata(pairs);
            let caller =
                |metadata| GrpcCaller::new(Dialect::Jitney, metadata, 1, GuardedOperation::Predict);
            let request = GrpcRequest { caller: caller(&metadata), metadata, held: None };
            let options = request.options().ok()?;
            Some(options.deadline.map(|deadline| deadline - request.caller.started))
        };
        let after = |millis| Some(Some(Duration::from_millis(millis)));
        assert_eq!(wait(&[("grpc-timeout", "1S"), ("x-jitney-timeout-ms", "20")]), after(20));
        assert_eq!(wait(&[("grpc-timeout", "30m")]), after(30));
        assert_eq!(wait(&[]), Some(None));
        assert_eq!(wait(&[("grpc-timeout", "soon")]), None);
    }

    #[test]
    fn a_handler_sees_the_clients_metadata_and_not_the_protocols() {
        let mut metadata = HeaderMap::new();
        for name in ["te", "grpc-timeout", "content-type", "x-user", "trace-bin"] {
            metadata.insert(name, "1".parse().unwrap());
        }
        let headers = headers(&metadata, &Caller::ANYBODY, &Claim::default());
        assert_eq!(headers.iter().collect::<Vec<_>>(), [(&b"x-user"[..], &b"1"[..])]);
    }

    #[test]
    fn headers_of_a_handler_that_would_break_the_answer_are_left_out() {
        let mut metadata = HeaderMap::new();
        for (name, value) in [
            ("X-Exam-One", "1"),
            ("Content-Type", "text/html"),
            ("Transfer-Encoding", "chunked"),
            ("grpc-status", "0"),
            ("x-data-bin", "?"),
            ("bad name", "1"),
            ("x-text", "gr\u{fc}n"),
        ] {
            add(&mut metadata, name, value);
        }
        assert_eq!(metadata.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-exam-one"]);
    }
}
