//! The worker frames of `protocol/spec.md` as bytes: their header, control messages, and what workers answer.
//! `batch_frame` writes the batches. Pure functions over buffers; `connection` does the reading and writing.
//!
//! A decoder trusts no length: every field is checked against the frame before it is used, and a
//! frame that does not add up is an error, never a panic and never a read beyond its end.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{taken_numbers, tensor_entries};
use crate::call::{FRAME_BYTES_MAX, Output};
use crate::outcome::{Cause, ItemOutcome, ModelFailure};
use crate::pool::{BatchTimes, CollectorPauses, micros};

/// Bytes of every frame's header.
pub(crate) const HEADER_LEN: usize = 16;

/// The longest payload either side accepts.
pub(crate) const PAYLOAD_MAX: u32 = FRAME_BYTES_MAX;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Hello = 1,
    Load = 2,
    Loaded = 3,
    LoadFailed = 4,
    Batch = 5,
    Reply = 6,
    Failed = 7,
    Chunk = 8,
    Stop = 9,
    Times = 10,
    Cancel = 11,
    Progress = 12,
    Share = 13,
}

impl FrameKind {
    const ALL: [Self; 13] = [
        Self::Hello,
        Self::Load,
        Self::Loaded,
        Self::LoadFailed,
        Self::Batch,
        Self::Reply,
        Self::Failed,
        Self::Chunk,
        Self::Stop,
        Self::Times,
        Self::Cancel,
        Self::Progress,
        Self::Share,
    ];
}

/// How a frame can be wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    #[error("unknown flags {0:#04x}")]
    UnknownFlags(u8),
    #[error("a payload of {0} bytes is over the limit")]
    TooLong(u32),
    #[error("a length in the frame exceeds the frame")]
    Truncated,
    #[error("{0} bytes are left over at the end of the frame")]
    LeftOver(usize),
    #[error("unknown outcome or cause {0}")]
    UnknownOutcome(u8),
    #[error("text in the frame is not UTF-8")]
    NotText,
    #[error("a tensor in the frame is broken: {0}")]
    BadTensor(String),
    #[error("the control message does not parse: {0}")]
    BadControl(String),
    #[error("unexpected {0:?} frame")]
    Unexpected(FrameKind),
}

/// The first 16 bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) length: u32,
    pub(crate) kind: FrameKind,
    pub(crate) count: u16,
    pub(crate) id: u64,
}

impl FrameHeader {
    pub(crate) fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self, FrameError> {
        let mut bytes = &bytes[..];
        let (length, kind, flags) = (bytes.get_u32_le(), bytes.get_u8(), bytes.get_u8());
        let (count, id) = (bytes.get_u16_le(), bytes.get_u64_le());
        let known = FrameKind::ALL.into_iter().find(|known| *known as u8 == kind);
        let kind = known.ok_or(FrameError::UnknownKind(kind))?;
        if flags != 0 {
            return Err(FrameError::UnknownFlags(flags));
        }
        if length > PAYLOAD_MAX {
            return Err(FrameError::TooLong(length));
        }
        Ok(Self { length, kind, count, id })
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        let mut header = [0; HEADER_LEN];
        let mut fields = &mut header[..];
        fields.put_u32_le(self.length);
        fields.put_u8(self.kind as u8);
        fields.put_u8(0);
        fields.put_u16_le(self.count);
        fields.put_u64_le(self.id);
        out.put_slice(&header);
    }
}

/// A control frame: one JSON object.
pub(crate) fn encode_control(kind: FrameKind, message: &serde_json::Value, out: &mut BytesMut) {
    let text = message.to_string();
    FrameHeader { length: text.len() as u32, kind, count: 0, id: 0 }.encode(out);
    out.put_slice(text.as_bytes());
}

/// Tells a worker whose callers have left this batch; without positions all have.
pub(crate) fn encode_cancel(batch: u64, positions: &[u16], out: &mut BytesMut) {
    let text = match positions {
        [] => String::new(),
        _ => serde_json::json!({ "positions": positions }).to_string(),
    };
    FrameHeader { length: text.len() as u32, kind: FrameKind::Cancel, count: 0, id: batch }
        .encode(out);
    out.put_slice(text.as_bytes());
}

/// Reads a control frame's JSON object; an empty payload is an empty object.
pub(crate) fn decode_control<T: serde::de::DeserializeOwned>(
    payload: &[u8],
) -> Result<T, FrameError> {
    let payload = if payload.is_empty() { b"{}" } else { payload };
    serde_json::from_slice(payload).map_err(|error| FrameError::BadControl(error.to_string()))
}

/// Reads a reply's items. Bodies share the frame's memory.
pub(crate) fn decode_reply(count: u16, payload: Bytes) -> Result<Vec<ItemOutcome>, FrameError> {
    decode_items(count, payload, decode_item)
}

/// Reads a chunk's pieces: each with the place of its request in the batch.
pub(crate) fn decode_chunk(count: u16, payload: Bytes) -> Result<Vec<(usize, Output)>, FrameError> {
    decode_items(count, payload, |mut meta, body| {
        let position = meta.try_get_u16_le().map_err(|_| FrameError::Truncated)?;
        // A piece that failed could only be told as the end of its request, which a reply says.
        let piece = decode_item(meta, body)?.map_err(|_| FrameError::UnknownOutcome(1))?;
        match piece.tensors {
            Some(_) => Err(FrameError::UnknownOutcome(2)),
            None => Ok((usize::from(position), piece)),
        }
    })
}

