//! The way of spans from the requests to whoever sends them: a bounded queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use super::sampling::SampleRatio;
use super::span::SpanRecord;

/// Requests and batches whose spans may wait to be sent.
const QUEUE_MAX: usize = 4096;

/// Says which requests are traced, and takes their spans.
#[derive(Debug)]
pub struct Tracer {
    pub(super) ratio: SampleRatio,
    queue: mpsc::Sender<Vec<SpanRecord>>,
    dropped: AtomicU64,
}

/// The spans that wait to be sent.
#[derive(Debug)]
pub struct SpanQueue(mpsc::Receiver<Vec<SpanRecord>>);

impl Tracer {
    /// A tracer, and where its spans come out.
    pub fn new(ratio: SampleRatio) -> (Arc<Self>, SpanQueue) {
        let (queue, spans) = mpsc::channel(QUEUE_MAX);
        (Arc::new(Self { ratio, queue, dropped: AtomicU64::new(0) }), SpanQueue(spans))
    }

    /// Hands spans over, or drops them where too many wait.
    pub(super) fn push(&self, spans: Vec<SpanRecord>) {
        let count = spans.len() as u64;
        if self.queue.try_send(spans).is_err() {
            self.drop_spans(count);
        }
    }

    /// Counts spans that nobody could send.
    pub fn drop_spans(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Spans that were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl SpanQueue {
    /// Waits for spans and adds them to `spans`; returns how many were added. May be dropped while it waits.
    pub async fn take(&mut self, spans: &mut Vec<SpanRecord>) -> usize {
        let before = spans.len();
        spans.extend(self.0.recv().await.unwrap_or_default());
        spans.len() - before
    }

    /// Adds spans that are here until there are `most` or more.
    pub fn take_ready(&mut self, spans: &mut Vec<SpanRecord>, most: usize) {
        while spans.len() < most {
            let Ok(more) = self.0.try_recv() else { return };
            spans.extend(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::ids::{SpanId, SpanRef, TraceId};

    #[test]
    fn a_full_queue_drops_spans_and_counts_them() {
        let (tracer, mut queue) = Tracer::new(SampleRatio::new(1.0));
        let at = SpanRef { trace: TraceId::fresh(), span: SpanId::fresh() };
        let span = || vec![SpanRecord::root("a", at, (1, 2)); 2];
        (0..QUEUE_MAX + 3).for_each(|_| tracer.push(span()));
        assert_eq!(tracer.dropped(), 6);
        let mut spans = Vec::new();
        queue.take_ready(&mut spans, 511);
        assert_eq!(spans.len(), 512);
        queue.take_ready(&mut spans, usize::MAX);
        assert_eq!(spans.len(), 2 * QUEUE_MAX);
        drop(queue);
        tracer.push(span());
        assert_eq!(tracer.dropped(), 8);
    }
}
