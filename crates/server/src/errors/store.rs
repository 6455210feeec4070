//! What the archive store can say, in the table's terms.
//!
//! Apart from the table because the store has many ways to fail and grows with every kind of URL.

use jitney_engine::store::StoreError;

use super::ErrorCode;

/// The code of a failure of the store; its words are the store's own.
pub(super) fn code(error: &StoreError) -> ErrorCode {
    match error {
        StoreError::NotConfigured
        | StoreError::EmptyUrl
        | StoreError::RelativePath { .. }
        | StoreError::NotAllowed { .. }
        | StoreError::NotFound { .. } => ErrorCode::ModelNotFound,
        StoreError::DownloadFailed { .. } | StoreError::Checksum { .. } => {
            ErrorCode::DownloadFailed
        }
        StoreError::NoChecksum { .. } => ErrorCode::BadRequest,
        StoreError::Corrupt { .. }
        | StoreError::InvalidRuntime { .. }
        | StoreError::InvalidManifest { .. }
        | StoreError::InvalidConfig { .. } => ErrorCode::InvalidModel,
        StoreError::AlreadyExists { .. }
        | StoreError::Hostile { .. }
        | StoreError::TooLarge { .. }
        | StoreError::Io { .. } => ErrorCode::Internal,
    }
}
