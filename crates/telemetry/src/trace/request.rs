//! A request that is traced, from its head to the end of its answer.
//!
//! Its spans are handed over when the last who holds it lets go: with the answer, with the last piece of a
//! stream, or when the client goes away.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use jitney_engine::ModelTag;
use jitney_engine::call::HeaderBlock;
use tokio::time::Instant;

use super::call::{CANCELLED, CallTrace};
use super::clock::SpanClock;
use super::ids::{SpanId, SpanRef, TraceId};
use super::parent::{TraceParent, header};
use super::span::{AttributeValue, SpanRecord};
use super::tracer::Tracer;

/// Calls of one request that have spans; a request with more has those of the first ones.
const CALLS_MAX: usize = 64;

/// A request that is traced.
#[derive(Debug)]
pub struct RequestTrace {
    tracer: Arc<Tracer>,
    at: SpanRef,
    parent: Option<SpanId>,
    state: Option<Arc<str>>,
    started: Instant,
    clock: SpanClock,
    notes: Mutex<RequestNotes>,
}

#[derive(Debug)]
struct RequestNotes {
    facts: RequestFacts,
    calls: Vec<Arc<CallTrace>>,
    end: Option<RequestEnd>,
}

/// What a protocol knows of a request.
#[derive(Debug)]
pub struct RequestFacts {
    /// The span's name: the same for all requests of one kind.
    pub name: Cow<'static, str>,
    attributes: Vec<(&'static str, AttributeValue)>,
}

#[derive(Debug)]
struct RequestEnd {
    status: (&'static str, u32),
    failed: bool,
}

impl RequestFacts {
    /// A request of this name.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), attributes: Vec::with_capacity(12) }
    }

    /// The same with one more fact.
    pub fn with(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        self.attributes.push((name, AttributeValue::Text(value.into())));
        self
    }
}

impl RequestTrace {
    /// Begins the trace of a request that came with these headers; nothing if it is not traced. Of one that
    /// is, `facts` tells more, or that it is none of interest.
    pub fn begin(
        tracer: &Arc<Tracer>,
        headers: &HeaderMap,
        started: Instant,
        facts: impl FnOnce() -> Option<RequestFacts>,
    ) -> Option<Arc<Self>> {
        let parent = TraceParent::of(headers);
        let trace = parent.as_ref().map_or_else(TraceId::fresh, |parent| parent.at.trace);
        let sampled = match &parent {
            Some(parent) => parent.sampled,
            None => tracer.ratio.takes(trace),
        };
        if !sampled {
            return None;
        }
        let notes = RequestNotes { facts: facts()?, calls: Vec::new(), end: None };
        let (span, state) = match parent {
            Some(TraceParent { at, state, .. }) => (Some(at.span), state.map(Arc::from)),
            None => (None, None),
        };
        Some(Arc::new(Self {
            tracer: Arc::clone(tracer),
            at: SpanRef { trace, span: SpanId::fresh() },
            parent: span,
            state,
            started,
            clock: SpanClock::look(),
            notes: Mutex::new(notes),
        }))
    }

    /// A `traceparent` for what is done for this request elsewhere, or later.
    pub fn header(&self) -> String {
        header(self.at)
    }

    /// The id of its trace.
    pub fn id(&self) -> &TraceId {
        &self.at.trace
    }

    /// Begins a call of a model for this request; its handler's headers name the call's span. Nothing where
    /// the request has made many calls.
    pub fn call(&self, model: &Arc<ModelTag>, headers: &mut HeaderBlock) -> Option<Arc<CallTrace>> {
        let mut notes = self.notes();
        if notes.calls.len() >= CALLS_MAX {
            return None;
        }
        let call = Arc::new(CallTrace::begin(self.at, self.state.as_deref(), model, headers));
        notes.calls.push(Arc::clone(&call));
        Some(call)
    }

    /// Notes the answer: the attribute of its status, and whether that means a failure of the server's.
    pub fn end(&self, attribute: &'static str, status: u32, failed: bool) {
        self.notes().end = Some(RequestEnd { status: (attribute, status), failed });
    }

    fn spans(&self, notes: &mut RequestNotes, now: Instant) -> Vec<SpanRecord> {
        let RequestNotes { facts, calls, end } = notes;
        let name = std::mem::take(&mut facts.name);
        let mut span = SpanRecord::root(name, self.at, self.clock.times(self.started, now));
        span.parent = self.parent;
        span.serves = true;
        span.attributes = std::mem::take(&mut facts.attributes);
        if let Some(call) = calls.first() {
            span.set("jitney.model.name", call.model.name.clone());
            span.set("jitney.model.version", call.model.version.clone());
        }
        let failure = calls.iter().find_map(|call| call.failure());
        if let Some(reason) = failure.as_ref().and_then(|failure| failure.rejection) {
            span.set("jitney.rejection.reason", reason);
        }
        let text = failure.map(|failure| Cow::Owned(failure.text));
        let failed = end.as_ref().is_some_and(|end| end.failed);
        span.error = match end {
            None => Some(CANCELLED),
            Some(_) => text.or(failed.then_some(Cow::Borrowed("the request failed"))),
        };
        if let Some(RequestEnd { status: (name, status), .. }) = end {
            span.set(name, *status);
        }
        let mut spans = vec![span];
        spans.extend(calls.iter().flat_map(|call| call.spans(&self.clock, now)));
        if let Some(state) = &self.state {
            spans.iter_mut().for_each(|span| span.state = Some(Arc::clone(state)));
        }
        spans
    }

    fn notes(&self) -> MutexGuard<'_, RequestNotes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RequestTrace {
    fn drop(&mut self) {
        let mut notes = self.notes();
        let spans = self.spans(&mut notes, Instant::now());
        self.tracer.push(spans);
    }
}
