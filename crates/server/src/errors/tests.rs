//! Every failure as a client reads it: status, type, message and `Retry-After`.

use std::sync::Arc;

use http::header::RETRY_AFTER;
use http_body_util::BodyExt;
use jitney_engine::Rejection;
use jitney_engine::error::{LoadingWait, WaitLimit};
use jitney_engine::outcome::{LoadFailure, WorkerExit};
use jitney_engine::store::{Breach, ShownUrl};
use jitney_engine::workflow::DagError;

use super::*;

const FAILED: FailedCall<'_> = FailedCall {
    model: "m",
    version: None,
    purpose: "inference",
    queue_max: 100,
    dialect: Dialect::TorchServe,
};

fn parts(problem: &Problem) -> (u16, &'static str, &str) {
    (problem.status, problem.code.row().kind, &problem.message)
}

fn check_call(error: CallError, expected: (u16, &str, &str)) {
    assert_eq!(parts(&FAILED.problem(&error)), expected);
}

fn rejected(reason: Rejection) -> CallError {
    CallError::Rejected { reason, retry_after: Some(Duration::from_millis(2500)) }
}

#[test]
fn a_model_without_a_queue_mentions_none() {
    let failed = FailedCall { queue_max: 0, ..FAILED };
    let message = "Model \"m\" has no queue and no free worker. Try again later. \
        [reason: queue_full]";
    let problem = failed.problem(&rejected(Rejection::QueueFull));
    assert_eq!(parts(&problem), (503, "ServiceUnavailableException", message));
}

#[test]
fn rejections_have_a_reason() {
    let unavailable = "ServiceUnavailableException";
    for (reason, status, kind, message) in [
        (
            Rejection::QueueFull,
            503,
            unavailable,
            "Model \"m\" has a full queue (100 waiting). Try again later. [reason: queue_full]",
        ),
        (
            Rejection::NoWorker,
            503,
            unavailable,
            "Model \"m\" has no worker to serve inference request. Please use scale workers API \
             to add workers. If this is a sequence inference, please check if it is closed, or \
             expired; or exceeds maxSequenceJobQueueSize",
        ),
        (
            Rejection::Infeasible,
            503,
            unavailable,
            "Model \"m\" cannot answer before the request's deadline. [reason: hopeless]",
        ),
        (Rejection::Overload, 503, unavailable, "Model \"m\" is overloaded. [reason: overload]"),
        (Rejection::Draining, 503, unavailable, "Model \"m\" is shutting down. [reason: draining]"),
        (
            Rejection::Quota,
            429,
            "TooManyRequestsException",
            "Model \"m\" has reached its limit for this client. [reason: quota]",
        ),
        (
            Rejection::Expired,
            408,
            "RequestTimeoutException",
            "Model \"m\" did not answer before the request's deadline. [reason: expired]",
        ),
        (
            Rejection::TooLarge,
            413,
            "RequestEntityTooLargeException",
            "Model \"m\" has no batch that is large enough for this request. [reason: too_large]",
        ),
        (
            Rejection::Cancelled,
            499,
            "RequestCancelledException",
            "Model \"m\": the client disconnected. [reason: cancelled]",
        ),
    ] {
        check_call(rejected(reason), (status, kind, message));
    }
}

#[test]
fn torchserves_stray_quote_is_kept() {
    let failed = FailedCall { version: Some("2"), ..FAILED };
    let problem = failed.problem(&rejected(Rejection::NoWorker));
    assert!(
        problem.message.starts_with("Model \"m\" Version 2\" has no worker to serve inference")
    );
    let failed = FailedCall { purpose: "describe", ..FAILED };
    assert_eq!(
        failed.problem(&rejected(Rejection::NoWorker)).message,
        "Model \"m\" has no worker to serve describe request. Please use scale workers API to add workers."
    );
}

