//! What TorchServe's configuration comes out as, from the text of the file to the plan.

use std::time::Duration;

use jitney_settings::model::{POLICY, QUEUE, RESPONSE_TIMEOUT, SETTINGS, WORKERS};

use super::*;

/// A directory with a store and a configuration, and the plan made of them.
fn plan_with(
    text: &str,
    flags: TorchserveFlags,
    env: &[(&str, &str)],
) -> Result<ServerPlan, Failure> {
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

fn plan_of(text: &str) -> ServerPlan {
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
    let defaults = &plan.engine.defaults.settings;
    assert!(SETTINGS.iter().all(|it| defaults.source(it) == SettingSource::Default));
    assert!(plan.engine.defaults.startup_workers >= 1);
}

#[test]
fn sequences_are_named_by_headers_of_the_operators_choice() {
    let plan = plan_of("ts_header_key_sequence_id=x-session\nts_header_key_sequence_end=x-over\n");
    let headers = &plan.engine.defaults.sequence_headers;
    assert_eq!((headers.id.as_str(), headers.end.as_str()), ("x-session", "x-over"));
    assert_eq!(headers.start, "ts_request_sequence_start");
    let told = [("TS_REQUEST_SEQUENCE_ID", "x-session"), ("TS_REQUEST_SEQUENCE_END", "x-over")];
    let told = told.map(|(name, value)| (name.into(), value.into()));
    assert_eq!(plan.engine.python.env, told);
    assert!(message("ts_header_key_sequence_id=a b\n").ends_with("not the name of a header"));
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
    assert!(message("grpc_inference_port=x\n").contains("grpc_inference_port must be"));
    let secure = plan_of("enable_grpc_ssl=true\n").server;
    assert_eq!(secure.grpc_inference.expect("listens").bind.to_string(), "https://127.0.0.1:7070");
    assert!(secure.tls.is_some() && secure.inference.to_string().starts_with("http://"));
}

#[test]
fn values_reach_the_places_that_act_on_them() {
    let plan = plan_of(
        "default_workers_per_model=3\njob_queue_size=7\ndefault_response_timeout=33\n\
         models={\"one\": {\"1.0\": {\"batchSize\": 6}}}\nbatching_policy=adaptive\n\
         load_models=one=one.mar,two.mar\ncors_allowed_origin=*\nenable_metrics_api=false\n",
    );
    let defaults = &plan.engine.defaults;
    let shown = |setting: &Setting| {
        let settings = &defaults.settings;
        (settings.show(setting).unwrap_or_default(), settings.source(setting).kind())
    };
    assert_eq!(shown(&WORKERS), ("3".to_owned(), "file"));
    assert_eq!(shown(&QUEUE), ("7".to_owned(), "file"));
    let zero = plan_of("default_workers_per_model=0\n").engine.defaults;
    assert!(!zero.settings.has(&WORKERS) && zero.startup_workers >= 1);
    assert_eq!(shown(&RESPONSE_TIMEOUT), ("33".to_owned(), "file"));
    assert_eq!(defaults.models["one"]["1.0"]["batchSize"], 6);
    assert_eq!(shown(&POLICY), ("adaptive".to_owned(), "file"));
    assert_eq!(plan.models.len(), 2);
    assert_eq!(plan.server.cors.origin.as_deref(), Some("*"));
    assert!(plan.server.metrics.is_none());
}

#[test]
fn wrong_values_stop_the_start_and_are_named() {
    for (text, expected) in [
        ("job_queue_size=many\n", "line 2: job_queue_size must be a whole number, not \"many\""),
        ("models=[1]\n", "models: not a JSON object"),
        ("batching_policy=never\n", "batching_policy must be one of adaptive"),
        ("inference_address=here\n", "Invalid binding address here"),
        ("token_expiration_min=0\n", "token_expiration_min=0"),
        ("token_expiration_min=soon\n", "token_expiration_min must be a time"),
        ("blacklist_env_vars=(\n", "blacklist_env_vars"),
    ] {
        assert!(message(text).contains(expected), "{text}: {}", message(text));
    }
}

#[test]
fn tokens_are_on_unless_switched_off_and_the_environment_has_the_last_word() {
    let text = "inference_address=http://0.0.0.0:8080\n";
    assert_eq!(plan_of(text).tokens, Some(Duration::from_secs(3600)));
    let quarter = plan_of("token_expiration_min=0.25\n");
    assert_eq!(quarter.tokens, Some(Duration::from_secs(15)));
    let off = || TorchserveFlags { disable_token_auth: true, ..Default::default() };
    assert_eq!(plan_with(text, off(), &[]).expect("plans").tokens, None);
    assert_eq!(plan_of("disable_token_authorization=true\n").tokens, None);
    let variable = [("TS_DISABLE_TOKEN_AUTHORIZATION", "false")];
    let plan = plan_with("enable_envvars_config=true\n", off(), &variable).expect("plans");
    assert!(plan.tokens.is_some(), "env false beats the flag");
}

#[test]
fn the_open_inference_protocol_is_switched_on_as_kserve_does_it() {
    let on = |text: &str, variable: &str| {
        let variables = [("TS_OPEN_INFERENCE_PROTOCOL", variable)];
        plan_with(text, TorchserveFlags::default(), &variables).expect("plans").server.oip
    };
    assert!(on("", "oip") && on("enable_envvars_config=true\n", "oip"));
    assert!(on("ts_open_inference_protocol=true\n", ""));
    assert!(!on("", "") && !on("ts_open_inference_protocol=true\n", "v1"));
}

#[test]
fn kserves_grpc_port_is_answered_unless_the_file_has_another_use_for_it() {
    let plan = |text: &str| {
        let flags = TorchserveFlags { kserve_grpc_port: Some(8081), ..TorchserveFlags::default() };
        plan_with(text, flags, &[]).expect("plans")
    };
    let free = plan("management_address=http://127.0.0.1:8085\n");
    let at = free.server.also_grpc.expect("a second address").bind;
    assert_eq!(at, Bind::Tcp(([0, 0, 0, 0], 8081).into()));
    let taken = plan("");
    assert!(taken.server.also_grpc.is_none(), "management is there");
    let said = "port 8081 has another use in config.properties";
    assert!(taken.remarks.iter().any(|remark| remark.starts_with(said)), "{:?}", taken.remarks);
}

const SECURE: &str = "inference_address=https://127.0.0.1\nmanagement_address=https://127.0.0.1\n\
                      metrics_address=https://127.0.0.1\n";

#[test]
fn https_addresses_have_their_own_ports_and_a_certificate_for_want_of_any() {
    let plan = plan_of(SECURE);
    assert_eq!(plan.server.inference.to_string(), "https://127.0.0.1:443");
    assert_eq!(plan.server.management.to_string(), "https://127.0.0.1:8444");
    let metrics = plan.server.metrics.expect("metrics").to_string();
    assert_eq!(metrics, "https://127.0.0.1:8445");
    assert!(plan.server.tls.is_some());
    assert!(plan.remarks.iter().any(|remark| remark.contains("no certificate")));
    assert!(plan_of("certificate_file=/nowhere\n").server.tls.is_none(), "nobody needs it");
}

#[test]
fn a_certificate_that_cannot_be_had_stops_the_start() {
    for (text, expected) in [
        ("certificate_file=c.pem\n", "certificate_file is set and private_key_file is not"),
        ("private_key_file=k.pem\n", "private_key_file is set and certificate_file is not"),
        ("certificate_file=/nowhere\nprivate_key_file=/nowhere\n", "cannot read /nowhere"),
        ("keystore=k.p12\nkeystore_pass=changeit\nkeystore_type=PKCS12\n", "keystore=k.p12 cannot"),
    ] {
        let text = format!("{SECURE}{text}");
        assert!(message(&text).contains(expected), "{text}: {}", message(&text));
    }
    let keystore = plan_with(&format!("{SECURE}keystore=k\n"), Default::default(), &[]);
    let hint = keystore.err().and_then(|failure| failure.hint).expect("a hint");
    assert!(hint.contains("openssl pkcs12"));
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
    let log = TorchserveFlags { log_config: Some("/no/log4j2.xml".into()), ..flags(".") };
    assert_eq!(message(log), "--log-config file not found: /no/log4j2.xml");
    let refused = |name, value| {
        plan(&flags("."), &Env::from([(name, value)])).err().expect("refused").message
    };
    assert_eq!(refused("TS_CONFIG_FILE", "/no/file"), "--ts-config file not found: /no/file");
    assert_eq!(
        refused("TEMP", "/no/dir"),
        "Invalid temp directory: /no/dir, please check TEMP environment variable."
    );
}

#[test]
fn the_variable_hides_a_flag_that_names_nothing() {
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("c.properties");
    std::fs::write(&file, format!("model_store={}\n", dir.path().display())).expect("file");
    let flags = TorchserveFlags { ts_config: Some("no.properties".into()), ..Default::default() };
    let env = Env::from([("TS_CONFIG_FILE", file.to_str().expect("text"))]);
    assert_eq!(config_file(&flags, &env).expect("found"), Some(file));
}

#[test]
fn the_variable_names_the_file_before_the_flag_does() {
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("other.properties");
    let text = format!("model_store={}\njob_queue_size=9\n", dir.path().display());
    std::fs::write(&file, text).expect("file");
    let named = [("TS_CONFIG_FILE", file.to_str().expect("text"))];
    let plan = plan_with("job_queue_size=5\n", TorchserveFlags::default(), &named).expect("plans");
    assert_eq!(plan.engine.defaults.settings.read(&QUEUE), Some(9_u32));
}

#[test]
fn metrics_are_logged_unless_a_known_mode_says_otherwise() {
    use jitney_telemetry::metrics::MetricsMode;
    for (text, mode) in [
        ("", MetricsMode::Log),
        ("metrics_mode=prometheus\n", MetricsMode::Prometheus),
        ("metrics_mode=LEGACY\n", MetricsMode::Legacy),
        ("metrics_mode=statsd\n", MetricsMode::Log),
    ] {
        assert_eq!(plan_of(text).metrics.mode, mode, "{text}");
    }
}

#[test]
fn the_machine_is_looked_at_every_minute_unless_said_otherwise() {
    let every = |text| plan_of(text).sample_every.map(|every| every.as_secs());
    assert_eq!(every(""), Some(60));
    assert_eq!(every("metric_time_interval=5\n"), Some(5));
    assert_eq!(every("metric_time_interval=0\n"), Some(1));
    assert_eq!(every("disable_system_metrics=true\n"), None);
}

#[test]
fn a_command_for_system_metrics_and_a_missing_metrics_file_are_remarked_on() {
    let plan = plan_of("system_metrics_cmd=python x.py\nmetrics_config=/nowhere/metrics.yaml\n");
    for word in ["system_metrics_cmd", "/nowhere/metrics.yaml"] {
        assert!(plan.remarks.iter().any(|remark| remark.contains(word)), "{:?}", plan.remarks);
    }
    assert!(plan.metrics.declared.server.is_empty());
}
