//! Which row a request finds, and the reference page that is made of the rows.

use std::collections::BTreeSet;

use super::*;
use crate::grpc::{GrpcMethod, METHODS};

const I: Apis = Apis {
    inference: true,
    open_health: false,
    home: false,
    management: false,
    metrics: false,
    oip: false,
    natural: false,
    sagemaker: false,
};
const NONE: Apis = Apis { inference: false, ..I };
const OIP: Apis = Apis { oip: true, ..I };
const M: Apis = Apis { management: true, ..NONE };
const X: Apis = Apis { metrics: true, ..NONE };
const ALL: Apis = Apis { inference: true, management: true, metrics: true, ..NONE };

/// The methods and the pattern of the row that a request finds, then what its path names.
fn shown(apis: Apis, method: &str, path: &str) -> String {
    let (method, path): (Method, _) = (method.parse().unwrap(), route::decode(path));
    let found = find(apis, &method, &path);
    if found.is_unknown() {
        return "404".to_owned();
    }
    if found.is_wrong_method() {
        return "405".to_owned();
    }
    let PathNames { model, version, workflow, rest, .. } = found.names;
    let rest = Some(rest).filter(|rest| !rest.is_empty());
    let names: Vec<_> = [model, version, workflow, rest].into_iter().flatten().collect();
    let Endpoint { methods, path, .. } = found.endpoint;
    format!("{methods:?} {path} {}", names.join(" ")).trim_end().to_owned()
}

fn check(apis: Apis, cases: &[(&str, &str, &str)]) {
    for (method, path, expected) in cases {
        assert_eq!(shown(apis, method, path), *expected, "{method} {path}");
    }
}

#[test]
fn the_inference_listener() {
    check(
        I,
        &[
            ("OPTIONS", "/", "Options /"),
            ("GET", "/", "405"),
            ("POST", "//", "405"),
            ("DELETE", "/api-description/", "Any /api-description"),
            ("GET", "/ping", "Any /ping"),
            ("DELETE", "/ping/", "Any /ping"),
            ("GET", "/%70ing", "Any /ping"),
            ("POST", "/predictions/m", "Runs /predictions/{model} m"),
            ("PUT", "/predictions/m/", "Runs /predictions/{model} m"),
            ("GET", "/predictions/m/1.0", "Runs /predictions/{model}/{version} m 1.0"),
            (
                "POST",
                "/predictions/m/1.0/a/",
                "Runs /predictions/{model}/{version}/{path+} m 1.0 a",
            ),
            (
                "POST",
                "/predictions/m/1.0/v1/chat/x",
                "Runs /predictions/{model}/{version}/{path+} m 1.0 v1/chat/x",
            ),
            ("POST", "/predictions/m%2F1.0", "Runs /predictions/{model}/{version} m 1.0"),
            ("POST", "/predictions/a%20b", "Runs /predictions/{model} a b"),
            ("OPTIONS", "/predictions/m", "Options /** m"),
            ("OPTIONS", "/predictions/m/2", "Options /** m 2"),
            ("OPTIONS", "/explanations/m/2", "Options /** m 2"),
            ("OPTIONS", "/v1/models/m:predict", "Options /** m"),
            ("OPTIONS", "/v2/models/m/infer", "Options /** m"),
            ("OPTIONS", "/models/m/invoke", "Options /** m"),
            ("OPTIONS", "/m/1.0/predict", "Options /** m 1.0"),
            ("POST", "/explanations/m", "Runs /explanations/{model} m"),
            ("POST", "/explanations/m/1/x", "Runs /explanations/{model}/{version}/{path+} m 1 x"),
            ("POST", "/v1/models/m:predict", "Posts /v1/models/{model}:predict m"),
            ("POST", "/v1/models/m:explain", "Posts /v1/models/{model}:explain m"),
            (
                "POST",
                "/v1/models/m/versions/2:predict",
                "Posts /v1/models/{model}/versions/{version}:predict m 2",
            ),
            ("POST", "/v1/models/m%3Apredict", "Posts /v1/models/{model}:predict m"),
            ("POST", "/v2/models/m/infer", "Posts /v2/models/{model}/infer m"),
            ("POST", "/v2/models/m/explain", "Runs /v2/models/{model}/explain m"),
            ("POST", "/invocations", "Runs /invocations"),
            ("POST", "/models/m/invoke", "Runs /models/{model}/invoke m"),
            ("POST", "/m/predict", "Runs /{model}/predict m"),
            ("POST", "/m/1.0/predict", "Runs /{model}/{version}/predict m 1.0"),
            ("PUT", "/wfpredict/w", "Runs /~wfpredict/{workflow}/** w"),
            ("POST", "/WfPredict/w/", "Runs /~wfpredict/{workflow}/** w"),
            ("POST", "/wfpredict/w/1.0/x", "Runs /~wfpredict/{workflow}/** w"),
        ],
    );
}

