//! Says which requests are traced, and takes their spans.

use std::sync::Arc;

use super::sampling::SampleRatio;
use super::span::SpanRecord;
use crate::export::{ExportQueue, ExportSender, export_queue};

/// Says which requests are traced, and takes their spans.
#[derive(Debug)]
pub struct Tracer {
    pub(super) ratio: SampleRatio,
    /// Where spans wait to be sent.
    pub spans: Arc<ExportSender<SpanRecord>>,
}

impl Tracer {
    /// A tracer, and where its spans come out.
    pub fn new(ratio: SampleRatio) -> (Arc<Self>, ExportQueue<SpanRecord>) {
        let (spans, queue) = export_queue();
        (Arc::new(Self { ratio, spans }), queue)
    }

    /// Hands spans over, or drops them where too many wait.
    pub(super) fn push(&self, spans: Vec<SpanRecord>) {
        self.spans.push(spans);
    }
}
