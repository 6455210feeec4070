//! Which job a journal is about: the model, the very input, and every option that changes what is
//! written. Two runs with the same identity write the same rows.

use std::fs::Metadata;
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::source;
use crate::failure::Failure;
use crate::flags::infer::{InferFlags, InputFormat};

/// A job's identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The model as it was named.
    pub model: String,
    /// Its endpoint, if one was named.
    pub endpoint: Option<String>,
    /// The format, and how cells are read.
    pub format: String,
    /// What the output looks like.
    pub layout: String,
    /// Size and time of the input's file; of a folder, a sum over all of them.
    pub input: String,
}

impl Identity {
    /// Looks at the input.
    pub fn of(flags: &InferFlags, format: InputFormat) -> Result<Self, Failure> {
        let ending = flags.output.extension().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self {
            model: flags.model.clone(),
            endpoint: flags.endpoint.clone(),
            format: format!("{format:?} numbers={}", flags.numbers),
            layout: format!("{ending} with_input={}", flags.with_input),
            input: fingerprint(&flags.input, format)?,
        })
    }

    /// What differs from an earlier job, in words.
    pub fn difference(&self, earlier: &Self) -> Option<String> {
        fn endpoint(job: &Identity) -> &str {
            job.endpoint.as_deref().unwrap_or_default()
        }
        let pairs = [
            ("the model", self.model.as_str(), earlier.model.as_str()),
            ("the endpoint", endpoint(self), endpoint(earlier)),
            ("the input's format", &self.format, &earlier.format),
            ("the output's form", &self.layout, &earlier.layout),
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
    let unreadable = source::unreadable(path);
    if format != InputFormat::Images {
        return path.metadata().and_then(|data| stamp(&data)).map_err(unreadable);
    }
    let mut sum = Fnv::default();
    let names = source::list(path)?;
    for name in &names {
        let stamp = path.join(name).metadata().and_then(|data| stamp(&data));
        // A file that cannot be looked at is a row that fails, now as then.
        sum.add(name.as_bytes());
        sum.add(stamp.unwrap_or_default().as_bytes());
    }
    Ok(format!("{} files, {:016x}", names.len(), sum.0))
}

fn stamp(data: &Metadata) -> io::Result<String> {
    let modified = data.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(format!("{} bytes, modified {}", data.len(), modified.as_nanos()))
}

/// FNV-1a: the same on every machine and in every version, which the standard hasher is not.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        // The byte between two values keeps "ab", "c" from "a", "bc".
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
        let look = || fingerprint(dir.path(), InputFormat::Images).expect("reads");
        let first = look();
        assert_eq!(first, look());
        std::fs::write(at("b.png"), "1").expect("file");
        assert_ne!(first, look());
        let rows = at("rows.jsonl");
        std::fs::write(&rows, "1\n").expect("file");
        let first = fingerprint(&rows, InputFormat::Jsonl).expect("reads");
        std::fs::write(&rows, "1\n2\n").expect("file");
        assert_ne!(first, fingerprint(&rows, InputFormat::Jsonl).expect("reads"));
    }
}
