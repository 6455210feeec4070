//! Where an archive goes: refused if something is there already, and in place only when it is
//! complete.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::members::Members;
use super::pack;
use crate::console;
use crate::failure::Failure;

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A compressed zip, `NAME.mar`.
    Deflated,
    /// A zip without compression, `NAME.mar`.
    Stored,
    /// `NAME.tar.gz`.
    Tgz,
    /// A directory.
    Directory,
    /// A compressed zip, `NAME.war`.
    Workflow,
}

impl Kind {
    fn ending(self) -> &'static str {
        match self {
            Self::Deflated | Self::Stored => ".mar",
            Self::Tgz => ".tar.gz",
            Self::Directory => "",
            Self::Workflow => ".war",
        }
    }
}

/// The directory that an archive is written to.
pub enum Place<'a> {
    /// It must be there.
    Existing(&'a Path),
    /// It is made when the archive is written.
    MadeIfAbsent(&'a Path),
}

/// An archive to be.
#[derive(Debug)]
pub struct Output {
    directory: PathBuf,
    path: PathBuf,
    name: String,
    kind: Kind,
}

impl Output {
    /// Checks that the archive may be written there.
    pub fn new(place: &Place<'_>, name: &str, kind: Kind, force: bool) -> Result<Self, Failure> {
        let (directory, usable) = match place {
            Place::Existing(directory) => (*directory, directory.is_dir()),
            Place::MadeIfAbsent(directory) => {
                (*directory, directory.is_dir() || !directory.exists())
            }
        };
        if !usable {
            let message = format!("--export-path is not a directory: {}", directory.display());
            return Err(Failure::failed(message));
        }
        let path = directory.join(format!("{name}{}", kind.ending()));
        refuse_existing(&path, force)?;
        Ok(Self { directory: directory.to_owned(), path, name: name.to_owned(), kind })
    }

    /// Where the archive will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes it.
    pub fn write(&self, members: &Members) -> Result<(), Failure> {
        let written = std::fs::create_dir_all(&self.directory).and_then(|()| match self.kind {
            Kind::Directory => self.write_directory(members),
            Kind::Deflated | Kind::Stored | Kind::Tgz | Kind::Workflow => self.write_file(members),
        });
        written.map_err(|error| {
            Failure::failed(format!("cannot write {}: {error}", self.path.display()))
        })
    }

    fn write_file(&self, members: &Members) -> io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(&self.hidden_name())
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(&self.directory)?;
        match self.kind {
            Kind::Tgz => pack::tgz(file.as_file_mut(), members, &self.name)?,
            Kind::Stored => pack::zip(file.as_file_mut(), members, pack::Method::Stored)?,
            Kind::Deflated | Kind::Workflow | Kind::Directory => {
                pack::zip(file.as_file_mut(), members, pack::Method::Deflated)?;
            }
        }
        file.persist(&self.path).map(drop).map_err(|error| error.error)
    }

    /// A directory cannot be replaced in one step; the old one is gone for a moment.
    fn write_directory(&self, members: &Members) -> io::Result<()> {
        let directory = tempfile::Builder::new()
            .prefix(&self.hidden_name())
            .permissions(Permissions::from_mode(0o777))
            .tempdir_in(&self.directory)?;
        pack::directory(directory.path(), members)?;
        if self.path.is_dir() {
            std::fs::remove_dir_all(&self.path)?;
        }
        std::fs::rename(directory.path(), &self.path)?;
        // It has its name now and is nobody's to remove.
        let _ = directory.keep();
        Ok(())
    }

    /// Hidden, so that a server that lists its store does not see half an archive.
    fn hidden_name(&self) -> String {
        format!(".{}.", self.name)
    }
}

fn refuse_existing(path: &Path, force: bool) -> Result<(), Failure> {
    if !path.exists() {
        return Ok(());
    }
    if force {
        console::err(format!("overwriting {}", path.display()));
        return Ok(());
    }
    Err(Failure::failed(format!(
        "{} already exists.\nPlease specify --force/-f option to overwrite the model archive output file.\nSee -h/--help for more details.",
        path.display()
    )))
}
