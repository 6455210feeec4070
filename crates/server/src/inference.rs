//! The inference service: one request to a model, whichever protocol it came by.
//!
//! REST, gRPC and handles translate a request into an [`InferenceRequest`] and the answer back. Finding
//! the model, calling it, counting and mapping failures happen here, once. Dropping a future of this
//! module cancels the request. Where a model has a cache, [`cached`] answers what need not be run; where it has a
//! shadow, [`shadowed`] sends that copies.

mod cache_key;
mod cached;
mod comparison;
mod same_answer;
mod shadowed;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::future::Either;
use jitney_engine::admission::HeldBytes;
use jitney_engine::call::{
    Answer, Call, CallRoute, Claim, HeaderBlock, Input, Operation, Origin, Output, Parameter,
    Priority, RequestMark, SequenceRef, ValueBytes,
};
use jitney_engine::error::CallError;
use jitney_engine::quota::{Quota, QuotaUse};
use jitney_engine::traffic_split::Sticky;
use jitney_engine::{Engine, Model, Workflow};
use jitney_settings::Dialect;
use jitney_settings::server::FullStatus;
use jitney_telemetry::metrics::Meter;
use jitney_telemetry::trace::{CallTrace, RequestTrace};
use tokio::time::Instant;

use crate::errors::{FailedCall, Problem};
use crate::request_key::RequestKey;
use crate::request_options::RequestOptions;
use crate::route::ModelRef;

/// One request in the terms of no protocol.
pub(crate) struct InferenceRequest<'a> {
    /// The model as the client named it.
    pub(crate) target: ModelRef<'a>,
    pub(crate) input: Box<Input>,
    pub(crate) origin: Origin,
    pub(crate) options: RequestOptions,
    /// The name of its client's key.
    pub(crate) client: Option<&'a str>,
    /// What it is known by, where versions share requests or get copies of them.
    pub(crate) key: Option<RequestKey<'a>>,
    /// What its client may ask for, unless it was charged for it before.
    pub(crate) quota: Option<Arc<Quota>>,
    /// Whether to wait for space in a full queue; otherwise the request is rejected.
    pub(crate) wait_for_queue: bool,
    /// Whether it belongs to a request that was admitted before: it goes on while the server drains.
    pub(crate) admitted: bool,
    /// Its memory while it waits; once it is admitted it has a permit.
    pub(crate) held: Option<HeldBytes>,
    /// Its trace, if it is traced.
    pub(crate) trace: Option<Arc<RequestTrace>>,
}

/// A request's body as the model gets it.
pub(crate) fn body_parameter(
    content_type: &'static str,
    value: impl Into<ValueBytes>,
) -> Parameter {
    Parameter { name: "body".into(), content_type: content_type.into(), value: value.into() }
}

/// Answers requests with the engine's models.
pub(crate) struct InferenceService {
    engine: Arc<Engine>,
    meter: Arc<Meter>,
    pub(crate) dialect: Dialect,
    full_status: FullStatus,
    /// Processors of this machine.
    processors: u64,
}

