//! A model on the command line of `jitney serve`: `PATH`, `URL`, `module:object`, `hf:ORG/NAME` or `NAME=` any of them, checked
//! before a port is bound and turned into what the store understands. `URL#sha256=…` says which sum the file must have.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use jitney_engine::ServedDirectory;
use jitney_engine::store::{is_loadable, is_repository};

use crate::definition::{is_definition, is_on_hub};
use crate::failure::Failure;
use crate::plan::Startup;

/// Reads `PATH` or `NAME=PATH`.
pub fn parse(text: &str) -> Result<Startup, Failure> {
    let (name, path) = split_name(text);
    let startup = from_path(path)?;
    Ok(Startup { name: name.map(str::to_owned).or(startup.name), ..startup })
}

/// The folders of models among what the command line names, which may be followed, and the models.
pub fn repositories(
    named: &[String],
    followed: bool,
) -> Result<(Vec<ServedDirectory>, Vec<&String>), Failure> {
    let (mut folders, mut models) = (Vec::new(), Vec::new());
    for text in named {
        match repository(text, followed)? {
            Some(folder) => folders.push(folder),
            None => models.push(text),
        }
    }
    Ok((folders, models))
}

/// `FOLDER` with any number of models, or `NAME=FOLDER` with one.
fn repository(text: &str, followed: bool) -> Result<Option<ServedDirectory>, Failure> {
    let (name, folder) = split_name(text);
    let path = Path::new(folder);
    if !is_repository(path, followed) || (!followed && is_loadable(path)) {
        return Ok(None);
    }
    let path = without_links(path).map_err(|error| no_such_file(folder, &error))?;
    Ok(Some(ServedDirectory { path, name: name.map(str::to_owned) }))
}

/// A path that exists as it stands may have a `=` in it, and so may what follows a URL's scheme.
fn split_name(text: &str) -> (Option<&str>, &str) {
    let named = text.split_once('=').filter(|(name, _)| !name.contains("://"));
    match named.filter(|_| !Path::new(text).exists()) {
        Some((name, path)) => (Some(name), path),
        None => (None, text),
    }
}

/// Reads an entry of the file's list.
pub fn from_entry(entry: Startup) -> Result<Startup, Failure> {
    let Startup { url, definition, .. } = from_path(&entry.url)?;
    Ok(Startup { url, definition, ..entry })
}

fn from_path(text: &str) -> Result<Startup, Failure> {
    if text.contains("://") {
        let (url, sum) =
            text.split_once("#sha256=").map_or((text, None), |(url, sum)| (url, Some(sum)));
        let sum = sum.map(str::parse).transpose();
        let sha256 = sum.map_err(|why: String| Failure::usage(format!("{url}: {why}")))?;
        let startup = Startup { sha256, ..Startup::unnamed(url) };
        let other = || {
            Failure::usage(format!("{text}: models cannot be fetched from there"))
                .hint("known: http://, https://, s3://, gs://, az://, abfs://")
        };
        return if startup.is_remote() { Ok(startup) } else { Err(other()) };
    }
    if is_definition(text) || is_on_hub(text) {
        let definition = Some(text.to_owned());
        return Ok(Startup { definition, ..Startup::unnamed(text) });
    }
    let path = without_links(Path::new(text)).map_err(|error| no_such_file(text, &error))?;
    Ok(Startup::unnamed(&url(&path)))
}

/// The path without links. What lies in another container of the pod has no other path here than the one through
/// `/proc/N/root`, to which KServe's modelcars link.
fn without_links(path: &Path) -> std::io::Result<PathBuf> {
    let through_process =
        |to: &PathBuf| to.starts_with("/proc") && to.iter().any(|it| it == "root");
    let mut links = path.ancestors().filter_map(|part| std::fs::read_link(part).ok());
    if links.any(|to| through_process(&to)) {
        std::fs::metadata(path)?;
        return std::path::absolute(path);
    }
    path.canonicalize()
}

fn no_such_file(text: &str, error: &std::io::Error) -> Failure {
    if error.kind() != std::io::ErrorKind::NotFound {
        return Failure::usage(format!("cannot read {text}: {error}"));
    }
    let failure = Failure::usage(format!("no such file: {text}"));
    if Path::new(&format!("{text}.py")).is_file() {
        return failure.hint(format!(
            "there is {text}.py: say {text}.py, or {text}:NAME for one of its models"
        ));
    }
    failure.hint(
        "a model is an archive, a directory, an .onnx file or module:object; NAME=MODEL names it",
    )
}

/// Directories are opened by path, files through a `file://` URL, since a bare path to a file would
/// be looked up in the store.
fn url(path: &Path) -> String {
    let text = path.to_string_lossy();
    if path.is_dir() {
        return text.into_owned();
    }
    let mut url = "file://".to_owned();
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"/._-~+@,".contains(&byte);
        let _ = if plain { write!(url, "{}", byte as char) } else { write!(url, "%{byte:02X}") };
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_what_the_store_understands() {
        let dir = tempfile::tempdir().expect("directory");
        let root = dir.path().canonicalize().expect("path");
        for file in ["a b.mar", "m.onnx", "x=y.mar"] {
            std::fs::write(root.join(file), "").expect("file");
        }
        let at = |name: &str| format!("{}/{name}", root.display());
        for (text, name, url) in [
            (at("a b.mar"), None, format!("file://{}", at("a%20b.mar"))),
            (format!("n={}", at("m.onnx")), Some("n"), format!("file://{}", at("m.onnx"))),
            (at("x=y.mar"), None, format!("file://{}", at("x%3Dy.mar"))),
            (at(""), None, root.display().to_string()),
            ("https://x/y.mar?a=b".to_owned(), None, "https://x/y.mar?a=b".to_owned()),
            ("n=https://x/y.mar".to_owned(), Some("n"), "https://x/y.mar".to_owned()),
            ("n=app:Model".to_owned(), Some("n"), "app:Model".to_owned()),
        ] {
            let startup = parse(&text).expect("reads");
            assert_eq!((startup.name.as_deref(), startup.url), (name, url), "{text}");
        }
    }

    #[test]
    fn what_is_not_there_is_a_usage_error() {
        for text in ["no/such.mar", "n=no/such.mar", "ftp://x/y.mar"] {
            assert_eq!(parse(text).err().map(|failure| failure.code), Some(64), "{text}");
        }
    }
}
