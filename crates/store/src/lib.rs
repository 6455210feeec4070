//! The model store: a URL or path becomes an unpacked, checked model directory.
//!
//! ```text
//! url ─▶ locate ─▶ a directory, served where it is ────────────────────┐
//!           ├────▶ an archive ─▶ unpack ─▶ jail ───────────────────────┴─▶ package
//!           └─▶ fetch ─▶┘                                                  (manifest, YAML)
//! ```
//!
//! Everything here but [`Store::fetch`] blocks on the disk and belongs on a thread that may. Nothing
//! here runs a model's code, knows a status code, or writes outside [`StoreConfig::scratch`], except
//! for downloads, which go into the store. An archive that fails to unpack leaves nothing behind.

mod allowance;
mod checksum;
mod compiled;
mod download;
mod endpoint_api;
mod error;
mod fetch;
mod folder;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod jail;
mod locate;
mod manifest;
mod package;
mod repository;
mod shown_url;
mod stock_definition;
mod store;
mod tensor_specs;
mod unpack;

#[cfg(test)]
mod tests;

pub use self::allowance::Limits;
pub use self::checksum::Sha256;
pub use self::download::{
    Download, DownloadError, DownloadFuture, DownloadRequest, Downloader, RemoteFile, ResumeFrom,
};
pub use self::endpoint_api::{
    HttpMount, HttpPaths, HttpRoute, MetricName, RequestSizes, SizeExpression, SizeFactor,
    SizedParam, ValueForm,
};
pub use self::error::{Breach, Excess, StoreError};
pub use self::fetch::FetchedFile;
pub use self::folder::{fetch_folder, is_remote_folder};
pub use self::jail::stays_inside;
pub use self::locate::{ModelSource, StoreConfig, UrlFilter, is_remote, serialised};
pub use self::manifest::{Manifest, Runtime};
pub use self::package::{
    Api, CODE_REQUIREMENTS, Dependency, Package, Wiring, parse_yaml, read_text,
};
pub use self::repository::{
    CompletedConfig, ControlKind, DeclaredControl, DeclaredState, DeclaredTensor, DeclaredTensors,
    FORMATS, FileStamp, PythonBackend, RepositoryContent, RepositoryModel, RepositoryVersion,
    config_overrides, is_loadable, is_repository, model_named, models_of,
};
pub use self::shown_url::ShownUrl;
pub use self::store::{Store, UnpackTurn, models_in};
pub use self::tensor_specs::{ItemForm, PackedTensor, PackedTensors};
pub use self::unpack::ModelDir;
