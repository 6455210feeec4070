//! Directories that a server writes to, files that it reads, and who else may read its keys.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use jitney_settings::Values;
use jitney_settings::server::{MODEL_STORE, TOKEN_AUTH};

use super::finding::Finding;
use super::limits::free;
use crate::env::Env;
use crate::key_file::KEY_FILE;
use crate::remote::words::bytes;
use crate::serve::model;

const AREA: &str = "Files";

/// Less room than this is too little for any model.
const FREE_MIN: u64 = 100 << 20;
/// And less than this may become too little.
const FREE_GOOD: u64 = 2 << 30;

/// Looks at the directories and the key file.
pub fn check(values: &Values, env: &Env) -> Vec<Finding> {
    let temp = env.temp_dir();
    let mut findings =
        vec![room("temporary files, where models are unpacked", &temp, "TMPDIR=DIR")];
    if let Some(store) = values.read::<PathBuf>(&MODEL_STORE) {
        findings.push(if store.is_dir() {
            room("the model store", &store, "--model-store DIR")
        } else {
            let text = format!("the model store {} is no directory", store.display());
            Finding::problem(AREA, text, "make it, or name another one: --model-store DIR")
        });
    }
    if values.flag(&TOKEN_AUTH) && tempfile::tempfile_in(".").is_err() {
        findings.push(Finding::problem(
            AREA,
            "the current directory cannot be written to, and key_file.json is written there",
            "start the server in a directory of its own",
        ));
    }
    findings.extend(keys(Path::new(KEY_FILE)));
    findings
}

fn room(what: &str, path: &Path, instead: &str) -> Finding {
    let shown = path.display();
    if let Err(error) = tempfile::tempfile_in(path) {
        let text = format!("{what}: {shown} cannot be written to: {error}");
        return Finding::problem(
            AREA,
            text,
            format!("change its permissions, or use another: {instead}"),
        );
    }
    let size = free(path).unwrap_or(u64::MAX);
    let text = format!("{what}: {shown} has {} free", bytes(size as f64));
    match size {
        size if size < FREE_MIN => {
            Finding::problem(AREA, text, format!("make room, or use another: {instead}"))
        }
        size if size < FREE_GOOD => {
            Finding::note(AREA, text, format!("large models need more; another: {instead}"))
        }
        _ => Finding::ok(AREA, text),
    }
}

fn keys(file: &Path) -> Option<Finding> {
    let mode = file.metadata().ok()?.permissions().mode();
    let text = format!("{} holds the keys of a server", file.display());
    if mode & 0o077 == 0 {
        return Some(Finding::ok(AREA, format!("{text}, and only its owner can read it")));
    }
    let text = format!("{text}, and others can read it");
    Some(Finding::problem(
        AREA,
        text,
        format!("chmod 600 {}, and restart the server", file.display()),
    ))
}

/// Looks at the models that are to be served.
pub fn models(named: &[String]) -> Vec<Finding> {
    let area = "Models";
    let check = |text: &String| match model::parse(text) {
        Err(failure) => {
            let advice = failure.hint.unwrap_or_else(|| "name a file that exists".to_owned());
            Finding::problem(area, failure.message, advice)
        }
        Ok(_) if unreadable(text) => Finding::problem(
            area,
            format!("{text} cannot be read by this user"),
            format!("chmod a+r {text}"),
        ),
        Ok(startup) if startup.definition.is_some() => Finding::note(
            area,
            format!("{text} is a Python definition"),
            format!("`jitney check {text}` looks for mistakes in it"),
        ),
        Ok(_) => Finding::ok(area, format!("{text} is there")),
    };
    named.iter().map(check).collect()
}

fn unreadable(text: &str) -> bool {
    let path = Path::new(text);
    if path.is_dir() {
        path.read_dir().is_err()
    } else {
        path.is_file() && std::fs::File::open(path).is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingLevel;
    use super::*;

    #[test]
    fn keys_that_others_can_read_are_a_problem() {
        let dir = tempfile::tempdir().expect("directory");
        let file = dir.path().join(KEY_FILE);
        assert!(keys(&file).is_none());
        std::fs::write(&file, "{}").expect("file");
        for (mode, level) in [(0o600, FindingLevel::Ok), (0o644, FindingLevel::Problem)] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("mode");
            assert_eq!(keys(&file).expect("a finding").level, level, "{mode:o}");
        }
    }

    #[test]
    fn a_missing_model_and_a_missing_directory_are_problems() {
        let found = models(&["no-such.mar".to_owned()]);
        assert!(found[0].level == FindingLevel::Problem && found[0].text.contains("no-such.mar"));
        let finding = room("the model store", Path::new("/no/such/place"), "--model-store DIR");
        assert!(finding.level == FindingLevel::Problem && finding.advice.is_some());
    }
}
