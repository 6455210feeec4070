//! A batch as a worker reads it: a table, then every item's meta and values.
//!
//! Written in two ways for speed: into one buffer while values are small, and as pieces that share the
//! values where copying would cost more. Both give the same bytes.

use bytes::{BufMut, Bytes, BytesMut};

use super::{HEADER_LEN, Header, Kind};
use crate::call::Input;

/// Everything of a batch frame but the values: header, table and metas. The values follow each
/// item's meta, so [`BatchFrame::segment`] tells where to put them.
pub(crate) struct BatchFrame<'a> {
    id: u64,
    inputs: Vec<&'a Input>,
}

impl<'a> BatchFrame<'a> {
    pub(crate) fn new(id: u64, inputs: Vec<&'a Input>) -> Self {
        Self { id, inputs }
    }

    /// Bytes after the header.
    pub(crate) fn payload_len(&self) -> usize {
        self.inputs.iter().map(|input| 8 + meta_len(input) + body_len(input)).sum()
    }

    /// Writes header and table.
    pub(crate) fn encode_head(&self, out: &mut BytesMut) {
        let (length, count) = (self.payload_len() as u32, self.inputs.len() as u16);
        Header { length, kind: Kind::Batch, count, id: self.id }.encode(out);
        for input in &self.inputs {
            out.put_u32_le(meta_len(input) as u32);
            out.put_u32_le(body_len(input) as u32);
        }
    }

    /// Writes the whole frame into one buffer, which is best while bodies are small.
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        out.reserve(HEADER_LEN + self.payload_len());
        self.encode_head(out);
        for input in &self.inputs {
            encode_meta(input, out);
            for parameter in &input.parameters {
                out.put_slice(&parameter.value);
            }
        }
    }

    /// Cuts the frame into pieces that share the values instead of copying them.
    pub(crate) fn segments(&self) -> Vec<Bytes> {
        let mut head = BytesMut::new();
        self.encode_head(&mut head);
        let mut segments = Vec::with_capacity(2 * self.inputs.len());
        for input in &self.inputs {
            encode_meta(input, &mut head);
            segments.push(head.split().freeze());
            segments.extend(input.parameters.iter().map(|parameter| parameter.value.clone()));
        }
        segments
    }
}

fn meta_len(input: &Input) -> usize {
    let parameters: usize = input
        .parameters
        .iter()
        .map(|parameter| 8 + parameter.name.len() + parameter.content_type.len())
        .sum();
    8 + input.id.len() + input.headers.as_bytes().len() + parameters
}

fn body_len(input: &Input) -> usize {
    input.parameters.iter().map(|parameter| parameter.value.len()).sum()
}

fn encode_meta(input: &Input, out: &mut BytesMut) {
    out.put_u8(input.id.len() as u8);
    out.put_u8(input.parameters.len() as u8);
    out.put_u16_le(0);
    out.put_u32_le(input.headers.as_bytes().len() as u32);
    out.put_slice(input.id.as_bytes());
    out.put_slice(input.headers.as_bytes());
    for parameter in &input.parameters {
        out.put_u16_le(parameter.name.len() as u16);
        out.put_u16_le(parameter.content_type.len() as u16);
        out.put_u32_le(parameter.value.len() as u32);
        out.put_slice(parameter.name.as_bytes());
        out.put_slice(parameter.content_type.as_bytes());
    }
}
