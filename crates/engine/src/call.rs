//! What a protocol hands to the engine: one request, valid by construction.
//!
//! A protocol (REST, gRPC, Python) reads its messages once and builds a [`Call`]; nothing is parsed
//! again afterwards. The client's headers are kept in the very form in which workers read them, so
//! that the hot path copies one block of bytes instead of rebuilding a map.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::BytesMut;
use jitney_settings::torchserve::{SEQUENCE_END_HEADER, SEQUENCE_ID_HEADER, SEQUENCE_START_HEADER};
use tokio::time::Instant;

pub use crate::outcome::Output;
pub use crate::reply::{Answer, AnswerStream, Timing};
use crate::tensors::TensorRequest;
pub use jitney_memory::ValueBytes;
use jitney_memory::quota::Quota;

pub use jitney_batcher::{Origin, OriginKind, Padding, Priority};

/// Parameters that one request may have: as many as a worker's frame has room for.
pub const PARAMETERS_MAX: usize = u8::MAX as usize;

/// The parameter that holds the arguments of a call through a handle; no Python parameter can have this
/// name.
pub const CALL_PARAMETER: &str = "jitney-call";

/// The longest payload of a frame between the server and a worker.
pub(crate) const FRAME_BYTES_MAX: u32 = 1 << 30;

/// The most bytes of one request that a frame has room for, beside its names.
pub const REQUEST_BYTES_MAX: u64 = FRAME_BYTES_MAX as u64 - (64 << 20);

/// One named value of a request, for example a part of a multipart form or the body itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The name under which the handler finds the value; `body` for a plain body.
    pub name: Cow<'static, str>,
    /// The MIME type without its parameters; empty when the client gave none.
    pub content_type: Cow<'static, str>,
    /// The value as it came.
    pub value: ValueBytes,
}

/// Request headers in the form of the worker protocol: `u16 name_len, u32 value_len, name, value`.
#[derive(Clone, Debug, Default)]
pub struct HeaderBlock {
    bytes: BytesMut,
}

impl HeaderBlock {
    /// An empty block with room for a usual request.
    pub fn new() -> Self {
        Self { bytes: BytesMut::with_capacity(512) }
    }

    /// Adds a header of the client's. One that has the name of a fact of the [`CallRoute`] is left
    /// out: handlers believe what it says, and only the server knows it.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        if !ROUTE_HEADERS.iter().any(|fact| fact.eq_ignore_ascii_case(name)) {
            put_header(&mut self.bytes, name, value);
        }
    }

    /// Takes the headers of these names out.
    pub fn remove(&mut self, names: &[&str]) {
        let named = |name: &[u8]| names.iter().any(|it| name.eq_ignore_ascii_case(it.as_bytes()));
        if !self.iter().any(|(name, _)| named(name)) {
            return;
        }
        let mut kept = BytesMut::with_capacity(self.bytes.capacity());
        for (name, value) in self.iter().filter(|(name, _)| !named(name)) {
            put_entry(&mut kept, name, value);
        }
        self.bytes = kept;
    }

    /// The block as workers read it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The headers one by one, for engines that live in this process.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest: &[u8] = &self.bytes;
        std::iter::from_fn(move || {
            let (head, tail) = rest.split_at_checked(6)?;
            let name_len = usize::from(u16::from_le_bytes([head[0], head[1]]));
            let value_len = u32::from_le_bytes([head[2], head[3], head[4], head[5]]) as usize;
            let (name, tail) = tail.split_at_checked(name_len)?;
            let (value, tail) = tail.split_at_checked(value_len)?;
            rest = tail;
            Some((name, value))
        })
    }
}

/// Appends a header. A name longer than 64 KiB is cut, since no client sends one.
pub(crate) fn put_header(out: &mut BytesMut, name: &str, value: &[u8]) {
    put_entry(out, &name.as_bytes()[..name.len().min(usize::from(u16::MAX))], value);
}

fn put_entry(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    let mut lengths = [0; 6];
    lengths[..2].copy_from_slice(&(name.len() as u16).to_le_bytes());
    lengths[2..].copy_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(&lengths);
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

/// The header under which handlers read whether an explanation is wanted.
pub(crate) const EXPLAIN_HEADER: &str = "explain";
/// The header under which handlers read whether their description is wanted.
pub(crate) const DESCRIBE_HEADER: &str = "describe";
/// The header under which handlers read the rest of the path, which is a definition's endpoint.
pub(crate) const ENDPOINT_HEADER: &str = "url_path";

const ROUTE_HEADERS: [&str; 3] = [EXPLAIN_HEADER, DESCRIBE_HEADER, ENDPOINT_HEADER];

/// What is asked of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operation {
    /// A prediction.
    #[default]
    Predict,
    /// An explanation of one.
    Explain,
    /// The handler's description of itself.
    Describe,
}

/// The sequence that a request belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SequenceRef {
    /// Its id.
    pub id: String,
    /// Whether it begins with this request.
    pub starts: bool,
    /// Whether it ends with this request.
    pub ends: bool,
}

