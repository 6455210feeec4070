//! The bodies to send, from flags and files.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use jitney_load::{InputTensor, TensorSource};

use crate::failure::Failure;
use crate::flags::bench::BenchFlags;

/// Bodies are rendered and kept in memory; beyond this a folder is a mistake.
const BYTES_MAX: u64 = 4 << 30;

/// The bodies, in the order in which they are sent; an empty one if there are none.
pub fn read(flags: &BenchFlags) -> Result<Vec<Bytes>, Failure> {
    if let Some(text) = &flags.body {
        return Ok(vec![Bytes::copy_from_slice(text.as_bytes())]);
    }
    let mut bodies = Vec::new();
    let mut left = BYTES_MAX;
    for path in files(&flags.body_file)? {
        let body = file(&path)?;
        left = left.checked_sub(body.len() as u64).ok_or_else(|| {
            Failure::usage(format!("the bodies have more than {} GiB together", BYTES_MAX >> 30))
        })?;
        bodies.push(body);
    }
    if bodies.is_empty() {
        bodies.push(Bytes::new());
    }
    Ok(bodies)
}

/// Files, and those inside folders by name.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let failed = |error: std::io::Error| Failure::file("read", path, &error);
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            let file = entry.map_err(failed)?.path();
            if file.is_file() {
                inside.push(file);
            }
        }
        if inside.is_empty() {
            return Err(Failure::usage(format!("{} has no files", path.display())));
        }
        inside.sort();
        files.append(&mut inside);
    }
    Ok(files)
}

fn file(path: &Path) -> Result<Bytes, Failure> {
    let bytes = std::fs::read(path).map_err(|error| Failure::file("read", path, &error))?;
    Ok(Bytes::from(bytes))
}

/// The elements of the tensors.
pub fn tensors(inputs: &[InputTensor], seed: u64) -> Result<Vec<(InputTensor, Bytes)>, Failure> {
    let fill = |(at, tensor): (usize, &InputTensor)| {
        let bytes = match &tensor.source {
            TensorSource::File(path) => file(Path::new(path))?,
            TensorSource::Random | TensorSource::Zeros => {
                Bytes::from(tensor.made(seed.wrapping_add(at as u64)))
            }
        };
        match tensor.bytes_wanted() {
            Some(wanted) if wanted != bytes.len() as u64 => Err(Failure::usage(format!(
                "the tensor {:?} needs {wanted} bytes, and its file has {}",
                tensor.name,
                bytes.len()
            ))),
            _ => Ok((tensor.clone(), bytes)),
        }
    };
    inputs.iter().enumerate().map(fill).collect()
}
