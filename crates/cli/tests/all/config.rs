//! `jitney config`: what would be used, and who said so.

use serde_json::Value;

use crate::sandbox::Sandbox;

/// The value and origin of a key, about a model or about the server.
fn find(rows: &Value, model: Option<&str>, key: &str) -> (Option<String>, String) {
    let row = rows
        .as_array()
        .expect("rows")
        .iter()
        .find(|row| row["key"] == key && row["model"].as_str() == model);
    let row = row.unwrap_or_else(|| panic!("{key} is missing"));
    let sandbox = row["from"].as_str().map(|sandbox| format!(" {sandbox}")).unwrap_or_default();
    let origin = format!("{}{sandbox}", row["origin"].as_str().expect("origin"));
    (row["value"].as_str().map(str::to_owned), origin)
}

fn json(sandbox: &Sandbox, args: &[&str], env: &[(&str, &str)]) -> Value {
    let output = sandbox.command(args).envs(env.iter().copied()).output().expect("runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A model whose archive speaks for itself.
fn archive(sandbox: &Sandbox) {
    std::fs::write(sandbox.at("cwd/h.py"), "").expect("file");
    std::fs::write(sandbox.at("cwd/c.yaml"), "batchSize: 8\nresponseTimeout: 9\n").expect("file");
    let args = ["archive", "--model-name", "m", "-v", "1.0", "--handler", "h.py", "-c", "c.yaml"];
    let ran = sandbox.run(&[&args[..], &["--export-path", "../store"]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn every_value_of_torchserve_tells_its_origin() {
    let sandbox = Sandbox::new();
    archive(&sandbox);
    let text = "# note\nenable_envvars_config=true\njob_queue_size=5\nload_models=m.mar\n\
                keystore_pass=hush\nmodels={\"m\": {\"1.0\": {\"maxBatchDelay\": 40, \"batchSize\": 3}}}\n";
    std::fs::write(sandbox.at("cwd/c.properties"), text).expect("file");
    let args = ["config", "torchserve", "--ts-config", "c.properties", "--model-store", "../store"];
    let rows = json(&sandbox, &[&args[..], &["--json"]].concat(), &[("TS_MAX_REQUEST_SIZE", "77")]);
    let check = |model, key, value: Option<&str>, origin: &str| {
        let expected = (value.map(str::to_owned), origin.to_owned());
        assert_eq!(find(&rows, model, key), expected, "{key}");
    };
    check(None, "job_queue_size", Some("5"), "file c.properties:3");
    check(None, "max_request_size", Some("77"), "environment TS_MAX_REQUEST_SIZE");
    check(None, "model_store", Some("../store"), "flag --model-store");
    check(None, "inference_address", Some("http://127.0.0.1:8080"), "default");
    check(None, "service_envelope", None, "default");
    check(None, "keystore_pass", Some("***"), "file c.properties:5");
    check(Some("m"), "max_batch_size", Some("8"), "archive m.mar");
    check(Some("m"), "max_batch_delay", Some("40"), "file c.properties:6");
    check(Some("m"), "response_timeout", Some("9"), "archive m.mar");
    check(Some("m"), "queue", Some("5"), "file c.properties:3");
    check(Some("m"), "policy", Some("window"), "default");
}

#[test]
fn every_option_of_serve_tells_its_origin() {
    let sandbox = Sandbox::new();
    archive(&sandbox);
    let text = "port: 9000\nqueue: 7\nbatching: {max_latency_ms: 50}\nworkers: 3\n";
    std::fs::write(sandbox.at("cwd/jitney.yaml"), text).expect("file");
    let args = ["config", "--json", "serve", "../store/m.mar", "--config", "jitney.yaml"];
    let env = [("JITNEY_QUEUE", "8"), ("JITNEY_METRICS_PORT", "1")];
    let rows = json(&sandbox, &[&args[..], &["--batch-size", "4"]].concat(), &env);
    let check = |model, key, value: Option<&str>, origin: &str| {
        let expected = (value.map(str::to_owned), origin.to_owned());
        assert_eq!(find(&rows, model, key), expected, "{key}");
    };
    check(None, "port", Some("9000"), "file jitney.yaml:1");
    check(None, "queue", Some("8"), "environment JITNEY_QUEUE");
    check(None, "max_latency_ms", Some("50"), "file jitney.yaml:3");
    check(None, "max_batch_size", Some("4"), "flag --batch-size");
    check(None, "host", Some("127.0.0.1"), "default");
    check(Some("m"), "max_batch_size", Some("4"), "flag --batch-size");
    check(Some("m"), "workers", Some("3"), "file jitney.yaml:4");
    check(Some("m"), "policy", Some("adaptive"), "default");
}

#[test]
fn for_people_there_is_a_line_per_value() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["config", "torchserve", "--dt"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let line = ran.stdout.lines().find(|line| line.starts_with("disable_token_authorization "));
    let line = line.expect("a line").split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(line, "disable_token_authorization true flag --disable-token-auth");
    let ran = sandbox.run(&["config", "torchserve", "--ts-config", "no_such"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
}
