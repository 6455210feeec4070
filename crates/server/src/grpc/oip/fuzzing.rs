//! What must hold for every message of the Open Inference Protocol. `fuzz/` looks for one for which it
//! does not; the tests try those of `fuzz/corpus` again.

use std::sync::Arc;

use jitney_engine::admission::{Admission, AdmissionLimits};
use jitney_proto::kserve::ModelInferRequest;
use serde_json::Value;

use super::tensors::{AnswerForm, InferMessage};
use crate::open_inference::answer::OpenInferenceAnswer;
use crate::open_inference::archive;
use crate::open_inference::elements::BytesForm;
use crate::shared_memory::SharedReader;

/// Reads a request, writes it as JSON, and answers with its own tensors: rejected, or whole.
pub fn infer_request(request: &ModelInferRequest) {
    let admission: Arc<Admission> = Admission::new(AdmissionLimits::default());
    let reader = SharedReader::new(None, &admission, 1 << 20);
    let Ok(message) = InferMessage::read(request, None, reader) else { return };
    let json = archive::write(&message.request, &request.model_name, BytesForm::Base64);
    let json: Value = serde_json::from_slice(&json.expect("base64 holds all")).expect("JSON");
    let inputs = json["inputs"].as_array().expect("inputs");
    assert_eq!(inputs.len(), request.inputs.len());
    assert_eq!(json["model_name"], request.model_name.as_str());
    for (written, input) in inputs.iter().zip(&request.inputs) {
        assert_eq!(written["name"], input.name.as_str());
        let data = written["data"].as_array().expect("a list");
        let elements: i64 = input.shape.iter().product();
        assert_eq!(data.len() as i64, elements, "as many elements as the shape has");
    }
    for (raw, typed) in [(true, false), (false, true), (true, true)] {
        let outputs = message.request.inputs.iter().map(|it| it.tensor.clone().into()).collect();
        let answer = OpenInferenceAnswer { outputs, ..OpenInferenceAnswer::default() };
        let reply = message.reply(answer, AnswerForm { raw, typed }).expect("no shared memory");
        assert_eq!(reply.outputs.len(), inputs.len());
        assert_eq!(reply.raw_output_contents.len(), if raw { inputs.len() } else { 0 });
        let halves = |name: &str| raw && ["FP16", "BF16"].contains(&name);
        let has = |contents: bool, name: &str| contents == (typed && !halves(name));
        assert!(reply.outputs.iter().all(|it| has(it.contents.is_some(), &it.datatype)));
    }
}

#[cfg(test)]
#[test]
fn the_corpus_holds() {
    use prost::Message as _;

    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/grpc_messages");
    for file in std::fs::read_dir(corpus).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        if let Ok(request) = ModelInferRequest::decode(&bytes[..]) {
            infer_request(&request);
        }
    }
}
