//! The store: a file of redb with a row per job, one per request that waits and one per answer.
//!
//! A change is either there after a crash or not, as a whole. Whatever was said to be durable is there.

use std::collections::HashSet;
use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use redb::{Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use crate::body_file::{BodyFiles, KeptKind, sync_folder};
use crate::error::JobError;
use crate::job::{JobId, JobRecord};
use crate::message::UnreadMessage;

type JobRows = TableDefinition<'static, u64, &'static [u8]>;

const JOBS: JobRows = TableDefinition::new("jobs");
const REQUESTS: JobRows = TableDefinition::new("requests");
const ANSWERS: JobRows = TableDefinition::new("answers");

const FILE: &str = "jobs.redb";
const BODIES: &str = "bodies";
/// Memory for pages that were read or are to be written.
const CACHE_BYTES: usize = 16 << 20;

/// Whether a folder has a store.
pub(crate) fn exists(folder: &Path) -> bool {
    folder.join(FILE).exists()
}

/// What is to be written.
pub(crate) enum JobChange {
    /// A job with its request.
    Add { number: u64, record: Vec<u8>, request: Vec<u8> },
    /// Its answer, as a rule in place of its request.
    End { number: u64, record: Vec<u8>, answer: Vec<u8>, keeps_request: bool },
    /// What is known of it, beside request and answer.
    Note { number: u64, record: Vec<u8> },
    /// These are gone.
    Remove { numbers: Vec<u64> },
}

impl JobRecord {
    pub(crate) fn write(&self) -> Result<Vec<u8>, JobError> {
        serde_json::to_vec(self).map_err(JobError::store)
    }
}

/// The store of a folder.
pub(crate) struct JobStore {
    folder: PathBuf,
    /// None while it is opened again.
    database: RwLock<Option<Database>>,
    bodies: BodyFiles,
}

impl JobStore {
    /// Opens the store of a folder, and makes both where they are not there. Returns its jobs, too.
    pub(crate) fn open(folder: &Path) -> Result<(Self, Vec<(u64, JobRecord)>), JobError> {
        let wrong = |error: std::io::Error| JobError::folder(folder, error);
        let bodies = folder.join(BODIES);
        DirBuilder::new().recursive(true).mode(0o700).create(&bodies).map_err(wrong)?;
        let database = Some(database(folder)?);
        sync_folder(folder).map_err(wrong)?;
        let bodies = BodyFiles(bodies);
        let store = Self { folder: folder.to_owned(), database: RwLock::new(database), bodies };
        let jobs = store.jobs()?;
        let known: HashSet<_> = jobs.iter().map(|(_, record)| record.id.to_string()).collect();
        store.bodies.sweep(&known).map_err(wrong)?;
        Ok((store, jobs))
    }

    fn jobs(&self) -> Result<Vec<(u64, JobRecord)>, JobError> {
        let write = self.with(|database| database.begin_write().map_err(JobError::store))?;
        for table in [JOBS, REQUESTS, ANSWERS] {
            write.open_table(table).map_err(JobError::store)?;
        }
        write.commit().map_err(JobError::store)?;
        let read = self.with(|database| database.begin_read().map_err(JobError::store))?;
        let rows = read.open_table(JOBS).map_err(JobError::store)?;
        let mut jobs = Vec::new();
        for row in rows.iter().map_err(JobError::store)? {
            let (number, record) = row.map_err(JobError::store)?;
            let record = serde_json::from_slice(record.value()).map_err(JobError::store)?;
            jobs.push((number.value(), record));
        }
        Ok(jobs)
    }

    fn with<T>(&self, run: impl FnOnce(&Database) -> Result<T, JobError>) -> Result<T, JobError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        run(database.as_ref().ok_or_else(|| JobError::store("the store is closed"))?)
    }

    /// Makes all changes durable, or none. A store whose disk failed takes nothing more until it is opened again, so
    /// that is done at once.
    pub(crate) fn apply<'a>(
        &self,
        changes: impl Iterator<Item = &'a JobChange>,
    ) -> Result<(), JobError> {
        let written = match self.with(|_| Ok(())) {
            Ok(()) => self.with(|database| write(database, changes)),
            Err(_) => Err(JobError::store("the disk failed before")),
        };
        if let Err(error) = &written {
            tracing::error!(%error, "jobs could not be written");
            let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
            *database = None;
            *database = self::database(&self.folder).ok();
        }
        written
    }

    /// Writes a body that is too large for the store.
    pub(crate) fn write_body(
        &self,
        id: JobId,
        kind: KeptKind,
        body: &[u8],
    ) -> Result<(), JobError> {
        self.bodies.write(id, kind, body).map_err(JobError::store)
    }

    /// Removes such a body, if there is one.
    pub(crate) fn remove_body(&self, id: JobId, kind: KeptKind) {
        self.bodies.remove(id, kind);
    }

    /// A request or an answer.
    pub(crate) fn message(
        &self,
        number: u64,
        id: JobId,
        kind: KeptKind,
    ) -> Result<UnreadMessage, JobError> {
        let table = match kind {
            KeptKind::Request => REQUESTS,
            KeptKind::Answer => ANSWERS,
        };
        let read = self.with(|database| database.begin_read().map_err(JobError::store))?;
        let rows = read.open_table(table).map_err(JobError::store)?;
        let row = rows.get(number).map_err(JobError::store)?.ok_or(JobError::Unknown)?;
        UnreadMessage::read(row.value(), || self.bodies.read(id, kind))
    }
}

/// The open file, which only its owner may read.
fn database(folder: &Path) -> Result<Database, JobError> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(folder.join(FILE)).map_err(|error| JobError::folder(folder, error))?;
    let opened = Database::builder().set_cache_size(CACHE_BYTES).create_file(file);
    opened.map_err(|error| {
        if matches!(error, DatabaseError::DatabaseAlreadyOpen) {
            JobError::InUse { folder: folder.to_owned() }
        } else {
            JobError::folder(folder, error)
        }
    })
}

fn write<'a>(
    database: &Database,
    changes: impl Iterator<Item = &'a JobChange>,
) -> Result<(), JobError> {
    let write = database.begin_write().map_err(JobError::store)?;
    {
        let mut jobs = write.open_table(JOBS).map_err(JobError::store)?;
        let mut requests = write.open_table(REQUESTS).map_err(JobError::store)?;
        let mut answers = write.open_table(ANSWERS).map_err(JobError::store)?;
        for change in changes {
            match change {
                JobChange::Add { number, record, request } => {
                    jobs.insert(number, &record[..]).map_err(JobError::store)?;
                    requests.insert(number, &request[..]).map_err(JobError::store)?;
                }
                JobChange::End { number, record, answer, keeps_request } => {
                    jobs.insert(number, &record[..]).map_err(JobError::store)?;
                    if !keeps_request {
                        requests.remove(number).map_err(JobError::store)?;
                    }
                    answers.insert(number, &answer[..]).map_err(JobError::store)?;
                }
                JobChange::Note { number, record } => {
                    jobs.insert(number, &record[..]).map_err(JobError::store)?;
                }
                JobChange::Remove { numbers } => {
                    for number in numbers {
                        jobs.remove(number).map_err(JobError::store)?;
                        requests.remove(number).map_err(JobError::store)?;
                        answers.remove(number).map_err(JobError::store)?;
                    }
                }
            }
        }
    }
    write.commit().map_err(JobError::store)
}
