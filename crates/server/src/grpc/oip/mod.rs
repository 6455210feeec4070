//! The Open Inference Protocol, under TorchServe's package name and under its own, where Triton has further
//! calls. What the calls mean is in `open_inference`; here are its messages.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod infer;
mod infer_stream;
mod settings;
mod tensors;
mod triton;

use std::sync::Arc;

use jitney_proto::kserve as pb;
use jitney_proto::kserve::grpc_inference_service_server::GrpcInferenceService as Original;
use jitney_proto::openinference::grpc_inference_service_server::GrpcInferenceService;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, Streaming};

use self::infer::{ClientKind, infer};
use self::infer_stream::InferStream;
use self::settings::{log_settings, trace_settings};
use super::request::{self, GrpcRequest, target};
use super::status::for_triton;
use crate::errors::Problem;
use crate::health;
use crate::open_inference::metadata;
use crate::shared_memory::{no_cuda_region, no_cuda_sharing};
use crate::state::ServerState;

/// The service.
pub(super) struct OpenInferenceService {
    state: Arc<ServerState>,
}

impl OpenInferenceService {
    pub(super) fn new(state: Arc<ServerState>) -> Self {
        Self { state }
    }

    /// Ready when a worker has loaded it and is warm. To Triton's clients a model that is not there, such as
    /// one that was unloaded, is not ready.
    async fn is_ready(
        &self,
        request: Request<pb::ModelReadyRequest>,
        client: ClientKind,
    ) -> Result<bool, Problem> {
        let (mut request, message) = GrpcRequest::open(request)?;
        let target = target(&message.name, &message.version);
        match request.model(&self.state.inference, target).await {
            Ok(model) => Ok(health::is_model_ready(&self.state.engine, &model)),
            Err(problem) if client == ClientKind::Triton && problem.status == 404 => Ok(false),
            Err(problem) => Err(problem),
        }
    }

    async fn metadata(
        &self,
        request: Request<pb::ModelMetadataRequest>,
    ) -> Result<pb::ModelMetadataResponse, Problem> {
        let (mut request, pb::ModelMetadataRequest { name, version }) = GrpcRequest::open(request)?;
        let target = target(&name, &version);
        let model = request.model(&self.state.inference, target).await?;
        metadata::metadata(&self.state.engine, &model)
    }

    async fn infer(
        &self,
        request: Request<pb::ModelInferRequest>,
        client: ClientKind,
    ) -> Result<Response<pb::ModelInferResponse>, Problem> {
        let (mut request, message) = GrpcRequest::open(request)?;
        let answer = infer(&self.state, &mut request, &message, client, false).await?;
        Ok(request::response(answer.reply, &answer.timing, &answer.headers))
    }
}

/// Both packages have these methods, but a trait each.
macro_rules! serve {
    ($service:ident, $client:ident $(, $($more:tt)*)?) => {
        #[tonic::async_trait]
        impl $service for OpenInferenceService {
            async fn server_live(
                &self,
                request: Request<pb::ServerLiveRequest>,
            ) -> Result<Response<pb::ServerLiveResponse>, Status> {
                GrpcRequest::message(request).await?;
                Ok(Response::new(pb::ServerLiveResponse { live: true }))
            }

            async fn server_ready(
                &self,
                request: Request<pb::ServerReadyRequest>,
            ) -> Result<Response<pb::ServerReadyResponse>, Status> {
                GrpcRequest::message(request).await?;
                let ready = self.state.engine.is_ready();
                Ok(Response::new(pb::ServerReadyResponse { ready }))
            }

            async fn model_ready(
                &self,
                request: Request<pb::ModelReadyRequest>,
            ) -> Result<Response<pb::ModelReadyResponse>, Status> {
                let ready = self.is_ready(request, ClientKind::$client).await?;
                Ok(Response::new(pb::ModelReadyResponse { ready }))
            }

            async fn server_metadata(
                &self,
                request: Request<pb::ServerMetadataRequest>,
            ) -> Result<Response<pb::ServerMetadataResponse>, Status> {
                GrpcRequest::message(request).await?;
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
                Ok(Response::new(self.metadata(request).await.map_err(ClientKind::$client.status())?))
            }

            async fn model_infer(
                &self,
                request: Request<pb::ModelInferRequest>,
            ) -> Result<Response<pb::ModelInferResponse>, Status> {
                self.infer(request, ClientKind::$client).await.map_err(ClientKind::$client.status())
            }

            $($($more)*)?
        }
    };
}

serve!(GrpcInferenceService, TorchServe);

