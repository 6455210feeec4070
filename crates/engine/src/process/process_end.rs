//! How a process ended, as far as the system tells.

use std::process::ExitStatus;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessEnd {
    pub(crate) status: ExitStatus,
    /// Whether the kernel ended it because memory ran out; none where that is not known.
    pub(crate) out_of_memory: Option<bool>,
    /// The bytes that it held when it was last looked at.
    pub(crate) memory: Option<u64>,
    /// Whether its machine was lost, or the connection to it: how it ended is not known then.
    pub(crate) lost: bool,
}
