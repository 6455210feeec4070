//! ONNX models as the engine runs them: how it loads a file, decodes a request, makes up a sample and
//! runs the batches of a worker.

use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use jitney_engine::call::{CallRoute, DecodedInput, HeaderBlock, Input, Output, Parameter};
use jitney_engine::local::{
    Batches, Decoded, Dim, LoadedModel, LocalModel, LocalRuntime, LocalSession, Signature,
    TensorSpec,
};
use jitney_engine::outcome::{Cause, ItemOutcome, ModelFailure};
use rten::{RunOptions, ThreadPool};
use serde_json::json;

use super::answer::{self, ServedName};
use super::batch;
use super::decode::decode;
use super::model::{OnnxModel, OnnxSession};
use super::request::{self, TensorInput};
use super::wire;

/// What the engine needs to serve `.onnx` files.
pub const RUNTIME: LocalRuntime =
    LocalRuntime { extension: "onnx", load, describe, worker_command: "onnx-worker" };

/// The version of models whose card names none, as TorchServe's archiver has it.
const VERSION_DEFAULT: &str = "1.0";

/// Threads that one batch may use. One is right where several workers share the cores.
const THREADS: usize = 1;

/// The most numbers made up for a sample.
const SAMPLE_NUMBERS_MAX: usize = 1 << 20;

/// The length of a sample that may have any.
const SAMPLE_LENGTH: usize = 32;

fn load(path: &Path) -> Result<LoadedModel, String> {
    let session = OnnxSession::open(path).map_err(|error| error.to_string())?;
    Ok(session.into())
}

fn describe(path: &Path, signature: Signature) -> Result<Arc<dyn LocalModel>, String> {
    let model = OnnxModel::described(path, signature).map_err(|error| error.to_string())?;
    Ok(model)
}

/// The threads that run the batches of one worker.
pub(super) fn pool() -> Arc<ThreadPool> {
    Arc::new(ThreadPool::with_num_threads(THREADS))
}

impl From<OnnxSession> for LoadedModel {
    fn from(session: OnnxSession) -> Self {
        let model: Arc<OnnxModel> = Arc::clone(&session.model);
        Self { model, session: Arc::new(session) }
    }
}

impl LocalModel for OnnxModel {
    fn runtime(&self) -> &'static str {
        RUNTIME.extension
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> &str {
        self.card.version.as_deref().unwrap_or(VERSION_DEFAULT)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// 1 when the model's first dimension is not open, the card's limit otherwise.
    fn max_batch_size(&self) -> Option<u32> {
        if self.signature.batches() { self.card.max_batch_size } else { Some(1) }
    }

    fn pads(&self) -> bool {
        self.card.padding.is_some()
    }

    fn decode(&self, input: Input) -> Result<Decoded, String> {
        let input = decode(self, &input).map_err(|bad| bad.to_string())?;
        Ok(Decoded {
            items: input.shared.items,
            group: input.group(),
            splits: self.splits(),
            length: input.shared.length,
            input: Arc::new(input),
        })
    }

    fn sample(&self) -> Option<Decoded> {
        let padded = self.card.padding.as_ref().map(|pads| pads.dimension.as_str());
        let decoded = self.decode(zeros(&self.signature, padded)?).ok()?;
        (decoded.items == 1).then_some(decoded)
    }

    fn put_together(
        &self,
        name: &str,
        version: &str,
        part: &dyn DecodedInput,
        output: Output,
    ) -> ItemOutcome {
        let unreadable = || {
            let message = "the outputs of a part do not read as tensors".to_owned();
            ModelFailure { cause: Cause::Raised, status: None, message }
        };
        let part = request::tensors_of(part).ok_or_else(unreadable)?;
        let outputs = wire::read_outputs(&output.body).ok_or_else(unreadable)?;
        match request::gathered(&[part], &outputs)? {
            None => Ok(Output::default()),
            Some(all) => {
                let served = ServedName { name: name.to_owned(), version: version.to_owned() };
                answer::answer(self, &served, &part.shared, &all)
            }
        }
    }
}

impl LocalSession for OnnxSession {
    fn run_batches(&self, name: &str, version: &str, batches: Batches) {
        let served = ServedName { name: name.to_owned(), version: version.to_owned() };
        let pool = pool();
        let options = RunOptions::default().with_thread_pool(Some(Arc::clone(&pool)));
        // The loop runs inside the pool: a batch then starts where it arrives instead of being handed
        // to the pool's thread and back.
        pool.run(|| batches.run(|inputs| batch::run(self, &served, inputs, &options)));
    }
}

impl DecodedInput for TensorInput {
    fn items(&self) -> u32 {
        self.rows().len() as u32
    }

