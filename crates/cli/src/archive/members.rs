//! The members of an archive by name. Files go to the top level; only directories among the extra
//! files keep their structure below them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::pattern;
use crate::failure::Failure;

/// Directories that are left out, besides hidden ones.
const SKIPPED: [&str; 2] = ["__pycache__", "__MACOSX"];

/// The most directories inside each other; more is a link that forms a loop.
const DEPTH_MAX: usize = 64;

/// Where the content of a member comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberSource {
    /// A file of this machine.
    File(PathBuf),
    /// A text that the archiver made.
    Text(String),
}

/// The members of an archive.
#[derive(Debug, Default)]
pub struct ArchiveMembers {
    /// Every member by its name.
    pub members: BTreeMap<String, MemberSource>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

impl ArchiveMembers {
    /// Adds the file of a flag, if the flag was given; returns its name inside the archive.
    pub fn add(&mut self, file: Option<&Path>, flag: &str) -> Result<Option<Value>, Failure> {
        let Some(file) = file else { return Ok(None) };
        if !file.is_file() {
            return Err(Failure::failed(format!("{flag} file not found: {}", file.display())));
        }
        let name = name_of(file)?;
        self.put(name.clone(), file);
        Ok(Some(name.into()))
    }

    /// Adds the comma list of `--extra-files`.
    pub fn add_list(&mut self, list: &str) -> Result<(), Failure> {
        for one in list.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            for path in self.expand(one)? {
                self.add_extra(&path)?;
            }
        }
        Ok(())
    }

    /// Adds a text that the archiver made, in place of a file of that name.
    pub fn set(&mut self, name: &str, text: String) {
        self.members.insert(name.to_owned(), MemberSource::Text(text));
    }

    /// A path that exists is taken literally, even if it has wildcard characters.
    fn expand(&mut self, text: &str) -> Result<Vec<PathBuf>, Failure> {
        let path = PathBuf::from(text);
        if path.exists() {
            return Ok(vec![path]);
        }
        if !pattern::is_pattern(text) {
            return Err(Failure::failed(format!("--extra-files file not found: {text}")));
        }
        let found = pattern::matches(text);
        if found.is_empty() {
            self.warnings.push(format!("warning: nothing matches {text} in --extra-files"));
        }
        Ok(found)
    }

    fn add_extra(&mut self, path: &Path) -> Result<(), Failure> {
        if path.is_dir() {
            return self.add_tree(path, "", DEPTH_MAX);
        }
        let name = name_of(path)?;
        self.put(name, path);
        Ok(())
    }

    fn add_tree(&mut self, dir: &Path, prefix: &str, depth: usize) -> Result<(), Failure> {
        let unreadable = |error| Failure::file("read", dir, &error);
        if depth == 0 {
            return Err(Failure::failed(format!("{} is nested too deeply", dir.display())));
        }
        for entry in std::fs::read_dir(dir).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let name = name_of(&path)?;
            if !path.is_dir() {
                self.put(format!("{prefix}{name}"), &path);
            } else if !name.starts_with('.') && !SKIPPED.contains(&name.as_str()) {
                self.add_tree(&path, &format!("{prefix}{name}/"), depth - 1)?;
            }
        }
        Ok(())
    }

    /// The later file of a name wins, as when files are copied into one directory.
    fn put(&mut self, name: String, file: &Path) {
        let source = MemberSource::File(file.to_owned());
        if let Some(MemberSource::File(before)) = self.members.insert(name.clone(), source)
            && before.canonicalize().ok() != file.canonicalize().ok()
        {
            let (lost, kept) = (before.display(), file.display());
            self.warnings.push(format!(
                "warning: {lost} and {kept} are both called {name} in the archive; {kept} is kept"
            ));
        }
    }
}

fn name_of(path: &Path) -> Result<String, Failure> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned)
        .ok_or_else(|| Failure::failed(format!("{} has no valid file name", path.display())))
}