#[test]
fn failures_of_the_model_keep_its_message() {
    let failed = |cause, status, message: &str| {
        CallError::Model(ModelFailure::new(cause, message.to_owned()).with_status(status))
    };
    let kind = "InternalServerException";
    for (error, status, message) in [
        (failed(Cause::Raised, None, "Prediction failed"), 503, "Prediction failed"),
        (failed(Cause::Memory, None, "Out of resources"), 507, "Out of resources"),
        (failed(Cause::Prediction, Some(599), "strange weather"), 599, "strange weather"),
        (failed(Cause::Prediction, Some(413), "too big"), 507, "too big"),
        (failed(Cause::Prediction, Some(42), "no such status"), 503, "no such status"),
        (failed(Cause::NotAList, None, "Invalid"), 503, "Invalid"),
        (failed(Cause::WrongLength, None, "mismatched"), 503, "mismatched"),
        (failed(Cause::UnsupportedOutput, None, "Unsupported"), 503, "Unsupported"),
        (failed(Cause::TooLarge, None, "too large"), 500, "too large"),
        (exited(Some(3), None), 500, "Worker died."),
        (exited(None, Some(9)), 507, "Worker died."),
    ] {
        check_call(error, (status, kind, message));
    }
}

#[test]
fn a_status_that_a_definition_states_has_its_type() {
    for (status, kind) in [
        (400, "BadRequestException"),
        (404, "ResourceNotFoundException"),
        (413, "RequestEntityTooLargeException"),
        (418, "BadRequestException"),
        (422, "BadRequestException"),
        (429, "TooManyRequestsException"),
        (500, "InternalServerException"),
        (503, "ServiceUnavailableException"),
    ] {
        let (cause, message) = (Cause::Stated, "why".to_owned());
        let failure = ModelFailure::new(cause, message).with_status(Some(status));
        check_call(CallError::Model(failure), (status, kind, "why"));
    }
}

fn exited(status: Option<i32>, signal: Option<i32>) -> CallError {
    CallError::WorkerExited { exit: WorkerExit::Ended { status, signal } }
}

/// The message and the reason, in both dialects.
fn told(error: &CallError) -> [(String, Option<String>); 2] {
    [Dialect::TorchServe, Dialect::Jitney].map(|dialect| {
        let problem = FailedCall { dialect, ..FAILED }.problem(error);
        (problem.message, problem.reason)
    })
}

#[test]
fn a_lost_worker_is_explained_beside_torchserves_message_or_in_place_of_it() {
    let died = "Worker died.".to_owned();
    for (error, why) in [
        (
            exited(Some(3), None),
            "The worker ended while it ran the request (exit status 3) and was restarted.",
        ),
        (
            CallError::WorkerExited {
                exit: WorkerExit::TimedOut { limit: Duration::from_secs(3) },
            },
            "The batch ran longer than response_timeout (3 s) and its worker was restarted.",
        ),
        (
            CallError::WorkerExited { exit: WorkerExit::OutOfMemory { bytes: None } },
            "The worker ended while it ran the request (needed more memory than its memory_limit allows) and was restarted.",
        ),
    ] {
        let why = why.to_owned();
        assert_eq!(told(&error), [(died.clone(), Some(why.clone())), (why, None)]);
    }
}

#[test]
fn a_model_that_cannot_load_says_why_and_when_it_is_tried_again() {
    let error = LaunchError::Load("ImportError: No module named 'torch'".into());
    let retry_at = tokio::time::Instant::now().checked_add(Duration::from_secs(60));
    let failed =
        |retry_at| CallError::NotLoaded(Arc::new(LoadFailure { error: error.clone(), retry_at }));
    let [(message, reason), (plain, none)] = told(&failed(retry_at));
    assert!(message.starts_with("Model \"m\" has no worker to serve inference request. "));
    let why = "loading failed with ImportError: No module named 'torch'";
    assert_eq!(reason.as_deref(), Some(why));
    let expected = format!("Model \"m\" has no worker: {why}. See the log, or GET /models/m.");
    assert_eq!((plain, none), (expected, None));
    let problem = FAILED.problem(&failed(retry_at));
    assert_eq!((problem.status, problem.grpc_code()), (503, 14));
    assert!(problem.retry_after > Some(Duration::from_secs(55)), "{:?}", problem.retry_after);
    assert!(problem.description().ends_with(why), "over gRPC the reason is a line of its own");
    assert_eq!(FAILED.problem(&failed(None)).retry_after, None, "it is not tried again");
}

