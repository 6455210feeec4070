//! Spans as OTLP has them: the message that a collector takes at `/v1/traces`.

use bytes::Bytes;
use jitney_proto::Message as _;
use jitney_proto::otlp as pb;

use super::ids::SpanRef;
use super::span::{AttributeValue, SpanRecord};

/// Who made the spans.
#[derive(Clone, Debug, Default)]
pub struct TraceResource {
    /// `service.name` and whatever else is known, in this order; a later value of a name counts.
    pub attributes: Vec<(String, String)>,
    /// Our version.
    pub version: String,
}

impl TraceResource {
    /// The message that brings these spans.
    pub fn message(&self, spans: &[SpanRecord]) -> Bytes {
        let scope =
            pb::InstrumentationScope { name: "jitney".into(), version: self.version.clone() };
        let spans = pb::ScopeSpans { scope: Some(scope), spans: spans.iter().map(span).collect() };
        let attributes = self.attributes.iter().map(|(name, value)| text(name, value)).collect();
        let resource = Some(pb::Resource { attributes });
        let spans = pb::ResourceSpans { resource, scope_spans: vec![spans] };
        pb::ExportTraceServiceRequest { resource_spans: vec![spans] }.encode_to_vec().into()
    }
}

fn span(record: &SpanRecord) -> pb::Span {
    let (trace_id, span_id) = ids(record.at);
    let parent = record.parent.map(|parent| Bytes::copy_from_slice(&parent.0.to_be_bytes()));
    let kind =
        if record.serves { pb::span::SpanKind::Server } else { pb::span::SpanKind::Internal };
    let state = record.state.as_deref().unwrap_or_default();
    pb::Span {
        trace_id,
        span_id,
        trace_state: state.to_owned(),
        parent_span_id: parent.unwrap_or_default(),
        name: record.name.to_string(),
        kind: kind.into(),
        start_time_unix_nano: record.start,
        end_time_unix_nano: record.end,
        attributes: record.attributes.iter().map(attribute).collect(),
        links: record.links.iter().map(|link| self::link(*link)).collect(),
        status: record.error.as_ref().map(|error| pb::Status {
            message: error.to_string(),
            code: pb::status::StatusCode::Error.into(),
        }),
    }
}

fn link(at: SpanRef) -> pb::span::Link {
    let (trace_id, span_id) = ids(at);
    pb::span::Link { trace_id, span_id, trace_state: String::new() }
}

fn ids(at: SpanRef) -> (Bytes, Bytes) {
    let (trace, span) = (at.trace.0.to_be_bytes(), at.span.0.to_be_bytes());
    (Bytes::copy_from_slice(&trace), Bytes::copy_from_slice(&span))
}

fn attribute((name, value): &(&'static str, AttributeValue)) -> pb::KeyValue {
    use pb::any_value::Value;
    let value = match value {
        AttributeValue::Text(value) => Value::StringValue(value.to_string()),
        AttributeValue::Whole(value) => Value::IntValue(*value),
        AttributeValue::Real(value) => Value::DoubleValue(*value),
    };
    pb::KeyValue { key: (*name).to_owned(), value: Some(pb::AnyValue { value: Some(value) }) }
}

fn text(name: &str, value: &str) -> pb::KeyValue {
    let value = pb::any_value::Value::StringValue(value.to_owned());
    pb::KeyValue { key: name.to_owned(), value: Some(pb::AnyValue { value: Some(value) }) }
}
