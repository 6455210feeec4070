//! Why a JPEG file is not decoded.

/// In words that follow "the JPEG image cannot be decoded".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum JpegError {
    /// The file is not whole.
    #[error("{0}")]
    Broken(&'static str),
    /// No decoder here.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
}
