//! One finding: what was looked at, how it stands, and what to do.

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingLevel {
    /// As it should be.
    Ok,
    /// Good to know; servers work.
    Note,
    /// A server or its models will not work.
    Problem,
}

impl FindingLevel {
    /// The word at the start of the line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// A finding.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub area: &'static str,
    /// How it stands.
    pub level: FindingLevel,
    /// In one sentence.
    pub text: String,
    /// What to do.
    pub advice: Option<String>,
}

impl Finding {
    /// As it should be.
    pub fn ok(area: &'static str, text: impl Into<String>) -> Self {
        Self { area, level: FindingLevel::Ok, text: text.into(), advice: None }
    }

    /// Good to know.
    pub fn note(area: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: FindingLevel::Note, advice: Some(advice.into()), ..Self::ok(area, text) }
    }

    /// Something will not work.
    pub fn problem(area: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: FindingLevel::Problem, advice: Some(advice.into()), ..Self::ok(area, text) }
    }
}