/// Cuts a table of items into metas and bodies and reads each.
pub(crate) fn decode_items<T>(
    count: u16,
    payload: Bytes,
    item: impl Fn(Bytes, Bytes) -> Result<T, FrameError>,
) -> Result<Vec<T>, FrameError> {
    let mut items = Vec::with_capacity(usize::from(count));
    let mut table = Reader(payload.clone());
    let mut rest = Reader(payload);
    rest.take(usize::from(count) * 8)?;
    for _ in 0..count {
        let (meta_len, body_len) = (table.u32()?, table.u32()?);
        let meta = rest.take(meta_len as usize)?;
        items.push(item(meta, rest.take(body_len as usize)?)?);
    }
    rest.finish()?;
    Ok(items)
}

fn decode_item(meta: Bytes, body: Bytes) -> Result<ItemOutcome, FrameError> {
    if meta.is_empty() {
        return Ok(Ok(Output { body, ..Output::default() }));
    }
    let mut meta = Reader(meta);
    let (outcome, cause, status) = (meta.u8()?, meta.u8()?, meta.u16()?);
    let (phrase_len, header_count) = (meta.u16()?, meta.u16()?);
    let phrase = meta.text(usize::from(phrase_len))?;
    let headers = (0..header_count).map(|_| meta.header()).collect::<Result<_, _>>()?;
    let answered = Output { status: Some((status, phrase)), headers, ..Output::default() };
    if outcome == 2 {
        let tensors = tensor_entries::decode(&mut meta.0, body);
        let tensors = Some(tensors.map_err(FrameError::BadTensor)?);
        meta.finish()?;
        return Ok(Ok(Output { tensors, ..answered }));
    }
    let body = match outcome {
        3 => taken_numbers::decode(&mut meta.0, body).ok_or(FrameError::Truncated)?,
        _ => body,
    };
    meta.finish()?;
    match outcome {
        0 | 3 => Ok(Ok(Output { body, ..answered })),
        1 => {
            let status = (status != 0).then_some(status);
            let message = String::from_utf8_lossy(&body).into_owned();
            Ok(Err(ModelFailure {
                cause: cause_of(cause)?,
                status,
                message,
                fields: answered.headers,
            }))
        }
        other => Err(FrameError::UnknownOutcome(other)),
    }
}

fn cause_of(code: u8) -> Result<Cause, FrameError> {
    Ok(match code {
        1 => Cause::Raised,
        2 => Cause::Memory,
        3 => Cause::Prediction,
        4 => Cause::NotAList,
        5 => Cause::WrongLength,
        6 => Cause::UnsupportedOutput,
        7 => Cause::Stated,
        other => return Err(FrameError::UnknownOutcome(other)),
    })
}

/// The payload of a `Failed` frame.
#[derive(Debug, serde::Deserialize)]
struct FailedMessage {
    cause: String,
    status: Option<u16>,
    message: String,
}

/// Reads the failure of a whole batch.
pub(crate) fn decode_failed(payload: &[u8]) -> Result<ModelFailure, FrameError> {
    let failed: FailedMessage = decode_control(payload)?;
    let cause = match failed.cause.as_str() {
        "raised" => Cause::Raised,
        "memory" => Cause::Memory,
        "prediction" => Cause::Prediction,
        "not-a-list" => Cause::NotAList,
        "wrong-length" => Cause::WrongLength,
        other => return Err(FrameError::BadControl(format!("unknown cause {other:?}"))),
    };
    Ok(ModelFailure::new(cause, failed.message).with_status(failed.status))
}

/// The payload of a `Times` frame.
#[derive(Debug, serde::Deserialize)]
struct TimesMessage {
    prepare_us: Option<f64>,
    model_us: Option<f64>,
    gpu_memory_bytes: Option<u64>,
    gc_runs: Option<u64>,
    #[serde(default)]
    gc_us: f64,
    #[serde(default)]
    gc_longest_us: f64,
    #[serde(default)]
    beside: bool,
}

/// Reads how long a batch took.
pub(crate) fn decode_times(payload: &[u8]) -> Result<BatchTimes, FrameError> {
    let times: TimesMessage = decode_control(payload)?;
    Ok(BatchTimes {
        prepare: times.prepare_us.map(micros),
        model: times.model_us.map(micros),
        gpu_memory: times.gpu_memory_bytes,
        pauses: times.gc_runs.map(|runs| CollectorPauses {
            runs,
            total: micros(times.gc_us),
            longest: micros(times.gc_longest_us),
        }),
        beside: times.beside,
    })
}

/// Takes checked pieces off the front of a buffer.
struct Reader(Bytes);

impl Reader {
    fn take(&mut self, length: usize) -> Result<Bytes, FrameError> {
        if length > self.0.len() {
            return Err(FrameError::Truncated);
        }
        Ok(self.0.split_to(length))
    }

    fn u8(&mut self) -> Result<u8, FrameError> {
        self.0.try_get_u8().map_err(|_| FrameError::Truncated)
    }

    fn u16(&mut self) -> Result<u16, FrameError> {
        self.0.try_get_u16_le().map_err(|_| FrameError::Truncated)
    }

    fn u32(&mut self) -> Result<u32, FrameError> {
        self.0.try_get_u32_le().map_err(|_| FrameError::Truncated)
    }

    fn text(&mut self, length: usize) -> Result<String, FrameError> {
        let bytes = self.take(length)?;
        String::from_utf8(bytes.into()).map_err(|_| FrameError::NotText)
    }

    fn header(&mut self) -> Result<(String, String), FrameError> {
        let (name_len, value_len) = (self.u16()?, self.u32()?);
        Ok((self.text(usize::from(name_len))?, self.text(value_len as usize)?))
    }

    fn finish(self) -> Result<(), FrameError> {
        match self.0.len() {
            0 => Ok(()),
            left => Err(FrameError::LeftOver(left)),
        }
    }
}
