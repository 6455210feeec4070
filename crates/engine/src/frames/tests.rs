//! The byte vectors of `protocol/vectors.json`, which the Python side tests too, and raw noise.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use jitney_batcher::{OriginKind, Priority};
use proptest::prelude::*;
use serde_json::Value;

use super::batch_frame::{BatchFrame, BatchItem};
use super::frame::{
    FrameError, FrameHeader, FrameKind, HEADER_LEN, decode_chunk, decode_control, decode_failed,
    decode_reply, decode_times, encode_cancel, encode_control,
};
use crate::call::{CallRoute, HeaderBlock, Input, Parameter, SequenceHeaders, SequenceRef};
use crate::outcome::{Cause, ItemOutcome};
use crate::pending::{Payload, PendingRequest, SharedId};
use crate::pool::{LoadedFields, LoadedReport};
use crate::reply::Reply;
use crate::tensors::{Datatype, NamedTensor, TensorRequest};

fn vectors(which: &str) -> Vec<Value> {
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../protocol/vectors.json"));
    let vectors: Value = serde_json::from_str(text).unwrap();
    vectors[which].as_array().unwrap().clone()
}

fn of_kind(kind: FrameKind) -> Vec<Value> {
    let mut found = vectors("good");
    found.retain(|vector| vector["kind"] == kind as u8);
    assert!(!found.is_empty(), "no vectors of {kind:?}");
    found
}

fn hex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn split(frame: &[u8]) -> (Result<FrameHeader, FrameError>, Bytes) {
    let (head, payload) = frame.split_at(HEADER_LEN);
    (FrameHeader::decode(head.try_into().unwrap()), Bytes::copy_from_slice(payload))
}

fn input(item: &Value) -> Input {
    let (mut headers, mut route) = (HeaderBlock::new(), CallRoute::default());
    for pair in item["headers"].as_array().unwrap() {
        let (name, value) = (text(&pair[0]), text(&pair[1]));
        route.tells_explain |= name == "explain" && value == "False";
        headers.push(&name, value.as_bytes());
    }
    let parameter = |parameter: &Value| Parameter {
        name: text(&parameter["name"]).into(),
        content_type: text(&parameter["content_type"]).into(),
        value: hex(&parameter["value_hex"]).into(),
    };
    let parameters = item["params"].as_array().unwrap().iter().map(parameter).collect();
    route.batch_size = item["batch_size"].as_u64().unwrap() as u32;
    let tensors = item.get("tensors").map(|_| Arc::new(request(item)));
    Input { id: text(&item["id"]), headers, route, parameters, tensors }
}

fn request(item: &Value) -> TensorRequest {
    let outputs = item["outputs"].as_array().unwrap().iter().map(|name| text(name).into());
    TensorRequest {
        inputs: item["tensors"].as_array().unwrap().iter().map(tensor).collect(),
        outputs: outputs.collect(),
    }
}

fn tensor(tensor: &Value) -> NamedTensor {
    let sizes = tensor["shape"].as_array().unwrap().iter();
    let shape: Vec<usize> = sizes.map(|size| size.as_u64().unwrap() as usize).collect();
    let datatype = Datatype::parse(tensor["datatype"].as_str().unwrap()).unwrap();
    let data = hex(&tensor["value_hex"]).into();
    NamedTensor::new(text(&tensor["name"]), datatype, shape, data).unwrap()
}

/// A request with what the vectors tell of its call, at this very moment.
fn pending(item: &Value) -> PendingRequest {
    let facts = jitney_batcher::Request::new(SharedId::UNSET);
    let (payload, reply) = (Payload::Raw(Box::new(input(item))), Reply::new().0);
    let now = tokio::time::Instant::now();
    let mut request = PendingRequest::new(facts, payload, now, reply, None);
    let left = item["deadline_ms"].as_u64();
    request.deadline = left.map(|left| now + Duration::from_millis(left));
    request.facts.origin.kind = match item["origin"].as_str().unwrap() {
        "grpc" => OriginKind::Grpc,
        "python" => OriginKind::Python,
        _ => OriginKind::Http,
    };
    if item["priority"] == "bulk" {
        request.facts.priority = Priority::Bulk;
    }
    request
}

