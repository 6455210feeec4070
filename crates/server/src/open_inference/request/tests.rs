//! Bodies of REST as they are read, and as they are rejected.

use jitney_engine::admission::{Admission, AdmissionLimits};

use super::*;

fn read_all(body: &Bytes, json_length: Option<usize>) -> Result<OpenInferenceRequest, String> {
    let admission = Admission::new(AdmissionLimits::default());
    read(body, json_length, &mut SharedReader::new(None, &admission, 1 << 20))
}

fn spec(datatype: Datatype, shape: &[i64]) -> TensorSpec {
    let dim = |(place, size): (usize, &i64)| match usize::try_from(*size) {
        Ok(size) => Dim::Fixed(size),
        Err(_) => Dim::Open(format!("d{place}")),
    };
    let shape = Some(shape.iter().enumerate().map(dim).collect());
    TensorSpec { name: "x".to_owned(), datatype, shape }
}

fn read_json(json: &str) -> Result<OpenInferenceRequest, String> {
    read_all(&Bytes::copy_from_slice(json.as_bytes()), None)
}

fn input(fields: &str) -> String {
    format!(r#"{{"inputs": [{{"name": "x", {fields}}}]}}"#)
}

#[test]
fn json_and_raw_tensors_may_be_mixed() {
    let json = r#"{"id": "7", "parameters": {"binary_data_output": true, "priority": 2}, "inputs": [
        {"name": "a", "datatype": "INT8", "shape": [2], "parameters": {"binary_data_size": 2}},
        {"name": "b", "datatype": "FP32", "shape": [1, 2], "data": [[0.5, 1]]},
        {"name": "c", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 6}}],
        "outputs": [{"name": "y", "parameters": {"classification": 3, "binary_data": false}}]}"#;
    let body = Bytes::from([json.as_bytes(), b"\x01\xff\x02\0\0\0hi"].concat());
    let request = read_all(&body, Some(json.len())).expect("reads");
    assert_eq!((request.id.as_str(), request.binary_output()), ("7", true));
    let [a, b, c] = request.inputs.as_slice() else { panic!("three inputs") };
    assert_eq!((&a.tensor.data()[..], c.tensor.data().len()), (&b"\x01\xff"[..], 6));
    assert_eq!(&b.tensor.data()[..], b"\0\0\0\x3f\0\0\x80\x3f");
    let [output] = request.outputs.as_slice() else { panic!("one output") };
    assert_eq!((output.classes(), output.binary()), (Ok(Some(3)), Some(false)));
    let short = body.slice(..body.len() - 1);
    let why = read_all(&short, Some(json.len())).expect_err("cut off");
    assert_eq!(why, "input \"c\": binary_data_size is 6, and 5 bytes are left in the body.");
    let long = Bytes::from([&body[..], b"?"].concat());
    let why = read_all(&long, Some(json.len())).expect_err("too long");
    assert_eq!(why, "1 bytes follow the tensors that the request describes.");
    let why = read_all(&body, Some(body.len() + 1)).expect_err("out of range");
    assert!(why.contains("and the body has"), "{why}");
}