#[test]
fn a_model_that_still_loads_says_what_ended_the_wait() {
    let half = Duration::from_millis(500);
    for (limit, text) in [
        (WaitLimit::MaxLatency(half), "its max_latency_ms of 500 has passed"),
        (WaitLimit::ClientTimeout(half), "its client_timeout of 500 ms has passed"),
        (WaitLimit::Deadline(half), "the request's deadline has passed"),
        (WaitLimit::StartupWait(30 * 2 * half), "its startup_wait of 30 s has passed"),
    ] {
        let wait = LoadingWait { wanted: 2, limit, ready_in: None, at_once: false };
        let error = CallError::Loading(wait);
        let message = format!(
            "Model \"m\" is still loading (0 of 2 workers ready); {text}. [reason: loading]"
        );
        check_call(error.clone(), (503, "ServiceUnavailableException", &message));
        let retry_after = |ready_in| {
            FAILED.problem(&CallError::Loading(LoadingWait { ready_in, ..wait })).retry_after
        };
        let asked = [None, Some(half), Some(14 * half)].map(retry_after);
        let seconds = [1, 1, 7].map(|it| Some(Duration::from_secs(it)));
        assert_eq!(asked, seconds, "when a worker is expected, and a second at least");
    }
    let (limit, ready_in) = (WaitLimit::Deadline(half), Some(14 * half));
    check_call(
        CallError::Loading(LoadingWait { wanted: 1, limit, ready_in, at_once: true }),
        (
            503,
            "ServiceUnavailableException",
            "Model \"m\" is still loading (0 of 1 workers ready); the request's deadline passes \
             before, as the load takes 7.0 s more. [reason: loading]",
        ),
    );
}

#[test]
fn other_failures_of_a_call() {
    check_call(
        CallError::Poisonous,
        (
            400,
            "BadRequestException",
            "Model \"m\" is not given this request again for some minutes: it has made its workers exit. \
             Send a different one. [reason: poison]",
        ),
    );
    check_call(
        CallError::BadInput("wants 4 numbers".to_owned()),
        (400, "BadRequestException", "wants 4 numbers"),
    );
    check_call(
        CallError::ServerFull { what: "bytes" },
        (
            503,
            "ServiceUnavailableException",
            "The server is at its limit of bytes. Try again later. [reason: crowded]",
        ),
    );
    check_call(
        CallError::Gone,
        (503, "ServiceUnavailableException", "Model \"m\" was unregistered. [reason: gone]"),
    );
}

#[test]
fn unknown_names() {
    let model = || "x".to_owned();
    let unknown = LookupError::UnknownModel { model: model() };
    let version = LookupError::UnknownVersion { model: model(), version: "9".to_owned() };
    let not_found = (404, "ModelNotFoundException", "Model not found: x");
    assert_eq!(parts(&Problem::from(&unknown)), not_found);
    assert_eq!(parts(&Problem::set_default(&unknown)), not_found);
    assert_eq!(parts(&Problem::from(UnregisterError::Lookup(unknown.clone()))), not_found);
    let kind = "ModelVersionNotFoundException";
    let message = "Model version: 9 does not exist for model: x";
    assert_eq!(parts(&Problem::from(&version)), (404, kind, message));
    let message = "Model version 9 does not exist for model x";
    assert_eq!(parts(&Problem::set_default(&version)), (404, kind, message));
    let needed = UnregisterError::Needed {
        model: model(),
        version: "1.0".to_owned(),
        caller: "app".to_owned(),
    };
    let message = "Model x version 1.0 is needed by app: unregister app first.";
    check_problem(needed, 409, "ConflictStatusException", message);
    let default = UnregisterError::DefaultVersion { model: model() };
    assert_eq!(
        parts(&Problem::from(default)),
        (403, "InvalidModelVersionException", "Cannot remove default version for model x")
    );
}

