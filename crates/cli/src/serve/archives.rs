//! What a model must be before it is one: no larger than this, and with that sum.

use clap::Args;
use jitney_engine::store::Limits;
use serde::Deserialize;

use crate::units::{Size, scalar};

/// A sum as users write it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checksum(pub jitney_engine::store::Sha256);

impl std::str::FromStr for Checksum {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self)
    }
}

impl<'de> Deserialize<'de> for Checksum {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        scalar(deserializer)
    }
}

/// How large a model may be before it is one.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct Archives {
    /// Largest file to download for a model, such as 10GiB [default: 64GiB]
    #[arg(long, value_name = "SIZE")]
    pub max_download_size: Option<Size>,
    /// Most bytes an archive may unpack to [default: 64GiB]
    #[arg(long, value_name = "SIZE")]
    pub max_unpacked_size: Option<Size>,
    /// Most files and directories in an archive [default: 200000]
    #[arg(long, value_name = "N")]
    pub max_unpacked_files: Option<u64>,
}

impl Archives {
    /// These, and where they are silent the others.
    pub fn or(self, lower: Self) -> Self {
        Self {
            max_download_size: self.max_download_size.or(lower.max_download_size),
            max_unpacked_size: self.max_unpacked_size.or(lower.max_unpacked_size),
            max_unpacked_files: self.max_unpacked_files.or(lower.max_unpacked_files),
        }
    }

    /// The same in the engine's words.
    pub fn limits(&self) -> Limits {
        let ours = Limits::default();
        let bytes = |size: Option<Size>, default| size.map_or(default, |size| size.0);
        Limits {
            fetched_bytes_max: bytes(self.max_download_size, ours.fetched_bytes_max),
            unpacked_bytes_max: bytes(self.max_unpacked_size, ours.unpacked_bytes_max),
            files_max: self.max_unpacked_files.unwrap_or(ours.files_max),
        }
    }
}
