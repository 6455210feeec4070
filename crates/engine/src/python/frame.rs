//! The worker frames of `protocol/spec.md` as bytes: encoding what the server says, decoding what
//! workers say. Pure functions over buffers; `link` does the reading and writing.
//!
//! A decoder trusts no length: every field is checked against the frame before it is used, and a
//! frame that does not add up is an error, never a panic and never a read beyond its end.

mod batch;
mod reply;

use bytes::{Buf, BufMut, BytesMut};

pub(crate) use self::batch::BatchFrame;
pub(crate) use self::reply::{decode_chunk, decode_failed, decode_reply};

/// Bytes of every frame's header.
pub(crate) const HEADER_LEN: usize = 16;

/// The longest payload either side accepts.
pub(crate) const PAYLOAD_MAX: u32 = 1 << 30;

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
    Metric = 10,
    Cancel = 11,
}

impl FrameKind {
    const ALL: [Self; 11] = [
        Self::Hello,
        Self::Load,
        Self::Loaded,
        Self::LoadFailed,
        Self::Batch,
        Self::Reply,
        Self::Failed,
        Self::Chunk,
        Self::Stop,
        Self::Metric,
        Self::Cancel,
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
        out.put_u32_le(self.length);
        out.put_u8(self.kind as u8);
        out.put_u8(0);
        out.put_u16_le(self.count);
        out.put_u64_le(self.id);
    }
}

/// A control frame: one JSON object.
pub(crate) fn encode_control(kind: FrameKind, message: &serde_json::Value, out: &mut BytesMut) {
    let text = message.to_string();
    FrameHeader { length: text.len() as u32, kind, count: 0, id: 0 }.encode(out);
    out.put_slice(text.as_bytes());
}

/// Tells a worker that no caller waits for this batch any more.
pub(crate) fn encode_cancel(batch: u64, out: &mut BytesMut) {
    FrameHeader { length: 0, kind: FrameKind::Cancel, count: 0, id: batch }.encode(out);
}

/// Reads a control frame's JSON object; an empty payload is an empty object.
pub(crate) fn decode_control<T: serde::de::DeserializeOwned>(
    payload: &[u8],
) -> Result<T, FrameError> {
    let payload = if payload.is_empty() { b"{}" } else { payload };
    serde_json::from_slice(payload).map_err(|error| FrameError::BadControl(error.to_string()))
}
