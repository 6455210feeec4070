//! Plugins: finds the files and modules that the operator names, and starts one process for each.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jitney_engine::{Engine, PluginPlan};
use jitney_server::Plugins;

use crate::failure::Failure;

/// The names in a comma-separated list.
pub fn listed(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The Python files of a directory, sorted by name, with a remark about jars.
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

/// A plan for every plugin; files must exist, and names must be unique.
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

/// Starts all plugins and collects what they offer. The server opens no port before all of them have
/// answered, because a plugin may control access.
pub async fn start(
    plans: &[PluginPlan],
    engine: &Arc<Engine>,
) -> Result<Option<Arc<Plugins>>, Failure> {
    let Some(first) = plans.first() else { return Ok(None) };
    let mut started = Vec::new();
    for plan in plans {
        let plugin = engine.plugins().start(plan).await.map_err(|error| {
            Failure::failed(format!("plugin {} did not start: {error}", plan.source))
                .hint("its traceback is in the log above")
        })?;
        tracing::info!(plugin = plan.name, source = plan.source, "plugin loaded");
        started.push(plugin);
    }
    let gathered = jitney_server::gather_plugins(started, first.timeout).await;
    gathered
        .map(|plugins| Some(Arc::new(plugins)))
        .map_err(|error| Failure::failed(error.to_string()))
}

fn plan(source: &str, timeout: Duration) -> Result<PluginPlan, Failure> {
    let here = |error: std::io::Error| Failure::failed(format!("plugin {source}: {error}"));
    if !source.ends_with(".py") {
        let dir = std::env::current_dir().map_err(here)?;
        return Ok(PluginPlan { name: source.to_owned(), source: source.to_owned(), dir, timeout });
    }
    let file = std::path::absolute(source).map_err(here)?;
    let dir = file.parent().filter(|_| file.is_file()).ok_or_else(|| {
        Failure::failed(format!("plugin {source}: no such file"))
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

    const TIMEOUT: Duration = Duration::from_secs(1);

    fn files(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("directory");
        names.iter().for_each(|name| std::fs::write(dir.path().join(name), "").expect("file"));
        dir
    }

    #[test]
    fn a_directory_gives_its_python_files_and_a_remark_about_jars() {
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
    fn a_missing_file_and_a_duplicate_name_are_errors() {
        let (one, other) = (files(&["same.py"]), files(&["same.py"]));
        let path = |dir: &tempfile::TempDir| dir.path().join("same.py").display().to_string();
        let twice = named(&[path(&one), path(&other)], TIMEOUT).expect_err("an error");
        assert_eq!(twice.message, "two plugins are named same");
        let missing = named(&["nowhere.py".to_owned()], TIMEOUT).expect_err("an error");
        assert!(missing.message.ends_with("no such file"), "{}", missing.message);
    }

    #[test]
    fn a_module_is_named_by_its_path() {
        let plans = named(&listed(" company.gate ,,"), TIMEOUT).expect("plans");
        assert_eq!((plans[0].name.as_str(), plans.len()), ("company.gate", 1));
    }
}
