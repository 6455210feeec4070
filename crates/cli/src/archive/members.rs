//! The files of an archive, by their names inside it. Files land flat at the top; only the trees
//! below a directory among the extra files keep their structure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::pattern;
use crate::failure::Failure;

/// Directories that are not worth keeping, besides hidden ones.
const UNWANTED: [&str; 2] = ["__pycache__", "__MACOSX"];

/// Directories inside each other; more is a link that leads back to itself.
const DEPTH_MAX: usize = 64;

/// Where a member's bytes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file of this machine.
    File(PathBuf),
    /// Written by the archiver itself.
    Text(String),
}

/// What goes into the archive.
#[derive(Debug, Default)]
pub struct Members {
    members: BTreeMap<String, Source>,
    remarks: Vec<String>,
}

impl Members {
    /// Every member, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.members.iter().map(|(name, source)| (name.as_str(), source))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Sentences about what may not be as it was meant.
    pub fn remarks(&self) -> impl Iterator<Item = &str> {
        self.remarks.iter().map(String::as_str)
    }

    /// Adds the file of a flag, if the flag was given; returns its name inside the archive.
    pub fn add(&mut self, file: Option<&Path>, flag: &str) -> Result<Option<String>, Failure> {
        let Some(file) = file else { return Ok(None) };
        if !file.is_file() {
            return Err(Failure::failed(format!("{flag} file not found: {}", file.display())));
        }
        let name = name_of(file)?;
        self.put(name.clone(), file);
        Ok(Some(name))
    }

    /// Adds the comma list of `--extra-files`.
    pub fn add_list(&mut self, list: &str) -> Result<(), Failure> {
        for one in list.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            for path in self.meant(one)? {
                self.add_extra(&path)?;
            }
        }
        Ok(())
    }

    /// Adds what the archiver wrote itself, in place of a file of that name.
    pub fn set(&mut self, name: &str, text: String) {
        self.members.insert(name.to_owned(), Source::Text(text));
    }

    /// A path that exists is meant as it stands, whatever characters it has.
    fn meant(&mut self, text: &str) -> Result<Vec<PathBuf>, Failure> {
        let path = PathBuf::from(text);
        if path.exists() {
            return Ok(vec![path]);
        }
        if !pattern::is_pattern(text) {
            return Err(Failure::failed(format!("--extra-files file not found: {text}")));
        }
        let found = pattern::matches(text);
        if found.is_empty() {
            self.remarks.push(format!("warning: nothing matches {text} in --extra-files"));
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
        let unreadable = |error| Failure::failed(format!("cannot read {}: {error}", dir.display()));
        if depth == 0 {
            return Err(Failure::failed(format!("{} is nested too deeply", dir.display())));
        }
        for entry in std::fs::read_dir(dir).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let name = name_of(&path)?;
            if !path.is_dir() {
                self.put(format!("{prefix}{name}"), &path);
            } else if !name.starts_with('.') && !UNWANTED.contains(&name.as_str()) {
                self.add_tree(&path, &format!("{prefix}{name}/"), depth - 1)?;
            }
        }
        Ok(())
    }

    /// The later file of a name wins, as when files are copied into one directory.
    fn put(&mut self, name: String, file: &Path) {
        let source = Source::File(file.to_owned());
        if let Some(Source::File(before)) = self.members.insert(name.clone(), source)
            && before.canonicalize().ok() != file.canonicalize().ok()
        {
            let (lost, kept) = (before.display(), file.display());
            self.remarks.push(format!(
                "warning: {lost} and {kept} are both called {name} in the archive; {kept} is kept"
            ));
        }
    }
}

fn name_of(path: &Path) -> Result<String, Failure> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned).ok_or_else(|| {
        Failure::failed(format!("{} cannot be the name of a member", path.display()))
    })
}
