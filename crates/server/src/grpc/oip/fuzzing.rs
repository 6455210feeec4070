//! What must hold for every message of the Open Inference Protocol. `fuzz/` looks for one for which it
//! does not; the tests try those of `fuzz/corpus` again.

use jitney_proto::openinference::ModelInferRequest;
use serde_json::Value;

use super::{request_json, response_json};

/// Writes a request as JSON: rejected, or whole.
pub fn infer_request(request: &ModelInferRequest) {
    let Ok(json) = request_json::write(request) else { return };
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    let inputs = json["inputs"].as_array().expect("inputs");
    assert_eq!(inputs.len(), request.inputs.len());
    assert_eq!(json["model_name"], request.model_name.as_str());
    let raw = !request.raw_input_contents.is_empty();
    for (written, input) in inputs.iter().zip(&request.inputs) {
        assert_eq!(written["name"], input.name.as_str());
        let data = written["data"].as_array().expect("a list");
        if raw {
            let elements: i64 = input.shape.iter().product();
            assert_eq!(data.len() as i64, elements, "as many elements as the shape has");
        }
    }
}

/// Reads an answer of a model, as typed and as raw contents.
pub fn infer_answer(json: &[u8]) {
    let (typed, raw) = (response_json::read(json, false), response_json::read(json, true));
    let (Ok(typed), Ok(raw)) = (&typed, &raw) else {
        assert_eq!(typed.is_ok(), raw.is_ok(), "whether it is read does not depend on the form");
        return;
    };
    assert_eq!(typed.outputs.len(), raw.outputs.len());
    assert_eq!(raw.raw_output_contents.len(), raw.outputs.len());
    assert!(typed.raw_output_contents.is_empty());
    assert!(raw.outputs.iter().all(|output| output.contents.is_none()));
    assert!(typed.outputs.iter().all(|output| output.contents.is_some()));
}

#[cfg(test)]
#[test]
fn the_corpus_holds() {
    use prost::Message as _;

    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/grpc_messages");
    for file in std::fs::read_dir(corpus).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        infer_answer(&bytes);
        if let Ok(request) = ModelInferRequest::decode(&bytes[..]) {
            infer_request(&request);
        }
    }
}
