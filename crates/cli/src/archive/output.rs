//! Where an archive is written. It appears under its name only when it is complete, and replaces an
//! existing file only with `--force`.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use zip::CompressionMethod;

use super::members::ArchiveMembers;
use super::pack;
use crate::console;
use crate::failure::Failure;

/// How members are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Into a zip.
    Zip(CompressionMethod),
    /// Into a compressed tar.
    Tgz,
    /// Into a directory.
    Directory,
}

/// An archive to be written.
#[derive(Debug)]
pub struct ArchiveOutput<'a> {
    directory: &'a Path,
    name: &'a str,
    /// Where the archive is written.
    pub path: PathBuf,
    packing: Packing,
}

impl<'a> ArchiveOutput<'a> {
    /// An archive in a directory.
    pub fn new(directory: &'a Path, name: &'a str, ending: &str, packing: Packing) -> Self {
        let path = directory.join(format!("{name}{ending}"));
        Self { directory, name, path, packing }
    }

    /// Checks that the archive may be written; an optional directory is made later.
    pub fn check(&self, directory_required: bool, force: bool) -> Result<(), Failure> {
        if directory_required && !self.directory.is_dir() {
            let directory = self.directory.display();
            return Err(Failure::failed(format!("--export-path is not a directory: {directory}")));
        }
        let path = self.path.display();
        if self.path.exists() && !force {
            return Err(Failure::failed(format!(
                "{path} already exists.\nPlease specify --force/-f option to overwrite the model archive output file.\nSee -h/--help for more details."
            )));
        }
        if self.path.exists() {
            console::err(format!("overwriting {path}"));
        }
        Ok(())
    }

    /// Writes it.
    pub fn write(&self, members: &ArchiveMembers) -> Result<(), Failure> {
        let written = fs::create_dir_all(self.directory).and_then(|()| match self.packing {
            Packing::Directory => self.write_directory(members),
            Packing::Tgz => self.write_file(|file| pack::tgz(file, members, self.name)),
            Packing::Zip(method) => self.write_file(|file| pack::zip(file, members, method)),
        });
        written.map_err(|error| Failure::file("write", &self.path, &error))
    }

    fn write_file(&self, pack: impl Fn(&mut fs::File) -> io::Result<()>) -> io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(&self.hidden_name())
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(self.directory)?;
        pack(file.as_file_mut())?;
        file.persist(&self.path).map(drop).map_err(|error| error.error)
    }

    /// A directory cannot be replaced in one step; the old one is removed first.
    fn write_directory(&self, members: &ArchiveMembers) -> io::Result<()> {
        let directory = tempfile::Builder::new()
            .prefix(&self.hidden_name())
            .permissions(Permissions::from_mode(0o777))
            .tempdir_in(self.directory)?;
        pack::directory(directory.path(), members)?;
        if self.path.is_dir() {
            fs::remove_dir_all(&self.path)?;
        }
        fs::rename(directory.path(), &self.path)?;
        // The renamed directory must not be removed as a temporary one.
        let _ = directory.keep();
        Ok(())
    }

    /// Hidden, so that a server that lists its model store does not see an incomplete archive.
    fn hidden_name(&self) -> String {
        format!(".{}.", self.name)
    }
}
