//! `jitney demo`: starts on free ports, says where, answers, drains on SIGTERM.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::sandbox::{Sandbox, eventually, request};

#[test]
fn the_demo_tells_its_address_answers_and_drains() {
    let sandbox = Sandbox::new();
    let ports = [
        "--port",
        "0",
        "--management-port",
        "0",
        "--metrics-port",
        "0",
        "--grpc-port",
        "0",
        "--grpc-management-port",
        "0",
    ];
    let args: Vec<&str> = ["demo"].into_iter().chain(ports).collect();
    let mut child = sandbox
        .command(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    let port: u16 = next().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let curl = std::iter::from_fn(|| Some(next())).find(|line| line.starts_with("Try: "));
    assert!(
        curl.is_some_and(
            |line| line.contains(&format!("http://127.0.0.1:{port}/predictions/magika"))
        )
    );

    let answer = eventually(|| {
        let body = "[package]\nname = \"jitney\"\n";
        let head = "PUT /predictions/magika HTTP/1.1\r\nhost: localhost\r\nconnection: close";
        let text = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        request(port, &text).filter(|answer| answer.starts_with("HTTP/1.1 200"))
    });
    assert!(answer.is_some(), "no answer");

    kill_process(Pid::from_child(&child), Signal::TERM).expect("signals");
    assert_eq!(child.wait().expect("ends").code(), Some(0));
    let left = std::fs::read_dir(sandbox.at("temp")).expect("reads").count();
    assert_eq!(left, 0, "the scratch directory is gone");
}
