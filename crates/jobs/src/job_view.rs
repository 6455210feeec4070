//! What others see of a job: its owner, whoever lists jobs, and whoever runs it.

use crate::job::{JobId, JobOwner};
use crate::webhook::WebhookView;

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It waits for its turn, or for another attempt.
    Queued,
    /// It is being answered.
    Running,
    /// It was answered with a status below 400.
    Succeeded,
    /// It was answered with any other status.
    Failed,
    /// Its owner ended it.
    Cancelled,
}

impl JobState {
    /// Each with its word.
    pub const WORDS: [(&'static str, Self); 5] = [
        ("queued", Self::Queued),
        ("running", Self::Running),
        ("succeeded", Self::Succeeded),
        ("failed", Self::Failed),
        ("cancelled", Self::Cancelled),
    ];

    /// Whether there is an answer.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// What a job's owner sees of it. Times are milliseconds of Unix time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView {
    /// Its name.
    pub id: JobId,
    /// The model, or the workflow.
    pub model: String,
    /// How far it is.
    pub state: JobState,
    /// How often it was begun by this server.
    pub attempts: u32,
    /// When it came.
    pub created: u64,
    /// When it was answered, and with which status.
    pub ended: Option<(u64, u16)>,
    /// When it is forgotten, once it is answered.
    pub expires: Option<u64>,
    /// How far its webhook is, where it has one.
    pub webhook: Option<WebhookView>,
}

/// Which jobs are listed.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// Only those of this state.
    pub state: Option<JobState>,
    /// Only those of this model.
    pub model: Option<String>,
    /// Only those that came before this one, by its number.
    pub before: Option<u64>,
    /// The most that are listed.
    pub limit: usize,
}

/// A job whose turn it is.
#[derive(Clone, Debug)]
pub struct TakenJob {
    /// Its number: in the order in which they came.
    pub number: u64,
    /// Its name.
    pub id: JobId,
    /// Who made it.
    pub owner: JobOwner,
    /// The model, or the workflow.
    pub model: String,
    /// What is kept of it.
    pub bytes: u64,
    /// The attempts before this one.
    pub attempts: u32,
    /// Whether it has waited for longer than jobs are kept.
    pub late: bool,
}

/// A webhook whose turn it is.
#[derive(Clone, Debug)]
pub struct DueWebhook {
    /// The number of its job.
    pub number: u64,
    /// Where it goes.
    pub url: String,
    /// The attempts before this one.
    pub attempts: u32,
    /// The job, which has ended.
    pub job: JobView,
}
