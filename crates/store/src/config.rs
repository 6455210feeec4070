//! The configuration of a store: where it looks, where it unpacks, and how much of everything it allows.

use std::{path::PathBuf, sync::Arc};

use super::download::Downloader;

/// Decides whether a url may be opened: `http(s)://`, `file://` or a bucket's, as its reader writes it.
/// A path that a client names outside the store is asked about as a `file://` url.
pub type UrlFilter = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// What a store needs to know.
pub struct StoreConfig {
    /// Where names are looked up; without it only directories and `file://` urls are found.
    pub model_store: Option<PathBuf>,
    /// Unpacked models go to `models` below this directory.
    pub scratch: PathBuf,
    /// What is to outlive the server is kept below this directory where the model store is read-only.
    pub cache: Option<PathBuf>,
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
    /// Bytes of all files together; without it 64 GiB, or half of what the disk has free if that is less.
    pub unpacked_bytes_max: Option<u64>,
    /// Files, directories and links together. 200,000 by default: a model with its
    /// whole virtual environment fits.
    pub files_max: u64,
    /// Bytes of a file that is downloaded, packed as it is; without it as for unpacked bytes.
    pub fetched_bytes_max: Option<u64>,
    /// How many times its own size an archive may unpack to. Trained weights hardly compress, text
    /// and padded tables by less than 100; deflate itself ends at 1032, which only zeros reach.
    pub expansion_max: u64,
    /// What any archive may unpack to, however small it is: dummies whose weights are zeros.
    pub expansion_exempt: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            unpacked_bytes_max: None,
            files_max: 200_000,
            fetched_bytes_max: None,
            expansion_max: 200,
            expansion_exempt: 1 << 30,
        }
    }
}
