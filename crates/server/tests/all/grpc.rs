//! The gRPC server over real connections: predictions, deadlines, cancellation, both faces of the Open
//! Inference Protocol, health, reflection, management, the end.

use std::time::Duration;

use bytes::Bytes;
use jitney_net::ConnectionAge;
use jitney_proto::inference::PredictionsRequest;
use jitney_proto::inference::inference_ap_is_service_client::InferenceApIsServiceClient;
use jitney_proto::kserve as pb;
use jitney_proto::kserve::grpc_inference_service_client as kserve;
use jitney_proto::management as manage;
use jitney_proto::management::management_ap_is_service_client::ManagementApIsServiceClient;
use jitney_proto::openinference::grpc_inference_service_client as openinference;
use jitney_server::{GrpcBind, ServerConfig};
use tokio_stream::StreamExt;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::fixture::{Server, any_port, ask, config};
use crate::grpc_client::{Channel, channel, connect};

const TEXT: &[u8] = b"import os\n\ndef main():\n    print(os.getcwd())\n";

async fn inference(server: &Server) -> InferenceApIsServiceClient<Channel> {
    InferenceApIsServiceClient::new(channel(server.grpc_inference()).await)
}

async fn management(server: &Server) -> ManagementApIsServiceClient<Channel> {
    ManagementApIsServiceClient::new(channel(server.grpc_management()).await)
}

fn prediction(model: &str, body: &'static [u8]) -> PredictionsRequest {
    let input = [("data".to_owned(), Bytes::from_static(body))].into();
    PredictionsRequest { model_name: model.to_owned(), input, ..Default::default() }
}

fn parts(status: &Status) -> (Code, &str) {
    (status.code(), status.message())
}

/// A model whose batches wait a minute for company.
async fn patient() -> Server {
    let server = Server::start().await.with_magika().await;
    let change = "/models/magika?policy=window&batch_size=8&max_batch_delay=60000";
    assert_eq!(ask(server.management(), "PUT", change).await.status, 200);
    server
}

#[tokio::test]
async fn a_prediction_is_answered_with_its_timing_in_the_trailers() {
    let server = Server::start().await.with_magika().await;
    let mut client = inference(&server).await;
    assert_eq!(
        client.ping(()).await.unwrap().into_inner().health,
        "{\n  \"status\": \"Healthy\"\n}"
    );
    let answer = client.predictions(prediction("magika", TEXT)).await.unwrap();
    assert!(answer.metadata().get("x-request-id").is_some());
    let timing = answer.metadata().get("server-timing").unwrap().to_str().unwrap();
    assert!(timing.starts_with("queue;dur="), "{timing}");
    let json: serde_json::Value = serde_json::from_slice(&answer.get_ref().prediction).unwrap();
    assert!(json["python"].as_f64().is_some_and(|score| score > 0.5), "{json}");
}

#[tokio::test]
async fn a_stream_of_a_model_that_does_not_stream_has_one_message() {
    let server = Server::start().await.with_magika().await;
    let mut client = inference(&server).await;
    let answer = client.stream_predictions(prediction("magika", TEXT)).await.unwrap();
    let mut messages = answer.into_inner();
    assert!(messages.message().await.unwrap().is_some());
    assert!(messages.message().await.unwrap().is_none());
    let timing = messages.trailers().await.unwrap().unwrap();
    assert!(timing.get("server-timing").is_some());
}

