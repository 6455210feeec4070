//! `jitney archive` with the command lines of torch-model-archiver.

use crate::sandbox::{Ran, Sandbox};

fn yard() -> Sandbox {
    let sandbox = Sandbox::new();
    for (name, text) in [("handler.py", "def handle(data, context): ...\n"), ("notes.txt", "n")] {
        std::fs::write(sandbox.at("cwd").join(name), text).expect("file");
    }
    sandbox
}

fn archive(sandbox: &Sandbox, more: &[&str]) -> Ran {
    let start = ["archive", "--model-name", "mod", "-v", "1.0", "--handler", "handler.py"];
    sandbox.run(&[&start, more].concat())
}

#[test]
fn an_archive_lands_in_the_working_directory_and_is_not_overwritten() {
    let sandbox = yard();
    let ran = archive(&sandbox, &["--extra-files", "*.txt"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stderr.contains("mod.mar (3 files)"), "{ran:?}");
    assert!(sandbox.at("cwd/mod.mar").is_file());
    let again = archive(&sandbox, &[]);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("already exists") && again.stderr.contains("--force/-f"));
    assert_eq!(archive(&sandbox, &["-f", "--archive-f", "zip-store"]).code, Some(0));
    assert_eq!(archive(&sandbox, &["--export-path", "new/er", "--arch", "tgz"]).code, Some(0));
    assert!(sandbox.at("cwd/new/er/mod.tar.gz").is_file());
}

#[test]
fn wrong_flags_exit_as_argparse_does() {
    let sandbox = yard();
    for (args, word) in [
        (vec!["archive", "--model-name", "m", "--handler", "h.py"], "--version"),
        (vec!["archive", "-v", "1", "--handler", "h.py"], "--model-name"),
        (vec!["archive-workflow", "--workflow-name", "w"], "--spec-file"),
    ] {
        let ran = sandbox.run(&args);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(word), "{ran:?}");
    }
    for (flag, value) in [("--archive-format", "rar"), ("--runtime", "ruby")] {
        let ran = archive(&sandbox, &[flag, value]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(value), "{ran:?}");
    }
}

#[test]
fn a_missing_file_leaves_nothing_behind() {
    let sandbox = yard();
    let ran = archive(&sandbox, &["--serialized-file", "no.pt", "--export-path", "out"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("--serialized-file file not found: no.pt"), "{ran:?}");
    assert!(!sandbox.at("cwd/out").exists());
}

#[test]
fn a_workflow_is_packed_too() {
    let sandbox = yard();
    std::fs::write(sandbox.at("cwd/flow.yaml"), "dag: {}\n").expect("file");
    let args = ["archive-workflow", "--workflow-name", "flow", "--spec-file", "flow.yaml"];
    let ran = sandbox.run(&[&args[..], &["--handler", "handler.py"]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(sandbox.at("cwd/flow.war").is_file());
}
