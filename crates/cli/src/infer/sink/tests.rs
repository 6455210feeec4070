//! The files of a job after every way in which a run can end. Dropping the sink without `finish`
//! leaves them as a killed process does.

use bytes::Bytes;

use super::*;
use crate::env::Env;
use crate::infer::row::{RowContent, RowError};

const LAYOUT: OutputLayout = OutputLayout { csv: false, with_input: false, from_table: false };

fn open(output: &Path, overwrite: bool) -> Result<FileSink, Failure> {
    FileSink::open(output, JobIdentity::default(), LAYOUT, overwrite)
}

fn python() -> PythonHelper {
    PythonHelper::new(None, &Env::default())
}

/// Writes the rows up to `end`; every third one fails.
fn write(files: &mut FileSink, end: u64) {
    for number in files.progress.rows..end {
        let content = RowContent::Json(Bytes::from(number.to_string()));
        let row = InputRow { number, next: 10 * (number + 1), content };
        let result = if number % 3 == 2 {
            RowResult::Failed(RowError { status: 500, message: "no".to_owned() })
        } else {
            RowResult::Answered(number.to_string())
        };
        files.write(&row, &result).expect("writes");
    }
}

fn rows(path: &Path) -> Vec<u64> {
    let text = fs::read_to_string(path).expect("reads");
    let row = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    text.lines().map(|line| row(line)["row"].as_u64().expect("a number")).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("lists").flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_killed_run_is_resumed_at_its_last_journal() {
    let dir = tempfile::tempdir().expect("directory");
    let output = dir.path().join("out.jsonl");
    let mut files = open(&output, false).expect("opens");
    write(&mut files, 10);
    files.commit().expect("commits");
    write(&mut files, 14);
    // These have reached the file, but no journal counts them.
    files.part.flush().expect("writes");
    files.failed.flush().expect("writes");
    drop(files);

    let mut files = open(&output, false).expect("opens again");
    assert_eq!((files.progress.rows, files.progress.position, files.progress.failed), (10, 100, 3));
    write(&mut files, 20);
    files.finish(&python()).expect("finishes");
    let failed: Vec<u64> = (0..20).filter(|number| number % 3 == 2).collect();
    let answered: Vec<u64> = (0..20).filter(|number| number % 3 != 2).collect();
    assert_eq!(rows(&output), answered);
    assert_eq!(rows(&dir.path().join("out.jsonl.failed.jsonl")), failed);
    assert_eq!(names(dir.path()), ["out.jsonl", "out.jsonl.failed.jsonl"]);
}

#[test]
fn a_run_that_was_killed_during_the_rename_is_finished_by_the_next() {
    for after_the_rename in [false, true] {
        let dir = tempfile::tempdir().expect("directory");
        let output = dir.path().join("out.jsonl");
        let mut files = open(&output, false).expect("opens");
        write(&mut files, 2);
        files.progress.complete = true;
        files.commit().expect("commits");
        if after_the_rename {
            files.rename(&python()).expect("renames");
        }
        drop(files);

        let mut files = open(&output, false).expect("opens again");
        assert!(files.progress.complete);
        files.finish(&python()).expect("finishes");
        assert_eq!(rows(&output), [0, 1]);
        assert_eq!(names(dir.path()), ["out.jsonl"]);
    }
}

#[test]
fn an_output_that_exists_stays_unless_it_may_be_replaced() {
    let dir = tempfile::tempdir().expect("directory");
    let output = dir.path().join("out.jsonl");
    fs::write(&output, "mine").expect("file");
    assert_eq!(open(&output, false).err().map(|failure| failure.code), Some(64));
    assert_eq!(names(dir.path()), ["out.jsonl"]);
    let mut files = open(&output, true).expect("opens");
    write(&mut files, 1);
    assert_eq!(fs::read_to_string(&output).expect("reads"), "mine", "not before it is complete");
    files.finish(&python()).expect("finishes");
    assert_eq!(rows(&output), [0]);
}

#[test]
fn two_jobs_do_not_write_one_output() {
    let dir = tempfile::tempdir().expect("directory");
    let output = dir.path().join("out.jsonl");
    let _first = open(&output, false).expect("opens");
    let failure = open(&output, false).err().expect("an error");
    assert!(failure.message.contains("another job"), "{failure}");
}

#[test]
fn an_output_that_lost_rows_is_an_error() {
    let dir = tempfile::tempdir().expect("directory");
    let output = dir.path().join("out.jsonl");
    let mut files = open(&output, false).expect("opens");
    write(&mut files, 2);
    files.commit().expect("commits");
    drop(files);
    fs::write(dir.path().join("out.jsonl.part"), "").expect("file");
    assert!(open(&output, false).is_err());
    assert!(open(&output, true).is_ok());
}
