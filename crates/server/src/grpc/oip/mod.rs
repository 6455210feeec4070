//! The Open Inference Protocol, under TorchServe's package name and under its own.
//!
//! A model of this server takes the protocol's JSON, wherever it runs; so a request is written as
//! that, and the JSON that comes back is read into tensors again.

mod datatype;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod json_elements;
mod request_json;
mod response_json;

use std::sync::Arc;

use jitney_engine::Model;
use jitney_engine::call::Parameter;
use jitney_engine::local::TensorSpec;
use jitney_proto::Message as _;
use jitney_proto::kserve::grpc_inference_service_server::GrpcInferenceService as Original;
use jitney_proto::openinference as pb;
use jitney_proto::openinference::grpc_inference_service_server::GrpcInferenceService;
use jitney_proto::openinference::model_metadata_response::TensorMetadata;
use tonic::{Request, Response, Status};

use super::request::{self, GrpcRequest, ModelCall, target};
use crate::errors::{ErrorCode, Problem};
use crate::health;
use crate::plugins::{GuardedOperation, Intent};
use crate::state::ServerState;

/// The service.
pub(super) struct OpenInferenceService {
    state: Arc<ServerState>,
}

impl OpenInferenceService {
    pub(super) fn new(state: Arc<ServerState>) -> Self {
        Self { state }
    }

    /// Ready when a worker has loaded it and is warm.
    async fn is_ready(&self, request: Request<pb::ModelReadyRequest>) -> Result<bool, Problem> {
        let (mut request, message) = GrpcRequest::open(request)?;
        let target = target(&message.name, &message.version);
        let model = request.model(&self.state.inference, GuardedOperation::Ready, target).await?;
        Ok(health::is_model_ready(&self.state.engine, &model))
    }

    async fn metadata(
        &self,
        request: Request<pb::ModelMetadataRequest>,
    ) -> Result<pb::ModelMetadataResponse, Problem> {
        let (mut request, pb::ModelMetadataRequest { name, version }) = GrpcRequest::open(request)?;
        let target = target(&name, &version);
        let model =
            request.model(&self.state.inference, GuardedOperation::Metadata, target).await?;
        let versions = self.state.engine.versions(&name)?;
        let signature = model.signature();
        Ok(pb::ModelMetadataResponse {
            name,
            versions: versions.iter().map(|model| model.version().to_owned()).collect(),
            platform: signature.map(|_| model.settings().runtime.clone()).unwrap_or_default(),
            inputs: signature.iter().flat_map(|both| &both.inputs).map(tensor).collect(),
            outputs: signature.iter().flat_map(|both| &both.outputs).map(tensor).collect(),
        })
    }

    async fn infer(
        &self,
        request: Request<pb::ModelInferRequest>,
    ) -> Result<Response<pb::ModelInferResponse>, Problem> {
        let (mut request, message) = GrpcRequest::open(request)?;
        let service = &self.state.inference;
        let target = target(&message.model_name, &message.model_version);
        request.hold(service, target.model, || message.encoded_len())?;
        let model = request.model(service, GuardedOperation::Predict, target).await?;
        let body = request_json::write(&message).map_err(Problem::bad_request)?;
        let json = "application/json".into();
        let value = body.into();
        let parameters = vec![Parameter { name: "body".into(), content_type: json, value }];
        let call = ModelCall { target, parameters, open_inference: true, sequence: None };
        let answer = request.predict(service, &model, call).await?;
        if let Some((status, _)) = answer.output.status.filter(|(status, _)| *status >= 400) {
            return Err(rejected(status, &answer.output.body));
        }
        let reply =
            response_json::read(&answer.output.body, !message.raw_input_contents.is_empty());
        let reply = reply.map_err(|why| not_the_protocol(&model, &why))?;
        let reply = named(reply, &message, &model);
        Ok(request::response(reply, &answer.timing, &answer.output.headers))
    }
}

/// Authorizes what is for no model.
async fn authorize<T>(request: Request<T>, operation: GuardedOperation) -> Result<(), Problem> {
    let (mut request, _) = GrpcRequest::open(request)?;
    request.authorize(Intent::plain(operation)).await
}

fn tensor(port: &TensorSpec) -> TensorMetadata {
    TensorMetadata {
        name: port.name.clone(),
        datatype: port.datatype.as_str().to_owned(),
        shape: port.shape_or_minus_one(),
    }
}

/// A handler's answer with an error status is a failure with the answer's text.
fn rejected(status: u16, body: &[u8]) -> Problem {
    let mut problem = Problem::new(ErrorCode::Prediction, String::from_utf8_lossy(body));
    problem.status = status;
    problem
}

fn not_the_protocol(model: &Model, why: &str) -> Problem {
    let name = model.name();
    let message =
        format!("Model \"{name}\" did not answer in the Open Inference Protocol's JSON: {why}");
    Problem::new(ErrorCode::Internal, message)
}

/// What the model's answer leaves out, the request knows.
fn named(
    mut reply: pb::ModelInferResponse,
    request: &pb::ModelInferRequest,
    model: &Model,
) -> pb::ModelInferResponse {
    for (field, known) in [
        (&mut reply.id, request.id.as_str()),
        (&mut reply.model_name, model.name()),
        (&mut reply.model_version, model.version()),
    ] {
        if field.is_empty() {
            field.push_str(known);
        }
    }
    reply
}

/// Both packages have the same messages and methods, but a trait each.
macro_rules! serve {
    ($service:ident) => {
        #[tonic::async_trait]
        impl $service for OpenInferenceService {
            async fn server_live(
                &self,
                request: Request<pb::ServerLiveRequest>,
            ) -> Result<Response<pb::ServerLiveResponse>, Status> {
                authorize(request, GuardedOperation::Health).await?;
                Ok(Response::new(pb::ServerLiveResponse { live: true }))
            }

            async fn server_ready(
                &self,
                request: Request<pb::ServerReadyRequest>,
            ) -> Result<Response<pb::ServerReadyResponse>, Status> {
                authorize(request, GuardedOperation::Health).await?;
                let ready = self.state.engine.is_ready();
                Ok(Response::new(pb::ServerReadyResponse { ready }))
            }

            async fn model_ready(
                &self,
                request: Request<pb::ModelReadyRequest>,
            ) -> Result<Response<pb::ModelReadyResponse>, Status> {
                let ready = self.is_ready(request).await?;
                Ok(Response::new(pb::ModelReadyResponse { ready }))
            }

            async fn server_metadata(
                &self,
                request: Request<pb::ServerMetadataRequest>,
            ) -> Result<Response<pb::ServerMetadataResponse>, Status> {
                authorize(request, GuardedOperation::Metadata).await?;
                Ok(Response::new(pb::ServerMetadataResponse {
                    name: health::server_name(&self.state).to_owned(),
                    version: self.state.config.server_version.clone(),
                    extensions: health::extensions(&self.state)
                        .into_iter()
                        .map(str::to_owned)
                        .collect(),
                }))
            }

            async fn model_metadata(
                &self,
                request: Request<pb::ModelMetadataRequest>,
            ) -> Result<Response<pb::ModelMetadataResponse>, Status> {
                Ok(Response::new(self.metadata(request).await?))
            }

            async fn model_infer(
                &self,
                request: Request<pb::ModelInferRequest>,
            ) -> Result<Response<pb::ModelInferResponse>, Status> {
                Ok(self.infer(request).await?)
            }
        }
    };
}

serve!(GrpcInferenceService);
serve!(Original);
