//! What must hold for every frame of a handle, whatever its bytes. `fuzz/` looks for bytes for which it
//! does not; the tests try those of `fuzz/corpus` again.

use bytes::{BufMut, BytesMut};
use jitney_engine::call::Priority;

use super::frame::{self, ClientFrame, HAS_CLAIM, HAS_HEADERS, HEADER, HandleCall};

/// No frame may be longer.
const LIMIT: u64 = 1 << 16;

/// Reads the bytes as what a client sends on its connection.
pub fn handle_frames(bytes: &[u8]) {
    let whole = frames(&mut BytesMut::from(bytes));
    // A connection brings bytes in pieces of any length.
    let mut input = BytesMut::new();
    let mut pieced = Vec::new();
    let mut broken = None;
    for piece in bytes.chunks(1 + bytes.len() / 3) {
        if broken.is_none() {
            input.extend_from_slice(piece);
            let (more, error) = frames(&mut input);
            pieced.extend(more);
            broken = error;
        }
    }
    assert_eq!((pieced, broken), whole, "what is read does not depend on how it arrives");
    for frame in &whole.0 {
        let mut written = write(frame);
        assert_eq!(frame::take(&mut written, LIMIT), Ok(Some(read_again(frame))));
        assert!(written.is_empty());
    }
}

fn frames(input: &mut BytesMut) -> (Vec<ClientFrame>, Option<frame::HandleFrameError>) {
    let mut found = Vec::new();
    loop {
        let before = input.len();
        match frame::take(input, LIMIT) {
            Ok(Some(frame)) => {
                assert!(before - input.len() >= HEADER, "every frame takes bytes");
                found.push(frame);
            }
            Ok(None) => {
                assert_eq!(input.len(), before, "nothing is taken before its time");
                assert!(before < HEADER + LIMIT as usize, "a whole frame is there");
                return (found, None);
            }
            Err(error) => return (found, Some(error)),
        }
    }
}

/// The frame as a client writes it.
fn write(frame: &ClientFrame) -> BytesMut {
    let mut payload = BytesMut::new();
    let (kind, id) = match frame {
        ClientFrame::Cancel { id } => (2, *id),
        ClientFrame::Call(call) => {
            write_call(call, &mut payload);
            (1, call.id)
        }
    };
    let mut out = BytesMut::new();
    out.put_u32_le(payload.len() as u32);
    out.put_u8(kind);
    out.put_u8(0);
    out.put_u16_le(0);
    out.put_u64_le(id);
    out.extend_from_slice(&payload);
    out
}

fn write_call(call: &HandleCall, out: &mut BytesMut) {
    let version = call.version.as_deref().unwrap_or_default();
    let names = [call.model.as_str(), version, &call.endpoint, &call.content_type];
    let claims = call.claim != jitney_engine::call::Claim::default();
    out.put_u32_le(call.timeout.map_or(0, |timeout| timeout.as_millis() as u32));
    out.put_u8(u8::from(call.priority == Priority::Bulk));
    let headers = header_block(call);
    let more = [(claims, HAS_CLAIM), (!headers.is_empty(), HAS_HEADERS)];
    out.put_u8(more.iter().filter(|(here, _)| *here).map(|(_, bit)| bit).sum());
    names.iter().for_each(|name| out.put_u16_le(name.len() as u16));
    names.iter().for_each(|name| out.put_slice(name.as_bytes()));
    if claims {
        let tenant = call.claim.tenant.as_deref().unwrap_or_default();
        out.put_u64_le(call.claim.cost.unwrap_or_default());
        out.put_u8(tenant.len() as u8);
        out.put_slice(tenant.as_bytes());
    }
    if !headers.is_empty() {
        out.put_u16_le(headers.len() as u16);
        out.put_slice(&headers);
    }
    out.put_slice(&call.body);
}

fn header_block(call: &HandleCall) -> BytesMut {
    let mut out = BytesMut::new();
    for (name, value) in &call.headers {
        out.put_u16_le(name.as_str().len() as u16);
        out.put_u32_le(value.len() as u32);
        out.put_slice(name.as_str().as_bytes());
        out.put_slice(value.as_bytes());
    }
    out
}

/// A copy of the frame.
fn read_again(frame: &ClientFrame) -> ClientFrame {
    match frame {
        ClientFrame::Cancel { id } => ClientFrame::Cancel { id: *id },
        ClientFrame::Call(call) => ClientFrame::Call(HandleCall {
            id: call.id,
            timeout: call.timeout,
            priority: call.priority,
            claim: call.claim.clone(),
            model: call.model.clone(),
            version: call.version.clone(),
            endpoint: call.endpoint.clone(),
            content_type: call.content_type.clone(),
            headers: call.headers.clone(),
            body: call.body.clone(),
        }),
    }
}

#[cfg(test)]
#[test]
fn the_corpus_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/handle_frames");
    for file in std::fs::read_dir(corpus).unwrap() {
        handle_frames(&std::fs::read(file.unwrap().path()).unwrap());
    }
}
