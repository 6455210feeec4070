//! What must hold for every frame, whatever its bytes. `fuzz/` looks for bytes for which it does not;
//! the tests try those of `fuzz/corpus` again.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::batch_frame::BatchFrame;
use super::frame::{
    FrameHeader, FrameKind, HEADER_LEN, PAYLOAD_MAX, decode_chunk, decode_control, decode_failed,
    decode_reply, decode_times,
};
use crate::call::{CallRoute, HeaderBlock, Input, Parameter, SequenceHeaders, SequenceRef};
use crate::outcome::Output;
use crate::tensors::{Datatype, NamedTensor, TensorRequest};

/// Reads the bytes as a frame of a worker, and builds a frame for a worker from them.
pub fn worker_frames(bytes: &[u8]) {
    read(bytes);
    write(bytes);
}

/// A frame is rejected, or nothing of it is lost or comes from elsewhere.
fn read(bytes: &[u8]) {
    let Some((head, payload)) = bytes.split_first_chunk::<HEADER_LEN>() else { return };
    let Ok(header) = FrameHeader::decode(head) else { return };
    assert!(header.length <= PAYLOAD_MAX);
    let mut again = BytesMut::new();
    header.encode(&mut again);
    assert_eq!(again, head[..], "a header is written as it was read");
    let payload = Bytes::copy_from_slice(payload);
    let count = usize::from(header.count);
    match header.kind {
        FrameKind::Reply => {
            if let Ok(items) = decode_reply(header.count, payload.clone()) {
                assert_eq!(items.len(), count);
                let held = items.iter().map(|item| match item {
                    Ok(output) => values(output).map(Bytes::len).sum(),
                    Err(_) => 0,
                });
                assert!(held.sum::<usize>() + 8 * count <= payload.len());
                let values = items.iter().flatten().flat_map(values);
                for value in values.filter(|value| !value.is_empty()) {
                    assert!(payload.as_ptr_range().contains(&value.as_ptr()), "a copy");
                }
            }
        }
        FrameKind::Chunk => {
            if let Ok(pieces) = decode_chunk(header.count, payload.clone()) {
                assert_eq!(pieces.len(), count);
                let held = pieces.iter().flat_map(|(_, piece)| values(piece)).map(Bytes::len);
                let held: usize = held.sum();
                assert!(held + 8 * count <= payload.len());
            }
        }
        FrameKind::Failed => drop(decode_failed(&payload)),
        FrameKind::Times => drop(decode_times(&payload)),
        FrameKind::Hello
        | FrameKind::Load
        | FrameKind::Loaded
        | FrameKind::LoadFailed
        | FrameKind::Batch
        | FrameKind::Stop
        | FrameKind::Cancel
        | FrameKind::Progress
        | FrameKind::Share => {
            if let Ok(message) = decode_control::<serde_json::Value>(&payload) {
                let text = message.to_string();
                let again = decode_control::<serde_json::Value>(text.as_bytes());
                assert!(again.is_ok(), "what was read can be written and read again: {text}");
            }
        }
    }
}

/// What an answer holds.
fn values(output: &Output) -> impl Iterator<Item = &Bytes> {
    let tensors = output.tensors.iter().flatten().map(NamedTensor::data);
    std::iter::once(&output.body).chain(tensors)
}

/// A batch is as long as it says, and the same whether it is written in one piece or in several.
fn write(bytes: &[u8]) {
    let inputs: Vec<Input> = bytes.split(|byte| *byte == 0).take(64).map(input).collect();
    let names = SequenceHeaders::default();
    let frame = BatchFrame::new(7, inputs.iter().collect(), &names);
    let mut whole = BytesMut::new();
    frame.encode(&mut whole);
    assert_eq!(whole.len(), HEADER_LEN + frame.payload_len());
    assert_eq!(frame.segments().concat(), whole[..]);
    let head = whole.first_chunk::<HEADER_LEN>().map(FrameHeader::decode);
    let Some(Ok(header)) = head else { panic!("{head:?}") };
    assert_eq!(header.length as usize, frame.payload_len());
    assert_eq!(usize::from(header.count), inputs.len());
}

/// An input of any headers and values.
fn input(bytes: &[u8]) -> Input {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (head, values) = bytes.split_at(bytes.len() / 2);
    let mut headers = HeaderBlock::new();
    for pair in head.chunks(9) {
        let (name, value) = pair.split_at(pair.len() / 3);
        headers.push(&text(name), value);
    }
    let mut read_back = 0;
    for (name, value) in headers.iter() {
        read_back += 6 + name.len() + value.len();
    }
    assert_eq!(read_back, headers.as_bytes().len(), "every header is found again");
    let parameter = |value: &[u8]| Parameter {
        name: text(&value[..value.len() / 2]).into(),
        content_type: text(&value[value.len() / 2..]).into(),
        value: value.to_vec().into(),
    };
    let sequence = head.first().map(|first| SequenceRef {
        id: text(head),
        starts: first % 2 == 0,
        ends: first % 3 == 0,
    });
    Input {
        id: text(&head[..head.len().min(36)]),
        headers,
        route: CallRoute {
            endpoint: values.first().map(|_| text(values).into()),
            sequence: sequence.map(Box::new),
            batch_size: values.len() as u32,
            ..CallRoute::default()
        },
        parameters: values.chunks(11).take(100).map(parameter).collect(),
        tensors: head.first().filter(|first| *first % 3 == 0).map(|_| Arc::new(tensors(values))),
    }
}

/// Any bytes as tensors.
fn tensors(values: &[u8]) -> TensorRequest {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let tensor = |value: &[u8]| {
        let data = Bytes::copy_from_slice(value);
        let shape = [1, value.len()];
        NamedTensor::new(text(value), Datatype::Uint8, shape, data).expect("fills its shape")
    };
    TensorRequest {
        inputs: values.chunks(13).take(100).map(tensor).collect(),
        outputs: values.chunks(29).take(50).map(|name| text(name).into()).collect(),
    }
}

#[cfg(test)]
#[test]
fn the_corpus_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/worker_frames");
    for file in std::fs::read_dir(corpus).unwrap() {
        worker_frames(&std::fs::read(file.unwrap().path()).unwrap());
    }
}
