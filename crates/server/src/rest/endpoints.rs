//! The endpoints of REST: one row each. A new one is a row here, a handler and a test.
//!
//! TorchServe decodes the path before it splits it, ignores a trailing slash and takes any method for
//! predictions, which no off-the-shelf router does. The rows are searched in their order, API by API.

use http::Method;
use jitney_engine::PathTarget;

use super::endpoint::{
    Endpoint, EndpointApi, Handler, Methods, PredictBody, PredictForm, first_two, two_of,
};
use super::{
    admin, authorize, dashboard, embeddings, health, inference, invocation, jobs, logs, management,
    mounted, open_inference, openapi, overview, repository, shared_memory, shared_route, tasks, v1,
};
use crate::auth::{Gate, GuardedOperation as Op};
use crate::errors::Problem;
use crate::handles;
use crate::route::{self, Apis, PathNames};
use crate::shared_memory::no_cuda_sharing;

use EndpointApi::{
    Alive, Every, Home, Inference, Management, Metrics, Natural, OlderOpenInference, OpenAi,
    OpenInference, Repository, Sagemaker,
};
use Handler::{Asks, Nothing, Now, Predict, Rows, Stream, Tries, Waits};
use Methods::{Any, Delete, Get, Options, Post, Posts, Put, Reads, Runs};

/// The keys, as rows name them.
const OPEN: Option<Gate> = Some(Gate::Open);
const USE: Option<Gate> = Some(Gate::Inference);
const MANAGE: Option<Gate> = Some(Gate::Management);
const EITHER: Option<Gate> = Some(Gate::Either);
const METRICS: Option<Gate> = Some(Gate::Metrics);
const API_KEY: Option<Gate> = Some(Gate::Renewal);
const LISTENER: Option<Gate> = None;

/// TorchServe's predictions: the handler sees what follows the version.
const PLAIN: PredictForm = PredictForm {
    explain: Some(false),
    url_path: true,
    query_counts: false,
    body: PredictBody::Any,
};
const EXPLAINS: PredictForm = PredictForm { explain: Some(true), ..PLAIN };
const V1: PredictForm = PredictForm { url_path: false, body: PredictBody::Instances, ..PLAIN };
const V1_EXPLAINS: PredictForm = PredictForm { explain: Some(true), ..V1 };
const V2: PredictForm = PredictForm { url_path: false, body: PredictBody::Tensors, ..PLAIN };
const GENERATES: PredictForm = PredictForm { body: PredictBody::Fields, ..V2 };
const STREAMS: PredictForm = PredictForm { body: PredictBody::FieldsForStream, ..V2 };
const V2_EXPLAINS: PredictForm = PredictForm { url_path: false, ..EXPLAINS };
const SAGEMAKER: PredictForm =
    PredictForm { explain: None, url_path: false, query_counts: true, body: PredictBody::Any };
const NAMED: PredictForm = PredictForm { url_path: true, ..SAGEMAKER };

const RUNS_MODEL: &str = "Runs the model on this input.";
const NO_ENDPOINT: &str = "";

const fn row(
    api: EndpointApi,
    methods: Methods,
    path: &'static str,
    key: Option<Gate>,
    operation: Op,
    handler: Handler,
    about: &'static str,
) -> Endpoint {
    let two = two_of(path);
    Endpoint { api, methods, path, two, key, operation, handler, about, document: None }
}

