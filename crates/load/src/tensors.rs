//! Tensors to send: what they are called, their type and shape, and their bytes. For Open Inference,
//! over HTTP with the binary extension and over gRPC.

use bytes::Bytes;
use jitney_proto::Message as _;
use jitney_proto::inference::PredictionsRequest;
use jitney_proto::kserve::ModelInferRequest;
use jitney_proto::kserve::model_infer_request::InferInputTensor;
use serde_json::json;

/// The elements of a text tensor are this long.
const TEXT: &[u8] = b"the quick brown fox";
/// The largest tensor that is made.
const BYTES_MAX: u64 = 1 << 30;

/// A tensor to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputTensor {
    /// Its name.
    pub name: String,
    /// Its element type, such as `FP32`.
    pub datatype: String,
    /// Its dimensions.
    pub shape: Vec<u64>,
    /// Where its elements come from.
    pub source: TensorSource,
}

/// Where the elements of a tensor come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TensorSource {
    /// Chance.
    Random,
    /// Nothing but zeros.
    Zeros,
    /// A file with the raw bytes.
    File(String),
}

impl std::str::FromStr for InputTensor {
    type Err = String;

    /// `name:FP32:1,3,224,224`, and `:random`, `:zeros` or a file behind it.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!("{text:?} {why}; write it like name:FP32:1,3,224,224 or name:FP32:1,4:file.bin")
        };
        let mut parts = text.splitn(4, ':');
        let (Some(name), Some(datatype), Some(shape)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong("is not a tensor"));
        };
        let shape: Result<Vec<u64>, _> = shape.split(',').map(str::parse).collect();
        let source = match parts.next() {
            None | Some("random") => TensorSource::Random,
            Some("zeros") => TensorSource::Zeros,
            Some(file) => TensorSource::File(file.to_owned()),
        };
        let datatype = datatype.to_ascii_uppercase();
        if element_bytes(&datatype).is_none() {
            return Err(wrong("has an unknown element type"));
        }
        let shape = shape.map_err(|_| wrong("has a shape that is no list of numbers"))?;
        let tensor = Self { name: name.to_owned(), datatype, shape, source };
        match tensor.elements().filter(|count| count * 8 <= BYTES_MAX) {
            Some(_) => Ok(tensor),
            None => Err(wrong("is too large")),
        }
    }
}

impl InputTensor {
    fn elements(&self) -> Option<u64> {
        self.shape.iter().try_fold(1u64, |product, size| product.checked_mul(*size))
    }

    /// The bytes that its type and shape ask for; texts have any length.
    #[must_use]
    pub fn bytes_wanted(&self) -> Option<u64> {
        let size = element_bytes(&self.datatype)?;
        (size > 0).then(|| self.elements().unwrap_or(0) * size)
    }

    /// Elements from chance, or zeros.
    #[must_use]
    pub fn made(&self, seed: u64) -> Vec<u8> {
        let mut chance = fastrand::Rng::with_seed(seed);
        let count = self.elements().unwrap_or(0);
        if self.source == TensorSource::Zeros {
            return vec![0; usize::try_from(self.bytes_wanted().unwrap_or(4 * count)).unwrap_or(0)];
        }
        let mut bytes = Vec::new();
        for _ in 0..count {
            element(&self.datatype, &mut chance, &mut bytes);
        }
        bytes
    }
}

/// Bytes of an element; none for texts, which say their length themselves.
fn element_bytes(datatype: &str) -> Option<u64> {
    Some(match datatype {
        "BOOL" | "INT8" | "UINT8" => 1,
        "INT16" | "UINT16" | "FP16" | "BF16" => 2,
        "INT32" | "UINT32" | "FP32" => 4,
        "INT64" | "UINT64" | "FP64" => 8,
        "BYTES" => 0,
        _ => return None,
    })
}

/// One random element: numbers between 0 and 1, whole ones below 100.
fn element(datatype: &str, chance: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
    match datatype {
        "FP32" => bytes.extend(chance.f32().to_le_bytes()),
        "FP64" => bytes.extend(chance.f64().to_le_bytes()),
        // The exponent of 0.5, and a random fraction.
        "FP16" => bytes.extend((0x3800 | chance.u16(..0x400)).to_le_bytes()),
        "BF16" => bytes.extend((0x3f00 | chance.u16(..0x80)).to_le_bytes()),
        "BOOL" => bytes.push(chance.u8(..2)),
        "BYTES" => {
            bytes.extend((TEXT.len() as u32).to_le_bytes());
            bytes.extend(TEXT);
        }
        whole => {
            let size = usize::try_from(element_bytes(whole).unwrap_or(1)).unwrap_or(1);
            bytes.extend(&chance.u64(..100).to_le_bytes()[..size]);
        }
    }
}

