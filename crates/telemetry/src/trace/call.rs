//! One call of a model, of a request that is traced: its time in the queue and in batches.
//!
//! The engine carries it as the request's mark and brings it back with every batch that the call was in.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jitney_engine::ModelTag;
use jitney_engine::call::{Answer, HeaderBlock, Timing};
use jitney_engine::error::CallError;
use tokio::time::Instant;

use super::clock::SpanClock;
use super::ids::{SpanId, SpanRef};
use super::parent::{self, TRACEPARENT, TRACESTATE};
use super::span::SpanRecord;

/// Batches of one call that its span names.
const RUNS_MAX: usize = 32;

/// One call of a model.
#[derive(Debug)]
pub struct CallTrace {
    /// The span of its request.
    pub(super) request: SpanRef,
    /// The span of its time in batches, which the handler knows as its parent.
    compute: SpanId,
    pub(super) model: Arc<ModelTag>,
    called: Instant,
    notes: Mutex<CallNotes>,
}

#[derive(Debug, Default)]
struct CallNotes {
    runs: Vec<BatchNote>,
    end: Option<CallEnd>,
}

/// A batch that the call was in.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchNote {
    pub(super) batch: SpanRef,
    pub(super) dispatched: Instant,
    pub(super) ended: Instant,
}

#[derive(Debug)]
struct CallEnd {
    at: Instant,
    /// What the answer says about its way.
    timing: Option<Timing>,
    /// Whether more of the answer was to come.
    streams: bool,
    pub(super) failure: Option<CallFailure>,
}

/// Why a call was not answered.
#[derive(Clone, Debug)]
pub(super) struct CallFailure {
    /// The reason of a rejection, as metrics name it.
    pub(super) rejection: Option<&'static str>,
    pub(super) text: String,
}

impl CallTrace {
    /// A call that is about to be made. Its handler gets `traceparent` with the call's own span.
    pub(super) fn begin(
        request: SpanRef,
        state: Option<&str>,
        model: &Arc<ModelTag>,
        headers: &mut HeaderBlock,
    ) -> Self {
        let compute = SpanId::fresh();
        headers.remove(&[TRACEPARENT.as_str(), TRACESTATE.as_str()]);
        let own = parent::header(SpanRef { span: compute, ..request });
        headers.push(TRACEPARENT.as_str(), own.as_bytes());
        if let Some(state) = state {
            headers.push(TRACESTATE.as_str(), state.as_bytes());
        }
        let (model, called, notes) = (Arc::clone(model), Instant::now(), Mutex::default());
        Self { request, compute, model, called, notes }
    }

    /// Notes what came of the call.
    pub fn end(&self, answered: &Result<Answer, CallError>) {
        let (timing, streams, failure) = match answered {
            Ok(answer) => (Some(answer.timing.clone()), answer.stream.is_some(), None),
            Err(error) => (None, false, Some(CallFailure::of(error))),
        };
        self.notes().end = Some(CallEnd { at: Instant::now(), timing, streams, failure });
    }

    /// Notes a batch that the call was in.
    pub(super) fn ran(&self, run: BatchNote) {
        let mut notes = self.notes();
        if notes.runs.len() < RUNS_MAX {
            notes.runs.push(run);
        }
    }

    /// Why it was not answered, if so.
    pub(super) fn failure(&self) -> Option<CallFailure> {
        self.notes().end.as_ref()?.failure.clone()
    }

    /// Its spans, none of which ends after its request does.
    pub(super) fn spans(&self, clock: &SpanClock, request_end: Instant) -> Vec<SpanRecord> {
        let notes = self.notes();
        let CallNotes { runs, end } = &*notes;
        let timing = end.as_ref().and_then(|end| end.timing.as_ref());
        let over = end.as_ref().map_or(request_end, |end| end.at).min(request_end);
        let told = timing.map(|timing| self.called + timing.queue);
        let dispatched = runs.iter().map(|run| run.dispatched).min().or(told);
        let at = |span| SpanRef { span, ..self.request };
        let parent = self.request.span;
        let waited = dispatched.unwrap_or(over).clamp(self.called, over);
        let mut queue = SpanRecord::child(
            "queue",
            at(SpanId::fresh()),
            parent,
            clock.times(self.called, waited),
        );
        let failure = end.as_ref().and_then(|end| end.failure.as_ref());
        let cancelled = end.is_none().then_some(CANCELLED);
        let error = failure.map(|failure| Cow::Owned(failure.text.clone())).or(cancelled);
        if dispatched.is_none() {
            queue.error = error;
            return vec![queue];
        }
        let ran = match end {
            // The rest of a stream comes later.
            Some(end) if end.streams => request_end,
            Some(_) | None => runs.iter().map(|run| run.ended).max().unwrap_or(over),
        };
        let times = clock.times(waited, ran.clamp(waited, request_end));
        let mut compute = SpanRecord::child("compute", at(self.compute), parent, times);
        compute.links = runs.iter().map(|run| run.batch).collect();
        compute.error = error;
        if let Some(timing) = timing {
            compute.set("jitney.batch.items", timing.batch_items);
            compute.set("jitney.batch.position", timing.position);
            compute.set("jitney.batch.reason", timing.reason.as_str());
            compute.set("jitney.batch.attempt", u32::from(timing.attempt));
            compute.set("jitney.compute_ms", millis(timing.compute));
        }
        vec![queue, compute]
    }

    fn notes(&self) -> MutexGuard<'_, CallNotes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is said of a request whose client did not wait for the answer.
pub(super) const CANCELLED: Cow<'static, str> = Cow::Borrowed("the client went away");

pub(super) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

impl CallFailure {
    fn of(error: &CallError) -> Self {
        let rejection = match error {
            CallError::Rejected { reason, .. } => Some(reason.as_str()),
            CallError::ServerFull { .. } => Some("crowded"),
            CallError::Sequence(_) => Some("sequence"),
            CallError::BadInput(_) | CallError::UnknownEndpoint(_) => Some("bad_input"),
            CallError::NotLoaded(_) => Some("not_loaded"),
            CallError::Loading(_) => Some("loading"),
            CallError::Poisonous => Some("poison"),
            CallError::Model(_)
            | CallError::WorkerExited { .. }
            | CallError::SlowReader
            | CallError::Gone => None,
        };
        Self { rejection, text: error.to_string() }
    }
}
