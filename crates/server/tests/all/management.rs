//! Models come, are looked at, changed, and go.

use jitney_server::ServerConfig;
use serde_json::json;

use crate::fixture::{Server, ask, config, send};

#[tokio::test]
async fn a_model_comes_is_described_and_goes() {
    let server = Server::start().await;
    let (m, dir) = (server.management(), server.model_dir("noop", "2.5"));
    let reply =
        ask(m, "POST", &format!("/models?url={dir}&batch_size=3&max_batch_delay=250")).await;
    let status = "Model \"noop\" Version: 2.5 registered with 0 initial workers. \
        Use scale workers API to add workers for the model.";
    assert_eq!((reply.status, reply.json()), (200, json!({ "status": status })));
    let again = ask(m, "POST", &format!("/models?url={dir}")).await.error();
    assert_eq!((again.0, again.1.as_str()), (409, "ConflictStatusException"));

    let description = ask(m, "GET", "/models/noop").await.json();
    assert_eq!(description[0]["modelVersion"], "2.5");
    assert_eq!(
        (&description[0]["batchSize"], &description[0]["maxBatchDelay"]),
        (&json!(3), &json!(250))
    );
    let queue = json!({ "remainingCapacity": 100, "pendingRequests": 0 });
    assert_eq!(description[0]["jobQueueStatus"], queue);
    let list = ask(m, "GET", "/models").await.json();
    assert_eq!(list["models"], json!([{ "modelName": "noop", "modelUrl": dir }]));
    assert_eq!(
        ask(m, "GET", "/v1/models/noop").await.json(),
        json!({ "name": "noop", "ready": false })
    );

    let gone = ask(m, "DELETE", "/models/noop").await;
    assert_eq!(
        (gone.status, gone.json()),
        (200, json!({ "status": "Model \"noop\" unregistered" }))
    );
    assert_eq!(ask(m, "GET", "/models/noop").await.error().2, "Model not found: noop");
}

#[tokio::test]
async fn versions_have_a_default() {
    let server = Server::start().await;
    let m = server.management();
    for version in ["1.0", "2.0"] {
        let dir = server.model_dir("two", version);
        assert_eq!(ask(m, "POST", &format!("/models?url={dir}")).await.status, 200);
    }
    assert_eq!(ask(m, "GET", "/models/two/all").await.json().as_array().unwrap().len(), 2);
    let reply = ask(m, "PUT", "/models/two/2.0/set-default").await;
    let status = "Default version successfully updated for model \"two\" to \"2.0\"";
    assert_eq!(reply.json(), json!({ "status": status }));
    assert_eq!(ask(m, "GET", "/models/two").await.json()[0]["modelVersion"], "2.0");
    let unknown = ask(m, "PUT", "/models/two/5/set-default").await.error();
    assert_eq!(unknown.2, "Model version 5 does not exist for model two");
    let kept = ask(m, "DELETE", "/models/two").await.error();
    assert_eq!((kept.0, kept.1.as_str()), (403, "InvalidModelVersionException"));
    assert_eq!(ask(m, "DELETE", "/models/two/1.0").await.status, 200);
}

#[tokio::test]
async fn a_json_body_replaces_the_query() {
    let server = Server::start().await;
    let (m, dir) = (server.management(), server.model_dir("json", "1.0"));
    let json_body = [("Content-Type", "application/json; charset=utf-8")];
    let body = json!({ "url": dir, "model_name": "renamed", "response_timeout": 17 }).to_string();
    let reply = send(m, "POST", "/models?url=ignored", &json_body, body.as_bytes()).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(ask(m, "GET", "/models/renamed").await.json()[0]["responseTimeout"], 17);
    let no_url = send(m, "POST", "/models?url=x", &json_body, b"{}").await.error();
    assert_eq!(no_url, (400, "BadRequestException".into(), "Parameter url is required.".into()));
    assert_eq!(send(m, "POST", "/models", &json_body, b"{").await.status, 400);
}

#[tokio::test]
async fn bad_registrations_say_why() {
    let server = Server::start().await;
    for (query, status, kind, message) in [
        ("", 400, "BadRequestException", "Parameter url is required."),
        ("?url=", 404, "ModelNotFoundException", "empty url"),
        (
            "?url=../a.mar",
            404,
            "ModelNotFoundException",
            "Relative path is not allowed in url: ../a.mar",
        ),
    ] {
        let reply = ask(server.management(), "POST", &format!("/models{query}")).await;
        assert_eq!(reply.error(), (status, kind.to_owned(), message.to_owned()));
    }
}

