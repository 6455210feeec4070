//! Lists the Python packages that travel inside the binary, for `engine::python::workers`.

#![expect(clippy::disallowed_methods, reason = "cargo speaks to build scripts by environment")]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

const PACKAGES: [&str; 6] = [
    "jitney",
    "ts",
    "sagemaker_inference",
    "sagemaker_pytorch_serving_container",
    "azureml",
    "azureml_inference_server_http",
];

fn main() -> io::Result<()> {
    let python = Path::new(&env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?)
        .join("../../python")
        .canonicalize()?;
    let mut files = Vec::new();
    for package in PACKAGES {
        println!("cargo::rerun-if-changed={}", python.join(package).display());
        collect(&python.join(package), &mut files)?;
    }
    files.sort();
    let out = PathBuf::from(env::var("OUT_DIR").map_err(io::Error::other)?);
    fs::write(out.join("python_files.rs"), table(&python, &files)?)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "__pycache__") {
            collect(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "py" || extension == "typed")
        {
            files.push(path);
        }
    }
    Ok(())
}

fn table(python: &Path, files: &[PathBuf]) -> io::Result<String> {
    let mut text = String::from("const PYTHON_FILES: &[(&str, &[u8])] = &[\n");
    let mut hasher = DefaultHasher::new();
    for file in files {
        let name = file.strip_prefix(python).unwrap_or(file);
        text += &format!("    ({name:?}, include_bytes!({file:?})),\n");
        (name, fs::read(file)?).hash(&mut hasher);
    }
    Ok(format!("{text}];\nconst PYTHON_FILES_HASH: u64 = {};\n", hasher.finish()))
}
