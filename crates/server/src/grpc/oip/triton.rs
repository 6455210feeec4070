//! What Triton's service has beyond the protocol: configuration, statistics, the repository, shared memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use jitney_proto::kserve as pb;
use jitney_proto::kserve::model_repository_parameter::ParameterChoice;
use jitney_proto::kserve::repository_index_response::ModelIndex;
use jitney_proto::kserve::system_shared_memory_status_response::RegionStatus;
use tonic::Request;

use super::OpenInferenceService;
use crate::auth::GuardedOperation;
use crate::errors::Problem;
use crate::grpc::request::{GrpcRequest, target};
use crate::open_inference::{metadata, statistics};
use crate::plugins::Intent;
use crate::repository;
use crate::shared_memory::{SharedMemory, SharedRegion, allowed};

impl OpenInferenceService {
    pub(super) async fn config(
        &self,
        request: Request<pb::ModelConfigRequest>,
    ) -> Result<pb::ModelConfigResponse, Problem> {
        let (mut request, message) = GrpcRequest::open(request)?;
        let target = target(&message.name, &message.version);
        let model = request.model(&self.state.inference, target).await?;
        Ok(pb::ModelConfigResponse { config: Some(metadata::config(&model)) })
    }

    /// The statistics of a version, of all versions of a model, or of all models.
    pub(super) async fn statistics(
        &self,
        request: Request<pb::ModelStatisticsRequest>,
    ) -> Result<pb::ModelStatisticsResponse, Problem> {
        let (mut request, message) = GrpcRequest::open(request)?;
        let target = target(&message.name, &message.version);
        let target = Some(target).filter(|target| !target.model.is_empty());
        match target {
            None => request.authorize(Intent::plain(GuardedOperation::List)).await?,
            Some(target) => request.authorize_about(&self.state.inference, target).await?,
        }
        let model_stats = statistics::of(&self.state.engine, target)?;
        Ok(pb::ModelStatisticsResponse { model_stats })
    }

    /// The models of the repository.
    pub(super) async fn index(
        &self,
        request: Request<pb::RepositoryIndexRequest>,
    ) -> Result<pb::RepositoryIndexResponse, Problem> {
        let message = GrpcRequest::message(request).await?;
        let models = repository::index(&self.state, message.ready).await.into_iter();
        let models = models.map(|entry| ModelIndex {
            name: entry.name,
            version: entry.version.unwrap_or_default(),
            state: entry.state.as_str().to_owned(),
            reason: entry.reason,
        });
        Ok(pb::RepositoryIndexResponse { models: models.collect() })
    }

    pub(super) async fn load(
        &self,
        request: Request<pb::RepositoryModelLoadRequest>,
    ) -> Result<(), Problem> {
        let (mut request, message) = GrpcRequest::open(request)?;
        let name = message.model_name.as_str();
        request.authorize_about(&self.state.inference, target(name, "")).await?;
        let parameters = message.parameters.iter().map(|(name, value)| {
            let value = match &value.parameter_choice {
                Some(ParameterChoice::StringParam(text)) => Some(text.as_str()),
                Some(_) | None => None,
            };
            (name.as_str(), value)
        });
        repository::load(&self.state, name, parameters).await
    }

    pub(super) async fn unload(
        &self,
        request: Request<pb::RepositoryModelUnloadRequest>,
    ) -> Result<(), Problem> {
        let (mut request, message) = GrpcRequest::open(request)?;
        let name = message.model_name.as_str();
        request.authorize_about(&self.state.inference, target(name, "")).await?;
        message.parameters.keys().try_for_each(|it| repository::check_parameter(it))?;
        repository::unload(&self.state, name).await
    }

    fn shared_memory(&self) -> Result<&SharedMemory, Problem> {
        allowed(self.state.shared_memory.as_ref())
    }

    /// The regions of shared memory; a server without shared memory has none.
    pub(super) async fn regions(
        &self,
        request: Request<pb::SystemSharedMemoryStatusRequest>,
    ) -> Result<pb::SystemSharedMemoryStatusResponse, Problem> {
        let message = GrpcRequest::message(request).await?;
        let regions = match &self.state.shared_memory {
            None if message.name.is_empty() => BTreeMap::new(),
            _ => self.shared_memory()?.status(&message.name)?.iter().map(status).collect(),
        };
        Ok(pb::SystemSharedMemoryStatusResponse { regions })
    }

    pub(super) async fn register_region(
        &self,
        request: Request<pb::SystemSharedMemoryRegisterRequest>,
    ) -> Result<(), Problem> {
        let message = GrpcRequest::message(request).await?;
        let pb::SystemSharedMemoryRegisterRequest { name, key, offset, byte_size } = message;
        self.shared_memory()?.register(&name, &key, offset, byte_size)
    }

    pub(super) async fn unregister_region(
        &self,
        request: Request<pb::SystemSharedMemoryUnregisterRequest>,
    ) -> Result<(), Problem> {
        let message = GrpcRequest::message(request).await?;
        if let Some(memory) = &self.state.shared_memory {
            memory.unregister(&message.name);
        }
        Ok(())
    }
}

fn status(region: &Arc<SharedRegion>) -> (String, RegionStatus) {
    let SharedRegion { name, key, offset, size, .. } = &**region;
    let (name, key) = (name.to_string(), key.to_string());
    (name.clone(), RegionStatus { name, key, offset: *offset, byte_size: *size })
}
