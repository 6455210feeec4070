//! Models that Python packs before they are registered: definitions (`module:object`), and models of the hub, which it
//! fetches. A short-lived Python process (`python -m jitney pack`) imports the code, or looks at the folder, and writes
//! a model directory; from there on they are models like any other. This program itself never runs what a user wrote.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jitney_engine::store::{Limits, fetch_folder, is_remote_folder, models_in, serialised};
use jitney_settings::model::{TASK, TRUST};
use serde::Deserialize;
use tokio::process::Command;

use crate::failure::Failure;
use crate::fetch::RemoteFetcher;
use crate::plan::Startup;
use crate::python::module_command;

/// How long the user's modules may take to import.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a model of the hub may take to come and to be looked at.
const HUB_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Whether a word on the command line names a model of Hugging Face's hub: `hf:ORG/NAME`.
pub fn is_on_hub(text: &str) -> bool {
    text.strip_prefix("hf:").is_some_and(|name| name.contains('/'))
}

/// Whether a word on the command line names a definition: `module:object` or a `.py` file.
pub fn is_definition(text: &str) -> bool {
    let (module, object) = text.split_once(':').unwrap_or((text, ""));
    let path = |word: &str| !word.is_empty() && word.split('.').all(is_identifier);
    let file = Path::new(module).extension().is_some_and(|extension| extension == "py");
    let named = text.contains(':') && path(object);
    (file && (object.is_empty() || path(object))) || (path(module) && named)
}

/// The model of a folder that holds no other: an archive or an ONNX file in it, or the folder itself. A file is itself.
pub fn in_folder(path: &Path) -> Startup {
    let file = if path.is_file() { Some(path.to_owned()) } else { lone_file(path) };
    let path = file.as_deref().unwrap_or(path);
    let text = path.to_string_lossy();
    let url = if file.is_some() { serialised(&text) } else { text.into_owned() };
    Startup::unnamed(&url)
}

/// The one archive or ONNX file of a folder.
fn lone_file(folder: &Path) -> Option<PathBuf> {
    let files = models_in(folder).into_iter().map(|name| folder.join(name));
    let mut files = files.filter(|file| file.is_file());
    files.next().filter(|_| files.next().is_none())
}

fn is_identifier(word: &str) -> bool {
    let mut letters = word.chars();
    letters.next().is_some_and(|first| first.is_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_alphanumeric() || letter == '_')
}

/// Who packs definitions: the interpreter of the workers, with the environment of the workers.
pub struct Packer {
    /// The interpreter.
    pub python: PathBuf,
    /// Where our own Python packages lie.
    pub packages: PathBuf,
    /// The workers' environment.
    pub env: Vec<(OsString, OsString)>,
    /// Where model directories are written.
    pub scratch: PathBuf,
    /// Where the user stands; modules are imported from here.
    pub directory: PathBuf,
    /// Directories written so far.
    pub count: AtomicU32,
    /// Who fetches folders of buckets.
    pub remote: RemoteFetcher,
    /// How much one folder may be.
    pub limits: Limits,
}

/// A definition that was packed.
#[derive(Debug, Deserialize)]
pub struct Packed {
    /// The version it will be served as.
    pub version: String,
    /// The user's own files that were imported.
    pub sources: Vec<PathBuf>,
    /// The parts that it is made of, in the order in which they start; it is not among them itself.
    #[serde(default)]
    pub parts: Vec<PackedPart>,
    /// The model directory.
    #[serde(skip)]
    pub model: PathBuf,
}

/// A part of an application that was packed.
#[derive(Clone, Debug, Deserialize)]
pub struct PackedPart {
    /// The name it will be served under.
    pub name: String,
    /// The version it will be served as.
    pub version: String,
    /// The model directory.
    pub directory: PathBuf,
}