#[test]
fn kserve_and_openai_ask_under_v1() {
    check(
        Apis { natural: true, ..OIP },
        &[
            ("GET", "/", "Get /"),
            ("GET", "/v1/models", "Get /v1/models"),
            ("DELETE", "/v1/models", "405"),
            ("GET", "/v1/models/m", "Any /v1/models/{model!} m"),
            ("GET", "/v1/models/m/versions/2", "Any /v1/models/{model}/versions/{version!} m 2"),
            (
                "POST",
                "/v1/models/m/versions/2:explain",
                "Posts /v1/models/{model}/versions/{version}:explain m 2",
            ),
            ("GET", "/v1/models/m:predict", "405"),
            ("POST", "/v1/models/m/versions/2/x", "404"),
            ("POST", "/v1/models/m:fly", "404"),
            ("POST", "/v1/embeddings", "Post /v1/embeddings"),
            ("GET", "/v1/embeddings", "405"),
        ],
    );
    let torchserve = ["/v1/models", "/v1/embeddings", "/v1/models/m/versions/2"];
    assert!(torchserve.iter().all(|path| shown(OIP, "GET", path) == "404"));
}

#[test]
fn the_open_inference_protocol_is_a_switch() {
    check(
        OIP,
        &[
            ("GET", "/v2", "Reads /v2"),
            ("GET", "/v2/health/live", "Reads /v2/health/live"),
            ("GET", "/v2/health/ready/", "Reads /v2/health/ready"),
            (
                "POST",
                "/v2/models/m/versions/1.0/infer",
                "Any /v2/models/*/versions/{rest+} 1.0/infer",
            ),
            ("POST", "/v2/models/m/infer", "Posts /v2/models/{model}/infer m"),
            ("GET", "/v2/health", "404"),
            ("GET", "/v2/models/m/ready", "Reads /v2/models/{model}/ready m"),
        ],
    );
}

#[test]
fn the_protocols_extensions() {
    check(
        Apis { natural: true, ..OIP },
        &[
            ("GET", "/v2/models/m", "Reads /v2/models/{model} m"),
            ("GET", "/v2/models/m/versions/2", "Reads /v2/models/{model}/versions/{version} m 2"),
            (
                "GET",
                "/v2/models/m/versions/2/ready",
                "Reads /v2/models/{model}/versions/{version}/ready m 2",
            ),
            (
                "GET",
                "/v2/models/m/versions/2/config",
                "Reads /v2/models/{model}/versions/{version}/config m 2",
            ),
            (
                "POST",
                "/v2/models/m/versions/2/infer",
                "Post /v2/models/{model}/versions/{version}/infer m 2",
            ),
            ("GET", "/v2/models/m/versions/2/infer", "405"),
            ("GET", "/v2/models/m/versions/2/other", "404"),
            ("GET", "/v2/models/stats", "Reads /v2/models/stats"),
            ("POST", "/v2/models/stats", "405"),
            ("DELETE", "/v2/models/m", "405"),
            ("PUT", "/v2/logging", "405"),
            ("POST", "/v2/repository/index", "Post /v2/repository/index"),
            ("GET", "/v2/repository/index", "405"),
            ("POST", "/v2/repository/models/m/load", "Post /v2/repository/models/{model+}/load m"),
            (
                "POST",
                "/v2/repository/models/m/unload",
                "Post /v2/repository/models/{model+}/unload m",
            ),
            ("POST", "/v2/repository/models/m/fly", "404"),
            ("GET", "/v2/models/m/trace/setting", "Reads /v2/models/*/trace/setting"),
            ("POST", "/v2/trace/setting", "Post /v2/trace/setting"),
            ("POST", "/v2/logging", "Post /v2/logging"),
            ("GET", "/v2/systemsharedmemory/status", "Reads /v2/systemsharedmemory/status"),
            (
                "POST",
                "/v2/systemsharedmemory/region/r/register",
                "Post /v2/systemsharedmemory/region/{region+}/register r",
            ),
            ("POST", "/v2/cudasharedmemory/unregister", "Post /v2/cudasharedmemory/unregister"),
            ("POST", "/v2/systemsharedmemory/register", "404"),
            ("GET", "/v2/systemsharedmemory/region/r", "404"),
        ],
    );
}

