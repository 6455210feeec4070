//! A TorchServe prediction in one message each way, which nearly all are, without tonic in between. tonic
//! answers what is compressed, comes in pieces or cannot be read.

use std::future::poll_fn;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use jitney_engine::call::SequenceRef;
use jitney_proto::Message;
use jitney_proto::inference::PredictionsRequest;
use tonic::Status;

use super::call_log::CallBody;
use super::message_body::{HEAD, MessageBody};
use super::methods::PREDICTIONS;
use super::predict::predict;
use super::request::GrpcRequest;
use crate::state::ServerState;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// The message of such a prediction.
pub(super) async fn message(request: &mut Request<MessageBody>) -> Option<PredictionsRequest> {
    if request.uri().path() != PREDICTIONS || request.body().encoding().is_some() {
        return None;
    }
    let read = |bytes: &Bytes| PredictionsRequest::decode(bytes.clone()).ok();
    poll_fn(|context| request.body_mut().poll_only_message(context, read)).await
}

/// Answers it.
///
/// # Errors
/// The request was rejected, or the model failed.
pub(super) async fn answer(
    state: &ServerState,
    request: Request<MessageBody>,
    message: PredictionsRequest,
) -> Result<Response<CallBody>, Status> {
    let mut request = GrpcRequest::plain(request.into_parts().0)?;
    let sequence =
        message.sequence_id.clone().map(|id| SequenceRef { id, ..SequenceRef::default() });
    let answered = predict(&state.inference, &mut request, message, sequence).await?;
    let (metadata, pieces, extensions) = answered.into_parts();
    let mut response = Response::new(CallBody::Message(framed(&pieces.whole().await?)?));
    *response.headers_mut() = metadata.into_headers();
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    *response.extensions_mut() = extensions;
    Ok(response)
}

/// A message with its head.
fn framed(message: &impl Message) -> Result<Bytes, Status> {
    let length = message.encoded_len();
    let head = u32::try_from(length).map_err(|_| Status::internal("The answer is too long."))?;
    let mut framed = BytesMut::with_capacity(HEAD + length);
    framed.put_u8(0);
    framed.put_u32(head);
    message.encode(&mut framed).map_err(|error| Status::internal(error.to_string()))?;
    Ok(framed.freeze())
}

#[cfg(test)]
mod tests {
    use jitney_proto::inference::PredictionResponse;

    use super::*;

    #[test]
    fn a_message_has_its_length_before_it() {
        let prediction = Bytes::from_static(b"answer");
        let message = PredictionResponse { prediction, ..PredictionResponse::default() };
        let framed = framed(&message).unwrap();
        assert_eq!(framed[..HEAD], [0, 0, 0, 0, 8]);
        assert_eq!(PredictionResponse::decode(&framed[HEAD..]).unwrap(), message);
    }
}
