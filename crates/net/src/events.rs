//! Server-Sent Events as text: what a browser's `EventSource` reads.
//!
//! The event `end` comes after the last one, so that a client does not take the end of the connection for a
//! lost one and ask again. Events are text: bytes that are not UTF-8 are replaced.

use bytes::Bytes;
use http::HeaderMap;
use http::header::ACCEPT;

/// The type of such an answer.
pub const EVENT_STREAM: &str = "text/event-stream";

/// Whether the client takes events.
pub fn accepted(headers: &HeaderMap) -> bool {
    let takes = |text: &str| text.to_ascii_lowercase().contains(EVENT_STREAM);
    headers.get_all(ACCEPT).iter().any(|value| value.to_str().is_ok_and(takes))
}

/// Whether a first piece is the beginning of events that the model has written itself: whole lines of them.
pub fn begins(piece: &[u8]) -> bool {
    let fields: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];
    piece.ends_with(b"\n") && fields.iter().any(|field| piece.starts_with(field))
}

/// The event after the last piece.
pub fn end() -> Bytes {
    event("end", b"")
}

/// One event with this name, if it has one. Each line of the data has a line of its own.
pub fn event(name: &str, data: &[u8]) -> Bytes {
    let text = String::from_utf8_lossy(data).replace("\r\n", "\n").replace('\r', "\n");
    let mut event = String::with_capacity(text.len() + 16);
    if !name.is_empty() {
        event.extend(["event: ", name, "\n"]);
    }
    for line in text.split('\n') {
        event.extend(["data: ", line, "\n"]);
    }
    event.push('\n');
    Bytes::from(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_a_piece_is_a_line_of_its_event() {
        let text = |name, data: &[u8]| String::from_utf8(event(name, data).to_vec()).unwrap();
        assert_eq!(text("", b"one"), "data: one\n\n");
        assert_eq!(
            text("", b"a\r\nb\n\nc\rd\n"),
            "data: a\ndata: b\ndata: \ndata: c\ndata: d\ndata: \n\n"
        );
        assert_eq!(text("", b" lead"), "data:  lead\n\n", "one space belongs to the form");
        assert_eq!(text("error", b"{}"), "event: error\ndata: {}\n\n");
        assert_eq!(text("", b"\xff"), "data: \u{fffd}\n\n");
        assert_eq!(end(), "event: end\ndata: \n\n");
    }

    #[test]
    fn events_of_the_model_s_own_are_told_from_text() {
        let own: [&[u8]; 3] = [b"data: {}\n\n", b": ping\n\n", b"event: x\ndata: y\n\n"];
        assert!(own.into_iter().all(begins));
        let text: [&[u8]; 4] = [b":", b"data: is what I said", b"the data: x\n", b""];
        assert!(!text.into_iter().any(begins));
    }

    #[test]
    fn a_client_asks_for_events_among_other_types() {
        let asks = |value| accepted(&HeaderMap::from_iter([(ACCEPT, value)]));
        let values = ["text/event-stream", "application/json, Text/Event-Stream;q=0.5", "*/*"];
        let found = values.map(|value| asks(http::HeaderValue::from_static(value)));
        assert_eq!(found, [true, true, false]);
    }
}