#[test]
fn sagemaker_is_a_switch_too() {
    check(
        Apis { sagemaker: true, ..I },
        &[
            ("GET", "/ping", "Any /ping"),
            ("GET", "/execution-parameters", "Get /execution-parameters"),
            ("POST", "/execution-parameters", "405"),
            ("POST", "/invocations", "Runs /invocations"),
        ],
    );
    let found = |apis| find(apis, &Method::GET, "/ping").endpoint.api;
    assert_eq!([found(Apis { sagemaker: true, ..I }), found(I)], [Sagemaker, Inference]);
}

#[test]
fn the_management_listener() {
    check(
        M,
        &[
            ("OPTIONS", "/", "Options /"),
            ("GET", "/", "405"),
            ("GET", "/overview", "Get /overview"),
            ("GET", "/overview/history", "Get /overview/history"),
            ("GET", "/overview/stream", "Get /overview/stream"),
            ("POST", "/overview", "405"),
            ("GET", "/dashboard", "Get /dashboard"),
            ("GET", "/dashboard/app.js", "Get /dashboard/{file} app.js"),
            ("GET", "/dashboard/a/b", "404"),
            ("GET", "/models", "Get /models"),
            ("GET", "/models/", "Get /models"),
            ("POST", "/models", "Post /models"),
            ("PUT", "/models", "405"),
            ("PATCH", "/models", "405"),
            ("GET", "/models/m", "Get /models/{model} m"),
            ("GET", "/models/m/batching", "Get /models/{model}/batching m"),
            ("GET", "/models/m/2/batching", "Get /models/{model}/{version}/batching m 2"),
            ("PUT", "/models/m/2/batching", "405"),
            ("POST", "/dashboard/try/m/x", "Post /dashboard/try/{path+} m/x"),
            ("GET", "/models/m/requests", "Get /models/{model}/requests m"),
            ("GET", "/models/m/2/requests", "Get /models/{model}/{version}/requests m 2"),
            (
                "GET",
                "/models/m/2/requests/a/body",
                "Get /models/{model}/{version}/requests/{id}/body m 2 a",
            ),
            ("GET", "/models/m/statistics", "Get /models/{model}/statistics m"),
            ("GET", "/models/m/2/statistics", "Get /models/{model}/{version}/statistics m 2"),
            ("PUT", "/models/m/2/statistics", "405"),
            ("GET", "/models/m/all", "Get /models/{model}/{version} m all"),
            ("PUT", "/models/m", "Put /models/{model} m"),
            ("PUT", "/models/m/2", "Put /models/{model}/{version} m 2"),
            ("DELETE", "/models/m/2/", "Delete /models/{model}/{version} m 2"),
            ("OPTIONS", "/models/m", "Options /models/{model} m"),
            ("POST", "/models/m", "405"),
            ("PUT", "/models/m/2/set-default", "Put /models/{model}/{version}/set-default m 2"),
            ("GET", "/models/m/2/set-default", "405"),
            ("GET", "/models/a/b/c", "404"),
            ("GET", "/models/a/b/c/d", "404"),
            ("GET", "/v1/models/m", "Get /v1/models/{model} m"),
            ("POST", "/v1/models/m", "405"),
            ("GET", "/workflows", "Get /workflows"),
            ("POST", "/workflows/", "Post /workflows"),
            ("PUT", "/workflows", "405"),
            ("GET", "/workflows/w", "Get /workflows/{workflow}/** w"),
            ("DELETE", "/workflows/w", "Delete /workflows/{workflow}/** w"),
            ("PUT", "/workflows/w", "405"),
            ("GET", "/workflows/w/1", "Get /workflows/{workflow}/** w"),
            ("POST", "/wfpredict/w", "404"),
            ("POST", "/predictions/m", "404"),
            ("GET", "/ping", "404"),
            ("GET", "/metrics", "404"),
        ],
    );
}

#[test]
fn the_metrics_listener() {
    check(
        X,
        &[
            ("OPTIONS", "/", "Options /"),
            ("GET", "/metrics", "Any /metrics/**"),
            ("POST", "/metrics/anything", "Any /metrics/**"),
            ("GET", "/nothing", "404"),
            ("GET", "/models", "404"),
        ],
    );
}

