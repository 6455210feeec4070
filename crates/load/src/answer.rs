//! How a request ended: with an answer of some status, or without one.

use std::fmt;
use std::io::{self, ErrorKind};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// An answer with this HTTP status.
    Http(u16),
    /// An answer with this gRPC status.
    Grpc(u8),
    /// No answer.
    Failed(ExchangeFailure),
}

/// Why there was no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExchangeFailure {
    /// Nobody listens at the address.
    NobodyListens,
    /// The connection could not be opened for another reason.
    CannotConnect,
    /// TLS could not be agreed upon.
    Tls,
    /// The server reset the connection or the stream.
    Reset,
    /// The server closed the connection before the answer was complete.
    Closed,
    /// The answer did not come in time.
    Timeout,
    /// The time was over before a connection became free; nothing was sent.
    NeverSent,
    /// The answer breaks the protocol.
    Malformed,
}

impl Ending {
    /// Whether the request was served.
    #[must_use]
    pub fn is_answer(self) -> bool {
        matches!(self, Self::Http(200..=299) | Self::Grpc(0))
    }

    /// Whether the server said that it takes no more.
    #[must_use]
    pub fn is_rejection(self) -> bool {
        matches!(self, Self::Http(429 | 503) | Self::Grpc(8 | 14))
    }

    /// Whether the server gave up because time was over.
    #[must_use]
    pub fn is_expiry(self) -> bool {
        matches!(self, Self::Http(408 | 504) | Self::Grpc(4))
    }

    /// Whether nothing came back.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(status) => write!(f, "{status}"),
            Self::Grpc(status) => match GRPC_NAMES.get(usize::from(*status)) {
                Some(name) => f.write_str(name),
                None => write!(f, "grpc-status {status}"),
            },
            Self::Failed(failure) => f.write_str(failure.label()),
        }
    }
}

impl ExchangeFailure {
    /// Its name in reports.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::NobodyListens => "connection refused",
            Self::CannotConnect => "cannot connect",
            Self::Tls => "TLS failed",
            Self::Reset => "connection reset",
            Self::Closed => "closed before the answer",
            Self::Timeout => "timeout",
            Self::NeverSent => "timeout before a connection was free",
            Self::Malformed => "malformed answer",
        }
    }

    /// Of a connection that could not be opened.
    pub(crate) fn connecting(error: &io::Error) -> Self {
        let nobody = error.kind() == ErrorKind::ConnectionRefused;
        if nobody { Self::NobodyListens } else { Self::CannotConnect }
    }

    /// Of a connection that was open.
    pub(crate) fn talking(error: &io::Error) -> Self {
        let is = |kind: ErrorKind| error.kind() == kind;
        if is(ErrorKind::UnexpectedEof) {
            Self::Closed
        } else if is(ErrorKind::InvalidData) {
            Self::Tls
        } else {
            Self::Reset
        }
    }
}

/// What an exchange gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) ending: Ending,
    /// What the server says about an error, or the beginning of it.
    pub(crate) error: Option<Vec<u8>>,
    /// Whether it says when to try again.
    pub(crate) retry_after: bool,
    /// Bytes of the answer's body.
    pub(crate) bytes: u64,
}

impl Exchange {
    pub(crate) fn answered(ending: Ending, bytes: u64) -> Self {
        Self { ending, error: None, retry_after: false, bytes }
    }

    pub(crate) fn failed(failure: ExchangeFailure) -> Self {
        Self::answered(Ending::Failed(failure), 0)
    }

    /// Why the server did not serve it, where it says so.
    pub(crate) fn reason(&self) -> Option<Box<str>> {
        self.error.as_deref().and_then(reason)
    }
}

/// The reason inside an error's text: `[reason: queue_full]`, or JSON's `"reason": "queue_full"`.
fn reason(text: &[u8]) -> Option<Box<str>> {
    let text = String::from_utf8_lossy(text);
    let written = |rest: &str| {
        let end =
            rest.find(|letter: char| !(letter.is_alphanumeric() || "_-. ".contains(letter)))?;
        (end > 0).then(|| Box::from(&rest[..end]))
    };
    match text.split_once("[reason: ") {
        Some((_, rest)) => written(rest),
        None => {
            let (_, rest) = text.split_once("\"reason\"")?;
            written(rest.trim_start_matches([':', ' ', '"']))
        }
    }
}

const GRPC_NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_an_error_is_found_in_both_spellings() {
        let sentence = br#"{"code": 503, "message": "Model \"m\" is full. [reason: queue_full]"}"#;
        assert_eq!(reason(sentence).as_deref(), Some("queue_full"));
        assert_eq!(reason(br#"{"reason": "overload", "x": 1}"#).as_deref(), Some("overload"));
        assert_eq!(reason(b"no"), None);
        assert_eq!(reason(b"[reason: cut"), None);
    }

    #[test]
    fn endings_are_sorted_into_served_rejected_expired_and_lost() {
        let kinds = |ending: Ending| {
            [ending.is_answer(), ending.is_rejection(), ending.is_expiry(), ending.is_failure()]
        };
        assert_eq!(kinds(Ending::Http(204)), [true, false, false, false]);
        assert_eq!(kinds(Ending::Grpc(14)), [false, true, false, false]);
        assert_eq!(kinds(Ending::Http(408)), [false, false, true, false]);
        assert_eq!(kinds(Ending::Failed(ExchangeFailure::Reset)), [false, false, false, true]);
        assert_eq!(kinds(Ending::Http(500)), [false; 4]);
        assert_eq!(Ending::Grpc(14).to_string(), "UNAVAILABLE");
        assert_eq!(Ending::Grpc(99).to_string(), "grpc-status 99");
    }
}
