//! What must hold for every ONNX file and every body, whatever their bytes. `fuzz/` looks for bytes for
//! which it does not; the tests try those of `fuzz/corpus` again.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use bytes::{Bytes, BytesMut};

use super::answer::ServedName;
use super::card::Card;
use super::decode::decode;
use super::engine::EngineWorker;
use super::model::OnnxSession;
use super::request::TensorInput;
use super::{batch, file, wire};
use jitney_engine::call::{CallRoute, DecodedInput, HeaderBlock, Input, Parameter};
use jitney_engine::local::Dim;
use jitney_engine::outcome::BatchOutcome;

/// Loads a file: an error, or a model whose signature can be served. Panics of the loader are caught.
pub fn onnx_files(bytes: &[u8]) {
    let checked = file::check(bytes).is_ok();
    drop(file::graph(bytes));
    let loaded = OnnxSession::from_bytes("m", Cow::Owned(bytes.to_vec()), Card::default());
    let Ok(OnnxSession { model, .. }) = loaded else { return };
    assert!(checked, "nothing is loaded that was not looked through");
    assert!(!model.signature.inputs.is_empty() && !model.signature.outputs.is_empty());
}

static SESSIONS: LazyLock<[OnnxSession; 3]> = LazyLock::new(|| {
    let files: [&[u8]; 3] = [
        include_bytes!("testdata/pair.onnx"),
        include_bytes!("testdata/length.onnx"),
        include_bytes!("testdata/single.onnx"),
    ];
    files.map(|file| {
        OnnxSession::from_bytes("m", Cow::Borrowed(file), Card::default()).expect("a model")
    })
});

/// Bodies that each of the models answers.
const NEIGHBOURS: [&[u8]; 3] =
    [br#"{"a": [[1, 2, 3]], "b": [[4, 5, 6]]}"#, b"[[1, -2]]", b"[[1, 2]]"];

/// Decodes a body for a model that the first byte chooses: rejected, or as the model wants it; and a
/// neighbour in its batch gets the answer that it gets alone.
pub fn bodies(bytes: &[u8]) {
    let Some((first, body)) = bytes.split_first() else { return };
    wired(body);
    let which = usize::from(first % 3);
    let session = &SESSIONS[which];
    let model = &*session.model;
    let Ok(decoded) = decode(model, &input(body, first & 4 != 0)) else { return };
    let request = &decoded.shared;
    assert_eq!(request.tensors.len(), model.signature.inputs.len());
    for (tensor, spec) in request.tensors.iter().zip(&model.signature.inputs) {
        let elements: usize = tensor.shape().iter().product();
        assert_eq!(tensor.elements(), elements);
        let shape = spec.shape.as_deref().unwrap_or_default();
        assert_eq!(tensor.shape().len(), shape.len());
        for (size, dim) in tensor.shape().iter().zip(shape) {
            if let Dim::Fixed(fixed) = dim {
                assert_eq!(size, fixed);
            }
        }
        if model.signature.batches() {
            assert_eq!(tensor.shape()[0], request.items as usize);
        }
    }
    written(&decoded);
    if request.items > 256 {
        return;
    }
    let neighbour = decode(model, &input(NEIGHBOURS[which], false)).expect("a good body");
    let alone = second(session, &[Arc::new(neighbour.clone())]).expect("an answer");
    if model.signature.batches() && neighbour.group() == decoded.group() {
        let together = second(session, &[Arc::new(decoded), Arc::new(neighbour)]);
        assert_eq!(together, Some(alone), "nobody is answered with the rows of another");
    }
}

/// What the server writes for a worker process is read there as it was.
fn written(input: &TensorInput) {
    let (mut meta, mut body) = (BytesMut::new(), BytesMut::new());
    wire::put_meta(input, &mut meta);
    wire::put_body(input, &mut body);
    let read = wire::request(&meta, body.freeze()).expect("what was written is read");
    assert_eq!(read.shared.items, input.shared.items);
    // As text, in which a number that is none equals itself.
    assert_eq!(format!("{:?}", read.shared.tensors), format!("{:?}", input.shared.tensors));
}

/// Reads a frame's item as a worker process does: rejected, or tensors that fill their shapes.
fn wired(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first() else { return };
    let (meta, body) = rest.split_at(rest.len().min(usize::from(*length)));
    let Some(input) = wire::request(meta, Bytes::copy_from_slice(body)) else { return };
    for tensor in &input.shared.tensors {
        let elements: usize = tensor.shape().iter().product();
        assert_eq!(tensor.elements(), elements);
    }
}

/// The last answer of a batch.
fn second(session: &OnnxSession, inputs: &[Arc<dyn DecodedInput>]) -> Option<Bytes> {
    let served = ServedName { name: "m".to_owned(), version: "1.0".to_owned() };
    let run = |worker: &mut EngineWorker<'_>| batch::run(&session.model, &served, inputs, worker);
    let BatchOutcome::Items(mut items) = session.engine.in_worker(1, run) else { return None };
    assert_eq!(items.len(), inputs.len());
    items.pop()?.ok().map(|output| output.body)
}

fn input(body: &[u8], open_inference: bool) -> Input {
    Input {
        id: "1".to_owned(),
        headers: HeaderBlock::new(),
        route: CallRoute { open_inference, ..CallRoute::default() },
        parameters: vec![Parameter {
            name: "body".into(),
            content_type: "application/json".into(),
            value: body.to_vec().into(),
        }],
        tensors: None,
    }
}

#[cfg(test)]
#[test]
fn the_corpus_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus");
    for (target, check) in [("onnx_files", onnx_files as fn(&[u8])), ("bodies", bodies)] {
        for file in std::fs::read_dir(format!("{corpus}/{target}")).unwrap() {
            check(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }
}