#[test]
fn failed_registrations() {
    let url = || ShownUrl::of("a.mar");
    for (error, expected) in [
        (RegisterError::Store(StoreError::EmptyUrl), (404, "ModelNotFoundException", "empty url")),
        (
            RegisterError::Store(StoreError::NotFound(url())),
            (404, "ModelNotFoundException", "Model not found at: a.mar"),
        ),
        (
            RegisterError::Store(StoreError::RelativePath(url())),
            (404, "ModelNotFoundException", "Relative path is not allowed in url: a.mar"),
        ),
        (
            RegisterError::Store(StoreError::DownloadFailed { url: url(), why: String::new() }),
            (400, "DownloadArchiveException", "Failed to download archive from: a.mar"),
        ),
        (
            RegisterError::Store(StoreError::AlreadyExists("a.mar".to_owned())),
            (500, "InternalServerException", "Model file already exists a.mar"),
        ),
        (
            RegisterError::Store(StoreError::Corrupt { url: url(), why: "cut".to_owned() }),
            (400, "InvalidModelException", "Model archive is corrupt: a.mar: cut"),
        ),
        (
            RegisterError::Store(StoreError::Hostile {
                url: url(),
                breach: Breach::Escapes("../x".to_owned()),
            }),
            (
                400,
                "InvalidModelException",
                "Failed to save model: a.mar: member \"../x\" points outside the archive",
            ),
        ),
        (
            RegisterError::Store(StoreError::TooLarge { url: url(), excess: Excess::Expansion(9) }),
            (
                400,
                "InvalidModelException",
                "Failed to save model: a.mar: it unpacks to more than 9 times its size",
            ),
        ),
        (
            RegisterError::Store(StoreError::TooLarge { url: url(), excess: Excess::Disk }),
            (
                507,
                "InternalServerException",
                "Failed to save model: a.mar: the disk has no room for it",
            ),
        ),
        (
            RegisterError::Store(StoreError::BadUrl { url: url(), why: "it has a backslash" }),
            (400, "BadRequestException", "Invalid url a.mar: it has a backslash."),
        ),
        (
            RegisterError::Store(StoreError::OutsideStore { url: url(), store: Some("/s".into()) }),
            (
                404,
                "ModelNotFoundException",
                "Model not found at: a.mar. Put it below the model store /s, or name it on the \
                 command line or in allowed_urls.",
            ),
        ),
        (
            RegisterError::Pip { model: "m".to_owned(), why: "no such package".to_owned() },
            (400, "ModelException", "Custom pip package installation failed for model m"),
        ),
        (
            RegisterError::Venv { model: "m".to_owned(), why: String::new() },
            (400, "ModelException", "Virtual environment creation failed for model m"),
        ),
        (RegisterError::NoName, (400, "InvalidModelException", "Model name is not defined.")),
        (
            RegisterError::BadRuntime("ruby".to_owned()),
            (400, "BadRequestException", "Invalid RuntimeType value: ruby"),
        ),
        (
            RegisterError::Conflict { model: "m".to_owned(), version: "1.0".to_owned() },
            (409, "ConflictStatusException", "Model version 1.0 is already registered for model m"),
        ),
        (
            RegisterError::Draining,
            (503, "ServiceUnavailableException", "the server is shutting down"),
        ),
    ] {
        assert_eq!(parts(&Problem::from(error)), expected);
    }
}

