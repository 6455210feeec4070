//! The whole way of a request through real models: accepted, batched, run, answered.

mod bad_inputs;
mod cards;
mod forms;
mod magika;
mod parts;

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::answer::ServedName;
use super::card::{Card, InputKind, OutputKind};
use super::decode::decode;
use super::request::TensorInput;
use super::*;
use jitney_engine::call::{CallRoute, DecodedInput, HeaderBlock, Input, Parameter};
use jitney_engine::local::LocalModel;
use jitney_engine::outcome::{BatchOutcome, ModelFailure};
use jitney_engine::tensors::Datatype;

/// `sum = a + b` and `product = a @ [[1, 0], [0, 1], [1, 1]]` over rows of three.
const PAIR: &[u8] = include_bytes!("testdata/pair.onnx");
/// `twice = 2 * ids` and `positive = ids > 0` over rows of any length, 64-bit integers.
const LENGTH: &[u8] = include_bytes!("testdata/length.onnx");
/// `y = -x` with the batch fixed to one row of two.
const SINGLE: &[u8] = include_bytes!("testdata/single.onnx");
/// Sums over the batch, so that rows are lost.
const LOSSY: &[u8] = include_bytes!("testdata/lossy.onnx");
/// Reshapes to four columns, which most row lengths do not allow.
const FUSSY: &[u8] = include_bytes!("testdata/fussy.onnx");

static MAGIKA: LazyLock<OnnxSession> =
    LazyLock::new(|| embedded::magika().expect("the embedded model loads"));

/// Tests speak of the model and mean the session where it runs.
impl std::ops::Deref for OnnxSession {
    type Target = OnnxModel;

    fn deref(&self) -> &OnnxModel {
        &self.model
    }
}

fn model(file: &'static [u8]) -> OnnxSession {
    with_card(file, Card::default())
}

fn with_card(file: &'static [u8], card: Card) -> OnnxSession {
    OnnxSession::from_bytes("tiny", Cow::Borrowed(file), card).expect("a test model loads")
}

fn input(parameters: &[(&'static str, &[u8])]) -> Input {
    let parameter = |(name, value): &(&'static str, &[u8])| Parameter {
        name: Cow::Borrowed(name),
        content_type: Cow::Borrowed("application/json"),
        value: value.to_vec().into(),
    };
    let parameters = parameters.iter().map(parameter).collect();
    Input {
        id: "request-1".to_owned(),
        headers: HeaderBlock::new(),
        route: CallRoute::default(),
        parameters,
        tensors: None,
    }
}

fn body(value: impl AsRef<[u8]>) -> Input {
    input(&[("body", value.as_ref())])
}

fn accept(model: &OnnxModel, json: &str) -> TensorInput {
    decode(model, &body(json)).expect(json)
}

fn run(model: &OnnxSession, inputs: &[TensorInput]) -> BatchOutcome {
    let served = ServedName { name: "tiny".to_owned(), version: "2.0".to_owned() };
    let inputs: Vec<_> =
        inputs.iter().map(|input| Arc::new(input.clone()) as Arc<dyn DecodedInput>).collect();
    model.engine.in_worker(1, |worker| batch::run(&model.model, &served, &inputs, worker))
}

/// The answers to a batch that succeeds.
fn answers(model: &OnnxSession, inputs: &[TensorInput]) -> Vec<String> {
    let BatchOutcome::Items(items) = run(model, inputs) else { panic!("the batch failed") };
    let text = |item: Result<jitney_engine::call::Output, ModelFailure>| {
        let output = item.expect("an answer");
        assert_eq!(output.headers, [("Content-Type".to_owned(), "application/json".to_owned())]);
        String::from_utf8(output.body.to_vec()).expect("JSON is UTF-8")
    };
    items.into_iter().map(text).collect()
}

/// The failure of a batch that fails.
fn failure(model: &OnnxSession, inputs: &[TensorInput]) -> ModelFailure {
    let BatchOutcome::Failed(failure) = run(model, inputs) else { panic!("the batch succeeded") };
    failure
}

/// The answer to one JSON request that is alone in its batch.
fn ask(model: &OnnxSession, json: &str) -> Value {
    let answers = answers(model, &[accept(model, json)]);
    serde_json::from_str(&answers[0]).expect("JSON")
}