/// A request for a path of a model's own, which goes to it as it came.
#[rustfmt::skip]
static MOUNTED: Endpoint = row(Natural, Any, "/**", USE, Op::Predict, Waits(|it| Box::pin(mounted::call(it.context, it.body, it.names))), RUNS_MODEL);
/// The same for a path that several models have.
#[rustfmt::skip]
static SHARED: Endpoint = row(Natural, Any, "/**", USE, Op::Predict, Asks(|it| Box::pin(shared_route::call(it.context, it.plugins, it.body, it.names.mount))), RUNS_MODEL);
/// A prediction by a path of a model's own.
#[rustfmt::skip]
static CLAIMED: Endpoint = row(Natural, Any, "/**", USE, Op::Predict, Predict(NAMED), RUNS_MODEL);
/// Paths of an API that is one of BentoML's tasks, by their last words.
#[rustfmt::skip]
static TASKS: &[(&str, Endpoint)] = &[
    ("submit", row(Natural, Post, "/**", USE, Op::Predict, Waits(|it| Box::pin(tasks::submit(it.context, it.names, it.body))), "Keeps a task, which is answered later.")),
    ("status", row(Natural, Get, "/**", USE, Op::Job, Waits(|it| Box::pin(tasks::status(it.context, it.names))), "How far a task is.")),
    ("get", row(Natural, Get, "/**", USE, Op::Job, Waits(|it| Box::pin(tasks::get(it.context, it.names))), "The result of a task.")),
    ("cancel", row(Natural, Put, "/**", USE, Op::Job, Waits(|it| Box::pin(tasks::cancel(it.context, it.names))), "Ends a task.")),
    ("retry", row(Natural, Post, "/**", USE, Op::Predict, Waits(|it| Box::pin(tasks::retry(it.context, it.names))), "Keeps the same task again.")),
];
/// What `OPTIONS` asks of a prediction's path.
#[rustfmt::skip]
static DESCRIBED: Endpoint = row(Inference, Options, "/**", USE, Op::Metadata, Rows(openapi::predictions), "The OpenAPI document of a model's predictions.");
/// A known path, an unfit method.
#[rustfmt::skip]
static WRONG_METHOD: Endpoint = row(Every, Any, "/**", LISTENER, Op::Unknown, Now(|_, _| Err(Problem::method_not_allowed())), NO_ENDPOINT);
/// Nothing here.
#[rustfmt::skip]
static UNKNOWN: Endpoint = row(Every, Any, "/**", LISTENER, Op::Unknown, Nothing, NO_ENDPOINT);

