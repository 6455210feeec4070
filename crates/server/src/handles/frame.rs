//! The frames of a handle connection as bytes: `protocol/handles.md` in Rust.
//!
//! Pure: bytes in, frames out, and back. Everything is checked before it is used, and no length that a
//! client names reserves memory.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use jitney_engine::call::{Claim, Output, Priority, Timing};

use crate::errors::Problem;
use crate::request_options::is_tenant;

/// Bytes of a frame's header.
pub(super) const HEADER: usize = 16;
/// Bytes of a CALL before its names.
const CALL_HEAD: usize = 14;
/// Bytes of a claim before the tenant's name.
const CLAIM_HEAD: usize = 9;
/// Names and headers of a CALL may have so many bytes in all, beside the body.
pub(super) const NAMES_MAX: u64 = 5 * u16::MAX as u64;
/// A CALL with this bit has a claim.
pub(super) const HAS_CLAIM: u8 = 1;
/// A CALL with this bit has headers.
pub(super) const HAS_HEADERS: u8 = 2;

/// The kind of a frame: the first byte after the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum HandleFrameKind {
    Call = 1,
    Cancel = 2,
    Answer = 3,
    First = 4,
    Chunk = 5,
    End = 6,
    Error = 7,
}

/// Why a client's bytes are no frames; the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandleFrameError {
    /// Not a kind that clients send.
    UnknownKind,
    /// Flags without a meaning.
    UnknownFlags,
    /// Longer than any call may be.
    TooLarge,
    /// The payload does not fit its own lengths.
    Malformed,
    /// A call under the id of one that is still under way.
    TakenId,
}

impl HandleFrameError {
    /// Its name in the vectors and the log.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::UnknownKind => "unknown-kind",
            Self::UnknownFlags => "unknown-flags",
            Self::TooLarge => "too-large",
            Self::Malformed => "malformed",
            Self::TakenId => "taken-id",
        }
    }
}

/// What a client sends.
#[derive(Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly every frame is a call, and is moved once")]
pub(super) enum ClientFrame {
    /// A call to begin.
    Call(HandleCall),
    /// A call that the client no longer waits for.
    Cancel {
        /// The call's.
        id: u64,
    },
}

/// A call as it was sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HandleCall {
    pub(super) id: u64,
    pub(super) timeout: Option<Duration>,
    pub(super) priority: Priority,
    pub(super) claim: Claim,
    pub(super) model: String,
    pub(super) version: Option<String>,
    pub(super) endpoint: String,
    /// The MIME type of a plain body; empty for the arguments of a definition.
    pub(super) content_type: String,
    /// What a request over HTTP would have as headers.
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// The call of a frame that is not complete, and how many bytes the frame has in all.
pub(super) fn half(bytes: &[u8]) -> Option<(u64, usize)> {
    let (mut header, _) = bytes.split_at_checked(HEADER)?;
    let length = header.get_u32_le() as usize;
    header.advance(4);
    Some((header.get_u64_le(), HEADER + length))
}

/// Takes one frame off the front, if a whole one is there.
pub(super) fn take(
    bytes: &mut BytesMut,
    limit: u64,
) -> Result<Option<ClientFrame>, HandleFrameError> {
    let Some((mut header, rest)) = bytes.split_at_checked(HEADER) else { return Ok(None) };
    let (length, kind, flags) = (header.get_u32_le(), header.get_u8(), header.get_u8());
    let (_, id) = (header.get_u16_le(), header.get_u64_le());
    if kind != HandleFrameKind::Call as u8 && kind != HandleFrameKind::Cancel as u8 {
        return Err(HandleFrameError::UnknownKind);
    }
    if flags != 0 {
        return Err(HandleFrameError::UnknownFlags);
    }
    if u64::from(length) > limit {
        return Err(HandleFrameError::TooLarge);
    }
    if rest.len() < length as usize {
        return Ok(None);
    }
    bytes.advance(HEADER);
    let payload = bytes.split_to(length as usize).freeze();
    if kind == HandleFrameKind::Call as u8 {
        return call(id, payload).map(|call| Some(ClientFrame::Call(call)));
    }
    if payload.is_empty() {
        Ok(Some(ClientFrame::Cancel { id }))
    } else {
        Err(HandleFrameError::Malformed)
    }
}

fn call(id: u64, mut payload: Bytes) -> Result<HandleCall, HandleFrameError> {
    if payload.len() < CALL_HEAD {
        return Err(HandleFrameError::Malformed);
    }
    let millis = payload.get_u32_le();
    let priority = match payload.get_u8() {
        0 => Priority::Interactive,
        1 => Priority::Bulk,
        _ => return Err(HandleFrameError::Malformed),
    };
    let more = payload.get_u8();
    if more & !(HAS_CLAIM | HAS_HEADERS) != 0 {
        return Err(HandleFrameError::Malformed);
    }
    let lengths = [(); 4].map(|()| usize::from(payload.get_u16_le()));
    let mut name = |length: usize| text(&mut payload, length);
    let [model, version, endpoint, content_type] = lengths;
    Ok(HandleCall {
        id,
        timeout: (millis > 0).then(|| Duration::from_millis(millis.into())),
        priority,
        model: name(model)?,
        version: Some(name(version)?).filter(|version| !version.is_empty()),
        endpoint: name(endpoint)?,
        content_type: name(content_type)?,
        claim: if more & HAS_CLAIM != 0 { claim(&mut payload)? } else { Claim::default() },
        headers: if more & HAS_HEADERS != 0 { headers(&mut payload)? } else { HeaderMap::new() },
        body: payload,
    })
}

