//! The driver and the GPUs.

use std::path::Path;

use super::finding::Finding;
use crate::env::Env;
use crate::gpu::NvidiaSmi;

const AREA: &str = "GPUs";

/// Looks at what the driver says.
pub fn check(env: &Env) -> Vec<Finding> {
    let driver = Path::new("/proc/driver/nvidia/gpus").exists();
    let Some(smi) = NvidiaSmi::find(env) else {
        return vec![if driver {
            Finding::note(
                AREA,
                "there is an NVIDIA driver, and no nvidia-smi on the PATH",
                "install it, so that metrics and the dashboard show the GPUs",
            )
        } else {
            Finding::ok(AREA, "no NVIDIA GPU; models run on the CPU")
        }];
    };
    let Some(gpus) = smi.describe().filter(|gpus| !gpus.is_empty()) else {
        return vec![Finding::problem(
            AREA,
            "nvidia-smi fails or shows no GPU",
            "run nvidia-smi and see what it says; the driver may be missing or broken",
        )];
    };
    let mut findings: Vec<_> = gpus
        .iter()
        .enumerate()
        .map(|(index, gpu)| Finding::ok(AREA, format!("{index}: {gpu} (name, driver, memory)")))
        .collect();
    if let Some(visible) = env.text("CUDA_VISIBLE_DEVICES") {
        let text = format!("CUDA_VISIBLE_DEVICES is \"{visible}\"; workers see only these");
        findings.push(Finding::note(AREA, text, "unset it to use all of them"));
    }
    findings
}