#[test]
fn one_address_for_everything() {
    check(
        ALL,
        &[
            ("GET", "/ping", "Any /ping"),
            ("GET", "/models", "Get /models"),
            ("POST", "/models/m/invoke", "Runs /models/{model}/invoke m"),
            ("GET", "/models/m/2", "Get /models/{model}/{version} m 2"),
            ("GET", "/v1/models/m", "Get /v1/models/{model} m"),
            ("POST", "/v1/models/m:predict", "Posts /v1/models/{model}:predict m"),
            ("GET", "/metrics", "Any /metrics/**"),
        ],
    );
}

#[test]
fn unusual_methods_run_no_model_of_ours() {
    let ours = Apis { natural: true, ..I };
    for method in ["DELETE", "PATCH", "HEAD", "TRACE"] {
        for path in ["/predictions/m", "/m", "/m/end", "/invocations", "/wfpredict/w"] {
            assert_eq!(shown(ours, method, path), "405", "{method} {path}");
        }
    }
    check(I, &[("DELETE", "/predictions/m", "Runs /predictions/{model} m")]);
    check(
        ours,
        &[("PUT", "/m", "Runs /{model} m"), ("GET", "/m/e", "Runs /{model}/{endpoint} m e")],
    );
}

#[test]
fn what_the_inference_listener_does_not_know() {
    for path in [
        "/nothing",
        "/predictions",
        "/predictions/",
        "/explanations",
        "/models",
        "/models/x",
        "/models/x/y",
        "/models/m/predict",
        "/v1/models/m",
        "/v1/models/predict",
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
    ] {
        check(I, &[("GET", path, "404")]);
    }
}

#[test]
fn models_answer_under_their_own_names_where_that_is_on() {
    let apis = Apis { natural: true, oip: true, ..ALL };
    check(
        apis,
        &[
            ("GET", "/adder", "Runs /{model} adder"),
            ("GET", "/iris/classify/", "Runs /{model}/{endpoint} iris classify"),
            ("GET", "/docs", "Any /docs"),
            ("GET", "/openapi.json", "Any /openapi.json"),
            ("GET", "/ping", "Any /ping"),
            ("GET", "/metrics", "Any /metrics/**"),
            ("GET", "/models", "Get /models"),
            ("GET", "/predictions", "404"),
            ("GET", "/a/b/c", "404"),
        ],
    );
    let home = |apis| find(apis, &Method::GET, "/").endpoint.api;
    assert_eq!([home(apis), home(Apis { home: true, ..M })], [Alive, Home]);
    check(ALL, &[("GET", "/adder", "404")]);
    let route = |path| {
        let Predict(form) = &find(apis, &Method::GET, path).endpoint.handler else {
            panic!("no prediction")
        };
        form.route(&PathNames { model: Some("m"), ..PathNames::default() })
    };
    let named = route("/adder");
    assert_eq!((named.explain, named.url_path, named.query_counts), (None, Some(""), true));
    let plain = route("/predictions/m");
    assert_eq!((plain.explain, plain.url_path, plain.query_counts), (Some(false), Some(""), false));
}

#[test]
fn what_the_server_needs_stays_its_own() {
    let apis = Apis { natural: true, ..OIP };
    for path in [
        "/ping",
        "/ping/x",
        "/predictions",
        "/predictions/m",
        "/v1/models/m:predict",
        "/v1/embeddings",
        "/v2",
        "/v2/x",
        "/WFpredict/w",
        "/models/m/invoke",
        "/.jitney/handle",
        "//predictions/m",
    ] {
        assert!(is_fixed(apis, path), "{path}");
    }
    for path in ["/", "/docs", "/openapi.json", "/m", "/m/predict", "/v1/chat", "/models/x", "/pi"]
    {
        assert!(!is_fixed(apis, path), "{path}");
    }
    assert!(!is_fixed(apis, "/metrics") && !is_fixed(apis, "/token"));
    let all = Apis { management: true, metrics: true, ..apis };
    assert!(is_fixed(all, "/metrics") && is_fixed(all, "/token") && is_fixed(all, "/models"));
}

#[test]
fn paths_of_the_servers_own_are_known_whatever_the_method() {
    for (path, ours) in [
        ("/ping", true),
        ("/models", true),
        ("/predictions/m", true),
        ("/predictions/m/1.0/deeper/still", true),
        ("/metrics", true),
        ("/v2/health/live", true),
        ("/anything/predict", true),
        ("/docs", true),
        ("/greeting", false),
        ("/ping/deep", false),
        ("/v9/models", false),
    ] {
        assert_eq!(is_taken(&[Method::GET], path), ours, "{path}");
    }
}

