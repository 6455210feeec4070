//! One version and all that is known around it.

use std::collections::VecDeque;

use crate::overview::document::OverviewDocument;
use crate::overview::history::SampleHistory;
use crate::overview::model_entry::ModelOverview;
use crate::overview::problem::{ProblemTone, ServerProblem};
use crate::overview::sampler::OverviewSample;

#[derive(Clone)]
pub(super) struct VersionView<'a> {
    pub(super) model: &'a ModelOverview,
    pub(super) document: &'a OverviewDocument,
    pub(super) history: &'a SampleHistory,
    pub(super) key: String,
    /// `bert 1.0`.
    pub(super) name: String,
    /// Of the newest sample.
    pub(super) time: u64,
}

impl<'a> VersionView<'a> {
    pub(super) fn new(
        model: &'a ModelOverview,
        document: &'a OverviewDocument,
        history: &'a SampleHistory,
    ) -> Self {
        let name = format!("{} {}", model.name, model.version);
        let time = history.samples().back().map_or(0, |sample| sample.time);
        Self { model, document, history, key: model.key(), name, time }
    }

    pub(super) fn samples(&self) -> &'a VecDeque<OverviewSample> {
        self.history.samples()
    }

    /// Another version of the same document.
    pub(super) fn of(&self, model: &'a ModelOverview) -> Self {
        Self::new(model, self.document, self.history)
    }

    /// The other versions of the model.
    pub(super) fn siblings(&self) -> impl Iterator<Item = &'a ModelOverview> {
        let ModelOverview { name, version, .. } = self.model;
        self.document.models.iter().filter(move |it| it.name == *name && it.version != *version)
    }

    /// A problem of this version.
    pub(super) fn problem(
        &self,
        tone: ProblemTone,
        word: &str,
        what: String,
        advice: &str,
    ) -> ServerProblem {
        let (word, advice) = (word.to_owned(), advice.to_owned());
        ServerProblem {
            tone,
            model: Some(self.key.clone()),
            word,
            what,
            advice,
            ..ServerProblem::default()
        }
    }

    /// The same with the quickest help against a bad deploy: another version that is ready.
    pub(super) fn or_roll_back(&self, mut problem: ServerProblem) -> ServerProblem {
        let other = self.siblings().find(|it| it.state == "ready");
        if let Some(other) = other.filter(|_| self.model.is_default) {
            problem.advice = format!(
                "Version {} is ready: make it the default for now, then correct this one.",
                other.version
            );
            problem.roll_back_to = Some(other.version.clone());
        }
        problem
    }
}
