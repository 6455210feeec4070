//! The help texts as they are printed. `UPDATE_GOLDEN=1` rewrites the files.

use crate::sandbox::Sandbox;

#[expect(clippy::disallowed_methods, reason = "a person asks for new goldens by environment")]
fn check(name: &str, args: &[&str]) {
    let path = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let ran = Sandbox::new().run(args);
    assert_eq!(ran.code, Some(0));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &ran.stdout).expect("writes");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(ran.stdout == expected, "{path} differs; UPDATE_GOLDEN=1 rewrites it:\n{}", ran.stdout);
}

#[test]
fn help_is_as_recorded() {
    check("help", &["--help"]);
    check("help-serve", &["serve", "--help"]);
    check("help-serve-short", &["serve", "-h"]);
    check("help-infer", &["infer", "--help"]);
    check("help-inspect", &["inspect", "--help"]);
    check("help-containerize", &["containerize", "--help"]);
    check("help-check", &["check", "--help"]);
    check("help-demo", &["demo", "--help"]);
    check("help-onnx", &["onnx", "--help"]);
    check("help-onnx-install", &["onnx", "install", "--help"]);
    check("help-keys-new", &["keys", "new", "--help"]);
    check("help-jobs-submit", &["jobs", "submit", "--help"]);
    check("help-jobs-list", &["jobs", "list", "--help"]);
    check("help-torchserve", &["torchserve", "--help"]);
    check("help-config", &["config", "--help"]);
    check("help-archive", &["archive", "--help"]);
    check("help-archive-workflow", &["archive-workflow", "--help"]);
    check("help-simulate", &["simulate", "--help"]);
    check("help-plan", &["plan", "--help"]);
    check("help-bench", &["bench", "--help"]);
    for command in [
        "status",
        "top",
        "models",
        "register",
        "scale",
        "traffic",
        "set",
        "default",
        "unregister",
        "jobs",
        "logs",
        "keys",
        "doctor",
        "completions",
    ] {
        check(&format!("help-{command}"), &[command, "--help"]);
    }
}
