//! The dispatch rules as a table.

use super::open_inference::SharedMemoryRoute;
use super::*;

const NONE: Apis = Apis {
    open_health: false,
    home: false,
    inference: false,
    management: false,
    metrics: false,
    oip: false,
    natural: false,
    sagemaker: false,
};
const I: Apis = Apis { inference: true, ..NONE };
const OIP: Apis = Apis { oip: true, ..I };
const M: Apis = Apis { management: true, ..NONE };
const X: Apis = Apis { metrics: true, ..NONE };
const ALL: Apis = Apis { inference: true, management: true, metrics: true, ..NONE };

fn to<'a>(model: &'a str, version: Option<&'a str>) -> ModelRef<'a> {
    ModelRef { model, version }
}

fn check(apis: Apis, cases: &[(&str, &str, Route<'_>)]) {
    for (method, path, expected) in cases {
        let decoded = decode(path);
        let method: Method = method.parse().unwrap();
        assert_eq!(route(apis, &method, &decoded), *expected, "{method} {path}");
    }
}

#[test]
fn the_inference_listener() {
    check(
        I,
        &[
            ("OPTIONS", "/", Route::Description),
            ("GET", "/", Route::MethodNotAllowed),
            ("POST", "//", Route::MethodNotAllowed),
            ("DELETE", "/api-description/", Route::Description),
            ("GET", "/ping", Route::Ping),
            ("DELETE", "/ping/", Route::Ping),
            ("GET", "/%70ing", Route::Ping),
            ("POST", "/predictions/m", prediction("m", None, "")),
            ("PUT", "/predictions/m/", prediction("m", None, "")),
            ("GET", "/predictions/m/1.0", prediction("m", Some("1.0"), "")),
            ("POST", "/predictions/m/1.0/a/", prediction("m", Some("1.0"), "a")),
            ("POST", "/predictions/m/1.0/v1/chat/x", prediction("m", Some("1.0"), "v1/chat/x")),
            ("POST", "/predictions/m%2F1.0", prediction("m", Some("1.0"), "")),
            ("POST", "/predictions/a%20b", prediction("a b", None, "")),
            ("OPTIONS", "/predictions/m", Route::PredictDescription(to("m", None))),
            ("OPTIONS", "/predictions/m/2", Route::PredictDescription(to("m", Some("2")))),
            ("OPTIONS", "/explanations/m/2", Route::PredictDescription(to("m", Some("2")))),
            ("OPTIONS", "/v1/models/m:predict", Route::PredictDescription(to("m", None))),
            ("OPTIONS", "/v2/models/m/infer", Route::PredictDescription(to("m", None))),
            ("OPTIONS", "/models/m/invoke", Route::PredictDescription(to("m", None))),
            ("OPTIONS", "/m/1.0/predict", Route::PredictDescription(to("m", Some("1.0")))),
            ("POST", "/explanations/m", explanation("m", None, "")),
            ("POST", "/explanations/m/1/x", explanation("m", Some("1"), "x")),
            ("POST", "/v1/models/m:predict", kserve_v1("m:predict", None)),
            ("POST", "/v1/models/m:explain", kserve_v1("m:explain", None)),
            ("POST", "/v1/models/m/versions/2:predict", kserve_v1("2:predict", Some("m"))),
            ("POST", "/v1/models/m%3Apredict", kserve_v1("m:predict", None)),
            ("POST", "/v2/models/m/infer", Route::Predict(kserve_v2(of("m", None)))),
            ("POST", "/v2/models/m/explain", kserve("m", true)),
            ("POST", "/invocations", Route::Invocations),
            ("POST", "/models/m/invoke", sagemaker("m", None)),
            ("POST", "/m/predict", sagemaker("m", None)),
            ("POST", "/m/1.0/predict", sagemaker("m", Some("1.0"))),
            ("PUT", "/wfpredict/w", Route::RunWorkflow("w")),
            ("POST", "/WfPredict/w/", Route::RunWorkflow("w")),
            ("POST", "/wfpredict/w/1.0/x", Route::RunWorkflow("w")),
        ],
    );
}

#[test]
fn unusual_methods_run_no_model_of_ours() {
    let ours = Apis { natural: true, ..I };
    let refused = |method| {
        let paths = ["/predictions/m", "/m", "/m/end", "/invocations", "/wfpredict/w"];
        paths.iter().all(|path| route(ours, &method, path) == Route::MethodNotAllowed)
    };
    assert!([Method::DELETE, Method::PATCH, Method::HEAD, Method::TRACE].into_iter().all(refused));
    assert_eq!(route(I, &Method::DELETE, "/predictions/m"), prediction("m", None, ""));
    check(ours, &[("PUT", "/m", named("m", "")), ("GET", "/m/e", named("m", "e"))]);
}

#[test]
fn kserve_and_openai_ask_under_v1() {
    let (serve, to) = (Apis { natural: true, ..OIP }, |version| to("m", version));
    check(
        serve,
        &[
            ("GET", "/", Route::Alive),
            ("GET", "/v1/models", Route::ModelNames),
            ("DELETE", "/v1/models", Route::MethodNotAllowed),
            ("GET", "/v1/models/m", Route::ModelReady(to(None))),
            ("GET", "/v1/models/m/versions/2", Route::ModelReady(to(Some("2")))),
            ("POST", "/v1/models/m/versions/2:explain", kserve_v1("2:explain", Some("m"))),
            ("GET", "/v1/models/m:predict", Route::MethodNotAllowed),
            ("POST", "/v1/models/m/versions/2/x", Route::NotFound),
            ("POST", "/v1/models/m:fly", Route::NotFound),
            ("POST", "/v1/embeddings", Route::Embeddings),
            ("GET", "/v1/embeddings", Route::MethodNotAllowed),
        ],
    );
    let torchserve = ["/v1/models", "/v1/embeddings", "/v1/models/m/versions/2"];
    assert!(torchserve.iter().all(|path| route(OIP, &Method::GET, path) == Route::NotFound));
}

#[test]
fn what_the_inference_listener_does_not_know() {
    let unknown = [
        "/nothing",
        "/predictions",
        "/predictions/",
        "/explanations",
        "/models",
        "/models/x",
        "/models/x/y",
        "/models/m/predict",
        "/v1/models/m",
        "/v1/models/m:fly",
        "/v2/models/m",
        "/v2",
        "/v2/health/live",
        "/metrics",
        "//ping",
        "/wfpredict",
        "/workflows",
        "/execution-parameters",
        "*",
    ];
    for path in unknown {
        check(I, &[("GET", path, Route::NotFound)]);
    }
}

#[test]
fn the_open_inference_protocol_is_a_switch() {
    check(
        OIP,
        &[
            ("GET", "/v2", Route::OpenInference(OpenInferenceRoute::Server)),
            ("GET", "/v2/health/live", Route::OpenInference(OpenInferenceRoute::Live)),
            ("GET", "/v2/health/ready/", Route::OpenInference(OpenInferenceRoute::Ready)),
            ("POST", "/v2/models/m/versions/1.0/infer", Route::OipVersions),
            ("POST", "/v2/models/m/infer", Route::Predict(kserve_v2(of("m", None)))),
            ("GET", "/v2/health", Route::NotFound),
            (
                "GET",
                "/v2/models/m/ready",
                Route::OpenInference(OpenInferenceRoute::ModelReady(of("m", None))),
            ),
        ],
    );
}

fn of<'a>(model: &'a str, version: Option<&'a str>) -> ModelRef<'a> {
    ModelRef { model, version }
}

#[test]
fn the_protocols_extensions() {
    let oip = Route::OpenInference;
    let region = |cuda, region, action| {
        oip(OpenInferenceRoute::SharedMemory(SharedMemoryRoute { cuda, region, action }))
    };
    let versioned = of("m", Some("2"));
    check(
        Apis { natural: true, ..OIP },
        &[
            ("GET", "/v2/models/m", oip(OpenInferenceRoute::Metadata(of("m", None)))),
            ("GET", "/v2/models/m/versions/2", oip(OpenInferenceRoute::Metadata(versioned))),
            (
                "GET",
                "/v2/models/m/versions/2/ready",
                oip(OpenInferenceRoute::ModelReady(versioned)),
            ),
            ("GET", "/v2/models/m/versions/2/config", oip(OpenInferenceRoute::Config(versioned))),
            ("POST", "/v2/models/m/versions/2/infer", Route::Predict(kserve_v2(versioned))),
            ("GET", "/v2/models/m/versions/2/infer", Route::MethodNotAllowed),
            ("GET", "/v2/models/m/versions/2/other", Route::NotFound),
            ("GET", "/v2/models/stats", oip(OpenInferenceRoute::Statistics(None))),
            ("POST", "/v2/models/stats", Route::MethodNotAllowed),
            ("DELETE", "/v2/models/m", Route::MethodNotAllowed),
            ("PUT", "/v2/logging", Route::MethodNotAllowed),
            ("POST", "/v2/repository/index", Route::RepositoryIndex),
            ("GET", "/v2/repository/index", Route::MethodNotAllowed),
            ("POST", "/v2/repository/models/m/load", Route::RepositoryLoad("m")),
            ("POST", "/v2/repository/models/m/unload", Route::RepositoryUnload("m")),
            ("POST", "/v2/repository/models/m/fly", Route::NotFound),
            (
                "GET",
                "/v2/models/m/trace/setting",
                oip(OpenInferenceRoute::TraceSettings { changes: false }),
            ),
            ("POST", "/v2/trace/setting", oip(OpenInferenceRoute::TraceSettings { changes: true })),
            ("POST", "/v2/logging", oip(OpenInferenceRoute::LogSettings { changes: true })),
            (
                "GET",
                "/v2/systemsharedmemory/status",
                region(false, None, SharedMemoryAction::Status),
            ),
            (
                "POST",
                "/v2/systemsharedmemory/region/r/register",
                region(false, Some("r"), SharedMemoryAction::Register),
            ),
            (
                "POST",
                "/v2/cudasharedmemory/unregister",
                region(true, None, SharedMemoryAction::Unregister),
            ),
            ("POST", "/v2/systemsharedmemory/register", Route::NotFound),
            ("GET", "/v2/systemsharedmemory/region/r", Route::NotFound),
        ],
    );
}

#[test]
fn sagemaker_is_a_switch_too() {
    let sagemaker = Apis { sagemaker: true, ..I };
    check(
        sagemaker,
        &[
            ("GET", "/ping", Route::SagemakerPing),
            ("GET", "/execution-parameters", Route::ExecutionParameters),
            ("POST", "/execution-parameters", Route::MethodNotAllowed),
            ("POST", "/invocations", Route::Invocations),
        ],
    );
}

#[test]
fn the_management_listener() {
    check(
        M,
        &[
            ("OPTIONS", "/", Route::Description),
            ("GET", "/", Route::MethodNotAllowed),
            ("GET", "/overview", Route::Overview),
            ("GET", "/overview/stream", Route::OverviewStream),
            ("POST", "/overview", Route::MethodNotAllowed),
            ("GET", "/dashboard", Route::Dashboard("")),
            ("GET", "/dashboard/app.js", Route::Dashboard("app.js")),
            ("GET", "/dashboard/a/b", Route::NotFound),
            ("GET", "/models", Route::List),
            ("GET", "/models/", Route::List),
            ("POST", "/models", Route::Register),
            ("PUT", "/models", Route::MethodNotAllowed),
            ("PATCH", "/models", Route::MethodNotAllowed),
            ("GET", "/models/m", Route::Describe(to("m", None))),
            ("GET", "/models/m/batching", Route::Batching(to("m", None))),
            ("GET", "/models/m/2/batching", Route::Batching(to("m", Some("2")))),
            ("PUT", "/models/m/2/batching", Route::MethodNotAllowed),
            ("GET", "/models/m/statistics", Route::Statistics(to("m", None))),
            ("GET", "/models/m/2/statistics", Route::Statistics(to("m", Some("2")))),
            ("PUT", "/models/m/2/statistics", Route::MethodNotAllowed),
            ("GET", "/models/m/all", Route::Describe(to("m", Some("all")))),
            ("PUT", "/models/m", Route::Scale(to("m", None))),
            ("PUT", "/models/m/2", Route::Scale(to("m", Some("2")))),
            ("DELETE", "/models/m/2/", Route::Unregister(to("m", Some("2")))),
            ("OPTIONS", "/models/m", Route::ManageDescription(to("m", None))),
            ("POST", "/models/m", Route::MethodNotAllowed),
            ("PUT", "/models/m/2/set-default", Route::SetDefault { model: "m", version: "2" }),
            ("GET", "/models/m/2/set-default", Route::MethodNotAllowed),
            ("GET", "/models/a/b/c", Route::NotFound),
            ("GET", "/models/a/b/c/d", Route::NotFound),
            ("GET", "/v1/models/m", Route::ModelReady(to("m", None))),
            ("POST", "/v1/models/m", Route::MethodNotAllowed),
            ("GET", "/workflows", Route::ListWorkflows),
            ("POST", "/workflows/", Route::RegisterWorkflow),
            ("PUT", "/workflows", Route::MethodNotAllowed),
            ("GET", "/workflows/w", Route::DescribeWorkflow("w")),
            ("DELETE", "/workflows/w", Route::UnregisterWorkflow("w")),
            ("PUT", "/workflows/w", Route::MethodNotAllowed),
            ("GET", "/workflows/w/1", Route::DescribeWorkflow("w")),
            ("POST", "/wfpredict/w", Route::NotFound),
            ("POST", "/predictions/m", Route::NotFound),
            ("GET", "/ping", Route::NotFound),
            ("GET", "/metrics", Route::NotFound),
        ],
    );
}

#[test]
fn the_metrics_listener() {
    check(
        X,
        &[
            ("OPTIONS", "/", Route::Description),
            ("GET", "/metrics", Route::Metrics),
            ("POST", "/metrics/anything", Route::Metrics),
            ("GET", "/nothing", Route::NotFound),
            ("GET", "/models", Route::NotFound),
        ],
    );
}

#[test]
fn one_address_for_everything() {
    check(
        ALL,
        &[
            ("GET", "/ping", Route::Ping),
            ("GET", "/models", Route::List),
            ("POST", "/models/m/invoke", sagemaker("m", None)),
            ("GET", "/models/m/2", Route::Describe(to("m", Some("2")))),
            ("GET", "/v1/models/m", Route::ModelReady(to("m", None))),
            ("POST", "/v1/models/m:predict", kserve_v1("m:predict", None)),
            ("GET", "/metrics", Route::Metrics),
        ],
    );
}

#[test]
fn models_answer_under_their_own_names_where_that_is_on() {
    let apis = Apis { natural: true, oip: true, ..ALL };
    let get = |path| route(apis, &Method::GET, path);
    let Route::Predict(route) = get("/adder") else { panic!("no prediction") };
    assert_eq!((route.target.model, route.url_path, route.query_counts), ("adder", Some(""), true));
    let Route::Predict(route) = get("/iris/classify/") else { panic!("no prediction") };
    assert_eq!((route.target.model, route.url_path), ("iris", Some("classify")));
    assert_eq!(get("/docs"), Route::Docs);
    assert_eq!(get("/openapi.json"), Route::OpenApi);
    assert_eq!(get("/ping"), Route::Ping);
    assert_eq!(get("/metrics"), Route::Metrics);
    assert_eq!(get("/models"), Route::List);
    assert_eq!(get("/"), Route::Alive);
    let home = Apis { home: true, ..M };
    assert_eq!(super::route(home, &Method::GET, "/"), Route::Home);
    assert_eq!(get("/predictions"), Route::NotFound);
    assert_eq!(get("/a/b/c"), Route::NotFound);
    assert_eq!(super::route(ALL, &Method::GET, "/adder"), Route::NotFound);
}
