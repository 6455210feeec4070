//! Feeds bytes to the checks of grpc messages.

#![no_main]

use jitney_proto::inference::PredictionsRequest;
use jitney_proto::kserve::ModelInferRequest;
use jitney_proto::management::RegisterModelRequest;
use prost::Message;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    again::<PredictionsRequest>(bytes);
    again::<RegisterModelRequest>(bytes);
    if let Some(request) = again::<ModelInferRequest>(bytes) {
        jitney_server::fuzzing::infer_request(&request);
    }
});

/// A message that was read is written and read again as the same bytes.
fn again<M: Message + Default>(bytes: &[u8]) -> Option<M> {
    let message = M::decode(bytes).ok()?;
    let written = message.encode_to_vec();
    let read = M::decode(&written[..]).expect("what was written can be read");
    assert_eq!(read.encode_to_vec(), written);
    Some(message)
}