#[tokio::test(start_paused = true)]
async fn batches_are_encoded_as_the_vectors_say_copied_or_in_pieces() {
    let names = SequenceHeaders::default();
    for vector in of_kind(FrameKind::Batch).iter().filter(|vector| vector["decode_only"] != true) {
        let requests: Vec<PendingRequest> =
            vector["decoded"]["items"].as_array().unwrap().iter().map(pending).collect();
        let items = requests.iter().filter_map(|request| BatchItem::of(request, true)).collect();
        let frame = BatchFrame::of_items(vector["id"].as_u64().unwrap(), items, &names);
        let mut whole = BytesMut::new();
        frame.encode(&mut whole);
        assert_eq!(whole.to_vec(), hex(&vector["hex"]), "{}", vector["name"]);
        if !requests.is_empty() {
            assert_eq!(frame.segments().concat(), hex(&vector["hex"]), "{}", vector["name"]);
        }
    }
}

#[test]
fn replies_are_decoded_as_the_vectors_say() {
    for vector in of_kind(FrameKind::Reply) {
        let (header, payload) = split(&hex(&vector["hex"]));
        let header = header.unwrap();
        assert_eq!(header.id, vector["id"].as_u64().unwrap());
        let items = decode_reply(header.count, payload).unwrap();
        let expected = vector["decoded"]["items"].as_array().unwrap();
        assert_eq!(items.len(), expected.len());
        for (item, expected) in items.iter().zip(expected) {
            assert_item(item, expected);
        }
    }
}

fn assert_item(item: &ItemOutcome, expected: &Value) {
    match item {
        Ok(output) => {
            let tensors = expected.get("tensors").map(|tensors| {
                tensors.as_array().unwrap().iter().map(tensor).collect::<Box<[_]>>()
            });
            let written = expected.get("written").map(text);
            let outcome = if tensors.is_some() { 2 } else { 3 * i32::from(written.is_some()) };
            assert_eq!(expected["outcome"], outcome);
            assert_eq!(output.tensors, tensors);
            let (status, phrase) = output.status.clone().unwrap_or((200, String::new()));
            assert_eq!((status, phrase), (number(&expected["status"]), text(&expected["phrase"])));
            let headers = serde_json::to_value(&output.headers).unwrap();
            assert_eq!(headers, expected["headers"]);
            let body = match (written, &output.tensors) {
                (Some(written), _) => written.into_bytes(),
                (None, None) => hex(&expected["body_hex"]),
                (None, Some(_)) => Vec::new(),
            };
            assert_eq!(output.body, body);
        }
        Err(failure) => {
            assert_eq!(expected["outcome"], 1);
            let causes = [Cause::Raised, Cause::Memory, Cause::Prediction, Cause::NotAList];
            let causes = [&causes[..], &[Cause::WrongLength, Cause::UnsupportedOutput]].concat();
            assert_eq!(failure.cause, causes[usize::from(number(&expected["cause"])) - 1]);
            assert_eq!(failure.status, Some(number(&expected["status"])));
            assert_eq!(failure.message.as_bytes(), hex(&expected["body_hex"]));
        }
    }
}

fn number(value: &Value) -> u16 {
    u16::try_from(value.as_u64().unwrap()).unwrap()
}

#[test]
fn chunks_are_decoded_as_the_vectors_say() {
    for vector in of_kind(FrameKind::Chunk) {
        let (header, payload) = split(&hex(&vector["hex"]));
        let header = header.unwrap();
        assert_eq!(header.id, vector["id"].as_u64().unwrap());
        let pieces = decode_chunk(header.count, payload).unwrap();
        let expected = vector["decoded"]["items"].as_array().unwrap();
        assert_eq!(pieces.len(), expected.len());
        for ((position, piece), expected) in pieces.into_iter().zip(expected) {
            assert_eq!(position, usize::from(number(&expected["position"])));
            assert_item(&Ok(piece), expected);
        }
    }
}

