//! A batch as a worker reads it: a table, then every item's meta and values.
//!
//! Written in two ways for speed: into one buffer while values are small, and as pieces that share the
//! values where copying would cost more. Both give the same bytes.

use bytes::{BufMut, Bytes, BytesMut};

use super::{FrameHeader, FrameKind, HEADER_LEN};
use crate::call::{
    DESCRIBE_HEADER, ENDPOINT_HEADER, EXPLAIN_HEADER, Input, Operation, Parameter, SequenceHeaders,
    put_header,
};

/// The header that tells a worker the size of an endpoint's batches. No client can send one of this
/// name, since HTTP allows no spaces in it.
const SIZE_HEADER: &str = "jitney batch size";

/// Everything of a batch frame but the values: header, table and metas. The values follow each
/// item's meta, so [`BatchFrame::segment`] tells where to put them.
pub(crate) struct BatchFrame<'a> {
    id: u64,
    inputs: Vec<&'a Input>,
    names: &'a SequenceHeaders,
}

impl<'a> BatchFrame<'a> {
    /// `names` are those under which handlers read about sequences.
    pub(crate) fn new(id: u64, inputs: Vec<&'a Input>, names: &'a SequenceHeaders) -> Self {
        Self { id, inputs, names }
    }

    /// Bytes after the header.
    pub(crate) fn payload_len(&self) -> usize {
        self.inputs.iter().map(|input| 8 + self.meta_len(input) + body_len(input)).sum()
    }

    /// Writes header and table.
    pub(crate) fn encode_head(&self, out: &mut BytesMut) {
        let (length, count) = (self.payload_len() as u32, self.inputs.len() as u16);
        FrameHeader { length, kind: FrameKind::Batch, count, id: self.id }.encode(out);
        for input in &self.inputs {
            out.put_u32_le(self.meta_len(input) as u32);
            out.put_u32_le(body_len(input) as u32);
        }
    }

    /// Writes the whole frame into one buffer, which is best while bodies are small.
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        out.reserve(HEADER_LEN + self.payload_len());
        self.encode_head(out);
        for input in &self.inputs {
            self.encode_meta(input, out);
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
            self.encode_meta(input, &mut head);
            segments.push(head.split().freeze());
            segments.extend(input.parameters.iter().map(|parameter| parameter.value.clone()));
        }
        segments
    }

    fn meta_len(&self, input: &Input) -> usize {
        let parameter = |it: &Parameter| 8 + it.name.len() + it.content_type.len();
        let parameters: usize = input.parameters.iter().map(parameter).sum();
        8 + input.id.len() + self.headers_len(input) + parameters
    }

    fn headers_len(&self, input: &Input) -> usize {
        let mut length = input.headers.as_bytes().len();
        self.route_headers(input, |name, value| length += 6 + name.len() + value.len());
        length
    }

    fn encode_meta(&self, input: &Input, out: &mut BytesMut) {
        out.put_u8(input.id.len() as u8);
        out.put_u8(input.parameters.len() as u8);
        out.put_u16_le(0);
        out.put_u32_le(self.headers_len(input) as u32);
        out.put_slice(input.id.as_bytes());
        out.put_slice(input.headers.as_bytes());
        self.route_headers(input, |name, value| put_header(out, name, value));
        for parameter in &input.parameters {
            out.put_u16_le(parameter.name.len() as u16);
            out.put_u16_le(parameter.content_type.len() as u16);
            out.put_u32_le(parameter.value.len() as u32);
            out.put_slice(parameter.name.as_bytes());
            out.put_slice(parameter.content_type.as_bytes());
        }
    }

    /// What handlers read in headers although the route says it. It follows the client's headers,
    /// and of several headers of one name the last counts.
    fn route_headers(&self, input: &Input, mut header: impl FnMut(&str, &[u8])) {
        let route = &input.route;
        if let Some(endpoint) = &route.endpoint {
            header(ENDPOINT_HEADER, endpoint.as_bytes());
        }
        match route.operation {
            Operation::Predict if route.tells_explain => header(EXPLAIN_HEADER, b"False"),
            Operation::Predict => {}
            Operation::Explain => header(EXPLAIN_HEADER, b"True"),
            Operation::Describe => header(DESCRIBE_HEADER, b"True"),
        }
        if route.batch_size > 0 {
            header(SIZE_HEADER, route.batch_size.to_string().as_bytes());
        }
        if let Some(sequence) = &route.sequence {
            header(&self.names.id, sequence.id.as_bytes());
            if sequence.starts {
                header(&self.names.start, b"true");
            }
        }
    }
}

fn body_len(input: &Input) -> usize {
    input.parameters.iter().map(|parameter| parameter.value.len()).sum()
}
