//! An input for the warm-up: a file that the model brings, or what a local model makes up.
//!
//! Requests of users are never kept for this. A model without a sample is not warmed up.

use std::path::Path;
use std::sync::Arc;

use super::intake::Intake;
use crate::call::{CallRoute, DecodedInput, HeaderBlock, Input, Parameter};
use crate::local::Decoded;
use crate::pending::Payload;

/// The name of the file, in front of its extension.
const STEM: &str = "jitney_sample";

/// The largest sample: as many of them as fit into a batch are held at a time.
const BYTES_MAX: u64 = 1 << 20;

/// One request's worth of input, to be had again and again.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    payload: SampleInput,
    pub(crate) group: u16,
    /// How long it is, where that is seen.
    pub(crate) length: Option<u64>,
}

#[derive(Clone, Debug)]
enum SampleInput {
    Raw(Input),
    Decoded(Arc<dyn DecodedInput>),
}

impl Sample {
    /// The model's sample, if there is one.
    pub(crate) fn of(intake: &Intake, dir: Option<&Path>) -> Option<Self> {
        match intake {
            Intake::Local(model) => {
                let Decoded { input, group, length, .. } = model.sample()?;
                Some(Self { payload: SampleInput::Decoded(input), group, length })
            }
            // Nothing says for which endpoint the file would be.
            Intake::Defined(endpoints) if endpoints.api().endpoints.len() > 1 => None,
            Intake::Python | Intake::Defined(_) => {
                Some(Self { payload: SampleInput::Raw(read(dir?)?), group: 0, length: None })
            }
        }
    }

    /// The bytes of its values, where they are such as clients send: zeros are not.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match &self.payload {
            SampleInput::Raw(input) => Some(input.value_bytes()),
            SampleInput::Decoded(_) => None,
        }
    }

    pub(crate) fn payload(&self) -> Payload {
        match &self.payload {
            SampleInput::Raw(input) => Payload::Raw(input.clone()),
            SampleInput::Decoded(input) => Payload::Decoded(Arc::clone(input)),
        }
    }
}

/// `jitney_sample.json`, `.jpg` and so on at the top of the model's directory.
fn read(dir: &Path) -> Option<Input> {
    let files = dir.read_dir().ok()?.flatten().map(|entry| entry.path());
    let path = files
        .into_iter()
        .find(|path| path.is_file() && path.file_stem().is_some_and(|stem| stem == STEM))?;
    if path.metadata().ok()?.len() > BYTES_MAX {
        tracing::warn!(path = %path.display(), "sample is larger than {BYTES_MAX} bytes, not used");
        return None;
    }
    let content_type = match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => "application/json",
        Some("txt") => "text/plain",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("png") => "image/png",
        _ => "application/octet-stream",
    };
    let value = std::fs::read(&path).ok()?.into();
    let parameter = Parameter { name: "body".into(), content_type: content_type.into(), value };
    let (id, headers) = ("jitney-warm-up".to_owned(), HeaderBlock::new());
    Some(Input { id, headers, route: CallRoute::default(), parameters: vec![parameter] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_model_is_its_sample() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Sample::of(&Intake::Python, Some(dir.path())).is_none(), "no sample, no warm-up");
        std::fs::write(dir.path().join("jitney_sample.json"), b"[1]").unwrap();
        let sample = Sample::of(&Intake::Python, Some(dir.path())).unwrap();
        let Payload::Raw(input) = sample.payload() else { panic!("raw") };
        assert_eq!(input.parameters[0].content_type, "application/json");
        assert_eq!(&input.parameters[0].value[..], b"[1]");
        assert_eq!(sample.bytes(), Some(3));
    }
}
