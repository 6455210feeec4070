//! Snapshots: after the start, after every change and at the end the whole configuration is written
//! to a file of its own, and the newest one is what a start without a configuration goes on from.
//!
//! Here are the files and their names; [`document`] is the part about models, [`escape`] Java's way
//! of writing properties. The way back is `torchserve::restore`: this module knows no command.

mod document;
mod escape;

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use jitney_settings::torchserve::{
    DISABLE_TOKEN_AUTHORIZATION, ENABLE_MODEL_API, KEYSTORE_PASS, LOAD_MODELS, MODEL_SNAPSHOT,
    properties,
};
use jitney_settings::{Setting, SettingSource, Values};

use crate::url_rule::shown_models;
use document::SnapshotDocument;
pub use document::{Models, SnapshotEndpoint, SnapshotVersion, last_element, models};

/// The key that holds the models.
pub const KEY: &str = "model_snapshot";

/// When a snapshot is taken; part of its file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The server is about to listen.
    Startup,
    /// Something about the models changed.
    Change,
    /// The server was told to end.
    Shutdown,
}

impl Moment {
    fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Change => "snapshot",
            Self::Shutdown => "shutdown",
        }
    }
}

/// What is the same in every snapshot of a server.
#[derive(Clone, Debug)]
pub struct Snapshots {
    directory: PathBuf,
    /// Where archives are found by name.
    pub store: PathBuf,
    properties: Vec<(String, String)>,
}

impl Snapshots {
    /// Snapshots of a server with these values, below its log directory.
    pub fn new(logs: &Path, store: &Path, values: &Values, more: &[(&str, String)]) -> Self {
        let text = |setting: &'static Setting| {
            let key = setting.property.filter(|_| may_be_kept(setting, &values.source(setting)))?;
            let text = values.show(setting)?;
            let is_list = setting.name == LOAD_MODELS.name;
            Some((key.to_owned(), if is_list { shown_models(&text) } else { text }))
        };
        let mut properties: Vec<_> = properties()
            .filter_map(text)
            .filter(|(key, _)| more.iter().all(|(other, _)| other != key))
            .collect();
        properties.extend(more.iter().map(|(key, text)| ((*key).to_owned(), text.clone())));
        properties.sort();
        properties.dedup_by(|a, b| a.0 == b.0);
        Self { directory: directory(logs), store: store.to_owned(), properties }
    }

    /// Writes one; the file appears under its name only when it is complete.
    pub fn write(&self, models: &Models, moment: Moment, now: SystemTime) -> io::Result<PathBuf> {
        let name = file_name(moment, now);
        let created = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let document = SnapshotDocument::new(&name, created, models);
        let mut text = format!("#Saving snapshot\n#{}\n", humantime::format_rfc3339_seconds(now));
        for (key, value) in &self.properties {
            escape::line(&mut text, key, value);
        }
        escape::line(&mut text, KEY, &document.text());
        std::fs::create_dir_all(&self.directory)?;
        let mut file = tempfile::Builder::new()
            .prefix(".snapshot.")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(&self.directory)?;
        file.write_all(text.as_bytes())?;
        let path = self.directory.join(name);
        file.persist(&path).map_err(|error| error.error)?;
        Ok(path)
    }
}

/// Only what a source set. Permissions of the command line are given anew each time, and a password
/// from the environment stays there.
fn may_be_kept(setting: &Setting, source: &SettingSource) -> bool {
    let is = |other: &Setting| setting.name == other.name;
    match source {
        SettingSource::Flag(_) => !is(&DISABLE_TOKEN_AUTHORIZATION) && !is(&ENABLE_MODEL_API),
        SettingSource::Variable(_) => !is(&KEYSTORE_PASS),
        SettingSource::File { .. } => !is(&MODEL_SNAPSHOT),
        SettingSource::Archive(_)
        | SettingSource::Registration
        | SettingSource::Live
        | SettingSource::Snapshot(_)
        | SettingSource::Default => false,
    }
}

/// The newest snapshot, by the time it was written and then by its name.
pub fn newest(logs: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory(logs)).ok()?.flatten();
    let snapshots = entries.filter_map(|entry| {
        let path = entry.path();
        let visible = !entry.file_name().to_string_lossy().starts_with('.');
        let is_one = visible && path.extension().is_some_and(|ending| ending == "cfg");
        let modified = entry.metadata().ok().filter(|found| found.is_file())?.modified().ok()?;
        is_one.then_some((modified, path))
    });
    snapshots.max().map(|(_, path)| path)
}

fn directory(logs: &Path) -> PathBuf {
    logs.join("config")
}

/// `yyyyMMddHHmmssSSS-startup.cfg`, in UTC.
fn file_name(moment: Moment, now: SystemTime) -> String {
    let time = humantime::format_rfc3339_millis(now).to_string();
    let digits: String = time.chars().filter(char::is_ascii_digit).collect();
    format!("{digits}-{}.cfg", moment.as_str())
}
