//! What must hold for every body of the Open Inference Protocol. `fuzz/` looks for one for which it does
//! not; the tests try those of `fuzz/corpus` again.

use bytes::Bytes;
use jitney_engine::admission::{Admission, AdmissionLimits};
use jitney_engine::tensors::Datatype;

use super::elements::BytesForm;
use super::request::{self, OpenInferenceRequest};
use super::{archive, classification};
use crate::shared_memory::SharedReader;

/// Reads a body whose first two bytes say how much of the rest is JSON; all of it if they are 255.
pub fn open_inference_bodies(bytes: &[u8]) {
    let Some((length, body)) = bytes.split_first_chunk::<2>() else { return };
    let length = (*length != [255; 2]).then_some(usize::from(u16::from_le_bytes(*length)));
    let body = Bytes::copy_from_slice(body);
    let Ok(request) = read(&body, length) else { return };
    for input in &request.inputs {
        let elements = input.tensor.elements();
        let best = classification::best(&input.tensor, 3, true, &[]);
        assert_eq!(best.is_err(), input.tensor.datatype() == Datatype::Bytes);
        assert!(best.is_err() || best.is_ok_and(|best| best.elements() <= elements));
    }
    again(&request);
}

fn read(body: &Bytes, length: Option<usize>) -> Result<OpenInferenceRequest, String> {
    let admission = Admission::new(AdmissionLimits::default());
    request::read(body, length, &mut SharedReader::new(None, &admission, 1 << 20))
}

/// What was read and is written is read again as the same.
fn again(request: &OpenInferenceRequest) {
    let Ok(json) = archive::write(request, "m", BytesForm::Text) else { return };
    let read = read(&json, None).expect("what was written can be read");
    assert_eq!((&read.id, read.inputs.len()), (&request.id, request.inputs.len()));
    for (read, sent) in read.inputs.iter().zip(&request.inputs) {
        let (read, sent) = (&read.tensor, &sent.tensor);
        assert_eq!((read.name(), read.shape()), (sent.name(), sent.shape()));
        let real = [Datatype::Fp16, Datatype::Bf16, Datatype::Fp32, Datatype::Fp64, Datatype::Bool];
        // Not every NaN is the same, and not every true.
        assert!(real.contains(&sent.datatype()) || read.data() == sent.data());
    }
}

#[cfg(test)]
#[test]
fn the_corpus_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/open_inference");
    for file in std::fs::read_dir(corpus).unwrap() {
        open_inference_bodies(&std::fs::read(file.unwrap().path()).unwrap());
    }
}
