//! An input for the start-up sweep: a file that the model brings, or zeros in the shape of its
//! signature.
//!
//! Requests of users are never kept for this. A model without a sample is not swept.

use std::path::Path;

use bytes::Bytes;
use serde_json::json;

use super::Intake;
use crate::call::{HeaderBlock, Input, Parameter, Payload};
use crate::onnx::{Dim, OPEN_INFERENCE_HEADER, Port, Signature, TensorInput};

/// The name of the file, in front of its extension.
const STEM: &str = "jitney_sample";

/// The largest sample: as many of them as fit into a batch are held at a time.
const BYTES_MAX: u64 = 1 << 20;

/// The most numbers made up for a sample.
const NUMBERS_MAX: usize = 1 << 20;

/// The length of a sample that may have any.
const LENGTH: usize = 32;

/// One request's worth of input, to be had again and again.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    payload: Kind,
    pub(crate) bucket: u16,
    /// How long it is, where that is seen.
    pub(crate) length: Option<u64>,
}

#[derive(Clone, Debug)]
enum Kind {
    Raw(Input),
    Tensors(TensorInput),
}

impl Sample {
    /// The model's sample, if there is one.
    pub(crate) fn of(intake: &Intake, dir: Option<&Path>) -> Option<Self> {
        match intake {
            Intake::Onnx(model) => {
                let padded = model.card().padding.as_ref().map(|pads| pads.dimension.as_str());
                let accepted = model.accept(zeros(model.signature(), padded)?).ok()?;
                let (payload, length) = (Kind::Tensors(accepted.tensors), accepted.length);
                (accepted.items == 1).then_some(Self { payload, bucket: accepted.bucket, length })
            }
            // Which endpoint the file would be for, nobody can say.
            Intake::Defined(endpoints) if endpoints.api().endpoints.len() > 1 => None,
            Intake::Python | Intake::Defined(_) => {
                Some(Self { payload: Kind::Raw(read(dir?)?), bucket: 0, length: None })
            }
        }
    }

    /// The bytes of its values, where they are such as clients send: zeros are not.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match &self.payload {
            Kind::Raw(input) => Some(input.value_bytes()),
            Kind::Tensors(_) => None,
        }
    }

    pub(crate) fn payload(&self) -> Payload {
        match &self.payload {
            Kind::Raw(input) => Payload::Raw(input.clone()),
            Kind::Tensors(tensors) => Payload::Tensors(tensors.clone()),
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
    Some(input(content_type, std::fs::read(&path).ok()?.into(), None))
}

/// One item of zeros, where every dimension has a size but the batch and the one that is padded.
fn zeros(signature: &Signature, padded: Option<&str>) -> Option<Input> {
    if !signature.batches() {
        return None;
    }
    let inputs: Option<Vec<_>> = signature.inputs.iter().map(|port| zero(port, padded)).collect();
    let body = json!({ "inputs": inputs? }).to_string();
    Some(input("application/json", body.into(), Some(OPEN_INFERENCE_HEADER)))
}

fn zero(port: &Port, padded: Option<&str>) -> Option<serde_json::Value> {
    let sizes = port.shape.as_ref()?.iter().enumerate().map(|(place, dim)| match dim {
        Dim::Fixed(size) => Some(*size),
        Dim::Open(_) if place == 0 => Some(1),
        Dim::Open(name) => (padded == Some(name)).then_some(LENGTH),
    });
    let shape = sizes.collect::<Option<Vec<usize>>>()?;
    let count = shape.iter().try_fold(1usize, |count, size| count.checked_mul(*size))?;
    let data = (count <= NUMBERS_MAX).then(|| vec![0; count])?;
    let datatype = port.datatype.as_str();
    Some(json!({ "name": port.name, "shape": shape, "datatype": datatype, "data": data }))
}

fn input(content_type: &'static str, value: Bytes, header: Option<&str>) -> Input {
    let mut headers = HeaderBlock::new();
    if let Some(name) = header {
        headers.push(name, b"True");
    }
    let parameter = Parameter { name: "body".into(), content_type: content_type.into(), value };
    Input { id: "jitney-sweep".to_owned(), headers, parameters: vec![parameter] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_model_is_its_sample() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Sample::of(&Intake::Python, Some(dir.path())).is_none(), "no sample, no sweep");
        std::fs::write(dir.path().join("jitney_sample.json"), b"[1]").unwrap();
        let sample = Sample::of(&Intake::Python, Some(dir.path())).unwrap();
        let Payload::Raw(input) = sample.payload() else { panic!("raw") };
        assert_eq!(input.parameters[0].content_type, "application/json");
        assert_eq!(&input.parameters[0].value[..], b"[1]");
        assert_eq!(sample.bytes(), Some(3));
    }

    #[test]
    fn a_signature_with_sizes_gives_zeros_and_one_without_gives_nothing() {
        let port = |shape| Port {
            name: "x".to_owned(),
            datatype: crate::onnx::Datatype::Fp32,
            shape: Some(shape),
        };
        let open = |name: &str| Dim::Open(name.to_owned());
        let signature = |shape| Signature { inputs: vec![port(shape)], outputs: Vec::new() };
        let fixed = zeros(&signature(vec![open("n"), Dim::Fixed(3)]), None).unwrap();
        let body: serde_json::Value = serde_json::from_slice(&fixed.parameters[0].value).unwrap();
        assert_eq!(body["inputs"][0]["shape"], json!([1, 3]));
        let lengths = || signature(vec![open("n"), open("length")]);
        assert!(zeros(&lengths(), None).is_none());
        let padded = zeros(&lengths(), Some("length")).unwrap();
        let body: serde_json::Value = serde_json::from_slice(&padded.parameters[0].value).unwrap();
        assert_eq!(body["inputs"][0]["shape"], json!([1, LENGTH]));
    }
}
