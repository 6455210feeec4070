//! The files of a job after every way in which a run can end: dropping them without a word is what a
//! killed process does to them.

use bytes::Bytes;

use super::*;
use crate::env::Env;
use crate::infer::answer::Trouble;
use crate::infer::row::Given;

const LAYOUT: Layout = Layout { csv: false, with_input: false, from_table: false };

fn open(output: &Path, overwrite: bool) -> Result<Files, Failure> {
    Files::open(output, Identity::default(), LAYOUT, overwrite)
}

fn helper() -> Helper {
    Helper::new(None, &Env::default())
}

/// Writes the rows up to `end`; every third one fails.
fn write(files: &mut Files, end: u64) {
    for number in files.progress.rows..end {
        let given = Given::Json(Bytes::from(number.to_string()));
        let row = Row { number, next: 10 * (number + 1), given };
        let outcome = if number % 3 == 2 {
            Outcome::Failed(Trouble { status: 500, message: "no".to_owned() })
        } else {
            Outcome::Answered(number.to_string())
        };
        files.write(&row, &outcome).expect("writes");
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
fn a_run_that_was_killed_goes_on_at_its_last_journal() {
    let dir = tempfile::tempdir().expect("directory");
    let output = dir.path().join("out.jsonl");
    let mut files = open(&output, false).expect("opens");
    write(&mut files, 10);
    files.settle().expect("settles");
    write(&mut files, 14);
    // These have reached the file, but no journal counts them.
    files.part.flush().expect("writes");
    files.failed.flush().expect("writes");
    drop(files);

    let mut files = open(&output, false).expect("opens again");
    assert_eq!((files.start().rows, files.start().position), (10, 100));
    assert_eq!(files.count(), Count { rows: 10, failed: 3 });
    write(&mut files, 20);
    files.finish(&helper()).expect("finishes");
    let failed: Vec<u64> = (0..20).filter(|number| number % 3 == 2).collect();
    let answered: Vec<u64> = (0..20).filter(|number| number % 3 != 2).collect();
    assert_eq!(rows(&output), answered);
    assert_eq!(rows(&dir.path().join("out.jsonl.failed.jsonl")), failed);
    assert_eq!(names(dir.path()), ["out.jsonl", "out.jsonl.failed.jsonl"]);
}

#[test]
fn a_run_that_was_killed_while_the_name_was_given_is_finished_by_the_next() {
    for after_the_name in [false, true] {
        let dir = tempfile::tempdir().expect("directory");
        let output = dir.path().join("out.jsonl");
        let mut files = open(&output, false).expect("opens");
        write(&mut files, 2);
        files.progress.complete = true;
        files.settle().expect("settles");
        if after_the_name {
            files.name(&helper()).expect("names");
        }
        drop(files);

        let mut files = open(&output, false).expect("opens again");
        assert!(files.is_complete());
        files.finish(&helper()).expect("finishes");
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
    files.finish(&helper()).expect("finishes");
    assert_eq!(rows(&output), [0]);
}

#[test]
fn two_jobs_do_not_write_one_output() {
    let dir = tempfile::tempdir().expect("directory");
    let output = dir.path().join("out.jsonl");
    let _first = open(&output, false).expect("opens");
    let failure = open(&output, false).err().expect("refused");
    assert!(failure.message.contains("another job"), "{failure}");
}

#[test]
fn an_output_that_lost_rows_is_not_believed() {
    let dir = tempfile::tempdir().expect("directory");
    let output = dir.path().join("out.jsonl");
    let mut files = open(&output, false).expect("opens");
    write(&mut files, 2);
    files.settle().expect("settles");
    drop(files);
    fs::write(dir.path().join("out.jsonl.part"), "").expect("file");
    assert!(open(&output, false).is_err());
    assert!(open(&output, true).is_ok());
}