#[test]
fn failures_of_whole_batches_are_decoded_as_the_vectors_say() {
    for vector in of_kind(FrameKind::Failed) {
        let (_, payload) = split(&hex(&vector["hex"]));
        let failure = decode_failed(&payload).unwrap();
        assert_eq!(failure.message, text(&vector["decoded"]["message"]));
        assert_eq!(failure.status, vector["decoded"]["status"].as_u64().map(|code| code as u16));
    }
}

#[test]
fn control_frames_read_and_write_as_the_vectors_say() {
    for kind in [
        FrameKind::Hello,
        FrameKind::Load,
        FrameKind::Loaded,
        FrameKind::LoadFailed,
        FrameKind::Stop,
        FrameKind::Progress,
    ] {
        for vector in of_kind(kind) {
            let (header, payload) = split(&hex(&vector["hex"]));
            assert_eq!(header.unwrap().kind, kind);
            let message: Value = decode_control(&payload).unwrap();
            assert_eq!(message, vector["decoded"], "{}", vector["name"]);
            let mut written = BytesMut::new();
            encode_control(kind, &message, &mut written);
            if !payload.is_empty() {
                assert_eq!(written.to_vec(), hex(&vector["hex"]), "{}", vector["name"]);
            }
        }
    }
}

#[test]
fn times_are_decoded_as_the_vectors_say() {
    for vector in of_kind(FrameKind::Times) {
        let (header, payload) = split(&hex(&vector["hex"]));
        assert_eq!(header.unwrap().id, vector["id"].as_u64().unwrap());
        let (times, told) = (decode_times(&payload).unwrap(), &vector["decoded"]);
        let micros = |time: Option<Duration>| time.map(|time| time.as_micros() as u64);
        assert_eq!(micros(times.prepare), told["prepare_us"].as_u64());
        assert_eq!(micros(times.model), told["model_us"].as_u64());
        assert_eq!(times.gpu_memory, told["gpu_memory_bytes"].as_u64());
        assert_eq!(times.pauses.map(|it| it.runs), told["gc_runs"].as_u64());
        let longest = times.pauses.and_then(|it| micros(Some(it.longest)));
        assert_eq!(longest, told["gc_longest_us"].as_u64());
    }
}

#[test]
fn what_warming_up_found_is_decoded_as_the_vectors_say() {
    let of = |vector: &Value| -> LoadedReport {
        let (_, payload) = split(&hex(&vector["hex"]));
        decode_control::<LoadedFields>(&payload).unwrap().into()
    };
    let reports: Vec<_> = of_kind(FrameKind::Loaded).iter().map(of).collect();
    let told = reports.iter().find(|report| !report.sizes.is_empty()).unwrap();
    assert_eq!((told.sizes.as_slice(), told.measured.len()), (&[1, 2, 4][..], 2));
    assert_eq!(told.graphs.map(|graphs| (graphs.count, graphs.bytes)), Some((3, 1 << 34)));
    assert_eq!((told.gpu_memory, told.notes.len()), (Some(1 << 35), 1));
    assert!(reports.contains(&LoadedReport::default()), "one has nothing to say");
}

#[test]
fn a_cancel_is_written_as_the_vectors_say() {
    for vector in of_kind(FrameKind::Cancel) {
        let mut written = BytesMut::new();
        let positions = vector["decoded"]["positions"].as_array().into_iter().flatten();
        let positions: Vec<u16> = positions.map(|at| at.as_u64().unwrap() as u16).collect();
        encode_cancel(vector["id"].as_u64().unwrap(), &positions, &mut written);
        assert_eq!(written.to_vec(), hex(&vector["hex"]), "{}", vector["name"]);
    }
}

#[test]
fn broken_frames_of_workers_are_errors() {
    for vector in vectors("bad") {
        let frame = hex(&vector["hex"]);
        if frame.len() < HEADER_LEN || vector["error"] == "truncated" {
            continue; // An end of stream, which the connection sees before there is a frame.
        }
        let (header, payload) = split(&frame);
        let wrong = match header {
            Err(_) => true,
            Ok(header) if header.kind == FrameKind::Reply => {
                decode_reply(header.count, payload).is_err()
            }
            Ok(header) if header.kind == FrameKind::Chunk => {
                decode_chunk(header.count, payload).is_err()
            }
            Ok(header) if header.kind == FrameKind::Failed => decode_failed(&payload).is_err(),
            Ok(_) => continue, // Frames that only workers read.
        };
        assert!(wrong, "{}", vector["name"]);
    }
}