#[rustfmt::skip]
pub(super) static ENDPOINTS: &[Endpoint] = &[
    row(Every, Options, "/", OPEN, Op::Public, Rows(openapi::listener), "This document.").id("apiDescription", "document").within(Inference),
    row(Every, Options, "/", OPEN, Op::Public, Rows(openapi::listener), "This document.").id("managementApiDescription", "document").within(Management),
    row(Home, Get, "/", OPEN, Op::Public, Now(|it, _| dashboard::home(it)), "Leads browsers to the dashboard."),
    row(Alive, Get, "/", USE, Op::Health, Now(|_, _| Ok(v1::alive())), "KServe's version 1: the server lives."),

    row(Sagemaker, Any, "/ping", USE, Op::Health, Now(|it, _| health::sagemaker_ping(&it.state.engine)), "SageMaker: whether models are there."),
    row(Sagemaker, Get, "/execution-parameters", USE, Op::Metadata, Now(|it, _| Ok(health::execution_parameters(it.state))), "How batch transforms should ask.").id("executionParameters", "executionParameters"),

    row(Inference, Any, "/ping", USE, Op::Health, Now(|it, _| Ok(health::ping(it))), "Health of the server.").id("ping", "ping"),
    row(Inference, Posts, "/v1/models/{model}:predict", USE, Op::Predict, Predict(V1), RUNS_MODEL).id("v1Predict", "predict"),
    row(Inference, Posts, "/v1/models/{model}:explain", USE, Op::Explain, Predict(V1_EXPLAINS), RUNS_MODEL).id("v1Explain", "predict"),
    row(Inference, Posts, "/v1/models/{model}/versions/{version}:predict", USE, Op::Predict, Predict(V1), RUNS_MODEL),
    row(Inference, Posts, "/v1/models/{model}/versions/{version}:explain", USE, Op::Explain, Predict(V1_EXPLAINS), RUNS_MODEL),
    row(Inference, Any, "/v1/models/*", USE, Op::Unknown, Nothing, NO_ENDPOINT),
    row(Inference, Posts, "/v2/models/{model}/infer", USE, Op::Predict, Predict(V2), RUNS_MODEL).id("v2Infer", "predict"),
    row(Inference, Runs, "/v2/models/{model}/explain", USE, Op::Explain, Predict(V2_EXPLAINS), RUNS_MODEL).id("v2Explain", "predict"),
    row(Inference, Runs, "/predictions/{model}", USE, Op::Predict, Predict(PLAIN), RUNS_MODEL).ids("predictions", "predict"),
    row(Inference, Runs, "/predictions/{model}/{version}", USE, Op::Predict, Predict(PLAIN), RUNS_MODEL).ids("versionPredictions", "predict"),
    row(Inference, Runs, "/predictions/{model}/{version}/{path+}", USE, Op::Predict, Predict(PLAIN), "The same; the handler sees the path."),
    row(Inference, Runs, "/explanations/{model}", USE, Op::Explain, Predict(EXPLAINS), RUNS_MODEL).ids("explanations", "predict"),
    row(Inference, Runs, "/explanations/{model}/{version}", USE, Op::Explain, Predict(EXPLAINS), RUNS_MODEL).ids("versionExplanations", "predict"),
    row(Inference, Runs, "/explanations/{model}/{version}/{path+}", USE, Op::Explain, Predict(EXPLAINS), "The same; the handler sees the path."),
    row(Inference, Runs, "/invocations", USE, Op::Predict, Asks(|it| Box::pin(invocation::invoke(it.context, it.plugins, it.body))), RUNS_MODEL).id("invocations", "invocations"),
    row(Inference, Post, "/.jitney/invocations", USE, Op::Predict, Asks(|it| Box::pin(invocation::invoke_by_body(it.context, it.plugins, it.body))), "What a path of the platform's choice leads to: a list of instances, or a body as the model takes it."),
    row(Inference, Reads, "/.jitney/invocations", USE, Op::Health, Now(|it, _| open_inference::ready(it)), "Health of the server, where a platform asks for it under the path of predictions."),
    row(Inference, Any, "/.jitney/handle", USE, Op::Connect, Now(|it, _| handles::upgrade(it.parts, it.upgrade, authorize::call_guard(it), it.caller)), "A connection of Python calls."),
    row(Inference, Get, "/jobs", USE, Op::Job, Waits(|it| Box::pin(jobs::list(it.context))), "The jobs that this key made, the youngest first, in pages; state and model choose among them.").id("listJobs", "listJobs"),
    row(Inference, Get, "/jobs/{id}", USE, Op::Job, Waits(|it| Box::pin(jobs::show(it.context, it.names.rest))), "How far a job is; with wait=30s when it has ended, or after that time.").id("describeJob", "describeJob"),
    row(Inference, Delete, "/jobs/{id}", USE, Op::Job, Waits(|it| Box::pin(jobs::delete(it.context, it.names.rest))), "Forgets a job with its request and its result.").id("deleteJob", "deleteJob"),
    row(Inference, Get, "/jobs/{id}/result", USE, Op::Job, Waits(|it| Box::pin(jobs::result(it.context, it.names.rest))), "What the prediction would have answered.").id("jobResult", "jobResult"),
    row(Inference, Runs, "/models/{model}/invoke", USE, Op::Predict, Predict(SAGEMAKER), RUNS_MODEL).id("invoke", "predict"),
    row(Inference, Any, "/models/**", USE, Op::Unknown, Nothing, NO_ENDPOINT),
    row(Inference, Runs, "/{model}/predict", USE, Op::Predict, Predict(SAGEMAKER), RUNS_MODEL),
    row(Inference, Runs, "/{model}/{version}/predict", USE, Op::Predict, Predict(SAGEMAKER), RUNS_MODEL),
    row(Inference, Runs, "/~wfpredict/{workflow}/**", USE, Op::RunWorkflow, Waits(|it| Box::pin(inference::run_workflow(it.context, it.body, it.names.workflow.unwrap_or_default()))), "Takes this input through the workflow.").id("runWorkflow", "runWorkflow"),
    row(Every, Any, "/api-description", OPEN, Op::Public, Rows(openapi::listener), "This document.").id("apiDescriptionAlias", "document").within(Inference),

    row(OpenInference, Any, "/v1/models/{model!}", LISTENER, Op::Ready, Now(|it, at| v1::model(it, at.target())), "Whether the model has workers."),
    row(OpenInference, Reads, "/v2/health/live", USE, Op::Health, Now(|_, _| open_inference::live()), "Health of the server.").id("serverLive", "serverLive"),
    row(OpenInference, Reads, "/v2/health/ready", USE, Op::Health, Now(|it, _| open_inference::ready(it)), "Health of the server.").id("serverReady", "serverReady"),
    row(OpenInference, Reads, "/v2", USE, Op::Metadata, Now(|it, _| open_inference::server(it)), "Name and version of the server.").id("serverMetadata", "serverMetadata"),
    row(OpenInference, Reads, "/v2/models/stats", EITHER, Op::List, Now(|it, _| open_inference::statistics(it, None)), "What the batches of all models came to."),
    row(OlderOpenInference, Any, "/v2/models/*/versions/{rest+}", USE, Op::Metadata, Now(|_, _| Ok(health::oip_versions())), "Versions in the path, which TorchServe does not serve."),
    row(OpenInference, Reads, "/v2/models/{model}", USE, Op::Metadata, Now(|it, at| open_inference::metadata(it, at.target())), "What a model takes and gives."),
    row(OpenInference, Reads, "/v2/models/{model}/versions/{version}", USE, Op::Metadata, Now(|it, at| open_inference::metadata(it, at.target())), "What a model takes and gives."),
    row(OpenInference, Reads, "/v2/models/{model}/ready", USE, Op::Ready, Now(|it, at| open_inference::model_ready(it, at.target())), "Whether a model is ready."),
    row(OpenInference, Reads, "/v2/models/{model}/versions/{version}/ready", USE, Op::Ready, Now(|it, at| open_inference::model_ready(it, at.target())), "Whether a model is ready."),
    row(OpenInference, Reads, "/v2/models/{model}/config", EITHER, Op::Metadata, Now(|it, at| open_inference::config(it, at.target())), "Triton's configuration of a model."),
    row(OpenInference, Reads, "/v2/models/{model}/versions/{version}/config", EITHER, Op::Metadata, Now(|it, at| open_inference::config(it, at.target())), "Triton's configuration of a model."),
    row(OpenInference, Reads, "/v2/models/{model}/stats", EITHER, Op::Describe, Now(|it, at| open_inference::statistics(it, Some(at.target()))), "What the batches of a model came to."),
    row(OpenInference, Reads, "/v2/models/{model}/versions/{version}/stats", EITHER, Op::Describe, Now(|it, at| open_inference::statistics(it, Some(at.target()))), "What the batches of a model came to."),
    row(OpenInference, Post, "/v2/models/{model}/versions/{version}/infer", USE, Op::Predict, Predict(V2), RUNS_MODEL),
    row(OpenInference, Reads, "/v2/models/*/trace/setting", EITHER, Op::Metadata, Now(|_, _| open_inference::trace_settings()), "Triton's settings of traces."),
    row(OpenInference, Post, "/v2/models/*/trace/setting", MANAGE, Op::Metadata, Now(|_, _| open_inference::set_traces()), "Changes nothing: traces are set at the start."),
    row(OpenInference, Reads, "/v2/trace/setting", EITHER, Op::Metadata, Now(|_, _| open_inference::trace_settings()), "Triton's settings of traces."),
    row(OpenInference, Post, "/v2/trace/setting", MANAGE, Op::Metadata, Now(|_, _| open_inference::set_traces()), "Changes nothing: traces are set at the start."),
    row(OpenInference, Reads, "/v2/logging", EITHER, Op::Metadata, Now(|_, _| open_inference::log_settings()), "Triton's settings of the log."),
    row(OpenInference, Post, "/v2/logging", MANAGE, Op::Metadata, Now(|_, _| open_inference::set_log()), "Changes nothing: PUT /log-level does."),
    row(OpenInference, Reads, "/v2/systemsharedmemory/status", USE, Op::ShareMemory, Now(|it, at| shared_memory::status(it, at.rest)), "The memory that clients share."),
    row(OpenInference, Reads, "/v2/systemsharedmemory/region/{region+}/status", USE, Op::ShareMemory, Now(|it, at| shared_memory::status(it, at.rest)), "A region of that memory."),
    row(OpenInference, Post, "/v2/systemsharedmemory/region/{region+}/register", USE, Op::ShareMemory, Waits(|it| Box::pin(shared_memory::register(it.context, it.names.rest, it.body))), "A new region."),
    row(OpenInference, Post, "/v2/systemsharedmemory/region/{region+}/unregister", USE, Op::ShareMemory, Now(|it, at| shared_memory::unregister(it, at.rest)), "The end of a region."),
    row(OpenInference, Post, "/v2/systemsharedmemory/unregister", USE, Op::ShareMemory, Now(|it, at| shared_memory::unregister(it, at.rest)), "The end of all regions."),
    row(OpenInference, Reads, "/v2/cudasharedmemory/status", USE, Op::ShareMemory, Now(|_, at| shared_memory::cuda_status(at.rest)), "No memory of GPUs is shared."),
    row(OpenInference, Reads, "/v2/cudasharedmemory/region/{region+}/status", USE, Op::ShareMemory, Now(|_, at| shared_memory::cuda_status(at.rest)), "No memory of GPUs is shared."),
    row(OpenInference, Post, "/v2/cudasharedmemory/region/{region+}/register", USE, Op::ShareMemory, Now(|_, _| Err(no_cuda_sharing())), "No memory of GPUs is shared."),
    row(OpenInference, Post, "/v2/cudasharedmemory/region/{region+}/unregister", USE, Op::ShareMemory, Now(|_, _| Ok(shared_memory::nothing())), "No memory of GPUs is shared."),
    row(OpenInference, Post, "/v2/cudasharedmemory/unregister", USE, Op::ShareMemory, Now(|_, _| Ok(shared_memory::nothing())), "No memory of GPUs is shared."),

    row(Repository, Post, "/v2/repository/index", MANAGE, Op::List, Waits(|it| Box::pin(repository::index(it.context, it.body))), "Every model of the repository with its state."),
    row(Repository, Post, "/v2/repository/models/{model+}/load", MANAGE, Op::Register, Waits(|it| Box::pin(repository::load(it.context, it.body, it.names.target().model))), "Serves a model of the repository."),
    row(Repository, Post, "/v2/repository/models/{model+}/unload", MANAGE, Op::Unregister, Waits(|it| Box::pin(repository::unload(it.context, it.body, it.names.target().model))), "Serves a model of the repository no more."),

    row(Management, Get, "/overview", MANAGE, Op::List, Now(|it, _| Ok(overview::document(it))), "The server, the machine and every model version in one document.").id("overview", "overview"),
    row(Management, Get, "/overview/history", MANAGE, Op::List, Now(|it, _| overview::history(it)), "The samples of the last hour, or with range=day of the last day.").id("overviewHistory", "overviewHistory"),
    row(Management, Get, "/overview/stream", MANAGE, Op::List, Stream(|it, _| overview::stream(it)), "Server-Sent Events: the samples of the last ten minutes, then the document once a second.").id("overviewStream", "overviewStream"),
    row(Management, Get, "/logs", MANAGE, Op::ReadLog, Now(|it, _| logs::last(it)), "The last lines of the log.").id("logs", "logs"),
    row(Management, Get, "/logs/stream", MANAGE, Op::ReadLog, Stream(|it, _| logs::follow(it)), "Server-Sent Events: the lines of the log as they come.").id("logStream", "logStream"),
    row(Management, Get, "/log-level", MANAGE, Op::ReadLog, Now(|it, _| logs::level(it)), "What is logged.").id("logLevel", "logLevel"),
    row(Management, Put, "/log-level", MANAGE, Op::SetLogLevel, Waits(|it| Box::pin(logs::set_level(it.context, it.body))), "Changes what is logged, such as {\"level\": \"info,jitney_engine=debug\"}.").id("setLogLevel", "setLogLevel"),
    row(Management, Get, "/dashboard", OPEN, Op::Public, Now(|it, at| dashboard::file(it, at.rest)), "The dashboard for browsers.").id("dashboard", "dashboard"),
    row(Management, Get, "/dashboard/try/openapi.json", OPEN, Op::Public, Now(|it, _| Ok(openapi::models(it))), "What the dashboard's form knows of models."),
    row(Management, Post, "/dashboard/try/{path+}", OPEN, Op::Public, Tries, "The same as on the inference port, with its keys, for the dashboard's form."),
    row(Management, Get, "/dashboard/{file}", OPEN, Op::Public, Now(|it, at| dashboard::file(it, at.rest)), "A file of the dashboard."),
    row(Management, Get, "/token", API_KEY, Op::RenewToken, Now(|it, _| admin::renew_token(it)), "A new key in place of an old one."),
    row(Management, Get, "/models", MANAGE, Op::List, Now(|it, _| Ok(management::list(it))), "Models by name, in pages.").id("listModels", "listModels"),
    row(Management, Post, "/models", MANAGE, Op::Register, Waits(|it| Box::pin(management::register(it.context, it.body))), "Registers a model; also takes a JSON body.").id("registerModel", "registerModel"),
    row(Management, Get, "/models/{model}", MANAGE, Op::Describe, Waits(|it| Box::pin(management::describe(it.context, it.names.target()))), "Settings, workers and queue of a model.").id("describeModel", "describeModel"),
    row(Management, Get, "/models/{model}/batching", MANAGE, Op::Describe, Waits(|it| Box::pin(management::batching(it.context, it.names.target()))), "What the batcher has learned, and its last decisions with their reasons.").id("describeBatching", "describeBatching"),
    row(Management, Get, "/models/{model}/requests", MANAGE, Op::Describe, Now(|it, at| management::requests(it, at.target())), "The last requests of a version that failed, and the slowest of the last minutes."),
    row(Management, Get, "/models/{model}/statistics", MANAGE, Op::Describe, Now(|it, at| management::statistics(it, at.target())), "What the batches of a version, or of all versions, came to, in all and by size.").id("statistics", "statistics"),
    row(Management, Get, "/models/{model}/traffic", MANAGE, Op::Describe, Now(|it, at| management::traffic(it, at.target().model)), "How versions share the requests that name none."),
    row(Management, Put, "/models/{model}/traffic", MANAGE, Op::Scale, Waits(|it| Box::pin(management::set_traffic(it.context, it.body, it.names.target().model))), "Lets versions, and other models, share the requests that name none, such as {\"shares\": {\"1.0\": 90, \"2.0\": 10}, \"sticky\": \"header:x-user\"}."),
    row(Management, Delete, "/models/{model}/traffic", MANAGE, Op::Scale, Waits(|it| Box::pin(management::end_traffic(it.context, it.names.target().model))), "Lets the default version answer all requests that name none."),
    row(Management, Put, "/models/{model}", MANAGE, Op::Scale, Waits(|it| Box::pin(management::scale(it.context, it.names.target()))), "Changes workers and batching.").id("setAutoScale", "scaleModel"),
    row(Management, Delete, "/models/{model}", MANAGE, Op::Unregister, Waits(|it| Box::pin(management::unregister(it.context, it.names.target()))), "Removes a model or version.").id("unregisterModel", "unregisterModel"),
    row(Management, Options, "/models/{model}", MANAGE, Op::Metadata, Rows(openapi::management), "This model's own API.").id("modelManagement", "modelDocument"),
    row(Management, Get, "/models/{model}/{version}", MANAGE, Op::Describe, Waits(|it| Box::pin(management::describe(it.context, it.names.target()))), "Settings, workers and queue of a model.").id("describeModelVersion", "describeModel"),
    row(Management, Get, "/models/{model}/{version}/batching", MANAGE, Op::Describe, Waits(|it| Box::pin(management::batching(it.context, it.names.target()))), "What the batcher has learned, and its last decisions with their reasons.").id("describeBatchingVersion", "describeBatching"),
    row(Management, Get, "/models/{model}/{version}/requests", MANAGE, Op::Describe, Now(|it, at| management::requests(it, at.target())), "The last requests of a version that failed, and the slowest of the last minutes."),
    row(Management, Get, "/models/{model}/{version}/requests/{id}/body", MANAGE, Op::Describe, Now(|it, at| management::failed_body(it, at.target(), at.rest)), "The body of a request that failed, where keep_failed_bodies is on."),
    row(Management, Get, "/models/{model}/{version}/statistics", MANAGE, Op::Describe, Now(|it, at| management::statistics(it, at.target())), "What the batches of a version, or of all versions, came to, in all and by size.").id("statisticsVersion", "statistics"),
    row(Management, Get, "/models/{model}/{version}/shadow", MANAGE, Op::Describe, Now(|it, at| management::shadow(it, at.target())), "What came of the copies that a version got as a shadow, and the pairs of answers that shadow_samples keeps."),
    row(Management, Put, "/models/{model}/{version}", MANAGE, Op::Scale, Waits(|it| Box::pin(management::scale(it.context, it.names.target()))), "Changes workers and batching.").id("setAutoScaleVersion", "scaleModel"),
    row(Management, Delete, "/models/{model}/{version}", MANAGE, Op::Unregister, Waits(|it| Box::pin(management::unregister(it.context, it.names.target()))), "Removes a model or version.").id("unregisterModelVersion", "unregisterModel"),
    row(Management, Options, "/models/{model}/{version}", MANAGE, Op::Metadata, Rows(openapi::management), "This model's own API.").id("modelManagementVersion", "modelDocument"),
    row(Management, Put, "/models/{model}/{version}/set-default", MANAGE, Op::SetDefault, Now(|it, at| management::set_default(it, at.target())), "Makes this version the default.").id("setDefault", "setDefault"),
    row(Management, Get, "/v1/models/{model}", LISTENER, Op::Ready, Now(|it, at| v1::model(it, at.target())), "Whether the model has workers.").id("modelReady", "modelReady"),
    row(Management, Get, "/workflows", MANAGE, Op::ListWorkflows, Now(|it, _| Ok(management::list_workflows(it))), "Workflows by name, in pages.").id("listWorkflows", "listWorkflows"),
    row(Management, Post, "/workflows", MANAGE, Op::RegisterWorkflow, Waits(|it| Box::pin(management::register_workflow(it.context, it.body))), "Registers a workflow; also takes a JSON body.").id("registerWorkflow", "registerWorkflow"),
    // TorchServe looks no further than the name.
    row(Management, Get, "/workflows/{workflow}/**", MANAGE, Op::DescribeWorkflow, Now(|it, at| management::describe_workflow(it, at.workflow.unwrap_or_default())), "Settings and nodes of a workflow.").id("describeWorkflow", "describeWorkflow"),
    row(Management, Delete, "/workflows/{workflow}/**", MANAGE, Op::UnregisterWorkflow, Waits(|it| Box::pin(management::unregister_workflow(it.context, it.names.workflow.unwrap_or_default()))), "Removes a workflow with its nodes.").id("unregisterWorkflow", "unregisterWorkflow"),
    row(Every, Any, "/api-description", OPEN, Op::Public, Rows(openapi::listener), "This document.").id("managementApiDescriptionAlias", "document").within(Management),

    row(Metrics, Any, "/metrics/**", METRICS, Op::Public, Now(|it, _| Ok(admin::metrics(it))), "Metrics in Prometheus' text format.").id("metrics", "metrics"),

    row(OpenAi, Get, "/v1/models", USE, Op::Metadata, Now(|it, _| Ok(v1::models(it.state))), "The names of the models."),
    row(OpenAi, Post, "/v1/embeddings", USE, Op::Predict, Asks(|it| Box::pin(embeddings::create(it.context, it.plugins, it.body))), "OpenAI's embeddings; the body names the model."),
    row(OpenAi, Post, "/v2/models/{model}/generate", USE, Op::Predict, Predict(GENERATES), "Triton's generate: inputs and outputs are fields by their names."),
    row(OpenAi, Post, "/v2/models/{model}/generate_stream", USE, Op::Predict, Predict(STREAMS), "The same with a stream of events, one for each answer."),
    row(OpenAi, Post, "/v2/models/{model}/versions/{version}/generate", USE, Op::Predict, Predict(GENERATES), "Triton's generate: inputs and outputs are fields by their names."),
    row(OpenAi, Post, "/v2/models/{model}/versions/{version}/generate_stream", USE, Op::Predict, Predict(STREAMS), "The same with a stream of events, one for each answer."),
    row(OpenAi, Any, "/v1/models/{model}/versions/{version!}", LISTENER, Op::Ready, Now(|it, at| v1::model(it, at.target())), "Whether the model has workers."),

    row(Natural, Any, "/docs", OPEN, Op::Public, Now(|_, _| Ok(openapi::docs_page())), "The page on which the models are tried out."),
    row(Natural, Any, "/openapi.json", OPEN, Op::Public, Now(|it, _| Ok(openapi::models(it))), "The OpenAPI document of all models that describe themselves."),
    row(Natural, Any, "/models/**", USE, Op::Unknown, Nothing, NO_ENDPOINT),
    row(Natural, Any, "/predictions/**", USE, Op::Unknown, Nothing, NO_ENDPOINT),
    row(Natural, Any, "/explanations/**", USE, Op::Unknown, Nothing, NO_ENDPOINT),
    row(Natural, Any, "/v1/**", USE, Op::Unknown, Nothing, NO_ENDPOINT),
    row(Natural, Any, "/v2/**", USE, Op::Unknown, Nothing, NO_ENDPOINT),
    row(Natural, Any, "/favicon.ico/**", USE, Op::Unknown, Nothing, NO_ENDPOINT),
    row(Natural, Runs, "/{model}", USE, Op::Predict, Predict(NAMED), RUNS_MODEL),
    row(Natural, Runs, "/{model}/{endpoint}", USE, Op::Predict, Predict(NAMED), "Calls an endpoint of the model."),
];

