//! The embedded model: real files get real names.

use serde_json::Map;

use super::*;

fn file(path: &str) -> Vec<u8> {
    std::fs::read(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).expect(path)
}

fn identify(inputs: &[TensorInput]) -> Vec<Map<String, Value>> {
    let answers = answers(&MAGIKA, inputs);
    answers.iter().map(|answer| serde_json::from_str(answer).expect("an object")).collect()
}

fn accept_file(content: &[u8]) -> TensorInput {
    decode(&MAGIKA, &body(content)).expect("any bytes are accepted")
}

#[test]
fn files_are_named_by_their_kind_with_the_likeliest_first() {
    let cases: [(&[u8], &str); 4] = [
        (&file("Cargo.toml"), "toml"),
        (&file("src/decode.rs"), "rust"),
        (&file("../../models/magika/model.onnx"), "onnx"),
        (b"#!/bin/bash\nset -e\nfor i in $(seq 3); do echo \"$i\"; done\n", "shell"),
    ];
    let inputs: Vec<_> = cases.iter().map(|(content, _)| accept_file(content)).collect();
    for (answer, (_, expected)) in identify(&inputs).iter().zip(cases) {
        assert_eq!(answer.len(), 3, "the card asks for the top three");
        let (label, probability) = answer.iter().next().expect("a first label");
        assert_eq!(label, expected, "{answer:?}");
        assert!(probability.as_f64().expect("a number") > 0.8, "{answer:?}");
    }
}

#[test]
fn a_batch_of_files_gets_the_labels_that_each_gets_alone() {
    let files = ["Cargo.toml", "src/lib.rs", "src/testdata/pair.onnx"].map(file);
    let inputs = files.map(|content| accept_file(&content));
    let together = identify(&inputs);
    for (input, together) in inputs.iter().zip(together) {
        let alone = identify(std::slice::from_ref(input)).remove(0);
        assert!(together.keys().eq(alone.keys()), "{together:?} {alone:?}");
        for (label, probability) in together {
            let difference = probability.as_f64().zip(alone[&label].as_f64());
            let (left, right) = difference.expect("numbers");
            assert!((left - right).abs() < 1e-5, "{label}: {left} {right}");
        }
    }
}

#[test]
fn a_json_file_is_a_file_unless_the_route_says_otherwise() {
    let text =
        br#"{"inputs": [{"name": "bytes", "shape": [1], "datatype": "INT32", "data": [1]}]}"#;
    assert_eq!(identify(&[accept_file(text)])[0].keys().next().map(String::as_str), Some("json"));
    let row = serde_json::to_string(&vec![256; 2048]).expect("numbers");
    let mut request = body(format!(
        r#"{{"inputs": [{{"name": "bytes", "shape": [1, 2048], "datatype": "INT32", "data": {row}}}]}}"#
    ));
    request.route.open_inference = true;
    let accepted = decode(&MAGIKA, &request).expect("it fits");
    let answer = &answers(&MAGIKA, &[accepted])[0];
    let answer: Value = serde_json::from_str(answer).expect("an object");
    assert_eq!(answer["outputs"][0]["shape"], serde_json::json!([1, 214]), "tensors, not labels");
}

#[test]
fn the_model_says_who_it_is_and_what_it_takes() {
    assert_eq!((MAGIKA.name(), MAGIKA.version(), MAGIKA.max_batch_size()), ("magika", "3.3", None));
    assert_eq!(MAGIKA.signature().inputs[0].to_string(), "INT32 of shape [n, 2048]");
    assert_eq!(MAGIKA.signature().inputs[0].shape_or_minus_one(), [-1, 2048]);
    let request = decode(&MAGIKA, &body("any bytes at all")).expect("a file");
    assert_eq!((request.shared.items, request.group()), (1, 0));
}
