//! REST: HTTP requests become calls, answers become HTTP responses. One file per group of endpoints.
//!
//! An endpoint takes a request's context and returns a response or a problem. None knows sockets, and
//! none picks a status for a failure.

mod admin;
mod answer;
mod authorize;
mod compress;
mod context;
mod cors;
mod dashboard;
mod destination;
mod embeddings;
mod endpoint;
mod endpoints;
mod fan_out;
mod generate;
mod health;
mod inference;
mod input;
mod invocation;
mod job_document;
mod job_events;
mod job_runner;
mod jobs;
mod logs;
mod management;
mod mounted;
mod open_inference;
mod openapi;
mod overview;
mod plugins;
mod repository;
mod sagemaker_session;
mod shared_memory;
mod shared_route;
mod tasks;
mod unknown;
mod v1;
mod webhooks;

pub(crate) use endpoints::is_taken;
pub(crate) use job_runner::serve_jobs;
pub(crate) use jobs::overview as jobs_overview;
pub use openapi::{file_example, shell_example};
pub(crate) use webhooks::deliver as deliver_webhooks;

#[cfg(fuzzing)]
pub(crate) mod fuzzing {
    //! What `fuzz/` calls of this module.

    pub use super::input::fuzzing::forms;
}
