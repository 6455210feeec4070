//! A request or an answer as it is kept: a head in JSON and a body of bytes.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::JobError;

/// Bodies above this are files beside the store.
pub(crate) const INLINE_MAX: usize = 64 << 10;

/// A head with its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptMessage<H> {
    /// What stands before the body.
    pub head: H,
    /// The body.
    pub body: Bytes,
}

/// A request that is kept.
pub type KeptRequest = KeptMessage<KeptRequestHead>;

/// An answer that is kept.
pub type KeptAnswer = KeptMessage<KeptAnswerHead>;

/// Either of them, as stores see it: they read no heads.
pub(crate) type UnreadMessage = KeptMessage<Value>;

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptRequestHead {
    /// Its method.
    pub method: String,
    /// Its path and query.
    pub uri: String,
    /// Its id.
    pub id: String,
    /// The tenant that it counts for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Its headers, without those that hold secrets; a byte of a value is a character.
    pub headers: Vec<(String, String)>,
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptAnswerHead {
    /// Its status.
    pub status: u16,
    /// Its headers; a byte of a value is a character.
    pub headers: Vec<(String, String)>,
}

/// A head as it is written, with what the store must know.
#[derive(Serialize, Deserialize)]
struct WrittenHead<H> {
    #[serde(flatten)]
    head: H,
    /// Whether the body is a file.
    #[serde(default)]
    file: bool,
}

impl<H: Serialize + DeserializeOwned> KeptMessage<H> {
    /// The same for a store.
    pub(crate) fn unread(self) -> Result<UnreadMessage, JobError> {
        let head = serde_json::to_value(self.head).map_err(JobError::store)?;
        Ok(UnreadMessage { head, body: self.body })
    }

    /// What a store kept.
    pub(crate) fn of_unread(unread: UnreadMessage) -> Result<Self, JobError> {
        let head = serde_json::from_value(unread.head).map_err(JobError::store)?;
        Ok(Self { head, body: unread.body })
    }

    /// Whether the body is too large for the store.
    pub(crate) fn is_large(&self) -> bool {
        self.body.len() > INLINE_MAX
    }

    /// The message as the store keeps it, without a body that is too large.
    pub(crate) fn write(&self) -> Result<Vec<u8>, JobError> {
        let file = self.is_large();
        let head = serde_json::to_vec(&WrittenHead { head: &self.head, file });
        let head = head.map_err(JobError::store)?;
        let body = if file { &[][..] } else { &self.body };
        Ok([&(head.len() as u32).to_le_bytes()[..], &head, body].concat())
    }

    /// What [`KeptMessage::write`] wrote; `file` reads the body that is not there.
    pub(crate) fn read(
        written: &[u8],
        file: impl FnOnce() -> std::io::Result<Vec<u8>>,
    ) -> Result<Self, JobError> {
        let cut = || JobError::store("a job is cut short");
        let (length, rest) = written.split_first_chunk().ok_or_else(cut)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (head, body) = rest.split_at_checked(length).ok_or_else(cut)?;
        let WrittenHead::<H> { head, file: is_file } =
            serde_json::from_slice(head).map_err(JobError::store)?;
        let body = if is_file { file().map_err(JobError::store)? } else { body.to_vec() };
        Ok(Self { head, body: body.into() })
    }
}