#[test]
fn what_contradicts_itself_is_rejected_in_words() {
    let many = format!(r#"{{"inputs": [{}]}}"#, "[".repeat(10_000));
    let deep =
        input(&format!(r#""datatype": "FP32", "shape": [1], "data": {}"#, "[".repeat(10_000)));
    for (json, expected) in [
        ("", "not JSON of the Open Inference Protocol"),
        ("[1]", "not JSON of the Open Inference Protocol"),
        ("{}", "missing field `inputs`"),
        (many.as_str(), "not JSON of the Open Inference Protocol"),
        (deep.as_str(), "not JSON of the Open Inference Protocol"),
        (&input(r#""datatype": "FP32", "shape": [2], "data": [1]"#), "has 2 elements, and 1 came"),
        (&input(r#""datatype": "FP32", "shape": [-1], "data": [1]"#), "a size below 0"),
        (
            &input(r#""datatype": "FP32", "shape": [9223372036854775807, 4], "data": [1]"#),
            "has too many elements",
        ),
        (&input(r#""datatype": "FP32", "shape": [1e30], "data": [1]"#), "invalid type"),
        (&input(r#""datatype": "fp32", "shape": [1], "data": [1]"#), "unknown datatype \"fp32\""),
        (&input(r#""datatype": "FP32", "shape": [1]"#), "it has no data"),
        (
            &input(r#""datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": -4}"#),
            "binary_data_size must be a whole number",
        ),
        (
            &input(
                r#""datatype": "FP32", "shape": [1], "data": [1],
                   "parameters": {"binary_data_size": 4}"#,
            ),
            "more than one of",
        ),
        (
            &input(
                r#""datatype": "FP32", "shape": [1],
                   "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 4}"#,
            ),
            "Shared memory is off",
        ),
    ] {
        let why = read_json(json).expect_err(json);
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn parameters_become_options() {
    let read = |parameters: &str| {
        let json = format!(r#"{{"parameters": {parameters}, "inputs": []}}"#);
        read_json(&json).expect("reads")
    };
    let started = Instant::now();
    let options = |parameters: &str| {
        let mut options = RequestOptions::read(&http::HeaderMap::new(), started).expect("none");
        read(parameters).apply(started, &mut options).map(|()| options)
    };
    let timed = options(r#"{"timeout": 1500}"#).expect("a number");
    assert_eq!(timed.deadline, Some(started + Duration::from_micros(1500)));
    let urgent = [r#"{"priority": 0}"#, r#"{"priority": 1}"#, r#"{"priority": 2}"#]
        .map(|text| options(text).expect("a number").priority);
    assert_eq!(urgent, [Priority::Interactive, Priority::Interactive, Priority::Bulk]);
    assert!(options(r#"{"timeout": -1}"#).is_err() && options(r#"{"priority": "a"}"#).is_err());
    let named =
        |text| read(text).sequence().map(|found| found.map(|it| (it.id, it.starts, it.ends)));
    let seven = Some(("7".to_owned(), true, false));
    assert_eq!(named(r#"{"sequence_id": 7, "sequence_start": true}"#), Ok(seven));
    let over = r#"{"sequence_id": "a", "sequence_end": true}"#;
    assert_eq!(named(over), Ok(Some(("a".to_owned(), false, true))));
    assert_eq!(named(r#"{"sequence_id": 0}"#), Ok(None));
    assert!(named(r#"{"sequence_id": []}"#).is_err());
}

#[test]
fn a_body_without_json_is_the_only_input() {
    let raw = |specs: Vec<TensorSpec>, body: &'static [u8]| {
        let outputs = specs.clone();
        let read = raw("m", &Signature { inputs: specs, outputs }, &Bytes::from_static(body));
        read.map(|request| request.inputs[0].tensor.shape().to_vec())
    };
    assert_eq!(raw(vec![spec(Datatype::Bytes, &[-1])], b"hello"), Ok(vec![1]));
    assert_eq!(raw(vec![spec(Datatype::Int8, &[-1, 2])], &[0; 6]), Ok(vec![3, 2]));
    assert_eq!(raw(vec![spec(Datatype::Int8, &[-1, -1])], &[0; 6]), Ok(vec![1, 6]));
    assert_eq!(raw(vec![spec(Datatype::Int16, &[3])], &[0; 6]), Ok(vec![3]));
    for (specs, body) in [
        (vec![spec(Datatype::Int16, &[3])], &[0; 5][..]),
        (vec![spec(Datatype::Int16, &[2, 0, -1])], &[0; 4]),
        (vec![spec(Datatype::Int8, &[-1, -1, -1])], &[0; 4]),
        (vec![spec(Datatype::Int8, &[1]); 2], &[0; 1]),
        (vec![], &[]),
    ] {
        assert!(raw(specs, body).expect_err("does not fit").contains("Model \"m\""));
    }
}
