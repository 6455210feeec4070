//! Spans and the audit log's lines as OTLP has them: what a collector takes at `/v1/traces` and `/v1/logs`.

use std::time::UNIX_EPOCH;

use bytes::Bytes;
use jitney_proto::Message as _;
use jitney_proto::otlp as pb;

use super::ids::SpanRef;
use super::span::{AttributeValue, SpanRecord};
use crate::audit::AuditLine;

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
        let spans = spans.iter().map(span).collect();
        let spans = pb::ScopeSpans { scope: Some(self.scope()), spans };
        let spans = pb::ResourceSpans { resource: Some(self.resource()), scope_spans: vec![spans] };
        pb::ExportTraceServiceRequest { resource_spans: vec![spans] }.encode_to_vec().into()
    }

    /// The message that brings these lines of the audit log.
    pub fn audit_message(&self, lines: &[AuditLine]) -> Bytes {
        let log_records = lines.iter().map(log_record).collect();
        let logs = pb::ScopeLogs { scope: Some(self.scope()), log_records };
        let logs = pb::ResourceLogs { resource: Some(self.resource()), scope_logs: vec![logs] };
        pb::ExportLogsServiceRequest { resource_logs: vec![logs] }.encode_to_vec().into()
    }

    fn scope(&self) -> pb::InstrumentationScope {
        pb::InstrumentationScope { name: "jitney".into(), version: self.version.clone() }
    }

    fn resource(&self) -> pb::Resource {
        let attributes = self.attributes.iter().map(|(name, value)| text(name, value)).collect();
        pb::Resource { attributes }
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

/// The line is the body, as it stands in the file.
fn log_record(line: &AuditLine) -> pb::LogRecord {
    let time = line.time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let body = pb::any_value::Value::StringValue(line.text.clone());
    pb::LogRecord {
        time_unix_nano: time,
        severity_text: if line.denied { "WARN" } else { "INFO" }.to_owned(),
        body: Some(pb::AnyValue { value: Some(body) }),
        attributes: vec![text("event.name", "jitney.audit")],
        observed_time_unix_nano: time,
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
