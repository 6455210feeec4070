//! Compressed gRPC messages on their way in: what appears counts against the same limits as a message that
//! was never compressed, and inflating stops at the first byte beyond them.
//!
//! tonic compresses the answers, for clients that compressed their requests.

use std::io::{ErrorKind, Read};
use std::sync::Arc;

use bytes::buf::Reader;
use bytes::{Buf as _, Bytes};
use flate2::bufread::{GzDecoder, ZlibDecoder};
use http::{HeaderMap, HeaderName, HeaderValue};
use jitney_engine::admission::Admission;
use tonic::Status;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataValue;

use crate::body::GrowingBody;
use crate::errors::Problem;

const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const ACCEPTED: &str = "gzip,deflate,zstd,identity";

/// The largest window of a zstd stream, as a power of two: what clients use unless they ask for more.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// Bytes that are inflated before other calls of the thread get their turn.
const TURN_BYTES: usize = 256 << 10;
const PIECE_BYTES: usize = 16 << 10;

/// How the messages of a call are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageEncoding {
    Gzip,
    Deflate,
    Zstd,
}

impl MessageEncoding {
    /// What tonic may compress answers with.
    pub(super) const ALL: [CompressionEncoding; 3] =
        [CompressionEncoding::Gzip, CompressionEncoding::Deflate, CompressionEncoding::Zstd];

    /// Takes the encoding of a call's messages out of its headers: whoever reads on sees plain messages.
    ///
    /// # Errors
    /// It is none of ours.
    pub(super) fn take(headers: &mut HeaderMap) -> Result<Option<Self>, Status> {
        let Some(value) = headers.remove(GRPC_ENCODING) else { return Ok(None) };
        Ok(Some(match value.as_bytes() {
            b"identity" => return Ok(None),
            b"gzip" => Self::Gzip,
            b"deflate" => Self::Deflate,
            b"zstd" => Self::Zstd,
            _ => return Err(unknown(&value)),
        }))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
        }
    }

    fn decoder(self, message: Bytes) -> std::io::Result<Box<dyn Read + Send>> {
        let message: Reader<Bytes> = message.reader();
        Ok(match self {
            Self::Gzip => Box::new(GzDecoder::new(message)),
            Self::Deflate => Box::new(ZlibDecoder::new(message)),
            Self::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(message)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(decoder)
            }
        })
    }
}

/// Tells tonic how to answer: compressed as the client compressed, if the client takes that.
pub(super) fn choose_answer(encoding: Option<MessageEncoding>, headers: &mut HeaderMap) {
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
    decoder: Box<dyn Read + Send>,
    inflated: GrowingBody,
    limit: usize,
}

impl InflatingMessage {
    /// # Errors
    /// The decoder cannot be made.
    pub(super) fn new(
        encoding: MessageEncoding,
        message: Bytes,
        admission: &Arc<Admission>,
        limit: usize,
    ) -> Result<Self, Status> {
        let decoder = encoding.decoder(message).map_err(|error| broken(&error))?;
        Ok(Self { decoder, inflated: GrowingBody::new(admission, limit as u64), limit })
    }

    /// Inflates some more; whether that was all.
    ///
    /// # Errors
    /// There is no memory, it is too large, or it is not what the client says.
    pub(super) fn step(&mut self) -> Result<bool, Status> {
        let mut piece = [0; PIECE_BYTES];
        let end = self.inflated.len() + TURN_BYTES;
        while self.inflated.len() < end {
            match self.decoder.read(&mut piece) {
                Ok(0) => return Ok(true),
                Ok(read) if self.inflated.len() + read > self.limit => {
                    return Err(Status::resource_exhausted(format!(
                        "The message is larger than {} bytes once it is inflated (max_request_size).",
                        self.limit
                    )));
                }
                Ok(read) => self.inflated.push(&piece[..read]).map_err(Problem::cut)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(&error)),
            }
        }
        Ok(false)
    }

    /// The whole message.
    pub(super) fn finish(self) -> Bytes {
        self.inflated.finish()
    }
}

fn broken(error: &std::io::Error) -> Status {
    Status::invalid_argument(format!("A compressed message cannot be read: {error}."))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use jitney_engine::admission::AdmissionLimits;

    use super::*;

    fn compressed(encoding: MessageEncoding, data: &[u8]) -> Bytes {
        let level = Compression::new(6);
        let made = match encoding {
            MessageEncoding::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), level);
                encoder.write_all(data).and_then(|()| encoder.finish())
            }
            MessageEncoding::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(data).and_then(|()| encoder.finish())
            }
            MessageEncoding::Zstd => zstd::encode_all(data, 3),
        };
        Bytes::from(made.expect("compressed"))
    }

    fn inflate(
        encoding: MessageEncoding,
        message: Bytes,
        limit: usize,
        memory: u64,
    ) -> Result<Bytes, Status> {
        let admission =
            Admission::new(AdmissionLimits { bytes: memory, ..AdmissionLimits::default() });
        let mut inflating = InflatingMessage::new(encoding, message, &admission, limit)?;
        while !inflating.step()? {
            assert!(admission.bytes() > 0);
        }
        let message = inflating.finish();
        assert_eq!(admission.bytes(), 0);
        Ok(message)
    }

    const ALL: [MessageEncoding; 3] =
        [MessageEncoding::Gzip, MessageEncoding::Deflate, MessageEncoding::Zstd];

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
            let encoding = MessageEncoding::take(&mut headers).unwrap();
            choose_answer(encoding, &mut headers);
            let chosen = headers.get(GRPC_ACCEPT_ENCODING).map(|it| it.to_str().unwrap());
            assert_eq!((chosen, headers.get(GRPC_ENCODING)), (expected, None), "{sent:?}");
        }
        let mut headers = HeaderMap::from_iter([(GRPC_ENCODING, HeaderValue::from_static("br"))]);
        let status = MessageEncoding::take(&mut headers).unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unimplemented);
        assert!(status.metadata().contains_key("grpc-accept-encoding"));
    }
}
