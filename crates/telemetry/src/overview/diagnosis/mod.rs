//! What is wrong now, in words, the worst first: only what an operator can act on. A pure function of the
//! document and of what is remembered; it reads no clock.
//!
//! A sentence names the cause that the figures show. A queue that is full because the model has become slower
//! is the model's doing and not the traffic's, and advice never contradicts a figure beside it.

#[cfg(test)]
mod drill;
#[cfg(test)]
mod drills;
mod limit;
mod requests;
mod server;
mod slower;
mod state;
mod traffic;
mod version;
mod words;
mod workers;

use self::version::VersionView;
use self::workers::RESTARTING;
use super::document::OverviewDocument;
use super::history::SampleHistory;
use super::problem::{ProblemTone, ServerProblem};

/// All problems.
pub(super) fn problems(document: &OverviewDocument, history: &SampleHistory) -> Vec<ServerProblem> {
    let mut found = server::problems(document);
    for model in &document.models {
        let view = VersionView::new(model, document, history);
        // Workers that exit again and again are one incident with what requests suffer from it.
        match state::problem(&view).or_else(|| workers::restarts(&view)) {
            Some(it) if it.word == RESTARTING && it.tone == ProblemTone::Bad => {
                found.push(requests::suffering(&view, it));
            }
            other => {
                found.extend(other);
                found.extend(requests::problems(&view));
            }
        }
        found.extend(workers::leak(&view));
    }
    found.sort_by_key(|problem| problem.tone);
    found
}