impl InferenceService {
    pub(crate) fn new(
        engine: Arc<Engine>,
        meter: Arc<Meter>,
        dialect: Dialect,
        full_status: FullStatus,
    ) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, |it| it.get() as u64);
        Self { engine, meter, dialect, full_status, processors }
    }

    /// The model that a request names.
    ///
    /// # Errors
    /// There is no such model or version.
    pub(crate) fn model(&self, target: ModelRef<'_>) -> Result<Arc<Model>, Problem> {
        Ok(self.engine.model(target.model, target.version)?)
    }

    /// The version that answers a request: the one it names, or the one of its share. `key` is the hash of what the
    /// request is known by.
    ///
    /// # Errors
    /// There is no such model or version.
    #[inline]
    pub(crate) fn model_for(
        &self,
        target: ModelRef<'_>,
        key: impl FnOnce(&Sticky) -> u64,
    ) -> Result<Arc<Model>, Problem> {
        Ok(self.engine.model_for(target.model, target.version, key)?)
    }

    /// The version that a sequence stays with, or that its share gives it, where several may answer the request.
    #[inline]
    pub(crate) fn keeper(
        &self,
        target: ModelRef<'_>,
        sequence: Option<&SequenceRef>,
    ) -> Option<Arc<Model>> {
        let sequence = sequence.filter(|_| target.version.is_none())?;
        self.engine.model_of_sequence(target.model, &sequence.id)
    }

    /// Takes memory for a request that waits before its model admits it.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn hold(&self, model: &str, bytes: u64) -> Result<HeldBytes, Problem> {
        let held = self.engine.admission().hold(bytes);
        held.map_err(|error| self.early(model).problem(&error.into()))
    }

    /// Charges a client for a request that becomes several calls: once, for all of them.
    ///
    /// # Errors
    /// That is beyond its quota.
    pub(crate) fn charge(
        &self,
        quota: Option<Arc<Quota>>,
        model: &str,
        items: usize,
        bytes: u64,
    ) -> Result<Option<QuotaUse>, Problem> {
        let charged = quota.map(|quota| quota.admit(Instant::now(), items as u64, bytes));
        charged.transpose().map_err(|error| self.early(model).problem(&error.into()))
    }

    /// A call that fails before its model is known.
    fn early<'a>(&self, model: &'a str) -> FailedCall<'a> {
        let (purpose, dialect) = ("inference", self.dialect);
        FailedCall { model, version: None, purpose, queue_max: 0, dialect }
    }

    /// Runs the request on `model`, which [`InferenceService::model`] found. It is handed over at once, so that the
    /// future that answers it holds nothing of it.
    ///
    /// # Errors
    /// The request was rejected, or the model failed.
    pub(crate) fn predict<'a>(
        &'a self,
        model: &'a Arc<Model>,
        request: InferenceRequest<'a>,
    ) -> impl Future<Output = Result<Answer, Problem>> + Send + 'a {
        // A sequence stays with the version that it began with, whatever the shares are by now.
        let kept_by = self.keeper(request.target, request.input.route.sequence.as_deref());
        let copied = model.is_copied();
        let cache = model.cache().filter(|cache| cache.is_on());
        if kept_by.is_none() && cache.is_none() && !copied {
            return Either::Left(self.predict_on(model, request));
        }
        let copy = copied.then(|| self.copy_of(model, &request)).flatten();
        Either::Right(Box::pin(async move {
            let answered = match (kept_by, cache) {
                (Some(model), _) => self.predict_on(&model, request).await,
                (None, Some(cache)) => self.predict_cached(model, cache, request).await,
                (None, None) => self.predict_on(model, request).await,
            };
            if let (Some(copy), Ok(answer)) = (copy, &answered) {
                self.send_copy(copy, model, answer);
            }
            answered
        }))
    }

    fn predict_on<'a>(
        &'a self,
        model: &'a Arc<Model>,
        mut request: InferenceRequest<'a>,
    ) -> impl Future<Output = Result<Answer, Problem>> + Send + 'a {
        let InferenceRequest { target, origin, .. } = request;
        let version_named = target.version.is_some();
        self.meter.requested(model, version_named);
        let trace = request.trace.take();
        let trace = trace.and_then(|trace| trace.call(model.tag(), &mut request.input.headers));
        let answered = self.call(model, request, trace.clone());
        async move {
            let answered = answered.await;
            if let Some(trace) = trace {
                trace.end(&answered);
            }
            let answer = answered.map_err(|error| self.problem(model, target, &error))?;
            self.meter.answered(model, version_named, origin.kind, &answer.timing);
            Ok(answer)
        }
    }

    fn problem(&self, model: &Model, target: ModelRef<'_>, error: &CallError) -> Problem {
        failure(self.dialect, model, target, error).of_queue(error, self.full_status)
    }

    /// Takes the whole body of an answer, which may come in pieces.
    ///
    /// # Errors
    /// The model failed on the way.
    pub(crate) async fn whole(
        &self,
        model: &Model,
        target: ModelRef<'_>,
        answer: &mut Answer,
    ) -> Result<Bytes, Problem> {
        let first = std::mem::take(&mut answer.output.body);
        let Some(mut rest) = answer.stream.take() else { return Ok(first) };
        let mut whole = BytesMut::from(first);
        while let Some(piece) = rest.next().await {
            let broken = |error| failure(self.dialect, model, target, &error);
            whole.extend_from_slice(&piece.map_err(broken)?);
        }
        Ok(whole.freeze())
    }

    fn call<'a>(
        &'a self,
        model: &'a Arc<Model>,
        request: InferenceRequest<'a>,
        trace: Option<Arc<CallTrace>>,
    ) -> impl Future<Output = Result<Answer, CallError>> + Send + 'a {
        if !request.wait_for_queue {
            return Either::Left(call_now(model, request, trace));
        }
        let deadline = request.options.deadline;
        Either::Right(Box::pin(async move {
            let _slot = self.engine.queue_slots().acquire(model, deadline).await?;
            call_now(model, request, trace).await
        }))
    }

    /// Runs the request through a workflow; the engine calls its nodes.
    ///
    /// # Errors
    /// A node rejected the request or failed.
    pub(crate) async fn run_workflow(
        &self,
        workflow: &Workflow,
        request: InferenceRequest<'_>,
    ) -> Result<Output, Problem> {
        Ok(workflow.run(request.into_call()).await?)
    }

    /// Asks the handler to describe itself.
    ///
    /// # Errors
    /// The request was rejected, or the handler failed.
    pub(crate) async fn describe(
        &self,
        model: &Model,
        target: ModelRef<'_>,
        id: &str,
        origin: Origin,
    ) -> Result<Answer, Problem> {
        let route = CallRoute { operation: Operation::Describe, ..CallRoute::default() };
        let (id, headers) = (id.to_owned(), HeaderBlock::new());
        let input = Input { id, headers, route, parameters: Vec::new(), tensors: None };
        let call = plain_call(Box::new(input), origin);
        let failed = |error| {
            let failed = failed_call(self.dialect, model, target);
            FailedCall { purpose: "describe", ..failed }.problem(&error)
        };
        model.call(call).await.map_err(failed)
    }
}