/// An endpoint, and what its path names.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) endpoint: &'static Endpoint,
    pub(super) names: PathNames<'a>,
}

impl<'a> Found<'a> {
    /// What models' own paths lead to: an endpoint of one, the server's health, or the tasks of one.
    pub(super) fn claimed(target: &'a PathTarget) -> Self {
        let PathTarget { model, endpoint, path, raw, answers, several, .. } = target;
        if *several {
            let names = PathNames { mount: path, ..Default::default() };
            return Self { endpoint: &SHARED, names };
        }
        let health = |id| ENDPOINTS.iter().find(|row| row.document.is_some_and(|it| it.id == id));
        let found = match answers.as_deref() {
            Some("live") => health("serverLive"),
            Some("ready") => health("serverReady"),
            Some(word) => TASKS.iter().find(|(it, _)| *it == word).map(|(_, row)| row),
            None if *raw => Some(&MOUNTED),
            None => Some(&CLAIMED),
        };
        let names =
            PathNames { model: Some(model), rest: endpoint, mount: path, ..Default::default() };
        Self { endpoint: found.unwrap_or(&UNKNOWN), names }
    }

    fn nameless(endpoint: &'static Endpoint) -> Self {
        Self { endpoint, names: PathNames::default() }
    }

    /// A known path with an unfit method.
    pub(super) fn wrong_method() -> Self {
        Self::nameless(&WRONG_METHOD)
    }

