//! The identity of a job: the model, the input, and every option that changes the output. Two runs
//! with the same identity write the same rows.

use std::fs::Metadata;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::source::list_images;
use crate::failure::Failure;
use crate::flags::infer::{InferFlags, InputFormat};

/// The identity of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobIdentity {
    /// The model and its task, as on the command line.
    pub model: String,
    /// Its endpoint, if one was given.
    pub endpoint: Option<String>,
    /// The format, and how cells are read.
    pub format: String,
    /// The format of the output.
    pub layout: String,
    /// Size and modification time of the file; for a folder, a hash over all files.
    pub input: String,
}

impl JobIdentity {
    /// Reads the metadata of the input.
    pub fn of(flags: &InferFlags, format: InputFormat) -> Result<Self, Failure> {
        let ending = flags.output.extension().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self {
            model: match &flags.task {
                Some(task) => format!("{} for {task}", flags.model),
                None => flags.model.clone(),
            },
            endpoint: flags.endpoint.clone(),
            format: format!("{format:?} numbers={}", flags.numbers),
            layout: format!("{ending} with_input={}", flags.with_input),
            input: fingerprint(&flags.input, format)?,
        })
    }

    /// The first difference from an earlier job, for a message.
    pub fn difference(&self, earlier: &Self) -> Option<String> {
        fn endpoint(job: &JobIdentity) -> &str {
            job.endpoint.as_deref().unwrap_or_default()
        }
        let pairs = [
            ("the model", self.model.as_str(), earlier.model.as_str()),
            ("the endpoint", endpoint(self), endpoint(earlier)),
            ("the input's format", &self.format, &earlier.format),
            ("the output's format", &self.layout, &earlier.layout),
        ];
        let differs = pairs.into_iter().find(|(_, now, then)| now != then);
        match differs {
            Some((what, now, then)) => Some(format!("{what} was {then:?}, now it is {now:?}")),
            None if self.input != earlier.input => Some("the input has changed".to_owned()),
            None => None,
        }
    }
}

fn fingerprint(path: &Path, format: InputFormat) -> Result<String, Failure> {
    if format != InputFormat::Images {
        return path.metadata().map(stamp).map_err(|error| Failure::file("read", path, &error));
    }
    let mut hash = Fnv1a::default();
    let names = list_images(path)?;
    for name in &names {
        hash.add(name.as_bytes());
        // A file without readable metadata is a row that fails in every run.
        hash.add(path.join(name).metadata().map(stamp).unwrap_or_default().as_bytes());
    }
    Ok(format!("{} files, {:016x}", names.len(), hash.0))
}

fn stamp(file: Metadata) -> String {
    let modified = file.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    format!("{} bytes, modified {}", file.len(), modified.unwrap_or_default().as_nanos())
}

/// FNV-1a: unlike the standard hasher it is the same on every machine and in every version.
struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv1a {
    fn add(&mut self, bytes: &[u8]) {
        // The byte between two values makes "ab", "c" differ from "a", "bc".
        for byte in bytes.iter().chain(&[0xff]) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_input_is_another_job() {
        let dir = tempfile::tempdir().expect("directory");
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("a.png"), "1").expect("file");
        let fingerprint_now = || fingerprint(dir.path(), InputFormat::Images).expect("reads");
        let first = fingerprint_now();
        assert_eq!(first, fingerprint_now());
        std::fs::write(at("b.png"), "1").expect("file");
        assert_ne!(first, fingerprint_now());
        let rows = at("rows.jsonl");
        std::fs::write(&rows, "1\n").expect("file");
        let first = fingerprint(&rows, InputFormat::Jsonl).expect("reads");
        std::fs::write(&rows, "1\n2\n").expect("file");
        assert_ne!(first, fingerprint(&rows, InputFormat::Jsonl).expect("reads"));
    }
}
