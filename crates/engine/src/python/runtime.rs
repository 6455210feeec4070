//! Our own Python packages (`jitney`, `ts`), carried inside the binary and unpacked at start, so
//! that the server is one file and every worker finds the runtime that fits it.

use std::io;
use std::path::{Path, PathBuf};

include!(concat!(env!("OUT_DIR"), "/python_files.rs"));

/// Writes the packages under `scratch` and returns the directory for `PYTHONPATH`.
pub fn unpack_runtime(scratch: &Path) -> io::Result<PathBuf> {
    let root = scratch.join("python");
    for (name, content) in PYTHON_FILES {
        let path = root.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, content)?;
    }
    Ok(root)
}
