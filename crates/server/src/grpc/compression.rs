//! Compressed gRPC messages on their way in: what appears counts against the same limits as a message that
//! was never compressed, and inflating stops at the first byte beyond them.
//!
//! tonic compresses the answers, for clients that compressed their requests.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use jitney_net::GrowingBody;
use jitney_net::compression::{Coding, Decompressor};
use tonic::Status;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataValue;

use crate::errors::Problem;

const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const ACCEPTED: &str = "gzip,deflate,zstd,identity";

/// Bytes that are inflated before other calls of the thread get their turn.
const TURN_BYTES: usize = 256 << 10;

/// What tonic may compress answers with.
pub(super) const ANSWERS: [CompressionEncoding; 3] =
    [CompressionEncoding::Gzip, CompressionEncoding::Deflate, CompressionEncoding::Zstd];

/// Takes the encoding of a call's messages out of its headers: whoever reads on sees plain messages.
///
/// # Errors
/// It is none of ours.
pub(super) fn take_encoding(headers: &mut HeaderMap) -> Result<Option<Coding>, Status> {
    let Some(value) = headers.remove(GRPC_ENCODING) else { return Ok(None) };
    match value.to_str() {
        Ok("identity") => Ok(None),
        Ok(name) => Coding::named(name).map(Some).ok_or_else(|| unknown(&value)),
        Err(_) => Err(unknown(&value)),
    }
}

/// Tells tonic how to answer: compressed as the client compressed, if the client takes that.
pub(super) fn choose_answer(encoding: Option<Coding>, headers: &mut HeaderMap) {
    let Some(accepted) = headers.remove(GRPC_ACCEPT_ENCODING) else { return };
    let Some(encoding) = encoding else { return };
    let accepts = |text: &str| text.split(',').any(|name| name.trim() == encoding.name());
    if accepted.to_str().is_ok_and(accepts) {
        headers.insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static(encoding.name()));
    }
}

fn unknown(encoding: &HeaderValue) -> Status {
    let name = String::from_utf8_lossy(encoding.as_bytes());
    let mut status = Status::unimplemented(format!(
        "Messages are compressed with {name:?}, which this server cannot read. Use gzip, deflate or zstd."
    ));
    status.metadata_mut().insert("grpc-accept-encoding", MetadataValue::from_static(ACCEPTED));
    status
}

/// A message that is being inflated.
pub(super) struct InflatingMessage {
    message: Bytes,
    decompressor: Decompressor,
    inflated: GrowingBody,
    limit: usize,
}

impl InflatingMessage {
    pub(super) fn new(
        encoding: Coding,
        message: Bytes,
        inflated: GrowingBody,
        limit: usize,
    ) -> Self {
        Self { message, decompressor: Decompressor::new(encoding), inflated, limit }
    }

    /// Inflates some more; whether that was all.
    ///
    /// # Errors
    /// There is no memory, it is too large, or it is not what the client says.
    pub(super) fn step(&mut self) -> Result<bool, Status> {
        let end = self.inflated.len() + TURN_BYTES;
        while self.inflated.len() < end {
            let Some(piece) = self.decompressor.step(&mut self.message).map_err(Problem::from)?
            else {
                self.decompressor.finish().map_err(Problem::from)?;
                return Ok(true);
            };
            if self.inflated.len() + piece.len() > self.limit {
                return Err(Status::resource_exhausted(format!(
                    "The message is larger than {} bytes once it is inflated (max_request_size).",
                    self.limit
                )));
            }
            self.inflated.push(&piece).map_err(Problem::cut)?;
        }
        Ok(false)
    }

    /// The whole message.
    pub(super) fn finish(self) -> Bytes {
        self.inflated.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use jitney_engine::admission::{Admission, AdmissionLimits};

    use super::*;

    fn compressed(encoding: Coding, data: &[u8]) -> Bytes {
        let level = Compression::new(6);
        let made = match encoding {
            Coding::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), level);
                encoder.write_all(data).and_then(|()| encoder.finish())
            }
            Coding::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(data).and_then(|()| encoder.finish())
            }
            Coding::Zstd => zstd::encode_all(data, 3),
        };
        Bytes::from(made.expect("compressed"))
    }

    fn inflate(
        encoding: Coding,
        message: Bytes,
        limit: usize,
        memory: u64,
    ) -> Result<Bytes, Status> {
        let admission =
            Admission::new(AdmissionLimits { bytes: memory, ..AdmissionLimits::default() });
        let inflated = GrowingBody::new(&admission, limit as u64);
        let mut inflating = InflatingMessage::new(encoding, message, inflated, limit);
        while !inflating.step()? {
            assert!(admission.bytes() > 0);
        }
        let message = inflating.finish();
        assert_eq!(admission.bytes(), 0);
        Ok(message)
    }

    const ALL: [Coding; 3] = [Coding::Gzip, Coding::Deflate, Coding::Zstd];

    #[test]
    fn a_message_is_inflated() {
        let data: Vec<u8> = (0..700_000u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
        for encoding in ALL {
            let message = inflate(encoding, compressed(encoding, &data), 1 << 20, 1 << 30).unwrap();
            assert!(message[..] == data, "{encoding:?}");
        }
    }

    #[test]
    fn a_bomb_is_rejected_at_the_limit_and_holds_no_more_than_that() {
        let bomb = vec![0; 50 << 20];
        for encoding in ALL {
            let message = compressed(encoding, &bomb);
            assert!(message.len() < 100 << 10);
            let too_large = inflate(encoding, message.clone(), 1 << 20, 1 << 30).unwrap_err();
            assert_eq!(too_large.code(), tonic::Code::ResourceExhausted, "{encoding:?}");
            // Without memory it ends even earlier.
            assert!(inflate(encoding, message, 1 << 30, 1 << 20).is_err(), "{encoding:?}");
        }
    }

    #[test]
    fn what_is_not_compressed_or_cut_off_is_rejected() {
        for encoding in ALL {
            let whole = compressed(encoding, &[7; 5000]);
            for message in [Bytes::from_static(b"plain"), whole.slice(..whole.len() / 2)] {
                let wrong = inflate(encoding, message, 1 << 20, 1 << 30).unwrap_err();
                assert_eq!(wrong.code(), tonic::Code::InvalidArgument, "{encoding:?}");
            }
        }
    }

    #[test]
    fn answers_are_compressed_as_the_request_was_if_the_client_takes_that() {
        for (sent, accepted, expected) in [
            (None, "identity, deflate, gzip", None),
            (Some("identity"), "gzip", None),
            (Some("gzip"), "identity, deflate, gzip", Some("gzip")),
            (Some("zstd"), "identity,deflate,gzip", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            headers.extend(sent.map(|it| (GRPC_ENCODING, HeaderValue::from_static(it))));
            let encoding = take_encoding(&mut headers).unwrap();
            choose_answer(encoding, &mut headers);
            let chosen = headers.get(GRPC_ACCEPT_ENCODING).map(|it| it.to_str().unwrap());
            assert_eq!((chosen, headers.get(GRPC_ENCODING)), (expected, None), "{sent:?}");
        }
        let mut headers = HeaderMap::from_iter([(GRPC_ENCODING, HeaderValue::from_static("br"))]);
        let status = take_encoding(&mut headers).unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unimplemented);
        assert!(status.metadata().contains_key("grpc-accept-encoding"));
    }
}
