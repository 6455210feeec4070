//! One thing that is wrong, in words, and what helps against it.

use serde::{Deserialize, Serialize};

/// A problem that an operator can do something about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ServerProblem {
    /// How bad it is.
    pub tone: ProblemTone,
    /// `name/version`; null for the server or the machine.
    pub model: Option<String>,
    /// What stands beside the word for the state, such as `rejecting`; empty where the state says it.
    pub word: String,
    /// What is wrong.
    pub what: String,
    /// What to do about it, or where to look.
    pub advice: String,
    /// A version that is ready, and may be the default one until this is mended.
    pub roll_back_to: Option<String>,
    /// Whether more workers help.
    pub more_workers_help: bool,
}

/// How bad a problem is; the worst first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(ts_rs::TS))]
pub enum ProblemTone {
    /// Requests are lost, or soon will be.
    Bad,
    /// It may become so.
    Warn,
    /// Worth knowing.
    #[default]
    Note,
}