#[test]
fn workers_that_do_not_start() {
    let kind = "InternalServerException";
    let load = ScaleError::Launch(LaunchError::Load("boom".into()));
    let memory = ScaleError::Launch(LaunchError::Memory("full".into()));
    let scale = |error, version| Problem::scale(Dialect::TorchServe, error, "m", version);
    let message = "Failed to start workers for model m version: 1.0";
    assert_eq!(parts(&scale(&load, Some("1.0"))), (500, kind, message));
    assert_eq!(scale(&load, Some("1.0")).reason.as_deref(), Some("boom"));
    assert_eq!(parts(&scale(&memory, Some("1.0"))), (507, kind, message));
    let plain = Problem::scale(Dialect::Jitney, &load, "m", Some("1.0"));
    assert_eq!((plain.message, plain.reason), (format!("{message}: boom"), None));
    let message = "Failed to start workers for model m version: null";
    assert_eq!(parts(&scale(&ScaleError::Gone, None)), (500, kind, message));
}

#[test]
fn only_what_may_succeed_later_has_retry_after() {
    let wait = |reason, after: Option<u64>| {
        let retry_after = after.map(Duration::from_millis);
        let problem = FAILED.problem(&CallError::Rejected { reason, retry_after });
        let reply = crate::respond::problem(&problem, None);
        reply.headers().get(RETRY_AFTER).map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(wait(Rejection::QueueFull, Some(2500)).as_deref(), Some("3"));
    assert_eq!(wait(Rejection::QueueFull, Some(3)).as_deref(), Some("1"));
    assert_eq!(wait(Rejection::NoWorker, None).as_deref(), Some("1"));
    assert_eq!(wait(Rejection::TooLarge, Some(2500)), None);
}

#[tokio::test]
async fn the_body_is_torchserves() {
    let reply = crate::respond::problem(&Problem::not_found(), None);
    assert_eq!(reply.headers()["content-type"], "application/json");
    let body = reply.into_body().collect().await.unwrap().to_bytes();
    let expected = "{\n  \"code\": 404,\n  \"type\": \"ResourceNotFoundException\",\n  \
        \"message\": \"Requested resource is not found, please refer to API document.\"\n}\n";
    assert_eq!(body, expected);
}

fn check_problem(problem: impl Into<Problem>, status: u16, kind: &str, message: &str) {
    let problem = problem.into();
    let parts = (problem.status, problem.code.row().kind, problem.message.as_str());
    assert_eq!(parts, (status, kind, message));
}

#[test]
fn registration_fails_in_torchserves_message() {
    let url = || ShownUrl::of("w.war");
    let not_found = WorkflowError::from(StoreError::NotFound(url()));
    let message = "Workflow not found in workflow store: w.war";
    check_problem(not_found, 404, "WorkflowNotFoundException", message);
    let corrupt = WorkflowError::Store(StoreError::Corrupt { url: url(), why: "cut".into() });
    let message = "Model archive is corrupt: w.war: cut";
    check_problem(corrupt, 400, "InvalidWorkflowException", message);
    let conflict = WorkflowError::Conflict { workflow: "w".into() };
    let message = "Workflow w is already registered.";
    check_problem(conflict, 409, "ConflictStatusException", message);
    let message = "Invalid workflow: dag names no node";
    check_problem(WorkflowError::Dag(DagError::Empty), 400, "InvalidDAGException", message);
    let failures = vec!["one".to_owned(), "two".to_owned()];
    let failed = WorkflowError::Failed { workflow: "w".into(), failures };
    let message = "Workflow w has failed to register. Failures: [one, two]";
    check_problem(failed, 500, "WorkflowException", message);
    let unknown = UnknownWorkflow { workflow: "w".into() };
    check_problem(unknown, 404, "WorkflowNotFoundException", "Workflow not found: w");
}

#[test]
fn a_node_that_rejects_is_reported_like_any_other_model() {
    let error = CallError::Rejected { reason: Rejection::Expired, retry_after: None };
    let rejected = RunError::Rejected { model: "w__n".into(), queue_max: 9, error };
    let message = "Model \"w__n\" did not answer before the request's deadline. [reason: expired]";
    check_problem(rejected, 408, "RequestTimeoutException", message);
    let failed = RunError::Failed { node: "n".into(), attempts: 2, why: "Worker died.".into() };
    let message = "Error executing n: Worker died. (2 attempts)";
    check_problem(failed, 500, "InternalServerException", message);
}
