//! Files with keys: `key_file.json` with the tokens for clients on this machine, readable by the owner only, and files
//! of the operator's, which are followed.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use jitney_server::FieldChanges;
use jitney_server::auth::KeyStore;
use tempfile::NamedTempFile;

use crate::follow::{FileAudit, follow};

/// The file's name, in the directory that the server was started in.
pub const KEY_FILE: &str = "key_file.json";

/// The file.
pub struct KeyFile(PathBuf);

impl KeyFile {
    /// The file in the current directory.
    pub fn here() -> io::Result<Self> {
        std::path::absolute(KEY_FILE).map(Self)
    }

    /// A file anywhere; a link stays, and what it leads to is written.
    pub fn at(path: &Path) -> io::Result<Self> {
        path.canonicalize().or_else(|_| std::path::absolute(path)).map(Self)
    }
}

impl KeyStore for KeyFile {
    /// A temporary file is readable by the owner only, and the rename makes the change atomic.
    fn save(&self, text: &str) -> io::Result<()> {
        let directory = self.0.parent().unwrap_or(Path::new("."));
        let mut file = NamedTempFile::new_in(directory)?;
        file.write_all(text.as_bytes())?;
        file.persist(&self.0).map(drop).map_err(|error| error.error)
    }
}

/// Keys that the operator gives, for example as a secret that is mounted.
pub struct GivenKeys {
    path: PathBuf,
    text: String,
}

impl GivenKeys {
    /// Reads the file.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), text: std::fs::read_to_string(path)? })
    }

    /// What the file says.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Puts the keys in force that the file has, whenever it changes; without end. What cannot be read
    /// changes nothing.
    pub async fn follow(
        self,
        audit: FileAudit,
        give: impl Fn(&str) -> Result<FieldChanges, String>,
    ) {
        let Self { path, text } = self;
        let read = || std::fs::read_to_string(&path).map_err(|error| error.to_string());
        follow(&path, audit, text, read, |text| give(text)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_file_is_replaced_and_readable_by_the_owner_only() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join(KEY_FILE);
        std::fs::write(&path, "of an earlier server, readable by all").expect("file");
        let file = KeyFile(path.clone());
        for text in ["one", "two"] {
            file.save(text).expect("saves");
            assert_eq!(std::fs::read_to_string(&path).expect("reads"), text);
            let mode = path.metadata().expect("metadata").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(dir.path().read_dir().expect("lists").count(), 1);
    }
}
