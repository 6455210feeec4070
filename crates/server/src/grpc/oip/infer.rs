//! One request of the protocol and its answer.
//!
//! A model that takes tensors gets them as they came. A handler that reads the protocol's JSON gets that,
//! and any other one body for each element of its input.

use std::sync::Arc;

use bytes::Bytes;
use jitney_engine::Model;
use jitney_engine::call::{Answer, AnswerStream, Parameter, Timing};
use jitney_engine::tensors::TensorRequest;
use jitney_proto::Message as _;
use jitney_proto::kserve as pb;
use jitney_settings::Dialect;
use tokio::time::Instant;
use tonic::Status;

use super::tensors::{AnswerForm, InferMessage};
use crate::errors::{ErrorCode, Problem};
use crate::grpc::request::{GrpcRequest, ModelCall, target};
use crate::grpc::status::for_triton;
use crate::inference::{self, InferenceRequest};
use crate::open_inference::answer::{AnswerTensor, OpenInferenceAnswer};
use crate::open_inference::archive;
use crate::open_inference::bodies;
use crate::open_inference::elements::BytesForm;
use crate::open_inference::framed;
use crate::route::ModelRef;
use crate::state::ServerState;

/// What a client of one of the two packages expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientKind {
    /// Contents in the form in which they were sent.
    TorchServe,
    /// Raw contents of models that take tensors, whatever was sent.
    Triton,
}

impl ClientKind {
    /// How its failures are written.
    pub(super) fn status(self) -> fn(Problem) -> Status {
        match self {
            Self::TorchServe => Status::from,
            Self::Triton => for_triton,
        }
    }
}

/// An answer of a model, or the first of several.
pub(super) struct InferAnswer {
    pub(super) reply: pb::ModelInferResponse,
    pub(super) timing: Timing,
    pub(super) headers: Vec<(String, String)>,
    pub(super) more: Option<FurtherAnswers>,
}

/// A request that is read, on its way to its model.
struct InferCall<'a> {
    state: &'a Arc<ServerState>,
    request: &'a GrpcRequest,
    model: Arc<Model>,
    target: ModelRef<'a>,
    message: InferMessage,
    form: AnswerForm,
}

/// Calls the model that the message names. Where the client takes `several` answers, the first of a model
/// that streams is given with the others behind it, and otherwise all as one.
pub(super) async fn infer(
    state: &Arc<ServerState>,
    request: &mut GrpcRequest,
    message: &pb::ModelInferRequest,
    client: ClientKind,
    several: bool,
) -> Result<InferAnswer, Problem> {
    let service = &state.inference;
    let target = target(&message.model_name, &message.model_version);
    request.hold(service, target.model, || message.encoded_len())?;
    let model = request.model(service, target).await?;
    let memory = state.shared_memory.as_ref();
    let mut message = InferMessage::read(message, memory, state.shared_reader())?;
    // The call takes its own share at once.
    drop((std::mem::take(&mut message.held), request.held.take()));
    // The version that keeps the sequence reads the tensors and is told as the one that answers.
    let sequence = message.request.sequence().map_err(Problem::bad_request)?;
    let sequence = request.sequence(&model, sequence);
    let model = service.keeper(target, sequence.as_deref()).unwrap_or(model);
    let raw = !message.typed || model.takes_tensors() && client == ClientKind::Triton;
    let form = AnswerForm { raw, typed: message.typed };
    let call = InferCall { state, request, model, target, message, form };
    if call.model.takes_tensors() {
        return call.tensors(several).await;
    }
    let elements = archive::bodies(&call.message.request, &call.model);
    let elements = elements.map_err(Problem::bad_request)?;
    match elements.filter(|_| state.config.dialect == Dialect::Jitney) {
        Some(elements) => call.bodies(elements, several).await,
        None => call.json(several).await,
    }
}

