//! Tensors in one piece of bytes, as workers of Triton's Python backend send and read them: the length of the
//! protocol's JSON in four bytes, the JSON, and the elements behind it. What a request says beside its tensors reaches
//! such a worker in a header that no client can send.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use jitney_engine::Model;
use jitney_engine::admission::Admission;
use jitney_engine::call::HeaderBlock;
use jitney_engine::tensors::NamedTensor;
use serde_json::json;

use super::answer::OpenInferenceAnswer;
use super::archive;
use super::request::{self, OpenInferenceRequest};
use crate::request_options::TENSOR_REQUEST;
use crate::shared_memory::SharedReader;

/// The type of such bytes.
pub(crate) const CONTENT_TYPE: &str = "application/x-jitney-open-inference";

/// The header with the parameters of a response, which no client gets: it is no valid name.
const RESPONSE_HEADER: &str = "jitney response";

/// Parameters that the server itself acts on.
const OWN: [&str; 5] =
    ["binary_data_output", "sequence_id", "sequence_start", "sequence_end", "priority"];

/// Reads a request; an answer has its tensors in the same place.
///
/// # Errors
/// A sentence when the bytes are not such.
pub(crate) fn read(
    body: &Bytes,
    shared: &mut SharedReader<'_>,
) -> Result<OpenInferenceRequest, String> {
    let length = body.first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize);
    let length = length.ok_or("the tensors are cut off.")?;
    request::read(&body.slice(4..), Some(length), shared)
}

/// The answer of which these bytes are the tensors; none of them lies in memory that clients share.
///
/// # Errors
/// A sentence when the bytes are not such.
pub(crate) fn answer(
    body: &Bytes,
    request: &OpenInferenceRequest,
    model: &Model,
    admission: &Arc<Admission>,
) -> Result<OpenInferenceAnswer, String> {
    let OpenInferenceRequest { inputs, parameters, .. } =
        read(body, &mut SharedReader::new(None, admission, 0))?;
    let outputs = inputs.into_iter().map(|input| input.tensor.into()).collect();
    Ok(OpenInferenceAnswer { parameters, ..OpenInferenceAnswer::new(request, model, outputs) })
}

/// One piece of an answer that comes in several: tensors, the protocol's JSON, or else one element of BYTES.
///
/// # Errors
/// A sentence when a worker sent what is no such piece.
pub(crate) fn piece(
    piece: Bytes,
    request: &OpenInferenceRequest,
    model: &Model,
    admission: &Arc<Admission>,
) -> Result<OpenInferenceAnswer, String> {
    if is_triton(model) {
        return answer(&piece, request, model, admission);
    }
    if piece.starts_with(b"{")
        && let Ok(answer) = archive::read(&piece, request, model)
    {
        return Ok(answer);
    }
    let output = archive::output(&[piece])?;
    Ok(OpenInferenceAnswer::new(request, model, vec![output]))
}

/// The answer of a model that gives tensors, with the parameters that a model of Triton's Python backend set.
pub(crate) fn outputs(
    tensors: Box<[NamedTensor]>,
    headers: &[(String, String)],
    request: &OpenInferenceRequest,
    model: &Model,
) -> OpenInferenceAnswer {
    let outputs = tensors.into_iter().map(Into::into).collect();
    let mut answer = OpenInferenceAnswer::new(request, model, outputs);
    if let Some((_, set)) = headers.iter().find(|(name, _)| name == RESPONSE_HEADER) {
        answer.parameters = serde_json::from_str(set).unwrap_or_default();
    }
    answer
}

/// Writes an answer.
///
/// # Errors
/// A sentence when an output cannot be written.
pub(crate) fn write(
    answer: &OpenInferenceAnswer,
    request: &OpenInferenceRequest,
) -> Result<Bytes, String> {
    let (body, json) = answer.write(request)?;
    let mut framed = BytesMut::with_capacity(4 + body.len());
    framed.put_u32_le(u32::try_from(json.unwrap_or(body.len())).unwrap_or(u32::MAX));
    framed.put_slice(&body);
    Ok(framed.freeze())
}

/// Tells a model of Triton's Python backend what a request says beside its tensors.
pub(crate) fn tell(request: &OpenInferenceRequest, model: &Model, headers: &mut HeaderBlock) {
    if !is_triton(model) || (request.id.is_empty() && request.parameters.is_empty()) {
        return;
    }
    let mut parameters = request.parameters.clone();
    parameters.retain(|name, _| !OWN.contains(&name.as_str()));
    let told = json!({ "id": request.id, "parameters": parameters });
    headers.push(TENSOR_REQUEST, told.to_string().as_bytes());
}

/// Whether a model is of Triton's Python backend.
pub(crate) fn is_triton(model: &Model) -> bool {
    model.api().is_some_and(|api| api.triton)
}
