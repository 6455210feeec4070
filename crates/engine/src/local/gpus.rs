//! The GPUs of a model without Python: which one a worker gets, and how much of its memory.

use std::future::Future;
use std::sync::Arc;

use jitney_settings::Values;
use jitney_settings::model::{GPU_MEMORY_FRACTION, ONNX_PROVIDERS};
use serde_json::{Map, Value};

use crate::gpu_assignment::GpuAssignment;
use crate::outcome::LaunchError;

/// Providers of ONNX Runtime that run on the GPUs which the server counts.
const GPU_PROVIDERS: [&str; 2] = ["cuda", "tensorrt"];

/// Bytes that a GPU has, if the driver tells. Blocks.
pub(crate) type GpuBytes = Arc<dyn Fn(u32) -> Option<u64> + Send + Sync>;

/// The GPUs of one model's workers.
pub(crate) struct LocalGpus {
    pub(crate) assignment: GpuAssignment,
    /// The share of its GPU's memory that a worker may use.
    share: Option<f64>,
    bytes: GpuBytes,
}

impl LocalGpus {
    /// None where the model's settings name no provider for them.
    pub(crate) fn of(
        assignment: GpuAssignment,
        settings: &Values,
        bytes: GpuBytes,
    ) -> Option<Self> {
        let named = settings.show(&ONNX_PROVIDERS)?;
        let is_gpu = |name: &str| GPU_PROVIDERS.iter().any(|it| it.eq_ignore_ascii_case(name));
        let share = settings.read(&GPU_MEMORY_FRACTION);
        named.split(',').map(str::trim).any(is_gpu).then_some(Self { assignment, share, bytes })
    }

    /// What a worker is told beside what all are told.
    pub(super) fn told(
        &self,
        worker: u32,
    ) -> impl Future<Output = Result<Map<String, Value>, LaunchError>> + Send + use<> {
        let gpu = self.assignment.assign(worker).first().copied();
        let (share, bytes) = (self.share, Arc::clone(&self.bytes));
        async move {
            let mut told = Map::new();
            let Some(gpu) = gpu else { return Ok(told) };
            told.insert("gpu_id".to_owned(), gpu.into());
            if let Some(share) = share {
                let total = tokio::task::spawn_blocking(move || bytes(gpu)).await.ok().flatten();
                let total = total.ok_or_else(|| unknown_memory(gpu))?;
                let limit = (total as f64 * share) as u64;
                told.insert("gpu_memory_limit".to_owned(), limit.into());
            }
            Ok(told)
        }
    }
}

fn unknown_memory(gpu: u32) -> LaunchError {
    LaunchError::Load(
        format!(
            "gpu_memory_fraction: it is not known how much memory GPU {gpu} has; nvidia-smi must be on the \
             server's path, and gpu_memory must not be off"
        )
        .into(),
    )
}