/// A request of Open Inference over HTTP with the binary extension: the length of its JSON part, for
/// the header `Inference-Header-Content-Length`, and the body.
#[must_use]
pub fn binary_body(tensors: &[(InputTensor, Bytes)]) -> (usize, Bytes) {
    let inputs: Vec<_> = tensors
        .iter()
        .map(|(tensor, bytes)| {
            json!({
                "name": tensor.name,
                "shape": tensor.shape,
                "datatype": tensor.datatype,
                "parameters": {"binary_data_size": bytes.len()},
            })
        })
        .collect();
    let head = json!({"inputs": inputs, "parameters": {"binary_data_output": true}}).to_string();
    let mut body = Vec::with_capacity(head.len());
    body.extend(head.as_bytes());
    tensors.iter().for_each(|(_, bytes)| body.extend(bytes));
    (head.len(), Bytes::from(body))
}

/// The message `ModelInfer` of Open Inference.
#[must_use]
pub fn infer_message(model: &str, tensors: &[(InputTensor, Bytes)]) -> Bytes {
    let input = |tensor: &InputTensor| InferInputTensor {
        name: tensor.name.clone(),
        datatype: tensor.datatype.clone(),
        shape: tensor.shape.iter().map(|size| i64::try_from(*size).unwrap_or(i64::MAX)).collect(),
        ..InferInputTensor::default()
    };
    let message = ModelInferRequest {
        model_name: model.to_owned(),
        inputs: tensors.iter().map(|(tensor, _)| input(tensor)).collect(),
        raw_input_contents: tensors.iter().map(|(_, bytes)| bytes.to_vec().into()).collect(),
        ..ModelInferRequest::default()
    };
    message.encode_to_vec().into()
}

/// The message `Predictions` of TorchServe: the body is the input `data`.
#[must_use]
pub fn predictions_message(model: &str, body: &Bytes) -> Bytes {
    let message = PredictionsRequest {
        model_name: model.to_owned(),
        input: [("data".to_owned(), body.to_vec().into())].into_iter().collect(),
        ..PredictionsRequest::default()
    };
    message.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_is_read_from_its_flag() {
        let tensor: InputTensor = "x:fp32:2,3".parse().expect("a tensor");
        assert_eq!((tensor.name.as_str(), tensor.datatype.as_str()), ("x", "FP32"));
        assert_eq!((tensor.shape.as_slice(), tensor.bytes_wanted()), ([2, 3].as_slice(), Some(24)));
        let file: InputTensor = "x:INT8:4:/tmp/a:b.bin".parse().expect("a tensor");
        assert_eq!(file.source, TensorSource::File("/tmp/a:b.bin".to_owned()));
        for wrong in
            ["x", "x:FP32", "x:FP31:1", "x:FP32:1,a", "x:FP32:9999999999,99999999999", "x:FP32:-1"]
        {
            assert!(wrong.parse::<InputTensor>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn made_elements_have_their_size_and_range() {
        for datatype in ["BOOL", "UINT8", "INT16", "FP16", "BF16", "INT32", "FP32", "INT64", "FP64"]
        {
            let tensor: InputTensor = format!("x:{datatype}:5,7").parse().expect("a tensor");
            assert_eq!(Some(tensor.made(1).len() as u64), tensor.bytes_wanted(), "{datatype}");
        }
        let tensor: InputTensor = "x:FP32:100".parse().expect("a tensor");
        let bytes = tensor.made(1);
        let numbers = bytes
            .chunks_exact(4)
            .map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]));
        assert!(numbers.into_iter().all(|number| (0.0..1.0).contains(&number)));
        let texts: InputTensor = "x:BYTES:2".parse().expect("a tensor");
        assert_eq!(texts.made(1).len(), 2 * (4 + TEXT.len()));
    }

    #[test]
    fn the_binary_extension_is_json_and_then_the_tensors() {
        let tensor = |text: &str| text.parse::<InputTensor>().expect("a tensor");
        let tensors = [
            (tensor("a:INT8:2"), Bytes::from_static(&[1, 2])),
            (tensor("b:INT16:1"), Bytes::from_static(&[3, 4])),
        ];
        let (head, body) = binary_body(&tensors);
        assert_eq!(body[head..], [1, 2, 3, 4]);
        let json: serde_json::Value = serde_json::from_slice(&body[..head]).expect("JSON");
        assert_eq!(json["inputs"][1]["parameters"]["binary_data_size"], 2);
        assert_eq!(json["inputs"][0]["shape"], json!([2]));
    }

    #[test]
    fn messages_of_grpc_carry_the_tensors() {
        let tensor: InputTensor = "a:INT8:2".parse().expect("a tensor");
        let message = infer_message("m", &[(tensor, Bytes::from_static(&[1, 2]))]);
        let message = ModelInferRequest::decode(message).expect("a message");
        assert_eq!(
            (message.model_name.as_str(), message.inputs[0].shape.as_slice()),
            ("m", [2].as_slice())
        );
        assert_eq!(message.raw_input_contents[0].as_ref() as &[u8], [1, 2]);
        let message = predictions_message("m", &Bytes::from_static(b"body"));
        let message = PredictionsRequest::decode(message).expect("a message");
        assert_eq!(message.input["data"].as_ref() as &[u8], b"body");
    }
}
