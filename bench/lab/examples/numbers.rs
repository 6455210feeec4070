//! Writes docs/concepts/policy-numbers.md: what every number of the adaptive policy means, where it comes
//! from, and how the scores move with it. `cargo run --release -p jitney-lab --example numbers`, in the
//! root of the repository.
//!
//! It copies the batcher, the simulator and the laboratory to target/numbers, makes the numbers of the
//! copy movable, builds it once, and plays the scores twice for every number, on two threads.
#![expect(clippy::print_stderr, reason = "an example that prints")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use jitney_lab::numbers::{self, MOVED, MovedScores, PAGE, PolicyNumber, SOURCE};

const CRATES: [&str; 3] = ["crates/batcher", "crates/sim", "bench/lab"];

/// The copy is a workspace of its own, with the least that its crates ask for.
const WORKSPACE: &str = r#"
[workspace]
resolver = "3"
members = ["crates/batcher", "crates/sim", "bench/lab"]
[workspace.package]
version = "0.0.0"
edition = "2024"
rust-version = "1.95"
license = "Apache-2.0"
publish = false
[workspace.dependencies]
jitney-batcher = { path = "crates/batcher" }
jitney-sim = { path = "crates/sim" }
[profile.release]
opt-level = 2
"#;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a crate") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("it can be copied");
        }
    }
}

/// Builds the copy; returns its program.
fn build() -> PathBuf {
    let folder = Path::new("target/numbers");
    for each in CRATES {
        copy(&Path::new(each).join("src"), &folder.join(each).join("src"));
        let manifest = fs::read_to_string(format!("{each}/Cargo.toml")).expect("a manifest");
        let manifest = manifest.split("\n[dev-dependencies]").next().unwrap_or_default();
        let manifest = manifest.replace("[lints]\nworkspace = true\n", "");
        fs::write(folder.join(each).join("Cargo.toml"), manifest).expect("written");
    }
    copy(Path::new("bench/lab/examples"), &folder.join("bench/lab/examples"));
    fs::write(folder.join("Cargo.toml"), WORKSPACE).expect("written");
    let sources = numbers::sources(Path::new(".")).expect("the policy");
    for (file, text) in numbers::movable(&sources) {
        fs::write(folder.join(SOURCE).join(file), text).expect("written");
    }
    let root = folder.join("crates/batcher/src");
    fs::write(root.join("moved.rs"), numbers::MOVED_MODULE).expect("written");
    let lib = fs::read_to_string(root.join("lib.rs")).expect("the crate");
    fs::write(root.join("lib.rs"), lib + "\nmod moved;\n").expect("written");
    let arguments = ["build", "--release", "-p", "jitney-lab", "--example", "scores"];
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(folder).env("CARGO_TARGET_DIR", "built");
    command.env("RUSTFLAGS", "-A unused_parens");
    assert!(command.status().expect("cargo").success(), "the copy cannot be built");
    folder.join("built/release/examples/scores")
}

/// Plays the scores with one number moved.
fn play(program: &Path, moved: &str) -> [f64; 4] {
    let output = Command::new(program).env(MOVED, moved).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<f64> = text.split_whitespace().filter_map(|it| it.parse().ok()).collect();
    figures
        .try_into()
        .unwrap_or_else(|_| panic!("{moved}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn main() {
    let declared = numbers::declared(&numbers::sources(Path::new(".")).expect("the policy"));
    let program = build();
    let base = play(&program, "");
    let moving: Vec<&PolicyNumber> = declared.iter().filter(|it| it.moves()).collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::<BTreeMap<String, MovedScores>>::default());
    let work = || {
        while let Some(number) = moving.get(next.fetch_add(1, Ordering::Relaxed)) {
            let scores = ["0.5", "2"].map(|by| play(&program, &format!("{}:{by}", number.key())));
            eprintln!("{} {scores:?}", number.key());
            found.lock().expect("no panic").insert(number.key(), scores);
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| _ = scope.spawn(work)));
    let page = numbers::page(&declared, base, &found.into_inner().expect("no panic"));
    fs::write(PAGE, page).expect("the page can be written");
}
