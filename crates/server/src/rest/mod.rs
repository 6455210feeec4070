//! The REST API, one file per endpoint or noun. Endpoints take a context and give a reply or a problem;
//! none of them knows sockets, and none picks a status for a failure.

pub(crate) mod claim;
pub(crate) mod definitions;
pub(crate) mod describe_api;
pub(crate) mod health;
pub(crate) mod inference;
pub(crate) mod input;
pub(crate) mod management;
pub(crate) mod metrics;
pub(crate) mod plugged;
pub(crate) mod receipt;
pub(crate) mod sagemaker;
pub(crate) mod token;
pub(crate) mod workflow;
