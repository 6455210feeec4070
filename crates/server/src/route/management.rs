//! The paths that change or describe what is served: models, workflows, keys.
//!
//! Here a method is part of the question, so a known path with an unfit one is told apart from none.

use http::Method;

use super::{ModelRef, Route};

pub(super) fn find<'a>(method: &Method, segments: &[&'a str]) -> Route<'a> {
    match *segments {
        ["models"] => match *method {
            Method::GET => Route::List,
            Method::POST => Route::Register,
            _ => Route::MethodNotAllowed,
        },
        ["token"] => match *method {
            Method::GET => Route::RenewToken,
            _ => Route::MethodNotAllowed,
        },
        ["models", model] => managed(method, ModelRef { model, version: None }),
        ["models", model, "batching"] if method == Method::GET => {
            Route::Batching(ModelRef { model, version: None })
        }
        ["models", model, version, "batching"] => match *method {
            Method::GET => Route::Batching(ModelRef { model, version: Some(version) }),
            _ => Route::MethodNotAllowed,
        },
        ["models", model, version] => managed(method, ModelRef { model, version: Some(version) }),
        ["models", model, version, "set-default"] => match *method {
            Method::PUT => Route::SetDefault { model, version },
            _ => Route::MethodNotAllowed,
        },
        ["v1", "models", model] => match *method {
            Method::GET => Route::ModelReady(model),
            _ => Route::MethodNotAllowed,
        },
        ["workflows"] => match *method {
            Method::GET => Route::ListWorkflows,
            Method::POST => Route::RegisterWorkflow,
            _ => Route::MethodNotAllowed,
        },
        // TorchServe looks no further than the name.
        ["workflows", workflow, ..] => match *method {
            Method::GET => Route::DescribeWorkflow(workflow),
            Method::DELETE => Route::UnregisterWorkflow(workflow),
            _ => Route::MethodNotAllowed,
        },
        _ => Route::NotFound,
    }
}

fn managed<'a>(method: &Method, target: ModelRef<'a>) -> Route<'a> {
    match *method {
        Method::GET => Route::Describe(target),
        Method::PUT => Route::Scale(target),
        Method::DELETE => Route::Unregister(target),
        Method::OPTIONS => Route::ManageDescription(target),
        _ => Route::MethodNotAllowed,
    }
}
