//! `--start` without `--foreground`, and `--stop`.

use std::process::Stdio;

use crate::box_::{Box_, Ran, eventually, free_port, get, read};

/// Runs the command with its output in a file: the server keeps it after the launcher has ended.
fn launch(place: &Box_, args: &[&str]) -> Option<i32> {
    let console = std::fs::File::create(place.at("console.log")).expect("file");
    let copy = console.try_clone().expect("copy");
    let status = place.command(args).stdout(console).stderr(copy).stdin(Stdio::null()).status();
    status.expect("runs").code()
}

#[test]
fn a_server_is_left_behind_found_again_and_stopped() {
    let place = Box_::new();
    let (inference, management) = (free_port(), free_port());
    let config = format!(
        "inference_address=http://127.0.0.1:{inference}\nenable_metrics_api=false\n\
         management_address=http://127.0.0.1:{management}\nmodel_store={}\n\
         grpc_inference_port=0\ngrpc_management_port=0\n",
        place.at("store").display()
    );
    std::fs::write(place.at("config.properties"), config).expect("file");
    let file = place.at("config.properties");
    let start =
        ["torchserve", "--start", "--ncs", "--dt", "--ts-config", file.to_str().expect("text")];

    assert_eq!(launch(&place, &start), Some(0));
    assert!(place.at("temp/.model_server.pid").exists());
    let up = eventually(|| get(inference, "/ping").filter(|answer| answer.contains("Healthy")));
    assert!(up.is_some(), "{}", read(&place.at("console.log")));
    let said = eventually(|| {
        read(&place.at("console.log")).contains("Model server started.").then_some(())
    });
    assert!(said.is_some(), "{}", read(&place.at("console.log")));
    for file in
        ["access_log.log", "ts_log.log", "model_log.log", "ts_metrics.log", "model_metrics.log"]
    {
        assert!(place.at("logs").join(file).is_file(), "{file}");
    }

    let again: Ran = place.run(&start);
    assert_eq!(again.code, Some(1));
    assert!(again.stdout.contains("TorchServe is already running, please use torchserve --stop"));

    std::fs::write(place.at("cwd/key_file.json"), "{}").expect("file");
    let stopped = place.run(&["torchserve", "--stop", "--foreground"]);
    assert_eq!((stopped.code, stopped.stdout.as_str()), (Some(0), ""));
    assert!(get(inference, "/ping").is_none(), "the port is free");
    assert!(!place.at("temp/.model_server.pid").exists());
    assert!(!place.at("cwd/key_file.json").exists());
    let access = read(&place.at("logs/access_log.log"));
    assert!(access.contains("\"GET /ping HTTP/1.1\" 200 "), "{access}");
}

#[test]
fn a_pid_file_without_its_server_is_cleared_away() {
    let place = Box_::new();
    std::fs::write(place.at("temp/.model_server.pid"), "999999999").expect("file");
    let stopped = place.run(&["torchserve", "--stop"]);
    let said = "Removing orphan pid file.\nTorchServe is not currently running.\n";
    assert_eq!((stopped.code, stopped.stdout.as_str()), (Some(0), said));
    assert!(!place.at("temp/.model_server.pid").exists());
}