#[tokio::test]
async fn workers_and_batching_change_on_the_live_model() {
    let server = Server::start().await.with_magika().await;
    let m = server.management();
    let scaled = ask(m, "PUT", "/models/magika?min_worker=2&max_worker=2&synchronous=true").await;
    assert_eq!(scaled.json(), json!({ "status": "Workers scaled to 2 for model: magika" }));
    let changed =
        ask(m, "PUT", "/models/magika?batch_size=8&policy=window&max_batch_delay=7").await;
    assert_eq!(changed.json(), json!({ "status": "Model \"magika\" updated" }));
    let description = &ask(m, "GET", "/models/magika").await.json()[0];
    assert_eq!(description["workers"].as_array().unwrap().len(), 2);
    assert_eq!((&description["batchSize"], &description["maxBatchDelay"]), (&json!(8), &json!(7)));
    assert_eq!(description["loadedAtStartup"], true);
    let later = ask(m, "PUT", "/models/magika?min_worker=1&max_worker=1").await;
    assert_eq!(
        (later.status, later.json()),
        (202, json!({ "status": "Processing worker updates..." }))
    );
    for (query, message) in [
        ("min_worker=2&max_worker=1", "max_worker cannot be less than min_worker."),
        ("min_worker=-1", "min_worker must not be negative."),
    ] {
        let reply = ask(m, "PUT", &format!("/models/magika?{query}")).await;
        assert_eq!(reply.error(), (400, "BadRequestException".into(), message.into()));
    }
}

#[tokio::test]
async fn a_model_describes_its_own_api() {
    let server = Server::start().await.with_magika().await;
    let predict = ask(server.inference(), "OPTIONS", "/predictions/magika").await.json();
    assert_eq!(predict["info"]["title"], "RESTful API for: magika");
    let manage = ask(server.management(), "OPTIONS", "/models/magika").await.json();
    assert_eq!(manage["info"]["title"], "RESTful Management API for: magika");
    assert_eq!(ask(server.management(), "OPTIONS", "/models/ghost").await.status, 404);
}

#[tokio::test]
async fn a_model_that_nobody_runs_cannot_speak_for_itself() {
    let server = Server::start().await;
    let (m, dir) = (server.management(), server.model_dir("mute", "1.0"));
    ask(m, "POST", &format!("/models?url={dir}")).await;
    let (status, _, message) = ask(m, "GET", "/models/mute?customized=true").await.error();
    assert_eq!(status, 503);
    assert_eq!(
        message,
        "Model \"mute\" has no worker to serve describe request. Please use scale workers API to add workers."
    );
}

#[tokio::test]
async fn the_model_api_is_a_switch() {
    let server = Server::with(ServerConfig { model_api: false, oip: true, ..config() })
        .await
        .with_magika()
        .await;
    let m = server.management();
    for (method, path) in [
        ("POST", "/models?url=a.mar"),
        ("DELETE", "/models/magika"),
        ("POST", "/v2/repository/models/magika/load"),
        ("POST", "/v2/repository/models/magika/unload"),
    ] {
        let (status, kind, _) = ask(m, method, path).await.error();
        assert_eq!((status, kind.as_str()), (405, "MethodNotAllowedException"));
    }
    assert_eq!(ask(m, "PUT", "/models/magika?min_worker=1").await.status, 202);
    assert_eq!(ask(m, "GET", "/models").await.status, 200);
}

#[tokio::test]
async fn the_metrics_page_counts_requests_by_how_they_ended() {
    let server = Server::start().await.with_magika().await;
    send(server.inference(), "POST", "/predictions/magika", &[], b"print('hi')").await;
    let page = ask(server.metrics(), "GET", "/metrics").await.body;
    let labels = |version: &str| {
        format!("{{model_name=\"magika\",model_version=\"{version}\",hostname=\"localhost\",}}")
    };
    let own = labels(server.engine.models()[0].version());
    for line in [
        format!("ts_inference_requests_total{} 1.0", labels("default")),
        format!("jitney_requests_answered_total{own} 1.0"),
        format!("jitney_requests_rejected_total{own} 0.0"),
        format!("jitney_workers_ready{own} 1.0"),
        "# TYPE jitney_dispatches_total counter".to_owned(),
    ] {
        assert!(page.lines().any(|known| known == line), "{line} is not in\n{page}");
    }
}

#[tokio::test]
async fn without_the_model_api_workflows_come_and_go_no_more_than_models() {
    let server = Server::with(ServerConfig { model_api: false, ..config() }).await;
    let management = server.management();
    for (method, path) in [
        ("POST", "/models?url=a.mar"),
        ("DELETE", "/models/a"),
        ("POST", "/workflows?url=a.war"),
        ("DELETE", "/workflows/a"),
    ] {
        let (status, kind, _) = ask(management, method, path).await.error();
        assert_eq!((status, kind.as_str()), (405, "MethodNotAllowedException"), "{method} {path}");
    }
    assert_eq!(ask(management, "GET", "/workflows").await.status, 200);
}
