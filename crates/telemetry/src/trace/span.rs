//! A finished span, before it is written in any protocol.

use std::borrow::Cow;
use std::sync::Arc;

use super::ids::{SpanId, SpanRef};

/// A finished span.
#[derive(Clone, Debug)]
pub struct SpanRecord {
    pub(super) at: SpanRef,
    /// The span that it is a part of, of the same trace.
    pub(super) parent: Option<SpanId>,
    /// What other systems know about the trace.
    pub(super) state: Option<Arc<str>>,
    pub(super) name: Cow<'static, str>,
    /// Whether it answers a request of another program.
    pub(super) serves: bool,
    /// Nanoseconds of Unix time.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) attributes: Vec<(&'static str, AttributeValue)>,
    /// Spans that it has to do with.
    pub(super) links: Vec<SpanRef>,
    /// What went wrong, if anything did.
    pub(super) error: Option<Cow<'static, str>>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AttributeValue {
    Text(Cow<'static, str>),
    Whole(i64),
    Real(f64),
}

impl SpanRecord {
    /// A part of another span.
    pub(super) fn child(
        name: &'static str,
        at: SpanRef,
        parent: SpanId,
        times: (u64, u64),
    ) -> Self {
        Self { parent: Some(parent), ..Self::root(name, at, times) }
    }

    /// A span that is a part of none.
    pub(super) fn root(
        name: impl Into<Cow<'static, str>>,
        at: SpanRef,
        (start, end): (u64, u64),
    ) -> Self {
        Self {
            at,
            parent: None,
            state: None,
            name: name.into(),
            serves: false,
            start,
            end: end.max(start),
            attributes: Vec::new(),
            links: Vec::new(),
            error: None,
        }
    }

    pub(super) fn set(&mut self, name: &'static str, value: impl Into<AttributeValue>) {
        self.attributes.push((name, value.into()));
    }
}

impl From<&'static str> for AttributeValue {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> Self {
        Self::Whole(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for AttributeValue {
    fn from(number: u32) -> Self {
        Self::Whole(number.into())
    }
}

impl From<f64> for AttributeValue {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}