/// The names of the headers of sequences, compared without regard to case; operators may choose them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceHeaders {
    /// Names the sequence that a request belongs to.
    pub id: String,
    /// Says `true` where a sequence begins.
    pub start: String,
    /// Names, in an answer, the sequences that are over; to a handler it says `true` where the client ends one.
    pub end: String,
}

impl Default for SequenceHeaders {
    fn default() -> Self {
        Self {
            id: SEQUENCE_ID_HEADER.default_value(),
            start: SEQUENCE_START_HEADER.default_value(),
            end: SEQUENCE_END_HEADER.default_value(),
        }
    }
}

/// What the route of a request says about it: set by the protocol that read the request, never taken
/// from the client's headers. Handlers find it among their headers, where TorchServe has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallRoute {
    /// What is asked of the model.
    pub operation: Operation,
    /// Whether the handler of a prediction is told that no explanation is wanted, as on those of
    /// TorchServe's paths that have a counterpart for explanations.
    pub tells_explain: bool,
    /// Whether the body is the Open Inference Protocol's JSON.
    pub open_inference: bool,
    /// The endpoint of a definition, or what follows model and version in a path.
    pub endpoint: Option<Box<str>>,
    /// The sequence that the request names.
    pub sequence: Option<Box<SequenceRef>>,
    /// The largest batch of the endpoint; 0 where the definition's own size
    /// holds. The engine sets it.
    pub batch_size: u32,
}

impl CallRoute {
    /// The route of a prediction by this endpoint.
    pub fn to_endpoint(endpoint: &str) -> Self {
        Self { endpoint: Some(endpoint.into()), ..Self::default() }
    }

    /// Whether the request must be run alone: handlers ask the first request of a batch what to do.
    pub fn is_alone(&self) -> bool {
        matches!(self.operation, Operation::Explain | Operation::Describe)
    }
}

/// What one request brings for the model.
#[derive(Clone, Debug)]
pub struct Input {
    /// The server's own id of the request, as the client sees it in `x-request-id`.
    pub id: String,
    /// The client's headers.
    pub headers: HeaderBlock,
    /// What the route says.
    pub route: CallRoute,
    /// The values, in the order in which they came.
    pub parameters: Vec<Parameter>,
    /// The tensors, from protocols that bring tensors; there are no parameters then.
    pub tensors: Option<Arc<TensorRequest>>,
}

impl Input {
    /// What the request weighs in memory, for admission by bytes.
    pub fn weight(&self) -> u64 {
        self.value_bytes() + self.headers.as_bytes().len() as u64
    }

    /// The bytes of its values.
    pub(crate) fn value_bytes(&self) -> u64 {
        let parameters = self.parameters.iter().map(|parameter| parameter.value.len() as u64);
        parameters.sum::<u64>() + self.tensors.as_ref().map_or(0, |tensors| tensors.value_bytes())
    }
}

/// What a request says about itself: who it is from, how much it brings and what that costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Who pays; tenants take turns where not all requests fit.
    pub tenant: Option<Arc<str>>,
    /// What it weighs, in the unit of the model's cost.
    pub cost: Option<u64>,
    /// How many items it brings, where the server cannot see that.
    pub items: Option<u32>,
}

/// Something of the protocol's that goes with a request: the observer finds it again with every batch
/// that the request was in. The engine never looks inside.
pub type RequestMark = Arc<dyn Any + Send + Sync>;

/// A request as a protocol hands it to the engine.
#[derive(Clone, Debug)]
pub struct Call {
    /// What it brings. Boxed, because a call is moved often before its worker has it.
    pub input: Box<Input>,
    /// When its answer stops being useful.
    pub deadline: Option<Instant>,
    /// Where it came from.
    pub origin: Origin,
    /// How urgent it is.
    pub priority: Priority,
    /// What it says about its share.
    pub claim: Claim,
    /// What its client may ask for, where that is limited and was not charged for it before.
    pub quota: Option<Arc<Quota>>,
    /// What the observer is to find again, for one that wants it.
    pub mark: Option<RequestMark>,
}

/// A request, or a part of one, as a model in this process has decoded it.
pub trait DecodedInput: Any + fmt::Debug + Send + Sync {
    /// How many items are here.
    fn items(&self) -> u32;

    /// The request in parts of at most so many items. They share its data, and the last of them to be
    /// answered brings the answer to the whole.
    fn split(&self, items: u32) -> Vec<Arc<dyn DecodedInput>>;

    /// Whether it is a part of a request.
    fn is_part(&self) -> bool;

    /// Whether it is answered with tensors, which a worker process sends raw.
    fn wants_tensors(&self) -> bool {
        false
    }

    /// Writes for a worker process how it is to be answered, and what its data looks like.
    fn put_meta(&self, out: &mut BytesMut);

    /// Writes its data for a worker process.
    fn put_body(&self, out: &mut BytesMut);

    /// Writes what the model gets of it and nothing else, so that the same request is known again.
    fn put_identity(&self, out: &mut BytesMut);
}
