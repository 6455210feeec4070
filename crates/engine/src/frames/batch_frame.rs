//! A batch as bytes for a worker: every request with what is known of its call.
//!
//! What is typed (the deadline, the origin, the priority, the size of an endpoint's batches) has fields of its own;
//! only what handlers read as headers is written as headers.

use bytes::{BufMut, Bytes, BytesMut};
use jitney_batcher::{OriginKind, Priority};
use tokio::time::Instant;

use super::frame::{FrameHeader, FrameKind, HEADER_LEN, PAYLOAD_MAX};
use super::tensor_entries;
use crate::call::{
    DESCRIBE_HEADER, ENDPOINT_HEADER, EXPLAIN_HEADER, Input, Operation, Parameter, SequenceHeaders,
    put_header,
};
use crate::pending::PendingRequest;
use crate::tensors::NamedTensor;

/// The fixed part of an item's meta.
const META_LEN: usize = 16;
/// Bytes of an item in the table: the lengths of its meta and of its values.
const TABLE_ENTRY: usize = 8;

/// A request as it is written into a frame.
pub(crate) struct BatchItem<'a> {
    input: &'a Input,
    facts: CallFacts,
}

impl<'a> BatchItem<'a> {
    /// None for an input that was decoded. What is known of the call is written only where `tells`.
    pub(crate) fn of(request: &'a PendingRequest, tells: bool) -> Option<Self> {
        let facts = if tells { CallFacts::of(request) } else { CallFacts::UNKNOWN };
        Some(Self { input: request.payload.raw()?, facts })
    }
}

/// What a definition is told of a call, so that the calls that it makes itself can go on with it. The numbers
/// are those of `protocol/spec.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CallFacts {
    /// Milliseconds until its deadline.
    left_ms: u32,
    origin: u8,
    priority: u8,
}

impl CallFacts {
    /// A call over HTTP that somebody waits for, without a deadline.
    const UNKNOWN: Self = Self { left_ms: u32::MAX, origin: 0, priority: 0 };

    fn of(request: &PendingRequest) -> Self {
        let left = request.deadline.map(|deadline| deadline.duration_since(Instant::now()));
        let left_ms = |left: std::time::Duration| u32::try_from(left.as_millis()).ok();
        Self {
            left_ms: left.and_then(left_ms).unwrap_or(u32::MAX),
            origin: match request.facts.origin.kind {
                OriginKind::Http => 0,
                OriginKind::Grpc => 1,
                OriginKind::Python => 2,
            },
            priority: u8::from(request.facts.priority == Priority::Bulk),
        }
    }
}

/// A batch as a worker reads it: a header, a table, then every item's meta and values.
///
/// Written in two ways for speed: into one buffer while values are small, and as pieces that share the
/// values where copying would cost more. Both give the same bytes.
pub(crate) struct BatchFrame<'a> {
    id: u64,
    items: Vec<BatchItem<'a>>,
    names: &'a SequenceHeaders,
    /// Bytes after the header.
    payload: usize,
}

impl<'a> BatchFrame<'a> {
    /// `names` are those under which handlers read about sequences.
    pub(crate) fn new(id: u64, inputs: Vec<&'a Input>, names: &'a SequenceHeaders) -> Self {
        let item = |input| BatchItem { input, facts: CallFacts::UNKNOWN };
        Self::of_items(id, inputs.into_iter().map(item).collect(), names)
    }

    /// The same with what definitions are told of their calls.
    pub(crate) fn of_items(id: u64, items: Vec<BatchItem<'a>>, names: &'a SequenceHeaders) -> Self {
        let mut frame = Self { id, items, names, payload: 0 };
        let length = |item| TABLE_ENTRY + frame.meta_len(item) + item.input.value_bytes() as usize;
        frame.payload = frame.items.iter().map(length).sum();
        frame
    }

    /// Bytes after the header.
    pub(crate) fn payload_len(&self) -> usize {
        self.payload
    }

    /// Whether the worker would take it; a longer frame has no lengths that fit.
    pub(crate) fn fits(&self) -> bool {
        self.payload_len() <= PAYLOAD_MAX as usize
    }

    /// Writes header and table.
    pub(crate) fn encode_head(&self, out: &mut BytesMut) {
        let (length, count) = (self.payload_len() as u32, self.items.len() as u16);
        FrameHeader { length, kind: FrameKind::Batch, count, id: self.id }.encode(out);
        for item in &self.items {
            let mut entry = [0; TABLE_ENTRY];
            let mut fields = &mut entry[..];
            fields.put_u32_le(self.meta_len(item) as u32);
            fields.put_u32_le(item.input.value_bytes() as u32);
            out.put_slice(&entry);
        }
    }

