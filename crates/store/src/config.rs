//! The configuration of a store: where it looks, where it unpacks, and how much of everything it allows.

use std::{path::PathBuf, sync::Arc};

use super::download::Downloader;

/// Decides whether a url may be opened: `http(s)://`, `file://` or a bucket's.
pub type UrlFilter = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// What a store needs to know.
pub struct StoreConfig {
    /// Where names are looked up; without it only directories and `file://` urls are found.
    pub model_store: Option<PathBuf>,
    /// Unpacked models go to `models` below this directory.
    pub scratch: PathBuf,
    /// How much one archive may unpack to.
    pub limits: Limits,
    /// The allow-list.
    pub url_allowed: UrlFilter,
    /// Who downloads; without it nothing remote can be had.
    pub remote: Option<Arc<dyn Downloader>>,
}

/// The limits of one archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files together. 64 GiB by default: the largest models that are
    /// shipped in archives fit, a runaway archive does not fill a data-centre disk.
    pub unpacked_bytes_max: u64,
    /// Files, directories and links together. 200,000 by default: a model with its
    /// whole virtual environment fits.
    pub files_max: u64,
    /// Bytes of a file that is downloaded, packed as it is. 64 GiB by default.
    pub fetched_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { unpacked_bytes_max: 64 << 30, files_max: 200_000, fetched_bytes_max: 64 << 30 }
    }
}
