//! Traces: what a sampled request did and when, as spans for an OpenTelemetry collector.
//!
//! `parent` reads what a client says about its trace, `request` and `call` note what happens to a request,
//! `batch` makes the spans of batches from what the engine reports, `otlp` writes spans as the protocol's
//! bytes. Nothing here does I/O: spans go into a bounded queue, and whoever made the [`Tracer`] sends what
//! comes out. A full queue drops spans and counts them; a request never waits.

mod batch;
mod call;
mod clock;
mod ids;
mod otlp;
mod parent;
mod request;
mod sampling;
mod span;
mod tracer;

pub use self::batch::batch_ended;
pub use self::call::CallTrace;
pub use self::otlp::TraceResource;
pub use self::request::{RequestFacts, RequestTrace};
pub use self::sampling::SampleRatio;
pub use self::span::SpanRecord;
pub use self::tracer::Tracer;
