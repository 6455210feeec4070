//! Predictions of a model that has a cache: from the shelf, by the run of an equal request, or by a run of its own.
//!
//! A run belongs to everybody who waits for it and ends when the last of them leaves. One that fails, or streams, is
//! only the answer of the request that began it; the others are then run one by one.

use std::sync::{Arc, PoisonError};

use jitney_engine::answer_cache::{
    AnswerCache, CacheFind, CacheOutcome, CommonRun, OwnAnswer, RunEnd,
};
use jitney_engine::call::{Answer, Call, RequestMark};
use jitney_engine::error::CallError;
use jitney_engine::quota::QuotaUse;
use jitney_engine::{Model, Rejection};
use tokio::time::{Instant, timeout_at};

use super::cache_key::CacheUse;
use super::{InferenceRequest, InferenceService};
use crate::errors::Problem;

/// Says how a request was answered.
const CACHE_HEADER: &str = "x-jitney-cache";

impl InferenceService {
    pub(super) async fn predict_cached(
        &self,
        model: &Arc<Model>,
        cache: &Arc<AnswerCache>,
        request: InferenceRequest<'_>,
    ) -> Result<Answer, Problem> {
        let settings = model.settings();
        let used = settings.cache().and_then(|rule| CacheUse::of(&request, rule));
        let Some(CacheUse { key, fresh }) = used else {
            return self.predict_alone(model, cache, request).await;
        };
        let (target, kind) = (request.target, request.origin.kind);
        let version_named = target.version.is_some();
        let (key, now) = ((key, request.options.priority), Instant::now());
        let begin = |request| self.begin_run(Arc::clone(model), request);
        let (answered, outcome) = match cache.find(key, fresh, now, request, begin) {
            CacheFind::Miss(run) => {
                self.meter.requested(model, version_named);
                (own_answer(run.await), CacheOutcome::Miss)
            }
            CacheFind::Hit(answer, request) => {
                self.meter.requested(model, version_named);
                (charge_one(&request).map(|_| answer.of_shelf()), CacheOutcome::Hit)
            }
            CacheFind::Shared(run, request) => {
                let answered = match self.wait_for(cache, run, &request).await {
                    Ok(RunEnd::Common(answer)) => Ok(answer.of_run()),
                    // It was charged for before it waited.
                    Ok(RunEnd::Own(_)) => {
                        let request = InferenceRequest { quota: None, ..request };
                        return self.predict_alone(model, cache, request).await;
                    }
                    Err(error) => Err(error),
                };
                self.meter.requested(model, version_named);
                (answered, CacheOutcome::Shared)
            }
        };
        let answer = answered.map_err(|error| self.problem(model, target, &error))?;
        self.meter.answered(model, version_named, kind, &answer.timing);
        Ok(marked(cache, answer, outcome))
    }

    /// Without the cache.
    async fn predict_alone(
        &self,
        model: &Arc<Model>,
        cache: &AnswerCache,
        request: InferenceRequest<'_>,
    ) -> Result<Answer, Problem> {
        let answer = self.predict_on(model, request).await?;
        Ok(marked(cache, answer, CacheOutcome::Miss))
    }

    /// A run that lives as long as anybody waits for it, whoever that is.
    fn begin_run(
        &self,
        model: Arc<Model>,
        mut request: InferenceRequest<'_>,
    ) -> impl Future<Output = Result<Answer, OwnAnswer>> + Send + 'static {
        let trace = request.trace.take();
        let trace = trace.and_then(|it| it.call(model.tag(), &mut request.input.headers));
        let engine = request.wait_for_queue.then(|| Arc::clone(&self.engine));
        let admitted = request.admitted;
        let mark = trace.clone().map(|trace| trace as RequestMark);
        let call = Call { mark, ..request.into_call() };
        let answered = async move {
            let _slot = match engine {
                Some(engine) => engine.queue_slots().acquire(&model, call.deadline).await?,
                None => None,
            };
            model.call_as(call, admitted).await
        };
        async move {
            let answered = answered.await;
            if let Some(trace) = trace {
                trace.end(&answered);
            }
            match answered {
                Ok(answer) if is_common(&answer) => Ok(answer),
                own => Err(own),
            }
        }
    }

    /// Waits for the run of another request, within the limits that a request has that waits by itself.
    async fn wait_for(
        &self,
        cache: &AnswerCache,
        run: CommonRun,
        request: &InferenceRequest<'_>,
    ) -> Result<RunEnd, CallError> {
        let _permit = self.engine.admission().admit(1, request.input.weight())?;
        let _charged = charge_one(request)?;
        let _waiting = cache.wait();
        match request.options.deadline {
            None => Ok(run.await),
            Some(deadline) => {
                let late = |_| CallError::rejected(Rejection::Expired);
                timeout_at(deadline, run).await.map_err(late)
            }
        }
    }
}

/// Charges a client for a request that is not run for it: it counts as any other.
fn charge_one(request: &InferenceRequest<'_>) -> Result<Option<QuotaUse>, CallError> {
    let Some(quota) = &request.quota else { return Ok(None) };
    let rows = || request.input.tensors.as_ref()?.rows();
    let items = request.options.claim.items.map(|items| items as usize).or_else(rows).unwrap_or(1);
    Ok(Some(quota.admit(Instant::now(), items as u64, request.input.weight())?))
}

/// The answer for the request that began the run.
fn own_answer(end: RunEnd) -> Result<Answer, CallError> {
    match end {
        RunEnd::Common(answer) => Ok(answer.of_run()),
        RunEnd::Own(own) => {
            let own = own.lock().unwrap_or_else(PoisonError::into_inner).take();
            own.unwrap_or(Err(CallError::Gone))
        }
    }
}

/// Whether others may get the answer, too: it is whole, no failure, and its model does not say otherwise.
fn is_common(Answer { output, stream, .. }: &Answer) -> bool {
    let failed = output.status.as_ref().is_some_and(|(code, _)| !(200..300).contains(code));
    let private = |(name, value): &(String, String)| {
        let value = value.to_ascii_lowercase();
        name.eq_ignore_ascii_case("cache-control")
            && ["no-store", "no-cache", "private"].iter().any(|word| value.contains(word))
    };
    stream.is_none() && !failed && !output.headers.iter().any(private)
}

/// The answer with a header that says where it came from; it is counted.
fn marked(cache: &AnswerCache, mut answer: Answer, outcome: CacheOutcome) -> Answer {
    cache.count(outcome);
    answer.output.headers.push((CACHE_HEADER.to_owned(), outcome.as_str().to_owned()));
    answer
}