    fn split(&self, items: u32) -> Vec<Arc<dyn DecodedInput>> {
        let parts = Self::split(self.clone(), items).into_iter();
        parts.map(|part| Arc::new(part) as Arc<dyn DecodedInput>).collect()
    }

    fn is_part(&self) -> bool {
        self.part.is_some()
    }

    fn put_meta(&self, out: &mut BytesMut) {
        wire::put_meta(self, out);
    }

    fn put_body(&self, out: &mut BytesMut) {
        wire::put_body(self, out);
    }

    fn put_identity(&self, out: &mut BytesMut) {
        wire::put_identity(self, out);
    }
}

/// One item of zeros, where every dimension has a size but the batch and the one that is padded.
fn zeros(signature: &Signature, padded: Option<&str>) -> Option<Input> {
    if !signature.batches() {
        return None;
    }
    let inputs: Option<Vec<_>> = signature.inputs.iter().map(|spec| zero(spec, padded)).collect();
    let body = json!({ "inputs": inputs? }).to_string();
    let route = CallRoute { open_inference: true, ..CallRoute::default() };
    let parameter = Parameter {
        name: "body".into(),
        content_type: "application/json".into(),
        value: body.into_bytes().into(),
    };
    Some(Input {
        id: "jitney-sample".to_owned(),
        headers: HeaderBlock::new(),
        route,
        parameters: vec![parameter],
        tensors: None,
    })
}

fn zero(spec: &TensorSpec, padded: Option<&str>) -> Option<serde_json::Value> {
    let sizes = spec.shape.as_ref()?.iter().enumerate().map(|(place, dim)| match dim {
        Dim::Fixed(size) => Some(*size),
        Dim::Open(_) if place == 0 => Some(1),
        Dim::Open(name) => (padded == Some(name)).then_some(SAMPLE_LENGTH),
    });
    let shape = sizes.collect::<Option<Vec<usize>>>()?;
    let count = shape.iter().try_fold(1usize, |count, size| count.checked_mul(*size))?;
    let data = (count <= SAMPLE_NUMBERS_MAX).then(|| vec![0; count])?;
    let datatype = spec.datatype.as_str();
    Some(json!({ "name": spec.name, "shape": shape, "datatype": datatype, "data": data }))
}

#[cfg(test)]
mod tests {
    use jitney_engine::tensors::Datatype;

    use super::*;

    #[test]
    fn a_signature_with_sizes_gives_zeros_and_one_without_gives_nothing() {
        let spec = |shape| TensorSpec {
            name: "x".to_owned(),
            datatype: Datatype::Fp32,
            shape: Some(shape),
        };
        let open = |name: &str| Dim::Open(name.to_owned());
        let signature = |shape| Signature { inputs: vec![spec(shape)], outputs: Vec::new() };
        let fixed = zeros(&signature(vec![open("n"), Dim::Fixed(3)]), None).unwrap();
        let body: serde_json::Value = serde_json::from_slice(&fixed.parameters[0].value).unwrap();
        assert_eq!(body["inputs"][0]["shape"], json!([1, 3]));
        let lengths = || signature(vec![open("n"), open("length")]);
        assert!(zeros(&lengths(), None).is_none());
        let padded = zeros(&lengths(), Some("length")).unwrap();
        let body: serde_json::Value = serde_json::from_slice(&padded.parameters[0].value).unwrap();
        assert_eq!(body["inputs"][0]["shape"], json!([1, SAMPLE_LENGTH]));
    }
}