impl InferCall<'_> {
    /// By a model that takes tensors.
    async fn tensors(self, several: bool) -> Result<InferAnswer, Problem> {
        let tensors = self.message.request.tensors(&self.model).map_err(Problem::bad_request)?;
        let mut answer = self.run(Vec::new(), Some(tensors), true).await?;
        match answer.output.tensors.take() {
            Some(tensors) => {
                let (asked, headers) = (&self.message.request, &answer.output.headers);
                let outputs = framed::outputs(tensors, headers, asked, &self.model);
                self.answer(answer, outputs)
            }
            None if answer.stream.is_some() => self.pieces(answer, several).await,
            None => {
                let name = self.model.name();
                Err(internal(format!("Model \"{name}\" answered without tensors.")))
            }
        }
    }

    /// By a handler that gets one body for each element.
    async fn bodies(self, elements: Vec<Bytes>, several: bool) -> Result<InferAnswer, Problem> {
        if let [body] = elements.as_slice() {
            let answer =
                self.run(vec![inference::body_parameter("", body.clone())], None, false).await?;
            return self.pieces(answer, several).await;
        }
        let bytes = elements.iter().map(|element| element.len() as u64).sum();
        let (service, quota) = (&self.state.inference, self.request.caller.who.quota().cloned());
        let _charged = service.charge(quota, self.target.model, elements.len(), bytes)?;
        let each = bodies::each(&self.model, elements, |body| self.body(body));
        let (answers, timing) = each.await?;
        let output = archive::output(&answers).map_err(internal)?;
        let reply = self.reply(self.with_outputs(vec![output]))?;
        Ok(InferAnswer { reply, timing, headers: Vec::new(), more: None })
    }

    async fn body(&self, body: Bytes) -> Result<(Bytes, Timing), Problem> {
        let call = self.call(vec![inference::body_parameter("", body)], None, false)?;
        let mut answer = self.predict(InferenceRequest { quota: None, ..call }).await?;
        Ok((self.whole(&mut answer).await?, answer.timing))
    }

    /// By a handler that reads the protocol's JSON.
    async fn json(self, several: bool) -> Result<InferAnswer, Problem> {
        let written = archive::write(&self.message.request, self.model.name(), BytesForm::Base64);
        let body =
            inference::body_parameter("application/json", written.map_err(Problem::bad_request)?);
        let mut answer = self.run(vec![body], None, true).await?;
        if several && answer.stream.is_some() {
            return self.pieces(answer, several).await;
        }
        let whole = self.whole(&mut answer).await?;
        let read = match archive::read(&whole, &self.message.request, &self.model) {
            Ok(read) => read,
            Err(_) if self.state.config.dialect == Dialect::Jitney => {
                let output = archive::output(&[whole]).map_err(internal)?;
                self.with_outputs(vec![output])
            }
            Err(why) => {
                let name = self.model.name();
                return Err(internal(format!(
                    "Model \"{name}\" did not answer in the Open Inference Protocol's JSON: {why}"
                )));
            }
        };
        self.answer(answer, read)
    }

    async fn run(
        &self,
        parameters: Vec<Parameter>,
        tensors: Option<TensorRequest>,
        open_inference: bool,
    ) -> Result<Answer, Problem> {
        self.predict(self.call(parameters, tensors, open_inference)?).await
    }

    fn call(
        &self,
        parameters: Vec<Parameter>,
        tensors: Option<TensorRequest>,
        open_inference: bool,
    ) -> Result<InferenceRequest<'_>, Problem> {
        let asked = &self.message.request;
        let sequence = asked.sequence().map_err(Problem::bad_request)?;
        let call = ModelCall { target: self.target, parameters, open_inference, sequence };
        let mut call: InferenceRequest<'_> = self.request.call(&self.model, call)?;
        call.input.tensors = tensors.map(Arc::new);
        framed::tell(asked, &self.model, &mut call.input.headers);
        call.input.route.endpoint = asked.endpoint(&self.model).map(Into::into);
        if !asked.parameters.is_empty() {
            call.input.route.endpoint = asked.endpoint(&self.model).map(Into::into);
            asked.apply(Instant::now(), &mut call.options).map_err(Problem::bad_request)?;
        }
        Ok(call)
    }

    async fn predict(&self, call: InferenceRequest<'_>) -> Result<Answer, Problem> {
        let answer = self.state.inference.predict(&self.model, call).await?;
        archive::checked(answer)
    }

    async fn whole(&self, answer: &mut Answer) -> Result<Bytes, Problem> {
        self.state.inference.whole(&self.model, self.target, answer).await
    }

    /// A body as it is, or each piece of one for a client that takes several answers.
    async fn pieces(self, mut answer: Answer, several: bool) -> Result<InferAnswer, Problem> {
        let first = match several {
            true => std::mem::take(&mut answer.output.body),
            false => self.whole(&mut answer).await?,
        };
        let admission = self.state.engine.admission();
        let read = framed::piece(first, &self.message.request, &self.model, admission);
        let read = read.map_err(internal)?;
        let stream = answer.stream.take();
        let mut first = self.answer(answer, read)?;
        first.more = stream.map(|stream| FurtherAnswers {
            model: Arc::clone(&self.model),
            state: Arc::clone(self.state),
            stream,
            message: self.message,
            form: self.form,
        });
        Ok(first)
    }

    fn with_outputs(&self, outputs: Vec<AnswerTensor>) -> OpenInferenceAnswer {
        OpenInferenceAnswer::new(&self.message.request, &self.model, outputs)
    }

    fn answer(&self, answer: Answer, read: OpenInferenceAnswer) -> Result<InferAnswer, Problem> {
        let reply = self.reply(read)?;
        let (timing, headers) = (answer.timing, answer.output.headers);
        Ok(InferAnswer { reply, timing, headers, more: None })
    }

    fn reply(&self, answer: OpenInferenceAnswer) -> Result<pb::ModelInferResponse, Problem> {
        let answer = answer.select(&self.message.request, &self.model);
        self.message.reply(answer.map_err(Problem::bad_request)?, self.form)
    }
}

/// The answers of a model that gives several, after the first.
pub(super) struct FurtherAnswers {
    model: Arc<Model>,
    state: Arc<ServerState>,
    stream: AnswerStream,
    message: InferMessage,
    form: AnswerForm,
}

impl FurtherAnswers {
    /// The next one.
    pub(super) async fn next(&mut self) -> Option<Result<pb::ModelInferResponse, Problem>> {
        let piece = self.stream.next().await?;
        let target = ModelRef { model: self.model.name(), version: None };
        let failed =
            |error| inference::failure(self.state.config.dialect, &self.model, target, &error);
        Some(piece.map_err(failed).and_then(|piece| {
            let admission = self.state.engine.admission();
            let answer = framed::piece(piece, &self.message.request, &self.model, admission);
            self.message.reply(answer.map_err(internal)?, self.form)
        }))
    }

    /// An answer without tensors.
    pub(super) fn empty(&self) -> pb::ModelInferResponse {
        pb::ModelInferResponse {
            id: self.message.request.id.clone(),
            model_name: self.model.name().to_owned(),
            model_version: self.model.version().to_owned(),
            ..pb::ModelInferResponse::default()
        }
    }
}

fn internal(message: String) -> Problem {
    Problem::new(ErrorCode::Internal, message)
}