/// Tenant and cost; calls without them have no such part.
fn claim(payload: &mut Bytes) -> Result<Claim, HandleFrameError> {
    if payload.len() < CLAIM_HEAD {
        return Err(HandleFrameError::Malformed);
    }
    let (cost, length) = (payload.get_u64_le(), usize::from(payload.get_u8()));
    let tenant = text(payload, length)?;
    if !tenant.is_empty() && !is_tenant(&tenant) {
        return Err(HandleFrameError::Malformed);
    }
    let tenant = Some(tenant).filter(|tenant| !tenant.is_empty()).map(Into::into);
    Ok(Claim { tenant, cost: Some(cost).filter(|cost| *cost > 0), items: None })
}

/// Headers in the form of the worker protocol, all of which could come by HTTP.
fn headers(payload: &mut Bytes) -> Result<HeaderMap, HandleFrameError> {
    let broken = HandleFrameError::Malformed;
    let length = payload.try_get_u16_le().map_err(|_| broken)?;
    if payload.len() < usize::from(length) {
        return Err(broken);
    }
    let mut block = payload.split_to(length.into());
    let mut headers = HeaderMap::new();
    while !block.is_empty() {
        let name_len = block.try_get_u16_le().map_err(|_| broken)?;
        let value_len = block.try_get_u32_le().map_err(|_| broken)?;
        let name = text(&mut block, name_len.into())?;
        let value = text(&mut block, usize::try_from(value_len).map_err(|_| broken)?)?;
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| broken)?;
        let value = HeaderValue::from_str(&value).map_err(|_| broken)?;
        headers.append(name, value);
    }
    Ok(headers)
}

fn text(payload: &mut Bytes, length: usize) -> Result<String, HandleFrameError> {
    if payload.len() < length {
        return Err(HandleFrameError::Malformed);
    }
    let text = std::str::from_utf8(&payload[..length]).map_err(|_| HandleFrameError::Malformed)?;
    let text = text.to_owned();
    payload.advance(length);
    Ok(text)
}

/// What the server sends about a call.
#[derive(Debug)]
pub(super) enum ServerFrame {
    /// The whole answer.
    Answer(Output, Timing),
    /// The head and the first piece of a stream.
    First(Output, Timing),
    /// A further piece.
    Chunk(Bytes),
    /// The stream is complete.
    End,
    /// There is no answer, or no rest of it.
    Failed(Problem),
}

impl ServerFrame {
    /// Whether nothing follows it.
    pub(super) fn is_last(&self) -> bool {
        match self {
            Self::First(..) | Self::Chunk(_) => false,
            Self::Answer(..) | Self::End | Self::Failed(_) => true,
        }
    }

    /// Bytes of its body.
    pub(super) fn body_len(&self) -> usize {
        match self {
            Self::Answer(output, _) | Self::First(output, _) => output.body.len(),
            Self::Chunk(piece) => piece.len(),
            Self::End | Self::Failed(_) => 0,
        }
    }

    /// Writes the frame but for its body, which the caller sends next.
    pub(super) fn write(self, id: u64, out: &mut BytesMut) -> Bytes {
        match self {
            Self::Answer(output, timing) => {
                answer(HandleFrameKind::Answer, id, output, &timing, out)
            }
            Self::First(output, timing) => answer(HandleFrameKind::First, id, output, &timing, out),
            Self::Chunk(piece) => {
                header(HandleFrameKind::Chunk, id, piece.len(), out);
                piece
            }
            Self::End => {
                header(HandleFrameKind::End, id, 0, out);
                Bytes::new()
            }
            Self::Failed(problem) => failed(id, &problem, out),
        }
    }
}

fn header(kind: HandleFrameKind, id: u64, length: usize, out: &mut BytesMut) {
    // No answer is that long: a worker's frame, in which it came, has a lower limit.
    out.put_u32_le(u32::try_from(length).unwrap_or(u32::MAX));
    out.put_u8(kind as u8);
    out.put_u8(0);
    out.put_u16_le(0);
    out.put_u64_le(id);
}

fn answer(
    kind: HandleFrameKind,
    id: u64,
    output: Output,
    timing: &Timing,
    out: &mut BytesMut,
) -> Bytes {
    let typed = output.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    let content_type = typed.map_or("", |(_, value)| value.as_str());
    let content_type = if content_type.len() > usize::from(u16::MAX) { "" } else { content_type };
    header(kind, id, 24 + content_type.len() + output.body.len(), out);
    let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    out.put_u32_le(micros(timing.queue));
    out.put_u32_le(micros(timing.compute));
    out.put_u32_le(timing.batch_items);
    out.put_u32_le(timing.batch_items_max);
    out.put_u16_le(u16::try_from(timing.position).unwrap_or(u16::MAX));
    out.put_u8(timing.attempt);
    out.put_u8(timing.reason as u8);
    out.put_u16_le(output.status.as_ref().map_or(200, |(status, _)| *status));
    out.put_u16_le(content_type.len() as u16);
    out.put_slice(content_type.as_bytes());
    output.body
}

fn failed(id: u64, problem: &Problem, out: &mut BytesMut) -> Bytes {
    let kind = problem.code.row().kind;
    let message = problem.full_message();
    header(HandleFrameKind::Error, id, 8 + kind.len() + message.len(), out);
    out.put_u16_le(problem.status);
    out.put_u16_le(kind.len() as u16);
    let wait = problem.retry_after.map_or(0, |wait| wait.as_millis().max(1));
    out.put_u32_le(u32::try_from(wait).unwrap_or(u32::MAX));
    out.put_slice(kind.as_bytes());
    Bytes::copy_from_slice(message.as_bytes())
}
