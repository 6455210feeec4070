//! The model store: a URL or path becomes an unpacked, checked model directory.
//!
//! ```text
//! url ─▶ locate ─▶ a directory, served where it is ────────────────────┐
//!           ├────▶ an archive ─▶ unpack ─▶ jail ─▶ dir ────────────────┴─▶ package
//!           └─▶ fetch ─▶┘                                                  (manifest, YAML)
//! ```
//!
//! Everything here but [`Store::fetch`] blocks on the disk and belongs on a thread that may. Nothing
//! here runs a model's code, knows a status code, or writes outside [`StoreConfig::scratch`], except
//! for downloads, which go into the store. An archive that fails to unpack leaves nothing behind.

mod allowance;
mod checksum;
mod compiled;
mod dir;
mod download;
mod error;
mod fetch;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod http_paths;
mod jail;
mod locate;
mod package;
mod repository;
mod request_sizes;
mod shown_url;
mod store;
mod tensor_specs;
mod unpack;

#[cfg(test)]
mod tests;

pub use self::{
    allowance::Limits,
    checksum::Sha256,
    dir::ModelDir,
    download::{Download, DownloadError, DownloadFuture, DownloadRequest, Downloader, ResumeFrom},
    error::{Breach, Excess, StoreError},
    fetch::FetchedFile,
    http_paths::{HttpMount, HttpPaths, HttpRoute, MetricName},
    jail::stays_inside,
    locate::{ModelSource, StoreConfig, UrlFilter, is_remote, serialised},
    package::{Api, Dependency, Manifest, Package, Runtime, parse_yaml, read_text},
    repository::{
        DeclaredTensor, DeclaredTensors, FileStamp, RepositoryContent, RepositoryModel,
        RepositoryVersion, is_repository, model_named, models_of,
    },
    request_sizes::{RequestSizes, SizeExpression, SizeFactor, SizedParam, ValueForm},
    shown_url::ShownUrl,
    store::{Store, UnpackTurn, models_in},
    tensor_specs::{ItemForm, PackedTensor, PackedTensors},
};
