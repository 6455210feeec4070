//! What TorchServe's configuration comes out as, from the text of the file to the plan.

use super::*;

/// A directory with a store and a configuration, and the plan made of them.
fn plan_with(text: &str, flags: TorchserveFlags, env: &[(&str, &str)]) -> Result<Plan, Failure> {
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("config.properties");
    let store = format!("model_store={}\n", dir.path().display());
    std::fs::write(&file, format!("{store}{text}")).expect("file");
    let flags = TorchserveFlags { ts_config: Some(file), ..flags };
    plan(&flags, &env_of(env))
}

fn env_of(pairs: &[(&str, &str)]) -> Env {
    pairs.iter().fold(Env::default(), |env, (name, value)| env.with(name, value))
}

fn plan_of(text: &str) -> Plan {
    plan_with(text, TorchserveFlags::default(), &[]).expect("plans")
}

fn message(text: &str) -> String {
    plan_with(text, TorchserveFlags::default(), &[]).err().expect(text).message
}

#[test]
fn without_a_word_the_defaults_are_torchserves() {
    let plan = plan_of("");
    assert_eq!(plan.server.inference.to_string(), "http://127.0.0.1:8080");
    assert_eq!(plan.server.management.to_string(), "http://127.0.0.1:8081");
    assert_eq!(plan.server.max_request_bytes, 6_553_500);
    assert!(!plan.server.model_api && plan.models.is_empty());
    assert_eq!((plan.engine.defaults.workers, plan.engine.defaults.queue_max), (0, 100));
    assert!(plan.engine.defaults.startup_workers >= 1);
}

#[test]
fn addresses_without_a_port_get_their_own_default() {
    let plan = plan_of("inference_address=http://127.0.0.1\nmanagement_address=http://127.0.0.1\n");
    assert_eq!(plan.server.inference.to_string(), "http://127.0.0.1:80");
    assert_eq!(plan.server.management.to_string(), "http://127.0.0.1:8081");
}

#[test]
fn grpc_has_hosts_ports_and_ages_of_its_own() {
    let plan = plan_of(
        "grpc_inference_port=17070\ngrpc_management_address=localhost\ngrpc_management_port=0\n\
         grpc_inference_max_connection_age_ms=5000\n",
    );
    let inference = plan.server.grpc_inference.expect("listens");
    assert_eq!(inference.bind.to_string(), "http://127.0.0.1:17070");
    assert_eq!(inference.age.max, Some(Duration::from_secs(5)));
    assert_eq!(inference.age.grace, None);
    assert!(plan.server.grpc_management.is_some());
    let usual = plan_of("").server.grpc_management.expect("listens");
    assert_eq!(usual.bind.to_string(), "http://127.0.0.1:7071");
    assert!(message("grpc_inference_port=x\n").contains("grpc_inference_port=x"));
    let open = message("grpc_inference_address=0.0.0.0\n");
    assert!(open.contains("token authorization is enabled"), "{open}");
}

#[test]
fn values_reach_the_places_that_act_on_them() {
    let plan = plan_of(
        "default_workers_per_model=3\njob_queue_size=7\ndefault_response_timeout=33\n\
         models={\"one\": {\"1.0\": {\"batchSize\": 6}}}\nbatching_policy=adaptive\n\
         load_models=one=one.mar,two.mar\ncors_allowed_origin=*\nenable_metrics_api=false\n",
    );
    let defaults = &plan.engine.defaults;
    assert_eq!((defaults.workers, defaults.startup_workers, defaults.queue_max), (3, 3, 7));
    assert_eq!(defaults.response_timeout_s, 33);
    assert_eq!(defaults.models["one"]["1.0"]["batchSize"], 6);
    assert_eq!(defaults.policy, Some(PolicyName::Adaptive));
    assert_eq!(plan.models.len(), 2);
    assert_eq!(plan.server.cors.origin.as_deref(), Some("*"));
    assert!(plan.server.metrics.is_none());
}

#[test]
fn wrong_values_stop_the_start_and_are_named() {
    for (text, expected) in [
        ("job_queue_size=many\n", "job_queue_size=many"),
        ("models=[1]\n", "models: not a JSON object"),
        ("batching_policy=never\n", "batching_policy: unknown batching policy"),
        ("inference_address=here\n", "Invalid binding address here"),
        ("inference_address=https://127.0.0.1:8443\n", "inference_address=https"),
        ("blacklist_env_vars=(\n", "blacklist_env_vars"),
    ] {
        assert!(message(text).contains(expected), "{text}: {}", message(text));
    }
}

#[test]
fn an_open_address_needs_tokens_off() {
    let text = "inference_address=http://0.0.0.0:8080\n";
    assert!(message(text).contains("token authorization is enabled"));
    let off = TorchserveFlags { disable_token_auth: true, ..Default::default() };
    assert!(plan_with(text, off, &[]).is_ok());
    assert!(plan_of("").remarks.iter().any(|remark| remark.contains("not enforced")));
}

#[test]
fn missing_paths_are_named_as_upstream_names_them() {
    let flags =
        |store: &str| TorchserveFlags { model_store: Some(store.into()), ..Default::default() };
    let message =
        |flags: TorchserveFlags| plan(&flags, &Env::default()).err().expect("refused").message;
    assert_eq!(message(TorchserveFlags::default()), "Missing mandatory parameter --model-store");
    assert_eq!(message(flags("no_such_dir")), "--model-store directory not found: no_such_dir");
    let workflow = TorchserveFlags { workflow_store: Some("no_wf".into()), ..flags(".") };
    assert_eq!(message(workflow), "--workflow-store directory not found: no_wf");
    let config = TorchserveFlags { ts_config: Some("no.properties".into()), ..flags(".") };
    assert_eq!(message(config), "--ts-config file not found: no.properties");
}

#[test]
fn the_variable_names_the_file_before_the_flag_does() {
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("other.properties");
    let text = format!("model_store={}\njob_queue_size=9\n", dir.path().display());
    std::fs::write(&file, text).expect("file");
    let named = [("TS_CONFIG_FILE", file.to_str().expect("text"))];
    let plan = plan_with("job_queue_size=5\n", TorchserveFlags::default(), &named).expect("plans");
    assert_eq!(plan.engine.defaults.queue_max, 9);
}