/// Hands the request to its model.
fn call_now<'a>(
    model: &'a Model,
    request: InferenceRequest<'_>,
    trace: Option<Arc<CallTrace>>,
) -> impl Future<Output = Result<Answer, CallError>> + Send + 'a {
    let (mark, admitted) = (trace.map(|trace| trace as RequestMark), request.admitted);
    model.call_as(Call { mark, ..request.into_call() }, admitted)
}

impl InferenceRequest<'_> {
    fn into_call(self) -> Call {
        let Self { input, origin, options, quota, held, .. } = self;
        // The model takes its own permit now.
        drop(held);
        let RequestOptions { deadline, priority, claim } = options;
        Call { input, origin, deadline, priority, claim, quota, mark: None }
    }
}

/// A call without options.
pub(crate) fn plain_call(input: Box<Input>, origin: Origin) -> Call {
    let (priority, claim) = (Priority::Interactive, Claim::default());
    Call { input, origin, deadline: None, priority, claim, quota: None, mark: None }
}

/// The error of a request, also of one whose answer broke off after its first piece.
pub(crate) fn failure(
    dialect: Dialect,
    model: &Model,
    target: ModelRef<'_>,
    error: &CallError,
) -> Problem {
    failed_call(dialect, model, target).problem(error)
}

fn failed_call<'a>(dialect: Dialect, model: &Model, target: ModelRef<'a>) -> FailedCall<'a> {
    let (ModelRef { model: name, version }, purpose) = (target, "inference");
    FailedCall { model: name, version, purpose, queue_max: model.settings().waiting_max(), dialect }
}