#[tokio::test]
async fn failures_have_the_tables_code_and_torchserves_words() {
    let server = Server::start().await.with_magika().await;
    let mut client = inference(&server).await;
    for (model, version, code, message) in [
        (
            "",
            "",
            Code::InvalidArgument,
            "Parameter model_name is required.\norg.pytorch.serve.http.BadRequestException",
        ),
        (
            "ghost",
            "",
            Code::NotFound,
            "Model not found: ghost\norg.pytorch.serve.archive.model.ModelNotFoundException",
        ),
        (
            "magika",
            "9",
            Code::NotFound,
            "Model version: 9 does not exist for model: magika\norg.pytorch.serve.archive.model.ModelVersionNotFoundException",
        ),
    ] {
        let request =
            PredictionsRequest { model_version: version.to_owned(), ..prediction(model, b"x") };
        let status = client.predictions(request.clone()).await.unwrap_err();
        assert_eq!(parts(&status), (code, message));
        let status = client.stream_predictions(request).await.unwrap_err();
        assert_eq!(parts(&status), (code, message));
    }
    let dir = server.model_dir("idle", "1.0");
    ask(server.management(), "POST", &format!("/models?url={dir}")).await;
    let status = client.predictions(prediction("idle", b"x")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(
        status.message().starts_with("Model \"idle\" has no worker to serve inference request.")
    );
    assert_eq!(status.metadata().get("retry-after").unwrap(), "1");
}

#[tokio::test]
async fn a_message_beyond_the_limit_is_rejected_and_one_of_five_megabytes_is_not() {
    let config = ServerConfig { max_request_bytes: 6 << 20, ..config() };
    let server = Server::with(config).await.with_magika().await;
    let mut client = inference(&server).await;
    let of = |bytes: usize| {
        let input = [("data".to_owned(), Bytes::from(vec![b'a'; bytes]))].into();
        PredictionsRequest { model_name: "magika".to_owned(), input, ..Default::default() }
    };
    assert!(client.predictions(of(5 << 20)).await.is_ok());
    let status = client.predictions(of(7 << 20)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn a_deadline_that_passes_in_the_queue_is_told() {
    let server = patient().await;
    let mut client = inference(&server).await;
    let mut request = Request::new(prediction("magika", TEXT));
    request.metadata_mut().insert("grpc-timeout", "20m".parse().unwrap());
    let status = client.predictions(request).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(status.message().contains("[reason: expired]"), "{status}");
    let mut request = Request::new(prediction("magika", TEXT));
    request.metadata_mut().insert("grpc-timeout", "soon".parse().unwrap());
    assert_eq!(client.predictions(request).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_cancelled_call_takes_its_request_along() {
    let server = patient().await;
    let model = server.engine.model("magika", None).unwrap();
    let mut client = inference(&server).await;
    let call = tokio::spawn(async move { client.predictions(prediction("magika", TEXT)).await });
    while model.status().waiting == 0 {
        tokio::task::yield_now().await;
    }
    call.abort();
    while model.status().counters.abandoned == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(model.status().waiting, 0);
}

fn zeros(raw: bool) -> pb::ModelInferRequest {
    let contents = pb::InferTensorContents { int_contents: vec![0; 2048], ..Default::default() };
    let input = pb::model_infer_request::InferInputTensor {
        name: "bytes".to_owned(),
        datatype: "INT32".to_owned(),
        shape: vec![1, 2048],
        contents: (!raw).then_some(contents),
        ..Default::default()
    };
    pb::ModelInferRequest {
        model_name: "magika".to_owned(),
        id: "q7".to_owned(),
        inputs: vec![input],
        raw_input_contents: if raw { vec![Bytes::from(vec![0; 8192])] } else { Vec::new() },
        ..Default::default()
    }
}

async fn speaking_the_protocol() -> Server {
    Server::with(ServerConfig { oip: true, ..config() }).await.with_magika().await
}

#[tokio::test]
async fn tensors_are_answered_in_the_form_in_which_they_came() {
    let server = speaking_the_protocol().await;
    let channel = channel(server.grpc_inference()).await;
    let mut client = openinference::GrpcInferenceServiceClient::new(channel.clone());
    let asked = pb::ModelMetadataRequest { name: "magika".to_owned(), ..Default::default() };
    let known = client.model_metadata(asked).await.unwrap().into_inner();
    assert_eq!((known.platform.as_str(), known.versions.len()), ("onnx", 1));
    assert_eq!(known.inputs[0].name, "bytes");
    let typed = client.model_infer(zeros(false)).await.unwrap();
    assert!(typed.metadata().get("server-timing").is_some());
    let typed = typed.into_inner();
    assert_eq!((typed.model_name.as_str(), typed.id.as_str()), ("magika", "q7"));
    assert_eq!(typed.outputs[0].name, known.outputs[0].name);
    let scores = &typed.outputs[0].contents.as_ref().unwrap().fp32_contents;
    assert_eq!(scores.len() as i64, typed.outputs[0].shape.iter().product::<i64>());
    let mut original = kserve::GrpcInferenceServiceClient::new(channel);
    let raw = original.model_infer(zeros(true)).await.unwrap().into_inner();
    let bytes: Vec<u8> = scores.iter().flat_map(|score| score.to_le_bytes()).collect();
    assert_eq!(raw.raw_output_contents, [bytes]);
}

#[tokio::test]
async fn tensors_that_do_not_fit_are_rejected() {
    let server = speaking_the_protocol().await;
    let channel = channel(server.grpc_inference()).await;
    let mut client = openinference::GrpcInferenceServiceClient::new(channel);
    let mut short = zeros(true);
    short.raw_input_contents = vec![Bytes::from_static(b"\0\0\0\0")];
    let status = client.model_infer(short).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("has 8192 bytes, not 4"), "{status}");
    let mut strange = zeros(false);
    strange.inputs[0].name = "ghost".to_owned();
    let status = client.model_infer(strange).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "no such input: {status}");
}

#[tokio::test]
async fn the_protocol_tells_who_is_ready_under_both_names() {
    let server = speaking_the_protocol().await;
    let channel = channel(server.grpc_inference()).await;
    let mut one = openinference::GrpcInferenceServiceClient::new(channel.clone());
    let mut other = kserve::GrpcInferenceServiceClient::new(channel);
    assert!(one.server_live(pb::ServerLiveRequest {}).await.unwrap().into_inner().live);
    assert!(other.server_ready(pb::ServerReadyRequest {}).await.unwrap().into_inner().ready);
    let version = one.server_metadata(pb::ServerMetadataRequest {}).await.unwrap().into_inner();
    assert_eq!(version.version, "0.12.0");
    let ready = |name: &str| pb::ModelReadyRequest { name: name.to_owned(), ..Default::default() };
    assert!(other.model_ready(ready("magika")).await.unwrap().into_inner().ready);
    assert_eq!(one.model_ready(ready("ghost")).await.unwrap_err().code(), Code::NotFound);
    let dir = server.model_dir("idle", "1.0");
    ask(server.management(), "POST", &format!("/models?url={dir}")).await;
    assert!(!one.model_ready(ready("idle")).await.unwrap().into_inner().ready);
}

#[tokio::test]
async fn without_the_switch_the_protocol_is_not_there() {
    let server = Server::start().await;
    let channel = channel(server.grpc_inference()).await;
    let mut client = openinference::GrpcInferenceServiceClient::new(channel.clone());
    let status = client.server_live(pb::ServerLiveRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let mut stranger = ManagementApIsServiceClient::new(channel);
    let status = stranger.list_models(manage::ListModelsRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "management has a port of its own");
}

#[tokio::test]
async fn a_model_lives_its_whole_life_over_grpc() {
    let server = Server::start().await;
    let mut client = management(&server).await;
    let register = manage::RegisterModelRequest {
        url: server.model_dir("noop", "2.5"),
        batch_size: 3,
        max_batch_delay: 250,
        ..Default::default()
    };
    let msg = client.register_model(register.clone()).await.unwrap().into_inner().msg;
    assert!(msg.starts_with("Model \"noop\" Version: 2.5 registered with 0 initial workers."));
    let again = client.register_model(register).await.unwrap_err();
    assert_eq!(again.code(), Code::AlreadyExists);
    let name = || "noop".to_owned();
    let describe = manage::DescribeModelRequest { model_name: name(), ..Default::default() };
    let over_grpc = client.describe_model(describe.clone()).await.unwrap().into_inner().msg;
    let over_http = ask(server.management(), "GET", "/models/noop").await.body;
    assert_eq!(over_grpc + "\n", over_http);
    let list = client.list_models(manage::ListModelsRequest::default()).await.unwrap();
    let over_http = ask(server.management(), "GET", "/models").await.body;
    assert_eq!(list.into_inner().msg + "\n", over_http);
    let default = manage::SetDefaultRequest { model_name: name(), model_version: "2.5".into() };
    let msg = client.set_default(default).await.unwrap().into_inner().msg;
    assert_eq!(msg, "Default version successfully updated for model \"noop\" to \"2.5\"");
    let unregister = manage::UnregisterModelRequest { model_name: name(), ..Default::default() };
    let msg = client.unregister_model(unregister).await.unwrap().into_inner().msg;
    assert_eq!(msg, "Model \"noop\" unregistered");
    let gone = client.describe_model(describe).await.unwrap_err();
    let message = "Model not found: noop\norg.pytorch.serve.archive.model.ModelNotFoundException";
    assert_eq!(parts(&gone), (Code::NotFound, message));
}

#[tokio::test]
async fn workers_are_scaled_over_grpc() {
    let server = Server::start().await.with_magika().await;
    let mut client = management(&server).await;
    let scale = |min_worker, max_worker| manage::ScaleWorkerRequest {
        model_name: "magika".to_owned(),
        min_worker,
        max_worker,
        synchronous: true,
        ..Default::default()
    };
    let msg = client.scale_worker(scale(2, 2)).await.unwrap().into_inner().msg;
    assert_eq!(msg, "Workers scaled to 2 for model: magika");
    let status = client.scale_worker(scale(3, 1)).await.unwrap_err();
    let message =
        "max_worker cannot be less than min_worker.\norg.pytorch.serve.http.BadRequestException";
    assert_eq!(parts(&status), (Code::InvalidArgument, message));
}

#[tokio::test]
async fn without_the_model_api_models_stay() {
    let server = Server::with(ServerConfig { model_api: false, ..config() }).await;
    let mut client = management(&server).await;
    let status = client.register_model(manage::RegisterModelRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.message().starts_with("Model API disabled\n"), "{status}");
    let status =
        client.unregister_model(manage::UnregisterModelRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn health_is_told_and_watched_until_the_server_drains() {
    let server = Server::start().await;
    let mut client = HealthClient::new(channel(server.grpc_inference()).await);
    let about = |service: &str| HealthCheckRequest { service: service.to_owned() };
    let service = "org.pytorch.serve.grpc.inference.InferenceAPIsService";
    for service in ["", service] {
        let answer = client.check(about(service)).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving);
    }
    assert_eq!(client.check(about("ghost")).await.unwrap_err().code(), Code::NotFound);
    let mut states = client.watch(about("")).await.unwrap().into_inner();
    let first = states.message().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);
    server.engine.begin_drain();
    let second = states.message().await.unwrap().unwrap();
    assert_eq!(second.status(), ServingStatus::NotServing);
    assert!(states.message().await.unwrap().is_none());
}

#[tokio::test]
async fn reflection_lists_the_services_of_its_port() {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    let server = Server::start().await;
    let mut client = ServerReflectionClient::new(channel(server.grpc_management()).await);
    let list = Some(MessageRequest::ListServices(String::new()));
    let questions =
        tokio_stream::once(ServerReflectionRequest { message_request: list, ..Default::default() });
    let mut answers = client.server_reflection_info(questions).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response;
    let Some(MessageResponse::ListServicesResponse(list)) = answer else { panic!("{answer:?}") };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    assert!(
        names.contains(&"org.pytorch.serve.grpc.management.ManagementAPIsService"),
        "{names:?}"
    );
    assert!(!names.iter().any(|name| name.contains("InferenceAPIsService")), "{names:?}");
}

#[tokio::test]
async fn calls_are_logged_as_torchserve_logs_them() {
    let server = Server::start().await;
    let mut client = inference(&server).await;
    client.ping(()).await.unwrap();
    client.predictions(prediction("ghost", b"x")).await.unwrap_err();
    let service = "\"gRPC org.pytorch.serve.grpc.inference.InferenceAPIsService";
    for line in
        [format!("{service}/Ping HTTP/2.0\" 0 "), format!("{service}/Predictions HTTP/2.0\" 5 ")]
    {
        while !server.log.text().contains(&line) {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_call_under_way_is_answered_when_the_listener_ends() {
    let server = patient().await;
    let model = server.engine.model("magika", None).unwrap();
    let (channel, connection) = connect(server.grpc_inference()).await;
    let mut client = InferenceApIsServiceClient::new(channel);
    let call = tokio::spawn(async move { client.predictions(prediction("magika", TEXT)).await });
    while model.status().waiting == 0 {
        tokio::task::yield_now().await;
    }
    server.begin_end();
    let change = jitney_engine::Reconfigure::of(&jitney_settings::model::MAX_BATCH_SIZE, 1_u32);
    model.reconfigure(change).await.unwrap();
    call.await.unwrap().unwrap();
    server.ended().await;
    connection.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_old_connection_is_asked_to_come_anew() {
    let age = ConnectionAge { max: Some(Duration::from_secs(2)), grace: None };
    let grpc_inference = Some(GrpcBind { bind: any_port(), age });
    let server = Server::with(ServerConfig { grpc_inference, ..config() }).await;
    let (channel, connection) = connect(server.grpc_inference()).await;
    let mut client = InferenceApIsServiceClient::new(channel);
    client.ping(()).await.unwrap();
    connection.await.unwrap().unwrap();
    assert!(client.ping(()).await.is_err(), "this connection takes no calls any more");
    inference(&server).await.ping(()).await.unwrap();
}

#[tokio::test]
async fn one_connection_carries_many_calls_at_once() {
    let server = Server::start().await.with_magika().await;
    let client = inference(&server).await;
    let calls = (0..24).map(|_| {
        let mut client = client.clone();
        tokio::spawn(async move { client.predictions(prediction("magika", TEXT)).await })
    });
    let mut calls = tokio_stream::iter(calls.collect::<Vec<_>>());
    while let Some(call) = calls.next().await {
        call.await.unwrap().unwrap();
    }
}
