//! The spans of a batch: one for the batch in a trace of its own, linked to the requests in it, and one in it
//! for the worker's time.

use std::time::Duration;

use jitney_engine::observer::BatchEnded;
use tokio::time::Instant;

use super::call::{BatchNote, CallTrace, millis};
use super::clock::SpanClock;
use super::ids::{SpanId, SpanRef, TraceId};
use super::span::SpanRecord;
use super::tracer::Tracer;

/// Requests of one batch that its span names.
const LINKS_MAX: usize = 128;

/// Hands over the spans of a batch, and tells its traced requests of them.
pub fn batch_ended(tracer: &Tracer, batch: &BatchEnded<'_>) {
    let (clock, now) = (SpanClock::look(), Instant::now());
    let at = SpanRef { trace: TraceId::fresh(), span: SpanId::fresh() };
    let note = BatchNote { batch: at, dispatched: batch.dispatched, ended: now };
    let mut span = SpanRecord::root("batch", at, clock.times(batch.dispatched, now));
    for call in batch.marks().filter_map(|mark| mark.downcast_ref::<CallTrace>()) {
        call.ran(note);
        // A request in parts may be here several times.
        if span.links.len() < LINKS_MAX && !span.links.contains(&call.request) {
            span.links.push(call.request);
        }
    }
    describe(&mut span, batch);
    let spans = match batch.compute {
        None => vec![span],
        Some(compute) => {
            let worker = worker(batch, at, compute, &clock, now);
            vec![span, worker]
        }
    };
    tracer.push(spans);
}

fn describe(span: &mut SpanRecord, batch: &BatchEnded<'_>) {
    span.set("jitney.model.name", batch.model.name.clone());
    span.set("jitney.model.version", batch.model.version.clone());
    span.set("jitney.batch.number", batch.batch);
    span.set("jitney.batch.size", batch.requests() as u64);
    span.set("jitney.batch.items", batch.items);
    span.set("jitney.batch.items_max", batch.items_max);
    span.set("jitney.batch.reason", batch.reason.as_str());
    span.set("jitney.batch.attempt", u32::from(batch.attempt));
    span.set("jitney.worker.id", batch.worker);
    if let Some(predicted) = batch.predicted {
        span.set("jitney.batch.predicted_ms", millis(predicted));
    }
    span.error = batch.error.map(|error| error.to_owned().into());
}

/// The time that the batch was with its worker.
fn worker(
    batch: &BatchEnded<'_>,
    at: SpanRef,
    compute: Duration,
    clock: &SpanClock,
    now: Instant,
) -> SpanRecord {
    let began = now.checked_sub(compute).map_or(batch.dispatched, |at| at.max(batch.dispatched));
    let own = SpanRef { span: SpanId::fresh(), ..at };
    let mut span = SpanRecord::child("worker", own, at.span, clock.times(began, now));
    span.set("jitney.worker.id", batch.worker);
    let measured =
        [("jitney.prepare_ms", batch.times.prepare), ("jitney.model_ms", batch.times.model)];
    for (name, time) in measured {
        if let Some(time) = time {
            span.set(name, millis(time));
        }
    }
    span
}