proptest! {
    #[test]
    fn noise_never_panics(count in 0..20_u16, noise in prop::collection::vec(any::<u8>(), 0..300)) {
        drop(decode_reply(count, Bytes::from(noise.clone())));
        drop(decode_chunk(count, Bytes::from(noise.clone())));
        drop(decode_failed(&noise));
        if let Some(head) = noise.first_chunk::<HEADER_LEN>() {
            drop(FrameHeader::decode(head));
        }
    }
}

#[test]
fn what_the_route_says_follows_the_clients_headers() {
    let names = SequenceHeaders { id: "x-session".to_owned(), ..SequenceHeaders::default() };
    let mut headers = HeaderBlock::new();
    for (name, value) in [("x-mine", "1"), ("Explain", "True"), ("url_path", "other")] {
        headers.push(name, value.as_bytes());
    }
    let sequence = SequenceRef { id: "s".to_owned(), starts: true, ends: false };
    let route = CallRoute {
        tells_explain: true,
        endpoint: Some("one".into()),
        sequence: Some(Box::new(sequence)),
        ..CallRoute::default()
    };
    let input =
        Input { id: "id".to_owned(), headers, route, parameters: Vec::new(), tensors: None };
    let mut frame = BytesMut::new();
    BatchFrame::new(1, vec![&input], &names).encode(&mut frame);
    // Header, table, the fixed part of the meta and id; there are no parameters behind the headers.
    let mut rest = &frame[HEADER_LEN + 8 + 16 + input.id.len()..];
    let mut found = Vec::new();
    while let Some((head, tail)) = rest.split_at_checked(6) {
        let name = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let value = u32::from_le_bytes([head[2], head[3], head[4], head[5]]) as usize;
        let (text, tail) = tail.split_at(name + value);
        let text = std::str::from_utf8(text).unwrap();
        found.push(format!("{}={}", &text[..name], &text[name..]));
        rest = tail;
    }
    let expected = [
        "x-mine=1",
        "url_path=one",
        "explain=False",
        "x-session=s",
        "ts_request_sequence_start=true",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_batch_that_no_frame_has_room_for_does_not_fit_however_large() {
    let names = SequenceHeaders::default();
    // The pages are never touched, and all requests share them.
    let value = vec![0; 900 << 20].into();
    let parameters = vec![Parameter { name: "body".into(), content_type: "".into(), value }];
    let (headers, route) = (HeaderBlock::default(), CallRoute::default());
    let input = Input { id: "1".to_owned(), headers, route, parameters, tensors: None };
    let fits = |count: usize| BatchFrame::new(1, vec![&input; count], &names).fits();
    assert!(fits(1));
    assert!(!fits(2));
    assert!(!fits(5), "the sum of their lengths has more than 32 bits");
}

#[tokio::test(start_paused = true)]
async fn only_definitions_are_told_what_their_own_calls_need() {
    let vectors = of_kind(FrameKind::Batch);
    let items = vectors.iter().flat_map(|vector| vector["decoded"]["items"].as_array().unwrap());
    let mut told = 0;
    for item in items {
        let request = pending(item);
        let facts = |tells| {
            let items = BatchItem::of(&request, tells).into_iter().collect();
            let mut frame = BytesMut::new();
            BatchFrame::of_items(1, items, &SequenceHeaders::default()).encode(&mut frame);
            let facts = &frame[HEADER_LEN + 8 + 8..][..8];
            // The size of an endpoint's batches stands between the others.
            [&facts[..4], &facts[6..]].concat()
        };
        let unknown = [0xff, 0xff, 0xff, 0xff, 0, 0];
        assert_eq!(facts(false), unknown, "handlers of archives get what clients sent");
        told += usize::from(facts(true) != unknown);
    }
    assert!(told > 0, "a vector tells something");
}
