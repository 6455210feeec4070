//! Why a JPEG file is not decoded.

use std::fmt;

/// Why a file is not decoded, in words that follow "the JPEG image cannot be decoded".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JpegError {
    /// The file is not whole.
    Broken(&'static str),
    /// No decoder here.
    Unsupported(&'static str),
}

impl fmt::Display for JpegError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(what) => f.write_str(what),
            Self::Unsupported(what) => write!(f, "{what} is not supported"),
        }
    }
}

impl std::error::Error for JpegError {}

pub(super) const CUT_OFF: JpegError = JpegError::Broken("it is cut off");
pub(super) const DAMAGED: JpegError = JpegError::Broken("its data is damaged");
pub(super) const NO_TABLE: JpegError = JpegError::Broken("a table is missing");