#[test]
fn a_path_says_which_methods_it_takes() {
    let serve = Apis { natural: true, ..OIP };
    let methods = |apis, path, python| allowed(apis, path, |_| python);
    assert_eq!(methods(serve, "/predictions/m", true), "GET, POST, PUT, OPTIONS");
    assert_eq!(methods(serve, "/predictions/m", false), "POST, PUT, OPTIONS");
    assert_eq!(methods(serve, "/v1/embeddings", true), "POST");
    assert_eq!(methods(M, "/models/m", true), "GET, PUT, DELETE, OPTIONS");
    assert_eq!(methods(M, "/", true), "OPTIONS");
}

#[test]
fn every_row_can_be_found_and_says_what_it_is() {
    let mut ids = BTreeSet::new();
    for row in ENDPOINTS.iter().filter(|row| !matches!(row.handler, Nothing)) {
        assert!(row.about.ends_with('.'), "{}", row.path);
        let id = row.document.map(|document| document.id);
        assert!(id.is_none_or(|id| ids.insert(id)), "{id:?} is there twice");
    }
}

fn key(key: Option<Gate>) -> &'static str {
    match key {
        Some(Gate::Open) => "none",
        Some(Gate::Inference) => "inference",
        Some(Gate::Management) => "management",
        Some(Gate::Either) => "either",
        Some(Gate::Renewal) => "API",
        Some(Gate::Metrics) => "none, or the scope `metrics`",
        None => "the listener's",
    }
}

/// The reference page.
fn page() -> String {
    let mut page = String::from(
        "# Endpoints\n\nEvery path of the REST API and every method of gRPC, made from the table in the server's source: the methods it \
         takes, the key that opens it where [tokens](errors/invalid-key.md) are on, what a plugin that authorizes \
         is told, and what it does. `any` is any method; predictions take `POST`, `PUT` and `GET` in `jitney \
         serve`, and any method in `jitney torchserve`. Where a path is in two parts of this page, the first \
         has it.\n",
    );
    let parts = [
        ("On every listener", &[Every, Home, Alive][..]),
        ("SageMaker's, where they are on", &[Sagemaker]),
        ("Inference", &[Inference]),
        ("Open Inference Protocol", &[OpenInference, OlderOpenInference]),
        ("Model repository, on the inference and the management listener", &[Repository]),
        ("Management", &[Management]),
        ("Metrics", &[Metrics]),
        ("Only in `jitney serve`", &[OpenAi, Natural]),
    ];
    for (title, apis) in parts {
        page.push_str(&format!(
            "\n## {title}\n\n| path | methods | key | operation | what |\n|---|---|---|---|---|\n"
        ));
        let rows = ENDPOINTS.iter().filter(|row| apis.contains(&row.api));
        let mut seen = BTreeSet::new();
        for row in rows.filter(|row| !matches!(row.handler, Nothing)) {
            let listed = row.methods.listed().join(", ").to_uppercase();
            let others = [(Any, "any"), (Reads, "GET, HEAD")];
            let methods = others.iter().find(|(methods, _)| *methods == row.methods);
            let methods = methods.map_or(listed, |(_, text)| (*text).to_owned());
            let operation = serde_json::to_value(row.operation).unwrap();
            let (path, key, about) = (row.shown(), key(row.key), row.about);
            let operation = operation.as_str().unwrap_or_default();
            if seen.insert((path.clone(), methods.clone(), about)) {
                page.push_str(&format!(
                    "| `{path}` | {methods} | {key} | {operation} | {about} |\n"
                ));
            }
        }
    }
    page.push_str("\n## gRPC\n\n| method | key | operation |\n|---|---|---|\n");
    for GrpcMethod { path, key: gate, operation } in METHODS {
        let operation = serde_json::to_value(operation).unwrap();
        let (key, operation) = (key(*gate), operation.as_str().unwrap_or_default());
        page.push_str(&format!("| `{path}` | {key} | {operation} |\n"));
    }
    page
}

/// Writes the page anew with `UPDATE_GOLDEN=1`.
#[test]
fn the_reference_page_is_made_from_the_rows() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/endpoints.md");
    if option_env!("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, page()).unwrap();
    }
    assert!(
        std::fs::read_to_string(path).unwrap_or_default() == page(),
        "docs/reference/endpoints.md is not up to date: run UPDATE_GOLDEN=1 cargo test -p jitney-server"
    );
}
