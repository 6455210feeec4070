//! A server that is stopped and started again without a configuration goes on where it was.

use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::sandbox::{Sandbox, eventually, free_port, get, read, request};

const ONNX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/magika/model.onnx");

/// Starts the server in the foreground and waits until it answers.
fn start(sandbox: &Sandbox, port: u16, args: &[&str]) -> Child {
    let console = std::fs::File::create(sandbox.at("console.log")).expect("file");
    let start = ["torchserve", "--start", "--foreground", "--dt", "--enable-model-api"];
    let mut command = sandbox.command(&[&start[..], args].concat());
    let child = command.stdout(console).stderr(Stdio::inherit()).spawn().expect("starts");
    let up = eventually(|| get(port, "/ping").filter(|answer| answer.contains("Healthy")));
    assert!(up.is_some(), "{}", read(&sandbox.at("console.log")));
    child
}

fn stop(mut child: Child) {
    kill_process(Pid::from_child(&child), Signal::TERM).expect("signals");
    assert_eq!(child.wait().expect("ends").code(), Some(0));
}

fn send(port: u16, method: &str, path: &str) -> String {
    let head = "host: localhost\r\nconnection: close\r\ncontent-length: 0";
    request(port, &format!("{method} {path} HTTP/1.1\r\n{head}\r\n\r\n")).expect("an answer")
}

fn snapshots(sandbox: &Sandbox, ending: &str) -> Vec<String> {
    let entries = std::fs::read_dir(sandbox.at("logs/config")).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(ending)).collect()
}

#[test]
fn a_restart_brings_the_models_back() {
    let sandbox = Sandbox::new();
    std::fs::copy(ONNX, sandbox.at("store/kept.onnx")).expect("model");
    let (inference, management) = (free_port(), free_port());
    let text = format!(
        "inference_address=http://127.0.0.1:{inference}\nenable_metrics_api=false\n\
         management_address=http://127.0.0.1:{management}\nmodel_store={}\n\
         grpc_inference_port=0\ngrpc_management_port=0\n",
        sandbox.at("store").display()
    );
    std::fs::write(sandbox.at("cwd/first.properties"), text).expect("file");

    let server = start(&sandbox, inference, &["--ts-config", "first.properties"]);
    assert_eq!(snapshots(&sandbox, "-startup.cfg").len(), 1);
    let path =
        "/models?url=kept.onnx&model_name=kept&initial_workers=1&batch_size=5&max_batch_delay=90";
    assert!(send(management, "POST", path).contains(" 200 "));
    assert!(
        send(management, "PUT", "/models/kept?min_worker=2&synchronous=true").contains(" 200 ")
    );
    let changed = eventually(|| (!snapshots(&sandbox, "-snapshot.cfg").is_empty()).then_some(()));
    assert!(changed.is_some());
    stop(server);
    assert_eq!(snapshots(&sandbox, "-shutdown.cfg").len(), 1);

    let server = start(&sandbox, inference, &[]);
    let description = send(management, "GET", "/models/kept");
    for fact in ["\"batchSize\": 5", "\"maxBatchDelay\": 90", "\"minWorkers\": 2"] {
        let told = description.contains(fact) || description.contains(&fact.replace(": ", ":"));
        assert!(told, "{fact}: {description}");
    }
    stop(server);

    std::fs::remove_file(sandbox.at("store/kept.onnx")).expect("removes");
    let ran = sandbox.run(&["torchserve", "--start", "--foreground", "--dt"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("kept.onnx of model kept is not in the model store"), "{ran:?}");
    let ran = sandbox.run(&["torchserve", "--start", "--foreground", "--dt", "--ncs"]);
    assert!(ran.stdout.contains("Missing mandatory parameter --model-store"), "{ran:?}");
}
