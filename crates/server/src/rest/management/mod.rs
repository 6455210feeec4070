//! The management API over REST: what `crate::management` does, with parameters from a query or a JSON
//! body.

mod models;
mod scale;
mod traffic;
mod workflows;

pub(crate) use models::{
    batching, describe, failed_body, list, register, requests, set_default, statistics, unregister,
};
pub(crate) use scale::scale;
pub(crate) use traffic::{end_traffic, set_traffic, shadow, traffic};
pub(crate) use workflows::{
    describe_workflow, list_workflows, register_workflow, unregister_workflow,
};
