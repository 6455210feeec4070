//! The execution providers of ONNX Runtime that this program knows, and the GPU that they get.

use ::ort::ep::{self, ExecutionProviderDispatch};
use serde::Deserialize;

/// The GPU of a session, as the server tells. What is not told is left to ONNX Runtime.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SessionGpu {
    /// Its number.
    gpu_id: Option<i32>,
    /// Bytes of its memory that the session may use.
    gpu_memory_limit: Option<usize>,
}

impl SessionGpu {
    fn cuda(self) -> ep::CUDA {
        let cuda = ep::CUDA::default();
        let cuda = self.gpu_id.map_or(cuda.clone(), |id| cuda.with_device_id(id));
        self.gpu_memory_limit.map_or(cuda.clone(), |limit| cuda.with_memory_limit(limit))
    }

    /// It has no limit for its memory but that of its workspace.
    fn tensorrt(self) -> ep::TensorRT {
        let tensorrt = ep::TensorRT::default();
        let tensorrt = self.gpu_id.map_or(tensorrt.clone(), |id| tensorrt.with_device_id(id));
        let limit = self.gpu_memory_limit;
        limit.map_or(tensorrt.clone(), |limit| tensorrt.with_max_workspace_size(limit))
    }
}

/// Which of the providers that this program knows the loaded library has.
pub(crate) fn providers() -> Vec<&'static str> {
    let has = |(_, available, _): &&Provider| available().unwrap_or(false);
    PROVIDERS.iter().filter(has).map(|(name, ..)| *name).collect()
}

/// A name, whether the library has it, and how it is asked for.
type Provider =
    (&'static str, fn() -> ::ort::Result<bool>, fn(SessionGpu) -> ExecutionProviderDispatch);

/// The execution providers by the names that the setting has.
const PROVIDERS: &[Provider] = &[
    ("cpu", available::<ep::CPU>, |_| ep::CPU::default().build()),
    ("cuda", available::<ep::CUDA>, |gpu| gpu.cuda().build()),
    ("tensorrt", available::<ep::TensorRT>, |gpu| gpu.tensorrt().build()),
    ("rocm", available::<ep::ROCm>, |_| ep::ROCm::default().build()),
    ("migraphx", available::<ep::MIGraphX>, |_| ep::MIGraphX::default().build()),
    ("openvino", available::<ep::OpenVINO>, |_| ep::OpenVINO::default().build()),
    ("onednn", available::<ep::OneDNN>, |_| ep::OneDNN::default().build()),
    ("xnnpack", available::<ep::XNNPACK>, |_| ep::XNNPACK::default().build()),
];

fn available<P: ep::ExecutionProvider>() -> ::ort::Result<bool> {
    P::is_available()
}

/// The provider of this name, on this GPU if it runs on one; a sentence if the library lacks it.
pub(super) fn provider(name: &str, gpu: SessionGpu) -> Result<ExecutionProviderDispatch, String> {
    let found = PROVIDERS.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name));
    let (_, available, make) = found.ok_or_else(|| {
        let known: Vec<_> = PROVIDERS.iter().map(|(known, ..)| *known).collect();
        format!("onnx_providers: unknown {name:?}; known: {}", known.join(", "))
    })?;
    if !available().map_err(|error| error.to_string())? {
        return Err(format!("onnx_providers: this ONNX Runtime was built without {name:?}"));
    }
    Ok(make(gpu).error_on_failure())
}
