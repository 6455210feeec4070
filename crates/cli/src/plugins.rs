//! Which plugins there are: files and modules that the operator names, and what lies in a directory.
//! Files are looked for here, once; what is in them is found out by their processes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jitney_engine::PluginPlan;

use crate::failure::Failure;

/// How long a plugin's callers wait.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// The names in a comma-separated list.
pub fn listed(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The Python files of a directory, sorted by name; jars are remarked on.
pub fn inside(dir: &Path, remarks: &mut Vec<String>) -> Result<Vec<String>, Failure> {
    let unreadable = |error| {
        Failure::failed(format!("plugins_path {}: {error}", dir.display()))
            .hint("name a directory with Python files, or leave plugins_path out")
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        files.push(entry.map_err(unreadable)?.path());
    }
    files.sort();
    let ending = |ending: &'static str| {
        move |path: &&PathBuf| path.extension().is_some_and(|found| found == ending)
    };
    let jars: Vec<_> = files.iter().filter(ending("jar")).map(|jar| name(jar)).collect();
    if !jars.is_empty() {
        let jars = jars.join(", ");
        remarks.push(format!("Java plugins cannot be loaded, write them in Python: {jars}"));
    }
    Ok(files.iter().filter(ending("py")).map(|path| path.display().to_string()).collect())
}

/// A plan for every source; a file must be there, and no two may have one name.
pub fn named(sources: &[String], timeout: Duration) -> Result<Vec<PluginPlan>, Failure> {
    let mut names = BTreeSet::new();
    sources
        .iter()
        .map(|source| {
            let plan = plan(source, timeout)?;
            if names.insert(plan.name.clone()) {
                return Ok(plan);
            }
            Err(Failure::failed(format!("two plugins are named {}", plan.name))
                .hint("rename one of the files"))
        })
        .collect()
}

fn plan(source: &str, timeout: Duration) -> Result<PluginPlan, Failure> {
    let here = |error: std::io::Error| Failure::failed(format!("plugin {source}: {error}"));
    if !source.ends_with(".py") {
        let dir = std::env::current_dir().map_err(here)?;
        return Ok(PluginPlan { name: source.to_owned(), source: source.to_owned(), dir, timeout });
    }
    let file = std::path::absolute(source).map_err(here)?;
    let dir = file.parent().filter(|_| file.is_file()).ok_or_else(|| {
        Failure::failed(format!("plugin {source}: there is no such file"))
            .hint("name a Python file by its path, or a module by its dotted name")
    })?;
    let source = file.display().to_string();
    Ok(PluginPlan { name: name(&file), source, dir: dir.to_owned(), timeout })
}

fn name(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("directory");
        names.iter().for_each(|name| std::fs::write(dir.path().join(name), "").expect("file"));
        dir
    }

    #[test]
    fn a_directory_gives_its_python_files_and_a_word_about_jars() {
        let dir = files(&["b.py", "a.py", "old.jar", "notes.txt"]);
        let mut remarks = Vec::new();
        let found = inside(dir.path(), &mut remarks).expect("reads");
        let plans = named(&found, TIMEOUT).expect("plans");
        let names: Vec<_> = plans.iter().map(|plan| plan.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(plans.iter().all(|plan| plan.dir == dir.path()));
        assert_eq!(remarks, ["Java plugins cannot be loaded, write them in Python: old"]);
        assert!(inside(&dir.path().join("nowhere"), &mut remarks).is_err());
    }

    #[test]
    fn a_missing_file_and_a_name_taken_twice_are_refused() {
        let (one, other) = (files(&["same.py"]), files(&["same.py"]));
        let path = |dir: &tempfile::TempDir| dir.path().join("same.py").display().to_string();
        let twice = named(&[path(&one), path(&other)], TIMEOUT).expect_err("refused");
        assert_eq!(twice.message, "two plugins are named same");
        let missing = named(&["nowhere.py".to_owned()], TIMEOUT).expect_err("refused");
        assert!(missing.message.ends_with("there is no such file"), "{}", missing.message);
    }

    #[test]
    fn a_module_is_taken_by_its_name() {
        let plans = named(&listed(" company.gate ,,"), TIMEOUT).expect("plans");
        assert_eq!((plans[0].name.as_str(), plans.len()), ("company.gate", 1));
    }
}
