//! A directory of its own for each test, and the binary run inside it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory with a store, a temporary directory and a working directory.
pub struct Sandbox {
    dir: tempfile::TempDir,
}

impl Sandbox {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("directory");
        for name in ["store", "temp", "cwd"] {
            std::fs::create_dir(dir.path().join(name)).expect("directory");
        }
        Self { dir }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The binary, about to run in here with an environment of its own.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_jitney"));
        command
            .args(args)
            .current_dir(self.at("cwd"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("TMPDIR", self.at("temp"))
            .env("LOG_LOCATION", self.at("logs"))
            .env("METRICS_LOCATION", self.at("logs"))
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.command(args).output().expect("runs"))
    }
}

/// A finished run.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }
}

/// A loopback port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    listener.local_addr().expect("address").port()
}

/// The body and status line of a GET, with nothing but the standard library.
pub fn get(port: u16, path: &str) -> Option<String> {
    request(port, &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"))
}

/// Sends a request and reads until the server closes.
pub fn request(port: u16, text: &str) -> Option<String> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(text.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Asks until the answer is there or the patience is over.
#[expect(clippy::disallowed_methods, reason = "another process has no clock that we could stop")]
pub fn eventually<T>(mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while std::time::Instant::now() < end {
        if let Some(found) = probe() {
            return Some(found);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    None
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
