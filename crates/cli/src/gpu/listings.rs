//! What programs and files say of the devices of a machine, read: NVIDIA's GPUs and the parts that they are cut into
//! (MIG), AMD's by ROCm's files, Apple's. Nothing is asked here; listings come as texts and folders.

use std::path::Path;

/// Where ROCm's driver lists its devices.
pub const ROCM: &str = "/sys/class/kfd/kfd/topology/nodes";

/// The devices that CUDA can use, of `nvidia-smi -L`: UUIDs of parts where a GPU is cut into parts, else of the GPU.
pub fn nvidia(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        let Some((_, rest)) = line.split_once("(UUID: ") else { continue };
        let uuid = rest.trim_end().trim_end_matches(')');
        if is_part(uuid) && found.last().is_some_and(|last| !is_part(last)) {
            found.pop(); // The GPU itself cannot be used any more.
        }
        found.push(uuid.to_owned());
    }
    found
}

/// Whether a device is a part of a GPU. CUDA shows a process the first part alone, so each worker has to be given its
/// own by name.
pub fn is_part(uuid: &str) -> bool {
    uuid.starts_with("MIG-")
}

/// The GPUs that ROCm lists in a folder; processors have no vector units there.
pub fn rocm(folder: &Path) -> u32 {
    let Ok(nodes) = std::fs::read_dir(folder) else { return 0 };
    let is_gpu = |text: &str| {
        let units = text.lines().find_map(|line| line.strip_prefix("simd_count "));
        units.and_then(|units| units.trim().parse::<u32>().ok()).is_some_and(|units| units > 0)
    };
    let texts = nodes.flatten().map(|node| std::fs::read_to_string(node.path().join("properties")));
    texts.flatten().filter(|text| is_gpu(text)).count() as u32
}

/// Where the kernel lists what is on the bus.
pub const PCI: &str = "/sys/bus/pci/devices";

/// Makers of GPUs that workers are given, the first that there is one of: NVIDIA, AMD.
const MAKERS: [&str; 2] = ["0x10de", "0x1002"];

/// The NUMA nodes of the GPUs in a folder of devices, in the order of their addresses; none where it is not known.
pub fn nodes(folder: &Path) -> Vec<Option<u32>> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut devices: Vec<_> = entries.map(|entry| entry.path()).collect();
    devices.sort();
    let word = |device: &Path, name| {
        let text = std::fs::read_to_string(device.join(name)).unwrap_or_default();
        text.trim().to_owned()
    };
    // Class 3 of devices: displays, and what computes like one.
    devices.retain(|device| word(device, "class").starts_with("0x03"));
    let made_by = |maker: &str| -> Vec<_> {
        let own = devices.iter().filter(|device| word(device, "vendor") == maker);
        own.map(|device| word(device, "numa_node").parse().ok()).collect()
    };
    MAKERS.iter().map(|maker| made_by(maker)).find(|own| !own.is_empty()).unwrap_or_default()
}

/// The GPUs of `system_profiler SPDisplaysDataType` that are Apple's own.
pub fn apple(text: &str) -> u32 {
    let models = text.lines().filter_map(|line| line.trim().strip_prefix("Chipset Model: "));
    models.filter(|model| model.starts_with("Apple ")).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "GPU 0: NVIDIA H200 (UUID: GPU-aa)\nGPU 1: NVIDIA H200 (UUID: GPU-bb)\n";
    const CUT: &str = "\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aa)
  MIG 3g.20gb     Device  0: (UUID: MIG-11)
  MIG 3g.20gb     Device  1: (UUID: MIG-12)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bb)
GPU 2: NVIDIA A100-SXM4-40GB (UUID: GPU-cc)
  MIG 7g.40gb     Device  0: (UUID: MIG-31)
";
    const MAC: &str = "\
Graphics/Displays:

    Apple M2 Max:

      Chipset Model: Apple M2 Max
      Type: GPU
      Bus: Built-In
      Total Number of Cores: 38
      Vendor: Apple (0x106b)
      Metal Support: Metal 3
";

    #[test]
    fn parts_of_a_gpu_stand_for_it() {
        assert_eq!(nvidia(WHOLE), ["GPU-aa", "GPU-bb"]);
        assert_eq!(nvidia(CUT), ["MIG-11", "MIG-12", "GPU-bb", "MIG-31"]);
        assert!(nvidia("No devices found.\n").is_empty());
    }

    #[test]
    fn rocm_lists_processors_too() {
        let folder = tempfile::tempdir().expect("directory");
        for (node, units) in [("0", 0), ("1", 304), ("2", 304)] {
            let node = folder.path().join(node);
            std::fs::create_dir(&node).expect("directory");
            let text =
                format!("cpu_cores_count 96\nsimd_count {units}\ngfx_target_version 90402\n");
            std::fs::write(node.join("properties"), text).expect("file");
        }
        std::fs::create_dir(folder.path().join("3")).expect("directory");
        assert_eq!(rocm(folder.path()), 2);
        assert_eq!(rocm(&folder.path().join("nosuch")), 0);
    }

    #[test]
    fn gpus_lie_on_nodes_in_the_order_of_the_bus() {
        let folder = tempfile::tempdir().expect("directory");
        for (address, vendor, class, node) in [
            ("0000:c1:00.0", "0x10de", "0x030200", "1"),
            ("0000:03:00.0", "0x1002", "0x030000", "0"),
            ("0000:41:00.0", "0x10de", "0x030200", "0"),
            ("0000:42:00.0", "0x10de", "0x068000", "1"),
            ("0000:c2:00.0", "0x10de", "0x030200", "-1"),
        ] {
            let device = folder.path().join(address);
            std::fs::create_dir(&device).expect("directory");
            for (name, text) in [("vendor", vendor), ("class", class), ("numa_node", node)] {
                std::fs::write(device.join(name), format!("{text}\n")).expect("file");
            }
        }
        assert_eq!(nodes(folder.path()), [Some(0), Some(1), None]);
        assert!(nodes(&folder.path().join("nosuch")).is_empty());
    }

    #[test]
    fn a_mac_has_one_gpu_of_apples() {
        assert_eq!(apple(MAC), 1);
        assert_eq!(apple("      Chipset Model: AMD Radeon Pro 560X\n"), 0);
    }
}
