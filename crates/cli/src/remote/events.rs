//! Server-Sent Events: a stream of named documents over one answer.

use reqwest::Response;
use serde::de::DeserializeOwned;

use super::document;
use crate::failure::Failure;
use crate::fetch::client::error_chain;

/// An event larger than this is no overview of any server.
const EVENT_BYTES_MAX: usize = 64 << 20;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEvent {
    /// `history`, `overview`, `log`.
    pub name: String,
    /// The document.
    pub data: String,
}

impl StreamEvent {
    /// The document in its type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        document::read(serde_json::from_str(&self.data)?)
    }
}

/// Reads a stream event by event.
pub struct EventReader {
    response: Response,
    parser: EventParser,
}

impl EventReader {
    /// Reads the body of an answer.
    pub fn new(response: Response) -> Self {
        Self { response, parser: EventParser::default() }
    }

    /// The next event; nothing at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<StreamEvent>, Failure> {
        loop {
            if let Some(event) = self.parser.next() {
                return Ok(Some(event));
            }
            match self.response.chunk().await {
                Ok(Some(bytes)) => self.parser.push(&bytes)?,
                Ok(None) => return Ok(None),
                Err(error) => {
                    let reason = error_chain(&error.without_url());
                    return Err(Failure::unreachable(format!("the connection ended: {reason}")));
                }
            }
        }
    }
}

/// Finds the events in the bytes.
#[derive(Debug, Default)]
struct EventParser {
    unread: Vec<u8>,
    /// Bytes of `unread` that hold no end of an event.
    searched: usize,
}

impl EventParser {
    fn push(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.unread.len() + bytes.len() > EVENT_BYTES_MAX {
            return Err(Failure::failed("the server sent an event that is too large"));
        }
        self.unread.extend(bytes.iter().filter(|byte| **byte != b'\r'));
        Ok(())
    }

    /// The next whole event that has data; comments keep the connection alive and have none.
    fn next(&mut self) -> Option<StreamEvent> {
        loop {
            let from = self.searched.saturating_sub(1);
            let Some(end) = self.unread[from..].windows(2).position(|pair| pair == b"\n\n") else {
                self.searched = self.unread.len();
                return None;
            };
            let block: Vec<u8> = self.unread.drain(..from + end + 2).collect();
            self.searched = 0;
            if let Some(event) = parse(&String::from_utf8_lossy(&block)) {
                return Some(event);
            }
        }
    }
}

fn parse(block: &str) -> Option<StreamEvent> {
    let (mut name, mut data) = ("message".to_owned(), Vec::new());
    for line in block.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => name = value.to_owned(),
            "data" => data.push(value),
            _ => {}
        }
    }
    (!data.is_empty()).then(|| StreamEvent { name, data: data.join("\n") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_however_the_bytes_are_cut() {
        let text = ": hello\n\nevent: history\ndata: {\"samples\":[]}\n\nevent:log\r\ndata: a\r\ndata: b\r\n\r\ndata: c\n\n";
        let event = |name: &str, data: &str| StreamEvent { name: name.into(), data: data.into() };
        let expected =
            vec![event("history", "{\"samples\":[]}"), event("log", "a\nb"), event("message", "c")];
        for size in 1..text.len() {
            let mut parser = EventParser::default();
            let mut found = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                parser.push(piece).expect("fits");
                found.extend(std::iter::from_fn(|| parser.next()));
            }
            assert_eq!(found, expected, "pieces of {size}");
        }
    }
}
