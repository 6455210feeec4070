//! Precedence and refusals of `jitney serve`, from the words on the command line to the plan.

use std::ffi::OsString;

use jitney_settings::model::{QUEUE, RESPONSE_TIMEOUT, STARTUP_TIMEOUT, WORKERS};

use super::*;
use crate::flags::{Command, parse};

fn plan_of(line: &str, env: &Env) -> Result<ServerPlan, Failure> {
    let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    let cli = parse(&args).map_err(|(error, _)| Failure::usage(error.to_string()))?;
    match cli.command {
        Command::Serve(flags) => plan(*flags, env),
        Command::Demo(flags) => plan_demo(flags, env),
        Command::Torchserve(_)
        | Command::Archive(_)
        | Command::ArchiveWorkflow(_)
        | Command::Check(_)
        | Command::Infer(_)
        | Command::Config(_)
        | Command::Bench(_)
        | Command::Simulate(_)
        | Command::Plan(_)
        | Command::Onnx(_)
        | Command::Status(_)
        | Command::Top(_)
        | Command::Models(_)
        | Command::Register(_)
        | Command::Scale(_)
        | Command::Traffic(_)
        | Command::Inspect(_)
        | Command::Containerize(_)
        | Command::Jobs(_)
        | Command::Platform
        | Command::Set(_)
        | Command::Default(_)
        | Command::Unregister(_)
        | Command::Logs(_)
        | Command::Keys(_)
        | Command::Doctor(_)
        | Command::Completions(_)
        | Command::OnnxWorker
        | Command::GuardGroups => Err(Failure::usage("not here")),
    }
}

fn workspace(yaml: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("directory");
    std::fs::write(dir.path().join("a.mar"), "").expect("file");
    std::fs::write(dir.path().join("b.onnx"), "").expect("file");
    std::fs::write(dir.path().join("jitney.yaml"), yaml).expect("file");
    dir
}

#[test]
fn flags_win_over_variables_over_the_entry_over_the_file() {
    let dir = workspace(
        "workers: 1\nqueue: 11\nresponse_timeout: 1\nstartup_timeout: 1s\n\
         models: [{path: a.mar, workers: 2, queue: 22, response_timeout: 2}]\n",
    );
    let env = Env::from([("JITNEY_WORKERS", "3"), ("JITNEY_QUEUE", "33")]);
    let line = format!("jitney serve --config {}/jitney.yaml --workers 4", dir.path().display());
    let plan = plan_of(&line, &env).expect("plans");
    let given = |setting: &Setting| {
        let settings = &plan.models[0].settings;
        (settings.show(setting).unwrap_or_default(), settings.source(setting).kind())
    };
    assert_eq!(given(&WORKERS), ("4".to_owned(), "flag"));
    assert_eq!(given(&QUEUE), ("33".to_owned(), "environment"));
    assert_eq!(given(&RESPONSE_TIMEOUT), ("2".to_owned(), "file"), "the entry");
    assert_eq!(given(&STARTUP_TIMEOUT), ("1".to_owned(), "file"));
}

#[test]
fn the_command_lines_models_come_before_the_files() {
    let dir = workspace("models: [{path: b.onnx, name: bee}]\n");
    let at = dir.path().display();
    let line = format!("jitney serve ay={at}/a.mar --config {at}/jitney.yaml");
    let plan = plan_of(&line, &Env::default()).expect("plans");
    let names: Vec<_> = plan.models.iter().map(|model| model.name.as_deref()).collect();
    assert_eq!(names, [Some("ay"), Some("bee")]);
    assert!(plan.engine.urls.allows(&plan.models[0].url));
    assert!(!plan.engine.urls.allows("file:///etc/passwd"));
}

#[test]
fn mistakes_are_usage_errors_with_a_hint_where_there_is_one() {
    for (line, message) in [
        ("jitney serve", "no model to serve"),
        ("jitney serve no/such.mar", "no such file: no/such.mar"),
        ("jitney serve --config no/such.yaml", "cannot read no/such.yaml"),
        ("jitney serve https://host/m.mar", "https://host/m.mar: no model store configured"),
        ("jitney serve ftp://host/m.mar", "ftp://host/m.mar: models cannot be fetched from there"),
        ("jitney serve https://host/m.mar --tls-key k", "--tls-key needs --tls-cert"),
    ] {
        let failure = plan_of(line, &Env::default()).err().expect(line);
        assert!(failure.message.starts_with(message), "{line}: {failure}");
        assert_eq!(failure.code, 64, "{line}");
    }
}

#[test]
fn any_free_port_means_free_ports_for_all_listeners_that_have_none() {
    let plan = plan_of("jitney demo --port 0 --metrics-port 9000", &Env::default()).expect("plans");
    let ServerConfig { inference, management, metrics, grpc_inference, .. } = plan.server;
    let any = "http://127.0.0.1:0";
    assert_eq!([inference.to_string(), management.to_string()], [any, any]);
    assert_eq!(grpc_inference.map(|grpc| grpc.bind.to_string()).as_deref(), Some(any));
    assert_eq!(metrics.map(|it| it.to_string()).as_deref(), Some("http://127.0.0.1:9000"));
}

#[test]
fn only_an_address_others_can_reach_is_remarked_on() {
    let remarks = |line: &str| plan_of(line, &Env::default()).expect("plans").remarks;
    assert!(remarks("jitney demo --port 0").is_empty());
    assert!(remarks("jitney demo --host 0.0.0.0")[0].contains("without a token"));
    let line = "jitney serve https://host/m.mar --model-store . --host 0.0.0.0 --token-auth";
    let plan = plan_of(line, &Env::default()).expect("plans");
    assert!(plan.remarks.iter().all(|remark| !remark.contains("without a token")));
    assert!(plan.tokens.is_some());
}
