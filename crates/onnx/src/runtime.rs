//! ONNX models as the engine runs them: how it loads a file, decodes a request, makes up a sample and
//! runs the batches of a worker.

use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use jitney_engine::call::{CallRoute, DecodedInput, HeaderBlock, Input, Output};
use jitney_engine::local::{
    Batches, BodyKind, Decoded, LoadedModel, LocalModel, LocalRuntime, LocalSession, Signature,
};
use jitney_engine::outcome::{ItemOutcome, ModelFailure};
use jitney_engine::tensors::TensorRequest;
use serde_json::Value;

use super::answer::{self, ServedName};
use super::batch;
use super::card::{InputKind, OutputKind};
use super::decode::decode;
use super::model::{OnnxModel, OnnxSession};
use super::probe;
use super::request::{self, BodyForm, TensorInput};
use super::wire;

/// What the engine needs to serve `.onnx` files.
pub const RUNTIME: LocalRuntime =
    LocalRuntime { extension: "onnx", load, declare, describe, worker_command: "onnx-worker" };

/// The version of models whose card names none, as TorchServe's archiver has it.
const VERSION_DEFAULT: &str = "1.0";

fn load(path: &Path, options: &Value) -> Result<LoadedModel, String> {
    let session = OnnxSession::open(path, options).map_err(|error| error.to_string())?;
    Ok(session.into())
}

fn declare(path: &Path) -> Result<Arc<dyn LocalModel>, String> {
    let model = OnnxModel::declared(path).map_err(|error| error.to_string())?;
    Ok(model)
}

fn describe(path: &Path, signature: Signature) -> Result<Arc<dyn LocalModel>, String> {
    let model = OnnxModel::described(path, signature).map_err(|error| error.to_string())?;
    Ok(model)
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

    fn takes_tensors(&self) -> bool {
        true
    }

    fn body_kind(&self) -> BodyKind {
        match self.card.input {
            InputKind::Tensors => BodyKind::Tensors,
            InputKind::FileBytes(_) => BodyKind::File,
            InputKind::Image(_) => BodyKind::Image,
            InputKind::Text(_) => BodyKind::Text,
        }
    }

    /// 1 when the model's first dimension is not open, the card's limit otherwise.
    fn max_batch_size(&self) -> Option<u32> {
        if self.signature.batches() { self.card.max_batch_size } else { Some(1) }
    }

    fn labels(&self, output: &str) -> Option<&[String]> {
        let first = self.signature.outputs.first().is_some_and(|spec| spec.name == output);
        match &self.card.output {
            OutputKind::Labels(ranking) if first => Some(&ranking.labels),
            OutputKind::Labels(_) | OutputKind::Tensors => None,
        }
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
        let decoded = self.decode(sample(&self.signature, padded)?).ok()?;
        (decoded.items == 1).then_some(decoded)
    }

    fn finish(
        &self,
        name: &str,
        version: &str,
        input: &dyn DecodedInput,
        output: Output,
    ) -> ItemOutcome {
        let unreadable = || ModelFailure::raised("the worker's outputs do not read as tensors");
        let input = request::tensors_of(input).ok_or_else(unreadable)?;
        let outputs = wire::read_outputs(&output.body).ok_or_else(unreadable)?;
        let all = match (&input.part, &input.shared.form) {
            (Some(_), _) => match request::gathered(&[input], &outputs)? {
                None => return Ok(Output::default()),
                Some(all) => all,
            },
            (None, BodyForm::Tensors { outputs: requested }) => {
                return answer::named(self, requested, outputs);
            }
            (None, BodyForm::OpenInference { .. } | BodyForm::Plain) => outputs,
        };
        let served = ServedName { name: name.to_owned(), version: version.to_owned() };
        answer::answer(self, &served, &input.shared, &all)
    }
}

impl LocalSession for OnnxSession {
    fn run_batches(&self, name: &str, version: &str, batches: Batches) {
        let served = ServedName { name: name.to_owned(), version: version.to_owned() };
        self.engine.in_worker(self.threads.count(), |worker| {
            batches.run(|inputs| batch::run(&self.model, &served, inputs, worker));
        });
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

    fn wants_tensors(&self) -> bool {
        matches!(self.shared.form, BodyForm::Tensors { .. } | BodyForm::OpenInference { .. })
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
fn sample(signature: &Signature, padded: Option<&str>) -> Option<Input> {
    if !signature.batches() {
        return None;
    }
    let named = signature.inputs.iter().zip(probe::zeros(signature, padded, 1)?);
    let inputs = named.map(|(spec, tensor)| tensor.named(&spec.name).ok());
    let request = TensorRequest { inputs: inputs.collect::<Option<_>>()?, outputs: Vec::new() };
    Some(Input {
        id: "jitney-sample".to_owned(),
        headers: HeaderBlock::new(),
        route: CallRoute::default(),
        parameters: Vec::new(),
        tensors: Some(Arc::new(request)),
    })
}

#[cfg(test)]
mod tests {
    use jitney_engine::local::{Dim, TensorSpec};
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
        let shape = |input: Option<Input>| {
            let tensors = input?.tensors?;
            Some(tensors.inputs[0].shape().to_vec())
        };
        let fixed = sample(&signature(vec![open("n"), Dim::Fixed(3)]), None);
        assert_eq!(shape(fixed), Some(vec![1, 3]));
        let lengths = || signature(vec![open("n"), open("length")]);
        assert!(sample(&lengths(), None).is_none());
        assert_eq!(shape(sample(&lengths(), Some("length"))), Some(vec![1, probe::SAMPLE_LENGTH]));
    }
}
