//! Requests as models read them, typed and raw.

use super::*;

fn input(datatype: &str, shape: &[i64], contents: Option<InferTensorContents>) -> InferInputTensor {
    let (name, datatype) = ("x".to_owned(), datatype.to_owned());
    InferInputTensor { name, datatype, shape: shape.to_vec(), contents, ..Default::default() }
}

fn request(input: InferInputTensor, raw: &[&'static [u8]]) -> ModelInferRequest {
    ModelInferRequest {
        model_name: "m".to_owned(),
        id: "7".to_owned(),
        inputs: vec![input],
        raw_input_contents: raw.iter().map(|raw| Bytes::from_static(raw)).collect(),
        ..Default::default()
    }
}

fn data(request: &ModelInferRequest) -> Result<String, String> {
    let json: serde_json::Value = serde_json::from_slice(&write(request)?).unwrap();
    Ok(json["inputs"][0]["data"].to_string())
}

#[test]
fn typed_contents_become_json() {
    let contents = InferTensorContents { fp32_contents: vec![0.1, 2.0], ..Default::default() };
    let mut request = request(input("FP32", &[1, 2], Some(contents)), &[]);
    let json = String::from_utf8(write(&request).unwrap().to_vec()).unwrap();
    let expected = r#"{"id":"7","model_name":"m","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[0.1,2.0]}]}"#;
    assert_eq!(json, expected);
    let top = InferParameter { parameter_choice: Some(ParameterChoice::Int64Param(3)) };
    request.parameters.insert("top".to_owned(), top);
    request.outputs.push(Default::default());
    let json: serde_json::Value = serde_json::from_slice(&write(&request).unwrap()).unwrap();
    assert_eq!((&json["parameters"]["top"], &json["outputs"][0]["name"]), (&3.into(), &"".into()));
}

#[test]
fn every_type_can_come_raw() {
    let cases: [(&str, &[i64], &'static [u8], &str); 10] = [
        ("BOOL", &[2], b"\x01\x00", "[true,false]"),
        ("INT8", &[2], b"\xff\x02", "[-1,2]"),
        ("INT16", &[1], b"\x00\x01", "[256]"),
        ("INT64", &[1], b"\xfe\xff\xff\xff\xff\xff\xff\xff", "[-2]"),
        ("UINT8", &[1, 1], b"\xff", "[255]"),
        ("UINT32", &[1], b"\xff\xff\xff\xff", "[4294967295]"),
        ("FP16", &[1], b"\x00\x3c", "[1.0]"),
        ("FP32", &[1], b"\x00\x00\x00\x3f", "[0.5]"),
        ("FP64", &[0], b"", "[]"),
        ("BYTES", &[2], b"\x02\0\0\0hi\0\0\0\0", r#"["aGk=",""]"#),
    ];
    for (datatype, shape, raw, expected) in cases {
        let request = request(input(datatype, shape, None), &[raw]);
        assert_eq!(data(&request).as_deref(), Ok(expected), "{datatype}");
    }
}

#[test]
fn contents_that_do_not_fit_are_rejected_by_name() {
    let both = Some(InferTensorContents::default());
    for (input, raw, expected) in [
        (
            input("FP32", &[2], None),
            &[&b"\0\0\0\0"[..]][..],
            "input \"x\": 4 bytes came raw, its shape and datatype make 8",
        ),
        (input("FP32", &[-1], None), &[b""], "input \"x\": [-1] is not a valid shape"),
        (
            input("FP32", &[i64::MAX, 4], None),
            &[b""],
            "input \"x\": [9223372036854775807, 4] is not a valid shape",
        ),
        (input("BYTES", &[1], None), &[b"\x09\0\0\0"], "input \"x\": a BYTES element is cut off"),
        (input("COMPLEX", &[1], None), &[b""], "input \"x\": unknown datatype \"COMPLEX\""),
        (input("BOOL", &[0], both), &[b""], "input \"x\": it has both contents and raw contents"),
        (input("FP16", &[1], None), &[], "input \"x\": FP16 comes in raw_input_contents only"),
        (input("BOOL", &[0], None), &[b"", b""], "raw_input_contents has 2 entries for 1 inputs"),
    ] {
        assert_eq!(data(&request(input, raw)).unwrap_err(), expected);
    }
}
