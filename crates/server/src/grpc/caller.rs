//! Who calls, as the services see it: the connection, the moment and what the metadata options.

use std::time::Duration;

use http::{Extensions, HeaderMap};
use jitney_engine::call::{HeaderBlock, Origin, OriginKind};
use tokio::time::Instant;

use crate::errors::{ErrorCode, Problem};
use crate::request_id::RequestUuid;
use crate::rest::inference;

/// One call's own facts; travels with the request as an extension.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub(super) id: RequestUuid,
    /// When its head had arrived.
    pub(super) started: Instant,
    peer: u64,
}

impl Caller {
    pub(super) fn new(peer: u64) -> Self {
        Self { id: RequestUuid::fresh(), started: Instant::now(), peer }
    }

    /// The same caller with another request.
    pub(super) fn again(&self) -> Self {
        Self { id: RequestUuid::fresh(), ..*self }
    }

    /// The caller of this request; the services puts it there.
    pub(super) fn of(extensions: &Extensions) -> Result<Self, Problem> {
        let found = extensions.get::<Self>().copied();
        found.ok_or_else(|| Problem::new(ErrorCode::Internal, "The call has no caller."))
    }

    pub(super) fn origin(&self) -> Origin {
        Origin { kind: OriginKind::Grpc, peer: self.peer }
    }

    /// The earlier of gRPC's own deadline and ours.
    pub(super) fn deadline(&self, metadata: &HeaderMap) -> Result<Option<Instant>, Problem> {
        let ours = inference::deadline(metadata, self.started)?;
        let Some(value) = metadata.get("grpc-timeout") else { return Ok(ours) };
        let timeout = value.to_str().ok().and_then(timeout).ok_or_else(|| {
            Problem::bad_request("Metadata grpc-timeout must be at most 8 digits and a unit.")
        })?;
        Ok(ours.into_iter().chain(self.started.checked_add(timeout)).min())
    }
}

/// Reads `100m`: digits, then one of H, M, S, m, u, n.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let plain = (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| plain)?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

/// The client's metadata as the handler's headers, without what belongs to the protocol.
pub(super) fn headers(metadata: &HeaderMap) -> HeaderBlock {
    let mut headers = HeaderBlock::new();
    for (name, value) in metadata {
        let name = name.as_str();
        let protocol = name.starts_with("grpc-") || ["te", "content-type"].contains(&name);
        if !protocol && !name.ends_with("-bin") {
            headers.push(name, value.as_bytes());
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_digits_and_a_unit() {
        for (text, expected) in [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("250m", Some(Duration::from_millis(250))),
            ("4u", Some(Duration::from_micros(4))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("123456789n", None),
            ("m", None),
            ("", None),
            ("10", None),
            ("-1S", None),
            ("+1S", None),
            ("1ü", None),
        ] {
            assert_eq!(timeout(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_earlier_deadline_counts() {
        let caller = Caller::new(1);
        let metadata = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| {
                (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())
            });
            pairs.collect::<HeaderMap>()
        };
        let after = |millis| Some(caller.started + Duration::from_millis(millis));
        let both = metadata(&[("grpc-timeout", "1S"), ("x-jitney-timeout-ms", "20")]);
        assert_eq!(caller.deadline(&both).unwrap(), after(20));
        assert_eq!(caller.deadline(&metadata(&[("grpc-timeout", "30m")])).unwrap(), after(30));
        assert_eq!(caller.deadline(&metadata(&[])).unwrap(), None);
        assert!(caller.deadline(&metadata(&[("grpc-timeout", "soon")])).is_err());
    }

    #[test]
    fn a_handler_sees_the_clients_metadata_and_not_the_protocols() {
        let mut metadata = HeaderMap::new();
        for name in ["te", "grpc-timeout", "content-type", "x-user", "trace-bin"] {
            metadata.insert(name, "1".parse().unwrap());
        }
        let headers = headers(&metadata);
        assert_eq!(headers.iter().collect::<Vec<_>>(), [(&b"x-user"[..], &b"1"[..])]);
    }
}