    /// Paths of the listener without names in them, for whoever asks for one that is nearly there.
    pub(super) fn fixed_paths(apis: Apis) -> impl Iterator<Item = &'static str> {
        let fixed = move |row: &&Endpoint| {
            row.api.is_offered(apis)
                && !matches!(row.handler, Nothing)
                && !row.path.contains(['{', '*'])
        };
        ENDPOINTS.iter().filter(fixed).map(|row| row.path)
    }

    /// Whether no row has the path.
    pub(super) fn is_unknown(&self) -> bool {
        std::ptr::eq(self.endpoint, &raw const UNKNOWN)
    }

    fn is_wrong_method(&self) -> bool {
        std::ptr::eq(self.endpoint, &raw const WRONG_METHOD)
    }
}

/// Finds the endpoint for a decoded path.
pub(super) fn find<'a>(apis: Apis, method: &Method, path: &'a str) -> Found<'a> {
    let path = route::trim(path);
    let first = first_two(path.as_bytes());
    let (mut known, mut closed) = (None, None);
    for endpoint in ENDPOINTS {
        if !endpoint.may_begin_with(first) {
            continue;
        }
        let api = Some(endpoint.api.searched());
        if known.is_some() && known != api {
            break;
        }
        if closed == api || !endpoint.api.is_offered(apis) {
            continue;
        }
        let Some(names) = route::matches(endpoint.path, path) else { continue };
        if matches!(endpoint.handler, Nothing) {
            closed = api;
        } else if *method == Method::OPTIONS && endpoint.is_described() {
            return Found { endpoint: &DESCRIBED, names };
        } else if endpoint.methods.take(method, apis) {
            return Found { endpoint, names };
        } else {
            known = api;
        }
    }
    Found::nameless(if known.is_some() { &WRONG_METHOD } else { &UNKNOWN })
}

