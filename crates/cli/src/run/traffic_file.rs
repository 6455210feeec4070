//! The file in which `jitney serve` keeps shares, and who may write it: of several servers with one folder the first
//! that has something to keep. The others take nothing up from it and keep nothing, so that a restart of the first one
//! goes on with its own. The same holds for the jobs of the folder, whose store has a lock of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use jitney_engine::traffic_split::TrafficSplit;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::durable_file;

/// What is in the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficDocument {
    pub models: BTreeMap<String, KeptTraffic>,
}

/// The shares of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptTraffic {
    /// What its versions brought from the configuration.
    pub configured: BTreeSet<String>,
    /// What is in force; without it the default version answers.
    pub traffic: Option<TrafficSplit>,
    /// The default version.
    pub default: String,
}

/// The file of a server.
pub struct TrafficFile<'a> {
    path: &'a Path,
    holder: Holder,
}

/// Who has the lock beside the file.
enum Holder {
    /// Nobody, as far as is known: there was nothing to keep.
    Unknown,
    /// The server that this one replaces, which lets it go when it has handed its ports over.
    Predecessor,
    /// This server.
    This { _lock: Option<File> },
    /// Another one, which stays.
    Other,
}

impl<'a> TrafficFile<'a> {
    /// That of a server which may replace another one with the same file.
    pub fn new(path: &'a Path, replaces: bool) -> Self {
        let holder = if replaces { Holder::Predecessor } else { Holder::Unknown };
        Self { path, holder }
    }

    /// Where it is.
    pub fn path(&self) -> &'a Path {
        self.path
    }

    /// What the last run left. From then on no other server takes it up.
    pub fn read(&mut self) -> io::Result<TrafficDocument> {
        if self.path.exists() && !matches!(self.holder, Holder::Predecessor) {
            self.hold()?;
        }
        match fs::read(self.path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(TrafficDocument::default()),
            Err(error) => Err(error),
        }
    }

    /// Replaces the file; when this returns true, it survives a crash of the machine. With false it is to be tried
    /// again, since the server before this one still has it.
    pub fn write(&mut self, document: &TrafficDocument) -> io::Result<bool> {
        if let Some(folder) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let held = self.hold()?;
        if held {
            durable_file::replace(self.path, document)?;
        }
        Ok(held)
    }

    /// Whether the server that this one replaces may still have the file.
    pub fn is_awaited(&self) -> bool {
        matches!(self.holder, Holder::Predecessor) && self.path.exists()
    }

    /// Sees to it that nobody else has the file as long as this server runs. False if that has to wait.
    fn hold(&mut self) -> io::Result<bool> {
        if let Holder::Unknown | Holder::Predecessor = self.holder {
            let file = File::create(self.path.with_extension("lock"))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => self.holder = Holder::This { _lock: Some(file) },
                Err(Errno::WOULDBLOCK) if matches!(self.holder, Holder::Predecessor) => {
                    return Ok(false);
                }
                Err(Errno::WOULDBLOCK) => self.holder = Holder::Other,
                Err(error) => {
                    tracing::debug!(%error, "no lock beside the file of shares");
                    self.holder = Holder::This { _lock: None };
                }
            }
        }
        if let Holder::Other = self.holder {
            let why = "another server keeps its shares there; name another folder with jobs_dir";
            return Err(io::Error::other(why));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> TrafficDocument {
        let text = r#"{"shares":{"1.0":100.0,"2.0":0.0},"return":{"errors":"+1%"},"returned":{"2.0":"it failed"}}"#;
        let kept = KeptTraffic {
            configured: BTreeSet::from(["{}".to_owned()]),
            traffic: Some(text.parse().expect("shares")),
            default: "1.0".to_owned(),
        };
        TrafficDocument { models: BTreeMap::from([("m".to_owned(), kept)]) }
    }

    #[test]
    fn what_is_written_is_read_and_a_missing_file_is_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("jobs").join("traffic.json");
        let mut file = TrafficFile::new(&path, false);
        assert_eq!(file.read().expect("reads"), TrafficDocument::default());
        assert!(!path.parent().expect("a folder").exists(), "there is nothing to keep yet");
        for _ in 0..2 {
            assert!(file.write(&document()).expect("writes"));
            assert_eq!(file.read().expect("reads"), document());
        }
        let names = fs::read_dir(path.parent().expect("a folder")).expect("lists");
        assert_eq!(names.count(), 2, "nothing is left beside it but the lock");
        fs::write(&path, "{").expect("writes");
        assert!(file.read().is_err());
    }

    #[test]
    fn one_server_has_the_file_and_the_one_that_replaces_it_gets_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("traffic.json");
        let [mut first, mut early] = [false; 2].map(|replaces| TrafficFile::new(&path, replaces));
        early.read().expect("there is nothing yet");
        first.write(&document()).expect("writes");
        let mut late = TrafficFile::new(&path, false);
        let mut next = TrafficFile::new(&path, true);
        for other in [late.read().map(drop), early.write(&TrafficDocument::default()).map(drop)] {
            let error = other.expect_err("the first one has it").to_string();
            assert!(error.contains("another server keeps its shares there"), "{error}");
        }
        assert_eq!(next.read().expect("reads"), document());
        assert!(next.is_awaited());
        assert!(!next.write(&TrafficDocument::default()).expect("it waits"));
        drop(first);
        for mut refused in [early, late] {
            assert!(refused.write(&TrafficDocument::default()).is_err(), "it belongs to the first");
        }
        assert!(next.write(&document()).expect("writes") && !next.is_awaited());
        assert!(TrafficFile::new(&path, false).read().is_err());
    }
}
