//! Errors, with their messages and exit codes.

use crate::sandbox::Sandbox;

#[test]
fn the_version_is_printed() {
    for flag in ["--version", "-v"] {
        let ran = Sandbox::new().run(&["torchserve", flag]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "TorchServe Version is 0.12.0\n"));
    }
    assert!(Sandbox::new().run(&["--version"]).stdout.starts_with("jitney 0."));
}

#[test]
fn unknown_flags_are_errors_with_a_hint() {
    let ran = Sandbox::new().run(&["torchserve", "--frobnicate"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("--frobnicate"), "{ran:?}");
    let ran = Sandbox::new().run(&["serve", "--bach-size", "4"]);
    assert_eq!(ran.code, Some(64));
    assert!(ran.stderr.contains("--batch-size"), "{ran:?}");
}

#[test]
fn contradicting_flags_are_errors() {
    let ran = Sandbox::new().run(&["torchserve", "--start", "--stop"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("--stop"), "{ran:?}");
}

#[test]
fn a_start_that_cannot_succeed_says_why() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.at("cwd/number.properties"), "model_store=.\njob_queue_size=ten\n")
        .expect("file");
    std::fs::write(sandbox.at("cwd/unset.properties"), "model_store=.\njob_queue_size=$$NOPE$$\n")
        .expect("file");
    for (args, message) in [
        (vec![], "Missing mandatory parameter --model-store"),
        (vec!["--model-store", "no_such"], "--model-store directory not found: no_such"),
        (vec!["--ts-config", "no_such"], "--ts-config file not found: no_such"),
        (vec!["--ts-config", "number.properties"], "line 2: job_queue_size must be a whole number"),
        (vec!["--ts-config", "unset.properties"], "Invalid Environment Variable NOPE"),
    ] {
        let mut all = vec!["torchserve", "--start", "--foreground"];
        all.extend(args);
        let ran = sandbox.run(&all);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stdout.contains(message), "{message}: {ran:?}");
    }
}

#[test]
fn serve_reports_errors_before_a_port_is_bound() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.at("cwd/jitney.yaml"), "port: 0\nmodels: []\nworkres: 2\n")
        .expect("file");
    for (args, message) in [
        (vec!["serve"], "no model to serve"),
        (vec!["serve", "no.mar"], "no such file: no.mar"),
        (
            vec!["serve", "--config", "jitney.yaml"],
            "line 3: unknown key `workres`\nhint: did you mean `workers`?",
        ),
    ] {
        let ran = sandbox.run(&args);
        assert_eq!(ran.code, Some(64), "{ran:?}");
        assert!(ran.stderr.contains(message) && ran.stdout.is_empty(), "{message}: {ran:?}");
    }
}

#[test]
fn stopping_nothing_is_fine() {
    let ran = Sandbox::new().run(&["torchserve", "--stop"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (Some(0), "TorchServe is not currently running.\n")
    );
}
