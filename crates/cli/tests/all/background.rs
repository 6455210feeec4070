//! `--start` without `--foreground`, and `--stop`.

use std::process::Stdio;

use crate::sandbox::{Ran, Sandbox, eventually, free_port, get, read};

/// Runs the command with its output in a file: the server keeps it after the launcher has ended.
fn launch(sandbox: &Sandbox, args: &[&str]) -> Option<i32> {
    let console = std::fs::File::create(sandbox.at("console.log")).expect("file");
    let copy = console.try_clone().expect("copy");
    let status = sandbox.command(args).stdout(console).stderr(copy).stdin(Stdio::null()).status();
    status.expect("runs").code()
}

#[test]
fn a_server_is_left_behind_found_again_and_stopped() {
    let sandbox = Sandbox::new();
    let (inference, management) = (free_port(), free_port());
    let config = format!(
        "inference_address=http://127.0.0.1:{inference}\nenable_metrics_api=false\n\
         management_address=http://127.0.0.1:{management}\nmodel_store={}\n\
         grpc_inference_port=0\ngrpc_management_port=0\n",
        sandbox.at("store").display()
    );
    std::fs::write(sandbox.at("config.properties"), config).expect("file");
    let file = sandbox.at("config.properties");
    let start =
        ["torchserve", "--start", "--ncs", "--dt", "--ts-config", file.to_str().expect("text")];

    assert_eq!(launch(&sandbox, &start), Some(0));
    assert!(sandbox.at("temp/.model_server.pid").exists());
    let up = eventually(|| get(inference, "/ping").filter(|answer| answer.contains("Healthy")));
    assert!(up.is_some(), "{}", read(&sandbox.at("console.log")));
    let said = eventually(|| {
        read(&sandbox.at("console.log")).contains("Model server started.").then_some(())
    });
    assert!(said.is_some(), "{}", read(&sandbox.at("console.log")));
    for file in
        ["access_log.log", "ts_log.log", "model_log.log", "ts_metrics.log", "model_metrics.log"]
    {
        assert!(sandbox.at("logs").join(file).is_file(), "{file}");
    }

    let again: Ran = sandbox.run(&start);
    assert_eq!(again.code, Some(1));
    assert!(again.stdout.contains("TorchServe is already running, please use torchserve --stop"));

    std::fs::write(sandbox.at("cwd/key_file.json"), "{}").expect("file");
    let stopped = sandbox.run(&["torchserve", "--stop", "--foreground"]);
    assert_eq!((stopped.code, stopped.stdout.as_str()), (Some(0), ""));
    assert!(get(inference, "/ping").is_none(), "the port is free");
    assert!(!sandbox.at("temp/.model_server.pid").exists());
    assert!(!sandbox.at("cwd/key_file.json").exists());
    let access = read(&sandbox.at("logs/access_log.log"));
    assert!(access.contains("\"GET /ping HTTP/1.1\" 200 "), "{access}");
}

#[test]
fn a_pid_file_without_its_server_is_cleared_away() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.at("temp/.model_server.pid"), "999999999").expect("file");
    let stopped = sandbox.run(&["torchserve", "--stop"]);
    let said = "Removing orphan pid file.\nTorchServe is not currently running.\n";
    assert_eq!((stopped.code, stopped.stdout.as_str()), (Some(0), said));
    assert!(!sandbox.at("temp/.model_server.pid").exists());
}