    /// Writes the whole frame into one buffer, which is best while bodies are small.
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        out.reserve(HEADER_LEN + self.payload_len());
        self.encode_head(out);
        for item in &self.items {
            self.encode_meta(item, out);
            values(item.input).for_each(|piece| out.put_slice(piece));
        }
    }

    /// Cuts the frame into pieces that share the values instead of copying them.
    pub(crate) fn segments(&self) -> Vec<Bytes> {
        let mut head = BytesMut::new();
        self.encode_head(&mut head);
        let mut segments = Vec::with_capacity(2 * self.items.len());
        for item in &self.items {
            self.encode_meta(item, &mut head);
            segments.push(head.split().freeze());
            segments.extend(values(item.input).cloned());
        }
        segments
    }

    fn meta_len(&self, item: &BatchItem<'_>) -> usize {
        let input = item.input;
        let parameter = |it: &Parameter| 8 + it.name.len() + it.content_type.len();
        let parameters: usize = input.parameters.iter().map(parameter).sum();
        let tensors = input.tensors.as_deref().map_or(0, tensor_entries::length);
        META_LEN + input.id.len() + self.headers_len(item) + parameters + tensors
    }

    fn headers_len(&self, item: &BatchItem<'_>) -> usize {
        let mut length = item.input.headers.as_bytes().len();
        self.route_headers(item, |name, value| length += 6 + name.len() + value.len());
        length
    }

    fn encode_meta(&self, item: &BatchItem<'_>, out: &mut BytesMut) {
        let input = item.input;
        let mut fixed = [0; META_LEN];
        let mut fields = &mut fixed[..];
        fields.put_u8(input.id.len() as u8);
        let tensors = input.tensors.as_deref();
        let entries = input.parameters.len() + tensors.map_or(0, tensor_entries::count);
        fields.put_u8(entries as u8);
        fields.put_u16_le(u16::from(tensors.is_some()));
        fields.put_u32_le(self.headers_len(item) as u32);
        fields.put_u32_le(item.facts.left_ms);
        fields.put_u16_le(u16::try_from(input.route.batch_size).unwrap_or(u16::MAX));
        fields.put_u8(item.facts.origin);
        fields.put_u8(item.facts.priority);
        out.put_slice(&fixed);
        out.put_slice(input.id.as_bytes());
        out.put_slice(input.headers.as_bytes());
        self.route_headers(item, |name, value| put_header(out, name, value));
        for parameter in &input.parameters {
            out.put_u16_le(parameter.name.len() as u16);
            out.put_u16_le(parameter.content_type.len() as u16);
            out.put_u32_le(parameter.value.len() as u32);
            out.put_slice(parameter.name.as_bytes());
            out.put_slice(parameter.content_type.as_bytes());
        }
        tensors.into_iter().for_each(|tensors| tensor_entries::encode(tensors, out));
    }

    /// What handlers read in headers although the route says it. It follows the client's headers,
    /// and of several headers of one name the last counts.
    fn route_headers(&self, item: &BatchItem<'_>, mut header: impl FnMut(&str, &[u8])) {
        let route = &item.input.route;
        if let Some(endpoint) = &route.endpoint {
            header(ENDPOINT_HEADER, endpoint.as_bytes());
        }
        match route.operation {
            Operation::Predict if route.tells_explain => header(EXPLAIN_HEADER, b"False"),
            Operation::Predict => {}
            Operation::Explain => header(EXPLAIN_HEADER, b"True"),
            Operation::Describe => header(DESCRIBE_HEADER, b"True"),
        }
        if let Some(sequence) = &route.sequence {
            header(&self.names.id, sequence.id.as_bytes());
            if sequence.starts {
                header(&self.names.start, b"true");
            }
            if sequence.ends {
                header(&self.names.end, b"true");
            }
        }
    }
}

/// The bytes of a request's values, in order.
fn values(input: &Input) -> impl Iterator<Item = &Bytes> {
    let parameters = input.parameters.iter().flat_map(|parameter| parameter.value.pieces());
    let tensors = input.tensors.iter().flat_map(|tensors| &tensors.inputs);
    parameters.chain(tensors.map(NamedTensor::data))
}