/// The methods that a path takes, for whoever came with another; `GET` only where the model may be asked
/// without a body.
pub(super) fn allowed(
    apis: Apis,
    path: &str,
    without_body: impl Fn(&PathNames<'_>) -> bool,
) -> String {
    let methods = [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS];
    let takes = |method: &&Method| {
        let found = find(apis, method, path);
        let asks = *method == Method::GET && found.endpoint.is_prediction();
        !found.is_unknown() && !found.is_wrong_method() && (!asks || without_body(&found.names))
    };
    let taken: Vec<_> = methods.iter().filter(takes).map(Method::as_str).collect();
    taken.join(", ")
}

/// Whether a decoded path stays the server's own, whatever models want: what begins with the words of a row.
/// The page of the API, its document and the bare names of models do not.
pub(super) fn is_fixed(apis: Apis, path: &str) -> bool {
    let path = path.trim_matches('/');
    let first = first_two(path.as_bytes());
    ENDPOINTS
        .iter()
        .filter(|row| row.api != Natural && row.may_begin_with(first))
        .any(|row| row.api.is_offered(apis) && !matches!(row.handler, Nothing) && row.keeps(path))
}

/// Whether any method of a plugin's path leads somewhere already, on any listener: addresses may coincide.
pub(crate) fn is_taken(methods: &[Method], path: &str) -> bool {
    if ["/docs", "/openapi.json"].contains(&path) {
        return true;
    }
    // Not the bare names of models: those give way.
    let everything = Apis {
        inference: true,
        management: true,
        metrics: true,
        oip: true,
        sagemaker: true,
        ..Apis::default()
    };
    let usual = [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS];
    usual.iter().chain(methods).any(|method| !find(everything, method, path).is_unknown())
}

#[cfg(test)]
mod tests;