impl Packer {
    /// A model whose folder lies in a bucket, once that is here; others as they are.
    pub async fn fetched<'a>(&self, startup: &'a Startup) -> Result<Cow<'a, Startup>, Failure> {
        let url = &startup.url;
        if !is_remote_folder(url) {
            return Ok(Cow::Borrowed(startup));
        }
        let turn = self.count.fetch_add(1, Ordering::Relaxed);
        let name = url.trim_end_matches('/').rsplit('/').next();
        let name = name.filter(|name| !name.is_empty() && !name.contains("..")).unwrap_or("model");
        let folder = self.scratch.join(format!("folders/{turn}/{name}"));
        let fetched = fetch_folder(&self.remote, url, &folder, &self.limits).await;
        fetched.map_err(|error| {
            let why = error.detail().unwrap_or_else(|| error.to_string());
            Failure::failed(format!("cannot fetch {}: {why}", startup.shown()))
        })?;
        let Startup { url, .. } = in_folder(&folder);
        self.remote.rule.allow(&url);
        Ok(Cow::Owned(Startup { url, ..startup.clone() }))
    }

    /// Imports the definition of a model, or fetches it from the hub, and writes its model directory.
    pub async fn pack(&self, startup: &Startup, version: Option<&str>) -> Result<Packed, Failure> {
        let object = startup.definition.as_deref().unwrap_or_default();
        let turn = self.count.fetch_add(1, Ordering::Relaxed);
        let model = self.scratch.join(format!("definitions/{turn}"));
        let command = module_command(&self.python, "jitney", &self.packages, &self.env);
        let mut command = Command::from(command);
        command.current_dir(&self.directory).stdin(Stdio::null()).kill_on_drop(true);
        command.args(["pack", object, "--out"]).arg(&model);
        command.args(version.iter().flat_map(|version| ["--version", *version]));
        if is_on_hub(object) {
            command.arg("--file").args(startup.settings.flag(&TRUST).then_some("--trust"));
            let task = startup.settings.read::<String>(&TASK);
            command.args(task.iter().flat_map(|task| ["--task", task.as_str()]));
        }
        let broken = |why: String| Failure::failed(format!("cannot load {object}: {why}"));
        let limit = if is_on_hub(object) { HUB_TIMEOUT } else { IMPORT_TIMEOUT };
        let ran = tokio::time::timeout(limit, command.output()).await;
        let output = ran
            .map_err(|_| broken(format!("it did not import within {} s", limit.as_secs())))?
            .map_err(|error| broken(format!("{}: {error}", self.python.display())))?;
        let talk = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(broken(reason(object, &talk)));
        }
        for line in talk.lines() {
            match line.strip_prefix("warning: ") {
                Some(warning) => tracing::warn!(object, "{warning}"),
                None => tracing::info!(object, "{line}"),
            }
        }
        let packed: Packed = serde_json::from_slice(&output.stdout)
            .map_err(|error| broken(format!("its description is unreadable: {error}")))?;
        Ok(Packed { model, ..packed })
    }
}

/// Why Python could not: a sentence stays in the line, a traceback gets lines of its own.
fn reason(object: &str, talk: &str) -> String {
    let talk = talk.trim_end();
    if talk.contains('\n') {
        return format!("\n{talk}");
    }
    let sentence = talk.strip_prefix("error: ").unwrap_or(talk);
    let named = sentence.strip_prefix(object).and_then(|rest| rest.strip_prefix(": "));
    named.unwrap_or(sentence).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_told_from_files_and_urls() {
        for (text, expected) in [
            ("app:model", true),
            ("pkg.app:Model.method", true),
            ("app.py:model", true),
            ("app.py", true),
            ("dir/app.py:model", true),
            ("model.mar", false),
            ("app", false),
            ("C:\\x", false),
            ("https://x/y.mar", false),
            ("app:", false),
            (":model", false),
            ("a-b:c", false),
            ("app.py:1", false),
            ("hf:org/name", false),
            ("hf:org/name@main", false),
        ] {
            assert_eq!(is_definition(text), expected, "{text}");
            assert_eq!(is_on_hub(text), text.starts_with("hf:"), "{text}");
        }
    }
}
