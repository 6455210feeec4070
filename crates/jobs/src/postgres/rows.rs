//! What the rows of the database say of jobs.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio_postgres::Row;

use crate::error::JobError;
use crate::job_view::{JobState, JobView, TakenJob};
use crate::webhook::{WebhookState, WebhookView};

/// Numbers as the database has them, which has no others.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// And back.
pub(super) fn unsigned(row: &Row, column: &str) -> u64 {
    row.get::<_, i64>(column).unsigned_abs()
}

/// How long it is until then, for a database that goes by its own clock.
pub(super) fn delay(at: u64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let delay = i128::from(at) - i128::try_from(now.as_millis()).unwrap_or_default();
    i64::try_from(delay.max(0)).unwrap_or(i64::MAX / 2)
}

/// How far a job is.
pub(super) fn state(row: &Row) -> JobState {
    let known = JobState::WORDS.iter().find(|(word, _)| *word == row.get::<_, &str>("state"));
    known.map_or(JobState::Queued, |(_, state)| *state)
}

/// A job's number and what its owner sees of it, where answers are kept for so long.
pub(super) fn view(row: &Row, keep: u64) -> Result<(u64, JobView), JobError> {
    let ended = row.get::<_, Option<i64>>("ended").zip(row.get::<_, Option<i32>>("status"));
    let ended = ended.map(|(at, status)| (at.unsigned_abs(), u16::try_from(status).unwrap_or(500)));
    let view = JobView {
        id: row.get::<_, &str>("id").parse()?,
        model: row.get("model"),
        state: state(row),
        attempts: row.get::<_, i32>("attempts").unsigned_abs(),
        created: unsigned(row, "created"),
        ended,
        expires: ended.map(|(at, _)| at.saturating_add(keep)),
        webhook: webhook(row),
    };
    Ok((unsigned(row, "number"), view))
}

/// How far its webhook is, where it has one.
fn webhook(row: &Row) -> Option<WebhookView> {
    let word = row.get::<_, Option<&str>>("webhook_state")?;
    let known = WebhookState::WORDS.iter().find(|(known, _)| *known == word);
    let state = known.map(|(_, state)| *state).unwrap_or_default();
    Some(WebhookView { state, attempts: row.get::<_, i32>("webhook_attempts").unsigned_abs() })
}

/// A job whose turn it is.
pub(super) fn taken(row: &Row, keep: u64, now: u64) -> Result<TakenJob, JobError> {
    Ok(TakenJob {
        number: unsigned(row, "number"),
        id: row.get::<_, &str>("id").parse()?,
        owner: serde_json::from_str(row.get("owner")).map_err(JobError::store)?,
        model: row.get("model"),
        bytes: unsigned(row, "bytes"),
        attempts: row.get::<_, i32>("attempts").unsigned_abs().saturating_sub(1),
        late: unsigned(row, "created").saturating_add(keep) <= now,
    })
}
