//! The byte vectors of `protocol/handles.json`, which the Python side tests too.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use jitney_engine::DispatchReason;
use jitney_engine::call::{Output, Priority, Timing};
use serde_json::Value;

use super::frame::{self, ClientFrame, ServerFrame};
use crate::errors::{ErrorCode, Problem};

const LIMIT: u64 = 1 << 20;
const REASONS: [DispatchReason; 7] = [
    DispatchReason::Full,
    DispatchReason::Idle,
    DispatchReason::Window,
    DispatchReason::Deadline,
    DispatchReason::Everyone,
    DispatchReason::Drain,
    DispatchReason::Retry,
];

fn vectors(which: &str) -> Vec<Value> {
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../protocol/handles.json"));
    let vectors: Value = serde_json::from_str(text).unwrap();
    vectors[which].as_array().unwrap().clone()
}

fn hex(vector: &Value, field: &str) -> BytesMut {
    let text = vector[field].as_str().unwrap_or_default();
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

#[test]
fn calls_are_read_as_the_vectors_say() {
    for vector in vectors("calls") {
        let mut bytes = hex(&vector, "hex");
        let Ok(Some(ClientFrame::Call(call))) = frame::take(&mut bytes, LIMIT) else {
            panic!("{vector}")
        };
        assert!(bytes.is_empty());
        let text = |field: &str| vector[field].as_str().unwrap().to_owned();
        assert_eq!(call.id, number(&vector["id"]));
        let names = (call.model, call.endpoint, call.content_type);
        assert_eq!(names, (text("model"), text("endpoint"), text("kind")));
        assert_eq!(call.version.unwrap_or_default(), text("version"));
        assert_eq!(call.body, hex(&vector, "body_hex"));
        assert_eq!(call.claim.tenant.as_deref().unwrap_or_default(), text("tenant"));
        assert_eq!(call.claim.cost.unwrap_or_default(), number(&vector["cost"]));
        let header =
            |name: &str| call.headers.get(name).map_or("", |value| value.to_str().unwrap());
        for (name, value) in vector["headers"].as_object().unwrap() {
            assert_eq!(header(name), value.as_str().unwrap());
        }
        assert_eq!(call.headers.len(), vector["headers"].as_object().unwrap().len());
        let bulk = if vector["bulk"] == 1 { Priority::Bulk } else { Priority::Interactive };
        assert_eq!(call.priority, bulk);
        let timeout = call.timeout.map_or(0, |timeout| timeout.as_millis() as u64);
        assert_eq!(timeout, number(&vector["timeout_ms"]));
    }
}

#[test]
fn cancels_are_read_as_the_vectors_say() {
    for vector in vectors("cancels") {
        let read = frame::take(&mut hex(&vector, "hex"), LIMIT);
        assert_eq!(read, Ok(Some(ClientFrame::Cancel { id: number(&vector["id"]) })));
    }
}

#[test]
fn frames_are_written_as_the_vectors_say() {
    for vector in vectors("words") {
        let mut written = BytesMut::new();
        let body = frame(&vector).write(number(&vector["id"]), &mut written);
        written.extend_from_slice(&body);
        assert_eq!(written, hex(&vector, "hex"), "{vector}");
    }
}

fn frame(vector: &Value) -> ServerFrame {
    let body = hex(vector, "body_hex").freeze();
    match number(&vector["kind"]) {
        3 => ServerFrame::Answer(output(vector, body), timing(vector)),
        4 => ServerFrame::First(output(vector, body), timing(vector)),
        5 => ServerFrame::Chunk(body),
        6 => ServerFrame::End,
        _ => ServerFrame::Failed(problem(vector)),
    }
}

fn output(vector: &Value, body: Bytes) -> Output {
    let content_type = vector["content_type"].as_str().unwrap();
    let headers = vec![
        ("X-Other".to_owned(), "1".to_owned()),
        ("content-type".to_owned(), content_type.to_owned()),
    ];
    let status = number(&vector["status"]) as u16;
    let status = (status != 200).then(|| (status, String::new()));
    Output { status, headers, body, tensors: None }
}

fn timing(vector: &Value) -> Timing {
    let field = |at: usize| number(&vector["timing"][at]);
    Timing {
        queue: Duration::from_micros(field(0)),
        compute: Duration::from_micros(field(1)),
        batch_items: field(2) as u32,
        batch_items_max: field(3) as u32,
        position: field(4) as u32,
        attempt: field(5) as u8,
        reason: REASONS[field(6) as usize],
        batch: 1,
        batches: Vec::new(),
        padding: None,
    }
}

fn problem(vector: &Value) -> Problem {
    let code = match vector["code"].as_str() {
        Some("busy") => ErrorCode::Busy,
        Some("model-not-found") => ErrorCode::ModelNotFound,
        other => panic!("{other:?}"),
    };
    let mut problem = Problem::new(code, vector["message"].as_str().unwrap());
    let wait = number(&vector["retry_after_ms"]);
    problem.retry_after = (wait > 0).then(|| Duration::from_millis(wait));
    problem
}

#[test]
fn broken_frames_are_rejected_as_the_vectors_say() {
    for vector in vectors("bad_frames") {
        let error = frame::take(&mut hex(&vector, "hex"), LIMIT).unwrap_err();
        assert_eq!(error.as_str(), vector["error"], "{vector}");
    }
}

#[test]
fn a_frame_that_is_not_complete_is_waited_for() {
    let whole = hex(&vectors("calls")[1], "hex");
    for length in 0..whole.len() {
        let mut part = BytesMut::from(&whole[..length]);
        assert_eq!(frame::take(&mut part, LIMIT), Ok(None), "{length}");
        assert_eq!(part.len(), length, "nothing is taken before its time");
    }
}
