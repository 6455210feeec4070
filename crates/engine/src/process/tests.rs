//! Real processes: they end whole, whoever ends them.

use std::sync::mpsc;

use super::*;

/// Sends on what it is given.
struct Told(mpsc::SyncSender<String>);

impl OutputSink for Told {
    fn take(&mut self, piece: &[u8], _begins: bool) {
        drop(self.0.try_send(String::from_utf8_lossy(piece).trim().to_owned()));
    }
}

fn sink() -> (Told, mpsc::Receiver<String>) {
    let (sender, told) = mpsc::sync_channel(16);
    (Told(sender), told)
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    command
}

/// Runs a script that prints the id of a child of its own; returns the process and the child's id.
async fn with_child(processes: &ProcessThread, script: &str) -> (WorkerProcess, u32) {
    let (stdout, told) = sink();
    let process = processes.spawn(shell(script), stdout, sink().0).await.expect("a process");
    let told = tokio::task::spawn_blocking(move || told.recv().expect("a line")).await;
    (process, told.expect("told").parse().expect("an id"))
}

/// Whether a process runs: it exists and is no zombie.
fn runs(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn wait_for_end(id: u32) {
    while runs(id) {
        std::thread::yield_now();
    }
}

const CHILD: &str = "sleep 1000 & echo $!;";

#[tokio::test]
async fn the_children_of_a_process_end_with_it() {
    let processes = ProcessThread::start(None).expect("a thread");
    let (mut process, child) = with_child(&processes, &format!("{CHILD} exit 3")).await;
    assert_eq!(process.wait().await.and_then(|end| end.status.code()), Some(3));
    // Its child holds the pipes.
    process.drained().await;
    wait_for_end(child);
    assert_eq!(process.wait().await.and_then(|end| end.status.code()), Some(3), "told again");
}

#[tokio::test]
async fn a_process_that_is_killed_or_dropped_ends_whole() {
    let processes = ProcessThread::start(None).expect("a thread");
    let hangs = format!("{CHILD} wait");
    let (mut process, child) = with_child(&processes, &hangs).await;
    process.kill();
    assert_eq!(process.wait().await.and_then(|end| end.status.code()), None);
    process.drained().await;
    wait_for_end(child);
    let (process, child) = with_child(&processes, &hangs).await;
    let leader = process.id().expect("an id");
    drop(process);
    wait_for_end(leader);
    wait_for_end(child);
}

#[tokio::test]
async fn all_processes_end_with_their_thread() {
    let processes = ProcessThread::start(None).expect("a thread");
    let (mut process, child) = with_child(&processes, &format!("{CHILD} wait")).await;
    drop(processes);
    wait_for_end(child);
    wait_for_end(process.id().expect("an id"));
    assert_eq!(process.wait().await, None, "nobody is left to tell");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_error() {
    let processes = ProcessThread::start(None).expect("a thread");
    let started = processes.spawn(Command::new("/no/such/program"), sink().0, sink().0).await;
    assert_eq!(started.map_err(|error| error.kind()).err(), Some(io::ErrorKind::NotFound));
}

#[tokio::test]
async fn the_guard_ends_the_groups_that_are_left() {
    let processes = ProcessThread::start(None).expect("a thread");
    let hangs = format!("{CHILD} wait");
    let (mut first, child) = with_child(&processes, &hangs).await;
    let (second, other) = with_child(&processes, &hangs).await;
    let message = |what: u8, process: &WorkerProcess| {
        [&[what][..], &process.id().unwrap_or_default().to_le_bytes()].concat()
    };
    let told = [message(b'+', &first), message(b'+', &second), message(b'-', &second)].concat();
    guard_groups(&told[..]);
    first.wait().await;
    first.drained().await;
    wait_for_end(child);
    assert!(runs(other) && runs(second.id().expect("an id")));
}
