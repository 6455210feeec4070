//! What a worker says about a batch: its items' outcomes, pieces of them, or that it failed.
//!
//! Nothing a worker writes is believed before it is checked; bodies share the frame's memory.

use bytes::{Buf, Bytes};

use super::{FrameError, decode_control};
use crate::call::Output;
use crate::outcome::{Cause, ItemOutcome, ModelFailure};

/// Reads a reply's items. Bodies share the frame's memory.
pub(crate) fn decode_reply(count: u16, payload: Bytes) -> Result<Vec<ItemOutcome>, FrameError> {
    let mut items = Vec::with_capacity(usize::from(count));
    decode_items(count, payload, |meta, body| {
        items.push(decode_item(meta, body)?);
        Ok(())
    })?;
    Ok(items)
}

/// Reads a chunk's pieces: each with the place of its request in the batch.
pub(crate) fn decode_chunk(count: u16, payload: Bytes) -> Result<Vec<(usize, Output)>, FrameError> {
    let mut pieces = Vec::with_capacity(usize::from(count));
    decode_items(count, payload, |mut meta, body| {
        let position = meta.try_get_u16_le().map_err(|_| FrameError::Truncated)?;
        // A piece that failed could only be told as the end of its request, which a reply says.
        let piece = decode_item(meta, body)?.map_err(|_| FrameError::UnknownOutcome(1))?;
        pieces.push((usize::from(position), piece));
        Ok(())
    })?;
    Ok(pieces)
}

/// Cuts a table of items into metas and bodies.
fn decode_items(
    count: u16,
    payload: Bytes,
    mut item: impl FnMut(Bytes, Bytes) -> Result<(), FrameError>,
) -> Result<(), FrameError> {
    let mut table = Reader(payload.clone());
    let mut rest = Reader(payload);
    rest.take(usize::from(count) * 8)?;
    for _ in 0..count {
        let (meta_len, body_len) = (table.u32()?, table.u32()?);
        let meta = rest.take(meta_len as usize)?;
        item(meta, rest.take(body_len as usize)?)?;
    }
    rest.finish()
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
    meta.finish()?;
    match outcome {
        0 => Ok(Ok(Output { status: Some((status, phrase)), headers, body })),
        1 => {
            let status = (status != 0).then_some(status);
            let message = String::from_utf8_lossy(&body).into_owned();
            Ok(Err(ModelFailure { cause: cause_of(cause)?, status, message }))
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
    Ok(ModelFailure { cause, status: failed.status, message: failed.message })
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