// What Triton adds.
serve! {
    Original, Triton,

    type ModelStreamInferStream = BoxStream<pb::ModelStreamInferResponse>;

    async fn model_stream_infer(
        &self,
        request: Request<Streaming<pb::ModelInferRequest>>,
    ) -> Result<Response<Self::ModelStreamInferStream>, Status> {
        let (request, messages) = GrpcRequest::open(request)?;
        let stream = InferStream::new(Arc::clone(&self.state), request);
        Ok(Response::new(Box::pin(stream.answers(messages))))
    }

    async fn model_config(
        &self,
        request: Request<pb::ModelConfigRequest>,
    ) -> Result<Response<pb::ModelConfigResponse>, Status> {
        Ok(Response::new(self.config(request).await.map_err(for_triton)?))
    }

    async fn model_statistics(
        &self,
        request: Request<pb::ModelStatisticsRequest>,
    ) -> Result<Response<pb::ModelStatisticsResponse>, Status> {
        Ok(Response::new(self.statistics(request).await.map_err(for_triton)?))
    }

    async fn repository_index(
        &self,
        request: Request<pb::RepositoryIndexRequest>,
    ) -> Result<Response<pb::RepositoryIndexResponse>, Status> {
        Ok(Response::new(self.index(request).await.map_err(for_triton)?))
    }

    async fn repository_model_load(
        &self,
        request: Request<pb::RepositoryModelLoadRequest>,
    ) -> Result<Response<pb::RepositoryModelLoadResponse>, Status> {
        self.load(request).await.map_err(for_triton)?;
        Ok(Response::new(pb::RepositoryModelLoadResponse {}))
    }

    async fn repository_model_unload(
        &self,
        request: Request<pb::RepositoryModelUnloadRequest>,
    ) -> Result<Response<pb::RepositoryModelUnloadResponse>, Status> {
        self.unload(request).await.map_err(for_triton)?;
        Ok(Response::new(pb::RepositoryModelUnloadResponse {}))
    }

    async fn system_shared_memory_status(
        &self,
        request: Request<pb::SystemSharedMemoryStatusRequest>,
    ) -> Result<Response<pb::SystemSharedMemoryStatusResponse>, Status> {
        Ok(Response::new(self.regions(request).await.map_err(for_triton)?))
    }

    async fn system_shared_memory_register(
        &self,
        request: Request<pb::SystemSharedMemoryRegisterRequest>,
    ) -> Result<Response<pb::SystemSharedMemoryRegisterResponse>, Status> {
        self.register_region(request).await.map_err(for_triton)?;
        Ok(Response::new(pb::SystemSharedMemoryRegisterResponse {}))
    }

    async fn system_shared_memory_unregister(
        &self,
        request: Request<pb::SystemSharedMemoryUnregisterRequest>,
    ) -> Result<Response<pb::SystemSharedMemoryUnregisterResponse>, Status> {
        self.unregister_region(request).await.map_err(for_triton)?;
        Ok(Response::new(pb::SystemSharedMemoryUnregisterResponse {}))
    }

    async fn cuda_shared_memory_status(
        &self,
        request: Request<pb::CudaSharedMemoryStatusRequest>,
    ) -> Result<Response<pb::CudaSharedMemoryStatusResponse>, Status> {
        let message = GrpcRequest::message(request).await?;
        no_cuda_region(&message.name)?;
        Ok(Response::new(pb::CudaSharedMemoryStatusResponse::default()))
    }

    async fn cuda_shared_memory_register(
        &self,
        request: Request<pb::CudaSharedMemoryRegisterRequest>,
    ) -> Result<Response<pb::CudaSharedMemoryRegisterResponse>, Status> {
        GrpcRequest::message(request).await?;
        Err(no_cuda_sharing().into())
    }

    async fn cuda_shared_memory_unregister(
        &self,
        request: Request<pb::CudaSharedMemoryUnregisterRequest>,
    ) -> Result<Response<pb::CudaSharedMemoryUnregisterResponse>, Status> {
        // There is none, which is what the client wants.
        GrpcRequest::message(request).await?;
        Ok(Response::new(pb::CudaSharedMemoryUnregisterResponse {}))
    }

    async fn trace_setting(
        &self,
        request: Request<pb::TraceSettingRequest>,
    ) -> Result<Response<pb::TraceSettingResponse>, Status> {
        let message = GrpcRequest::message(request).await?;
        Ok(Response::new(trace_settings(message)?))
    }

    async fn log_settings(
        &self,
        request: Request<pb::LogSettingsRequest>,
    ) -> Result<Response<pb::LogSettingsResponse>, Status> {
        let message = GrpcRequest::message(request).await?;
        Ok(Response::new(log_settings(message)?))
    }
}
