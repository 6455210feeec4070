//! Copies of requests for a version that is only compared: the shadow of the one that answers.
//!
//! A copy is made when its request comes and sent when that was answered, so that it never delays it. It runs as bulk,
//! holds its bytes in the one account, and is dropped wherever there is no room. Nobody waits for it.

use std::sync::Arc;

use jitney_engine::admission::HeldBytes;
use jitney_engine::call::{Answer, Call, Claim, Input, Operation, Origin, Output, Priority};
use jitney_engine::error::CallError;
use jitney_engine::shadow::{CopyPermit, SAMPLES_KEPT, ShadowOutcome, has_room_for_copy};
use jitney_engine::traffic_split::{SameRule, Sticky, TrafficSplit, hash};
use jitney_engine::{Engine, Model};

use super::comparison::{AnswerComparison, AnswerPair};
use super::same_answer::shown;
use super::{InferenceRequest, InferenceService};

/// Tells the shadow that nobody gets its answer.
const SHADOW_HEADER: &str = "x-jitney-shadow";

/// A copy of a request, until that was answered.
pub(super) struct ShadowCopy {
    shadow: Arc<Model>,
    split: Arc<TrafficSplit>,
    input: Box<Input>,
    origin: Origin,
    claim: Claim,
    permit: CopyPermit,
    held: HeldBytes,
}

impl InferenceService {
    /// The copy of a request, if its model has a shadow that gets one.
    pub(super) fn copy_of(
        &self,
        model: &Model,
        request: &InferenceRequest<'_>,
    ) -> Option<ShadowCopy> {
        let InferenceRequest { target, input, origin, options, .. } = request;
        let plain = input.route.operation == Operation::Predict && input.route.sequence.is_none();
        if target.version.is_some() || !plain {
            return None;
        }
        let split = model.shadow().rules()?;
        let rule = split.shadow.as_ref().filter(|rule| rule.takes(key(request, &split.sticky)))?;
        let shadow = self.engine.model(model.name(), Some(&rule.version)).ok()?;
        if shadow.settings().sequences().is_some() {
            return None;
        }
        let room = || {
            let permit = shadow.shadow().permit()?;
            Some((permit, self.engine.admission().keep_if_room(input.weight())?))
        };
        let Some((permit, held)) = room() else {
            shadow.shadow().count(ShadowOutcome::Dropped);
            return None;
        };
        let mut input = input.clone();
        input.headers.push(SHADOW_HEADER, b"true");
        let (origin, claim) = (*origin, options.claim.clone());
        Some(ShadowCopy { shadow, split, input, origin, claim, permit, held })
    }

    /// Sends a copy whose request was answered by `model`, if there is room for it. An answer in pieces is not
    /// compared.
    pub(super) fn send_copy(&self, copy: ShadowCopy, model: &Model, answer: &Answer) {
        if answer.stream.is_some() {
            return;
        }
        let judge = copy.same().model().and_then(|name| self.engine.model(name, None).ok());
        let comparing = judge.map_or(0, |judge| judge.occupancy().busy);
        let processors = self.processors.saturating_sub(comparing);
        if has_room_for_copy(copy.shadow.occupancy(), model.occupancy(), processors) {
            let old = answer.output.clone();
            let engine = Arc::clone(&self.engine);
            let admission = Arc::clone(engine.admission());
            tokio::spawn(async move {
                // Nothing but the book is kept for as long as a pair: the version may go meanwhile.
                let book = Arc::clone(copy.shadow.shadow());
                let (most, id) = (copy.split.shadow_samples, copy.input.id.clone());
                let (outcome, pair) = copy.run(&engine, old).await;
                drop(engine);
                book.count(outcome);
                let Some(pair) = pair.filter(|_| most > 0) else { return };
                if book.keep(most, &admission, &id, pair.each_ref().map(shown)) {
                    drop((pair, admission));
                    tokio::time::sleep(SAMPLES_KEPT).await;
                    // Those whose time is over go.
                    drop(book.samples());
                }
            });
        } else {
            copy.shadow.shadow().count(ShadowOutcome::Dropped);
        }
    }
}

impl ShadowCopy {
    fn same(&self) -> SameRule {
        self.split.shadow.as_ref().map(|rule| rule.same.clone()).unwrap_or_default()
    }

    /// Runs it and compares its answer with the one that the client got; both where they differ.
    async fn run(self, engine: &Engine, old: Output) -> (ShadowOutcome, Option<AnswerPair>) {
        let (rule, id) = (self.same(), self.input.id.clone());
        let Self { shadow, input, origin, claim, permit: _permit, held, .. } = self;
        // The model takes its own permit now.
        drop(held);
        let priority = Priority::Bulk;
        let call = Call { input, origin, deadline: None, priority, claim, quota: None, mark: None };
        let answered = shadow.call(call).await;
        match answered {
            Ok(answer) if answer.stream.is_none() => {
                AnswerComparison { rule, id, origin }.run(engine, [old, answer.output]).await
            }
            Ok(_) => (ShadowOutcome::Different, None),
            Err(error) => (failed(&error), None),
        }
    }
}

/// Whether there was no room, or the shadow is at fault.
fn failed(error: &CallError) -> ShadowOutcome {
    match error {
        CallError::Rejected { .. }
        | CallError::ServerFull { .. }
        | CallError::Sequence(_)
        | CallError::NotLoaded(_)
        | CallError::Loading(_)
        | CallError::Gone => ShadowOutcome::Dropped,
        CallError::BadInput(_)
        | CallError::UnknownEndpoint(_)
        | CallError::Model(_)
        | CallError::WorkerExited { .. }
        | CallError::Poisonous
        | CallError::SlowReader => ShadowOutcome::Failed,
    }
}

/// The hash of what a request is known by, the same as for the shares.
fn key(request: &InferenceRequest<'_>, sticky: &Sticky) -> u64 {
    request.key.map_or_else(|| hash(request.input.id.as_bytes()), |key| key.hash(sticky))
}
