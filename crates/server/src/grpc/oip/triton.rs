//! What Triton's service has beyond the protocol: configuration, statistics, the repository, shared memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use jitney_proto::kserve as pb;
use jitney_proto::kserve::model_config::SchedulingChoice;
use jitney_proto::kserve::model_input::Format;
use jitney_proto::kserve::model_instance_group::Kind;
use jitney_proto::kserve::model_version_policy::PolicyChoice;
use jitney_proto::kserve::repository_index_response::ModelIndex;
use jitney_proto::kserve::system_shared_memory_status_response::RegionStatus;
use tonic::Request;

use super::OpenInferenceService;
use crate::errors::Problem;
use crate::grpc::request::{GrpcRequest, target};
use crate::open_inference::metadata::{ConfiguredTensor, ModelConfiguration};
use crate::open_inference::statistics::{
    self, InferBatchStatistics, ModelStatistics, StatisticDuration,
};
use crate::plugins::{GuardedOperation, Intent};
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
        Ok(pb::ModelConfigResponse { config: Some(config(ModelConfiguration::of(&model))) })
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
        let all = statistics::of(&self.state.engine, target)?;
        Ok(pb::ModelStatisticsResponse {
            model_stats: all.into_iter().map(model_statistics).collect(),
        })
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
        message.parameters.keys().try_for_each(|it| repository::check_parameter(it))?;
        repository::load(&self.state, name).await
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

/// A model's configuration as a message.
fn config(from: ModelConfiguration) -> pb::ModelConfig {
    let data_type = |name: &str| pb::DataType::from_str_name(name).unwrap_or_default().into();
    let input = |it: &ConfiguredTensor| pb::ModelInput {
        name: it.name.clone(),
        data_type: data_type(&it.data_type),
        dims: it.dims.clone(),
        format: Format::from_str_name(it.format.as_str()).unwrap_or_default().into(),
        ..pb::ModelInput::default()
    };
    let output = |it: &ConfiguredTensor| pb::ModelOutput {
        name: it.name.clone(),
        data_type: data_type(&it.data_type),
        dims: it.dims.clone(),
        ..pb::ModelOutput::default()
    };
    let max_batch_size = i32::try_from(from.max_batch_size).unwrap_or(i32::MAX);
    let batching = || pb::ModelDynamicBatching {
        preferred_batch_size: vec![max_batch_size],
        max_queue_delay_microseconds: from.max_queue_delay_us,
        ..pb::ModelDynamicBatching::default()
    };
    let scheduling_choice = match (from.stateful, max_batch_size) {
        (true, _) => Some(SchedulingChoice::SequenceBatching(pb::ModelSequenceBatching::default())),
        (false, 2..) => Some(SchedulingChoice::DynamicBatching(batching())),
        (false, _) => None,
    };
    let kind = if from.gpu { Kind::Gpu } else { Kind::Cpu };
    let workers = pb::ModelInstanceGroup {
        name: from.name.clone(),
        kind: kind.into(),
        count: i32::try_from(from.workers).unwrap_or(i32::MAX),
        gpus: Vec::new(),
    };
    pb::ModelConfig {
        input: from.input.iter().map(input).collect(),
        output: from.output.iter().map(output).collect(),
        name: from.name,
        backend: from.platform.clone(),
        platform: from.platform,
        max_batch_size,
        version_policy: Some(pb::ModelVersionPolicy {
            policy_choice: Some(PolicyChoice::All(pb::model_version_policy::All {})),
        }),
        instance_group: vec![workers],
        scheduling_choice,
        ..pb::ModelConfig::default()
    }
}

/// A version's statistics as a message.
fn model_statistics(from: ModelStatistics) -> pb::ModelStatistics {
    let time = |it: StatisticDuration| Some(pb::StatisticDuration { count: it.count, ns: it.ns });
    let batch = |it: InferBatchStatistics| pb::InferBatchStatistics {
        batch_size: it.batch_size,
        compute_input: time(it.compute_input),
        compute_infer: time(it.compute_infer),
        compute_output: time(it.compute_output),
    };
    let requests = from.inference_stats;
    pb::ModelStatistics {
        name: from.name,
        version: from.version,
        inference_count: from.inference_count,
        execution_count: from.execution_count,
        last_inference: from.last_inference,
        inference_stats: Some(pb::InferStatistics {
            success: time(requests.success),
            fail: time(requests.fail),
            queue: time(requests.queue),
            compute_input: time(requests.compute_input),
            compute_infer: time(requests.compute_infer),
            compute_output: time(requests.compute_output),
            cache_hit: time(requests.cache_hit),
            cache_miss: time(requests.cache_miss),
        }),
        batch_stats: from.batch_stats.into_iter().map(batch).collect(),
        ..pb::ModelStatistics::default()
    }
}
