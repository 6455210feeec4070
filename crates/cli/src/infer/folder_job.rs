//! `jitney infer --ray` from a folder of Parquet files, on a disk or in a bucket, to another. All rows stay on the
//! cluster: this process starts the Python process that leads the job, and ends with it.

use std::path::Path;
use std::process::Stdio;

use super::ray_command::ray_command;
use crate::failure::{self, Failure, cannot};
use crate::flags::infer::{InferFlags, InputFormat};
use crate::python::PythonHelper;
use crate::run;

/// Whether the flags name such a job: a bucket, or a folder whose first file is Parquet.
pub fn is_folder_job(flags: &InferFlags) -> bool {
    let folder = || match flags.format {
        None => holds_parquet(&flags.input),
        Some(format) => format == InputFormat::Parquet && flags.input.is_dir(),
    };
    is_url(&flags.input) || is_url(&flags.output) || folder()
}

fn is_url(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.contains("://"))
}

/// Looks at the first file below a folder; names with an underscore or a dot are those of other programs' notes.
fn holds_parquet(folder: &Path) -> bool {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(['_', '.']) {
                continue;
            }
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                return ends_in(&entry.path(), &["parquet", "pq"]);
            }
            folders.push(entry.path());
        }
    }
    false
}

fn ends_in(path: &Path, endings: &[&str]) -> bool {
    path.extension().is_some_and(|ending| endings.iter().any(|one| ending == *one))
}

/// Runs the job and returns its exit code.
pub fn run(flags: &InferFlags, python: &PythonHelper) -> Result<u8, Failure> {
    check(flags)?;
    let mut command = ray_command(flags, "jitney.offline.folder_job", python)?;
    command.arg(whole(&flags.input)?).arg(whole(&flags.output)?);
    for (flag, value) in [
        ("--actors", flags.workers.map(|workers| workers.to_string())),
        ("--columns", (!flags.columns.is_empty()).then(|| flags.columns.join(","))),
        ("--max-failed", flags.max_failed.map(|most| most.to_string())),
    ] {
        command.args(value.iter().flat_map(|value| [flag, value.as_str()]));
    }
    command.args(flags.with_input.then_some("--with-input"));
    command.args(flags.overwrite.then_some("--overwrite"));
    command.stdin(Stdio::piped());
    run::runtime("start")?.block_on(watch(command.into()))
}

/// Waits for the process. At a signal its stdin is closed, upon which it ends by itself, as it does if this one is
/// killed.
async fn watch(mut command: tokio::process::Command) -> Result<u8, Failure> {
    let stop = run::stop_signal().map_err(cannot("listen for signals"))?;
    let mut child = command.spawn().map_err(cannot("start Ray"))?;
    let stdin = child.stdin.take();
    tokio::select! {
        _ = child.wait() => {}
        () = stop => {}
    }
    drop(stdin);
    let status = child.wait().await.map_err(cannot("wait for Ray"))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(failure::FAILED))
}

fn check(flags: &InferFlags) -> Result<(), Failure> {
    if flags.format.is_some_and(|format| format != InputFormat::Parquet) {
        return Err(Failure::usage("files in buckets are read and written as Parquet only")
            .hint("leave out --format"));
    }
    if flags.ray.is_none() {
        return Err(Failure::usage("folders of Parquet files and buckets need --ray")
            .hint("--ray starts a cluster on this machine, --ray=ADDRESS uses one that is there"));
    }
    let files = ["csv", "jsonl", "ndjson", "json", "parquet"];
    if flags.output == Path::new("-") || ends_in(&flags.output, &files) {
        let message = format!("{}: the output must be a folder", flags.output.display());
        return Err(Failure::usage(message).hint("many files are written there, beside each other"));
    }
    if !is_url(&flags.input) && !flags.input.exists() {
        let message = format!("{}: no such file or folder", flags.input.display());
        return Err(Failure::usage(message));
    }
    Ok(())
}

/// A path from the root, or the URL of a bucket.
fn whole(path: &Path) -> Result<std::path::PathBuf, Failure> {
    if is_url(path) {
        Ok(path.to_owned())
    } else {
        std::path::absolute(path).map_err(cannot("start Ray"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_parquet_files_is_told_from_one_of_images() {
        let dir = tempfile::tempdir().expect("directory");
        let named = |input: &Path, format| {
            is_folder_job(&InferFlags { input: input.to_owned(), format, ..InferFlags::default() })
        };
        let deep = dir.path().join("year=2024");
        std::fs::create_dir(&deep).expect("directory");
        assert!(!named(dir.path(), None), "nothing is in it");
        assert!(named(dir.path(), Some(InputFormat::Parquet)));
        std::fs::write(dir.path().join("_SUCCESS"), "").expect("file");
        std::fs::write(deep.join("a.parquet"), "").expect("file");
        assert!(named(dir.path(), None));
        assert!(!named(dir.path(), Some(InputFormat::Images)));
        assert!(!named(&deep.join("a.parquet"), None), "one file has an order");
        assert!(named(Path::new("s3://rows/a.parquet"), None));
    }
}
