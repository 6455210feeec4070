//! What can go wrong on the way from a url to a model's directory, as facts with fields.
//!
//! `Display` is the sentence that a client may read, TorchServe's sentence where it has one;
//! [`StoreError::detail`] adds details for the log. Status codes belong to the server.

use std::{io, path::PathBuf};

use super::{checksum::Sha256, shown_url::ShownUrl};

/// Why a model could not be opened. A url is as the caller gave it, without its secrets.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The url is a name to look up, and there is no store to look it up in.
    #[error("Model store has not been configured.")]
    NotConfigured,
    /// The url is the empty string.
    #[error("empty url")]
    EmptyUrl,
    /// The url has two dots in a row somewhere, plainly or percent-encoded.
    #[error("Relative path is not allowed in url: {0}")]
    RelativePath(ShownUrl),
    /// An `http(s)://` or `file://` url that the allow-list does not match.
    #[error("Given URL {0} does not match any allowed URL(s)")]
    NotAllowed(ShownUrl),
    /// A url that cannot be read in one way only, or that holds a password.
    #[error("Invalid url {url}: {why}.")]
    BadUrl {
        /// As the caller gave it.
        url: ShownUrl,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A path that is open to the command line only; whether anything is there is not told.
    #[error(
        "Model not found at: {url}. Put it below the model store{}, or name it on the command line or \
         in allowed_urls.",
        store.as_ref().map_or(String::new(), |store| format!(" {}", store.display()))
    )]
    OutsideStore {
        /// As the caller gave it.
        url: ShownUrl,
        /// The store, if there is one.
        store: Option<PathBuf>,
    },
    /// Nothing is there.
    #[error("Model not found at: {0}")]
    NotFound(ShownUrl),
    /// A download would overwrite this file of the store.
    #[error("Model file already exists {0}")]
    AlreadyExists(String),
    /// A remote archive could not be fetched.
    #[error("Failed to download archive from: {url}")]
    DownloadFailed {
        /// As the caller gave it.
        url: ShownUrl,
        /// For the log.
        why: String,
    },
    /// The file is another one than the caller expects.
    #[error("Checksum mismatch for {url}: its sha256 is {found}, expected {expected}")]
    Checksum {
        /// As the caller gave it.
        url: ShownUrl,
        /// The sum that the file has.
        found: Sha256,
        /// The sum that it should have.
        expected: Sha256,
    },
    /// A sum was given for something that is not one file.
    #[error("A directory has no sha256: {0}")]
    NoChecksum(ShownUrl),
    /// The archive tries something that a proper archive never does.
    #[error("Failed to save model: {url}: {breach}")]
    Hostile {
        /// As the caller gave it.
        url: ShownUrl,
        /// What it tried.
        breach: Breach,
    },
    /// The archive unpacks to more than the limits allow.
    #[error("Failed to save model: {url}: {excess}")]
    TooLarge {
        /// As the caller gave it.
        url: ShownUrl,
        /// The limit that it passed.
        excess: Excess,
    },
    /// The archive cannot be read: not an archive, cut short, or damaged.
    #[error("Model archive is corrupt: {url}: {why}")]
    Corrupt {
        /// As the caller gave it.
        url: ShownUrl,
        /// What the reader reported.
        why: String,
    },
    /// `MAR-INF/MANIFEST.json` is not a manifest, for this reason.
    #[error("Invalid manifest: {0}")]
    InvalidManifest(String),
    /// The manifest asks for this unknown runtime.
    #[error("Runtime is not defined or invalid. The manifest says {0:?}, not python.")]
    InvalidRuntime(String),
    /// The model's YAML is missing or cannot be read, for this reason, with the line where there is one.
    #[error("Invalid model config: {0}")]
    InvalidConfig(String),
    /// The disk did not do what it was asked to.
    #[error("Failed to save model: {url}")]
    Io {
        /// As the caller gave it.
        url: ShownUrl,
        /// The file or directory at hand.
        path: PathBuf,
        /// What the system reported.
        source: io::Error,
    },
}

impl StoreError {
    /// What is remote could not be fetched.
    pub(super) fn download(url: &str, why: impl ToString) -> Self {
        Self::DownloadFailed { url: ShownUrl::of(url), why: why.to_string() }
    }

    /// Details for the log beyond the sentence for the client, if there are any.
    pub fn detail(&self) -> Option<String> {
        if let Self::DownloadFailed { why, .. } = self {
            Some(why.clone())
        } else if let Self::Io { path, source, .. } = self {
            Some(format!("{}: {source}", path.display()))
        } else {
            None
        }
    }
}

/// How an archive tried to leave its directory, or to confuse whoever unpacks it, with the member's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// A member with an absolute path.
    #[error("member {0:?} has an absolute path")]
    Absolute(String),
    /// A member whose path climbs with `..`.
    #[error("member {0:?} points outside the archive")]
    Escapes(String),
    /// An empty name, a NUL byte, a part too long for a file system, or too many parts.
    #[error("member {0:?} has an unusable name")]
    BadName(String),
    /// A device, a pipe, a socket, or a kind of member that is unknown.
    #[error("member {0:?} is not a file, a directory or a link")]
    Special(String),
    /// A file with holes, which says how large it becomes instead of having the bytes.
    #[error("member {0:?} is a sparse file")]
    Sparse(String),
    /// A link that leads outside the archive, in a circle, or to nothing.
    #[error("link {name:?} to {target:?} does not lead to a file of the archive")]
    Link {
        /// The link.
        name: String,
        /// Where it points.
        target: String,
    },
    /// Two members of one name: which of them counts depends on who reads the archive.
    #[error("two members have the same name")]
    Repeated,
    /// A later member wants the place of an earlier one, as two files or as a file and a directory.
    #[error("member {0:?} takes the place of another one")]
    Collides(String),
}

/// The limit that an archive passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// More bytes than [`Limits::unpacked_bytes_max`](crate::Limits::unpacked_bytes_max).
    #[error("it unpacks to more than {0} bytes")]
    Bytes(u64),
    /// So many times more bytes than the archive has: [`Limits::expansion_max`](crate::Limits::expansion_max).
    #[error("it unpacks to more than {0} times its size")]
    Expansion(u64),
    /// More bytes than the disk has room for.
    #[error("the disk has no room for it")]
    Disk,
    /// More entries than [`Limits::files_max`](crate::Limits::files_max).
    #[error("it has more than {0} files and directories")]
    Files(u64),
    /// More headers between two members, or padding behind the last, than proper archives have.
    #[error("it has headers or padding of more than {0} bytes")]
    Headers(u64),
}

/// Why unpacking stopped; the url joins when it becomes a [`StoreError`].
#[derive(Debug)]
pub(super) enum UnpackError {
    Hostile(Breach),
    TooLarge(Excess),
    Corrupt(String),
    Io(PathBuf, io::Error),
}

impl UnpackError {
    /// The archive's reader failed: the archive is damaged.
    pub(super) fn corrupt(error: impl std::fmt::Display) -> Self {
        Self::Corrupt(error.to_string())
    }

    /// Adds which archive it was.
    pub(super) fn at(self, url: &str) -> StoreError {
        let url = ShownUrl::of(url);
        match self {
            Self::Hostile(breach) => StoreError::Hostile { url, breach },
            Self::TooLarge(excess) => StoreError::TooLarge { url, excess },
            Self::Corrupt(why) => StoreError::Corrupt { url, why },
            Self::Io(path, source) => StoreError::Io { url, path, source },
        }
    }
}

impl From<Breach> for UnpackError {
    fn from(breach: Breach) -> Self {
        Self::Hostile(breach)
    }
}
