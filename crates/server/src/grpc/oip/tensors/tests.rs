//! Messages with tensors in every form, and those that contradict themselves.

use std::sync::Arc;

use jitney_engine::admission::{Admission, AdmissionLimits};

use super::*;

fn input(
    datatype: &str,
    shape: &[i64],
    contents: Option<pb::InferTensorContents>,
) -> InferInputTensor {
    InferInputTensor {
        name: "x".to_owned(),
        datatype: datatype.to_owned(),
        shape: shape.to_vec(),
        contents,
        ..InferInputTensor::default()
    }
}

fn request(inputs: Vec<InferInputTensor>, raw: &[&'static [u8]]) -> pb::ModelInferRequest {
    pb::ModelInferRequest {
        model_name: "m".to_owned(),
        id: "7".to_owned(),
        inputs,
        raw_input_contents: raw.iter().map(|raw| Bytes::from_static(raw)).collect(),
        ..pb::ModelInferRequest::default()
    }
}

fn read(message: &pb::ModelInferRequest) -> Result<InferMessage, Problem> {
    let admission: Arc<Admission> = Admission::new(AdmissionLimits::default());
    InferMessage::read(message, None, SharedReader::new(None, &admission, 1 << 20))
}

fn echo(message: &InferMessage, form: AnswerForm) -> pb::ModelInferResponse {
    let outputs = message.request.inputs.iter().map(|input| input.tensor.clone().into()).collect();
    let answer = OpenInferenceAnswer { outputs, ..OpenInferenceAnswer::default() };
    message.reply(answer, form).unwrap()
}

const RAW: AnswerForm = AnswerForm { raw: true, typed: false };
const TYPED: AnswerForm = AnswerForm { raw: false, typed: true };
const BOTH: AnswerForm = AnswerForm { raw: true, typed: true };

#[test]
fn typed_contents_are_raw_ones_and_back() {
    let all = pb::InferTensorContents {
        bool_contents: vec![true, false],
        int_contents: vec![-2, 127],
        int64_contents: vec![i64::MIN, i64::MAX],
        uint_contents: vec![0, 255],
        uint64_contents: vec![0, u64::MAX],
        fp32_contents: vec![0.1, f32::NEG_INFINITY],
        fp64_contents: vec![0.1, 5e-324],
        bytes_contents: vec![Bytes::from_static(b"\xff"), Bytes::new()],
    };
    let none = pb::InferTensorContents::default;
    for (datatype, contents) in [
        ("BOOL", pb::InferTensorContents { bool_contents: all.bool_contents.clone(), ..none() }),
        ("INT8", pb::InferTensorContents { int_contents: all.int_contents.clone(), ..none() }),
        ("INT16", pb::InferTensorContents { int_contents: all.int_contents.clone(), ..none() }),
        ("INT32", pb::InferTensorContents { int_contents: all.int_contents.clone(), ..none() }),
        ("INT64", pb::InferTensorContents { int64_contents: all.int64_contents.clone(), ..none() }),
        ("UINT8", pb::InferTensorContents { uint_contents: all.uint_contents.clone(), ..none() }),
        ("UINT16", pb::InferTensorContents { uint_contents: all.uint_contents.clone(), ..none() }),
        ("UINT32", pb::InferTensorContents { uint_contents: all.uint_contents.clone(), ..none() }),
        (
            "UINT64",
            pb::InferTensorContents { uint64_contents: all.uint64_contents.clone(), ..none() },
        ),
        ("FP32", pb::InferTensorContents { fp32_contents: all.fp32_contents.clone(), ..none() }),
        ("FP64", pb::InferTensorContents { fp64_contents: all.fp64_contents.clone(), ..none() }),
        ("BYTES", pb::InferTensorContents { bytes_contents: all.bytes_contents.clone(), ..none() }),
    ] {
        let message =
            read(&request(vec![input(datatype, &[2], Some(contents.clone()))], &[])).unwrap();
        assert!(message.typed);
        for form in [TYPED, BOTH] {
            let reply = echo(&message, form);
            assert_eq!(reply.outputs[0].contents.as_ref(), Some(&contents), "{datatype}");
            assert_eq!(reply.raw_output_contents.len(), usize::from(form.raw));
        }
    }
}

#[test]
fn raw_contents_are_not_looked_at() {
    let raw = Bytes::from_static(b"\x02\0\0\0hi\0\0\0\0");
    let mut sent = request(vec![input("BYTES", &[2], None), input("FP16", &[1], None)], &[]);
    sent.raw_input_contents = vec![raw.clone(), Bytes::from_static(b"\0\x3c")];
    let message = read(&sent).unwrap();
    assert!(!message.typed);
    let reply = echo(&message, RAW);
    assert_eq!(reply.raw_output_contents[0].as_ptr(), raw.as_ptr());
    assert!(reply.outputs.iter().all(|output| output.contents.is_none()));
    assert_eq!((reply.outputs[1].datatype.as_str(), reply.outputs[1].shape[0]), ("FP16", 1));
    // Typed contents have no half precision.
    assert_eq!(echo(&message, TYPED).outputs[1].datatype, "FP32");
    assert_eq!(echo(&message, TYPED).outputs[1].contents.as_ref().unwrap().fp32_contents, [1.0]);
    assert_eq!(echo(&message, BOTH).outputs[1].datatype, "FP16");
}

#[test]
fn what_contradicts_itself_is_rejected_with_the_inputs_name() {
    let some = || Some(pb::InferTensorContents { int_contents: vec![300], ..Default::default() });
    let region = |name: &str, choice| {
        let mut input = input("FP32", &[1], None);
        let parameter_choice = Some(choice);
        input.parameters.insert(name.to_owned(), pb::InferParameter { parameter_choice });
        input
    };
    let text = |text: &str| ParameterChoice::StringParam(text.to_owned());
    for (wrong, expected) in [
        (
            request(vec![input("FP32", &[2], None)], &[b"1234"]),
            "FP32 of shape [2] has 8 bytes, not 4",
        ),
        (request(vec![input("FP32", &[-1], None)], &[b"1234"]), "below 0"),
        (request(vec![input("FLOAT", &[1], None)], &[b"1234"]), "unknown datatype \"FLOAT\""),
        (request(vec![input("INT8", &[1], some())], &[]), "300 does not fit INT8"),
        (request(vec![input("FP16", &[1], some())], &[]), "raw_input_contents only"),
        (
            request(vec![input("INT32", &[1], some())], &[b"1234"]),
            "contents field must not be specified",
        ),
        (request(vec![input("INT32", &[1], None)], &[]), "has 4 bytes, not 0"),
        (request(vec![input("INT8", &[1], None)], &[b"1", b"2"]), "too many for 1 inputs"),
        (request(vec![input("INT8", &[1], None); 2], &[b"1"]), "no entry for it"),
        (request(vec![region("shared_memory_region", text("r"))], &[]), "goes with"),
        (
            request(vec![region("shared_memory_region", ParameterChoice::BoolParam(true))], &[]),
            "must be a text",
        ),
    ] {
        let problem = read(&wrong).err().unwrap();
        assert!(problem.status == 400 && problem.message.contains(expected), "{}", problem.message);
    }
}

#[test]
fn parameters_keep_their_types() {
    let choices = [
        ("flag", ParameterChoice::BoolParam(true)),
        ("whole", ParameterChoice::Int64Param(-3)),
        ("large", ParameterChoice::Uint64Param(u64::MAX)),
        ("part", ParameterChoice::DoubleParam(0.1)),
        ("text", ParameterChoice::StringParam("a".to_owned())),
    ];
    let parameter = |choice| pb::InferParameter { parameter_choice: Some(choice) };
    let all: Parameters =
        choices.into_iter().map(|(name, choice)| (name.to_owned(), parameter(choice))).collect();
    assert_eq!(written(parameters(&all)), all);
    let mut odd = ParameterMap::new();
    odd.insert("list".to_owned(), serde_json::json!([1]));
    assert_eq!(
        written(odd)["list"].parameter_choice,
        Some(ParameterChoice::StringParam("[1]".to_owned()))
    );
}
