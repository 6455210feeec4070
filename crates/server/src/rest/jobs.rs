//! Jobs over REST: a prediction with `Prefer: respond-async` is kept and answered later; its owner asks for it.
//!
//! What is kept is the request itself, so that `job_runner` answers it by the same code. Nothing here runs a model.

use std::time::Duration;

use http::header::{AUTHORIZATION, EXPECT, HeaderMap, HeaderName, LOCATION, PROXY_AUTHORIZATION};
use http::{HeaderValue, StatusCode};
use jitney_jobs::{
    IdempotencyKey, JobCounts, JobError, JobFilter, JobId, JobOwner, JobState, JobView, Jobs,
    KeptAnswer, KeptAnswerHead, KeptRequest, KeptRequestHead, NewJob, OpenJobs,
};
use jitney_net::{RequestBody, ResponseBody, events};
use jitney_telemetry::JobsOverview;
use jitney_telemetry::trace::RequestTrace;
use serde::Serialize;
use std::sync::Arc;

use super::context::RequestContext;
use super::job_document::{JobDocument, unix_millis, word};
use super::{job_events, webhooks};
use crate::errors::{ErrorCode, Problem};
use crate::respond::{self, HttpResponse, HttpResult};
use crate::route::PathNames;

const PREFER: &str = "prefer";
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
const RESPOND_ASYNC: &str = "respond-async";
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The longest idempotency key.
const KEY_BYTES_MAX: usize = 255;
/// The longest time that a client may wait for the end of a job.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// How often one who waits looks whether the server ends.
const DRAIN_LOOK: Duration = Duration::from_secs(1);
/// Jobs of a page.
const PAGE_MAX: usize = 100;

/// What the overview and the metrics tell of jobs; nothing before the first one.
pub(crate) fn overview(jobs: &Jobs) -> Option<JobsOverview> {
    let JobCounts { queued, running, succeeded, failed, bytes, waiting_since, totals } =
        jobs.counts()?;
    let seconds = |since: u64| Duration::from_millis(unix_millis().saturating_sub(since));
    Some(JobsOverview {
        queued: queued as u64,
        running: running as u64,
        succeeded: succeeded as u64,
        failed: failed as u64,
        bytes,
        oldest_seconds: waiting_since.map(|since| seconds(since).as_secs_f64()),
        submitted_total: totals.submitted,
        succeeded_total: totals.succeeded,
        failed_total: totals.failed,
        expired_total: totals.expired,
        webhooks_delivered_total: totals.webhooks.delivered,
        webhooks_again_total: totals.webhooks.again,
        webhooks_failed_total: totals.webhooks.failed,
    })
}

/// Whether a request wants to be a job. Few requests have the header, so a look at the names is enough for the others.
#[inline]
pub(super) fn is_asked(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str() == PREFER) && prefers_async(headers)
}

#[cold]
fn prefers_async(headers: &HeaderMap) -> bool {
    let values = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let mut preferences = values.flat_map(|value| value.split(','));
    preferences.any(|it| {
        it.split(';').next().is_some_and(|name| name.trim().eq_ignore_ascii_case(RESPOND_ASYNC))
    })
}

/// Keeps a prediction; when this returns, it survives a crash. With a path it is one of that path, and can be made
/// again.
pub(super) async fn keep(
    context: &RequestContext<'_>,
    names: PathNames<'_>,
    path: Option<&str>,
    body: RequestBody,
) -> Result<JobView, Problem> {
    let parts = context.parts;
    let key = idempotency_key(&parts.headers)?;
    let webhook = webhooks::asked(context)?;
    let tenant = context.options()?.claim.tenant.map(|tenant| tenant.to_string());
    if names.model.is_some() {
        context.model_for(names.target())?;
    }
    let body = context.read(body).await?;
    let model = names.model.or(names.workflow).unwrap_or_default().to_owned();
    // Until it is on disk.
    let _held = context.state.inference.hold(&model, body.len() as u64)?;
    let query = parts.uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let uri = path.map_or_else(|| parts.uri.to_string(), |path| format!("{path}{query}"));
    let method = parts.method.as_str();
    let idempotency = key.map(|key| {
        let told = webhook.iter().map(String::as_bytes);
        let asked = [method.as_bytes(), uri.as_bytes(), &body].into_iter().chain(told);
        IdempotencyKey::new(key, &asked.collect::<Vec<_>>())
    });
    let head = KeptRequestHead {
        method: method.to_owned(),
        uri,
        id: context.id.text().to_owned(),
        headers: kept_headers(&parts.headers, context.trace),
        tenant,
    };
    let owner = context.caller.job_owner();
    let request = KeptRequest { head, body };
    let jobs = context.state.jobs.open().await?;
    let new = NewJob { owner, model, idempotency, request, again: path.is_some(), webhook };
    Ok(jobs.submit(new, unix_millis()).await?)
}

/// `Prefer: respond-async`: keeps a prediction, and answers with where to ask for it.
pub(super) async fn submit(
    context: &RequestContext<'_>,
    names: PathNames<'_>,
    body: RequestBody,
) -> HttpResult {
    let kept = keep(context, names, None, body).await?;
    let mut reply = respond::json(StatusCode::ACCEPTED, &JobDocument::of(&kept));
    let headers = reply.headers_mut();
    headers.insert(PREFERENCE_APPLIED, HeaderValue::from_static(RESPOND_ASYNC));
    if let Ok(location) = HeaderValue::try_from(format!("/jobs/{}", kept.id)) {
        headers.insert(LOCATION, location);
    }
    Ok(reply)
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| (1..=KEY_BYTES_MAX).contains(&key.len()));
    key.map(Some).ok_or_else(|| {
        let message =
            format!("Header Idempotency-Key must be 1 to {KEY_BYTES_MAX} ASCII characters.");
        Problem::bad_request(message)
    })
}

/// The headers that the model sees later, and those that choose its version. Keys are not written down, and what asked
/// for the job is not asked twice.
fn kept_headers(headers: &HeaderMap, trace: Option<&Arc<RequestTrace>>) -> Vec<(String, String)> {
    let left_out = [AUTHORIZATION, PROXY_AUTHORIZATION, EXPECT, IDEMPOTENCY_KEY, webhooks::WEBHOOK];
    let traced = |name: &HeaderName| trace.is_some() && *name == TRACEPARENT;
    let kept = headers
        .iter()
        .filter(|(name, _)| !left_out.contains(name) && *name != PREFER && !traced(name));
    let kept = kept.map(|(name, value)| (name.as_str().to_owned(), characters(value)));
    // What runs later is a part of the request that asked for it.
    let parent = trace.map(|trace| (TRACEPARENT.as_str().to_owned(), trace.header()));
    kept.chain(parent).collect()
}

/// A header's bytes as characters, and back.
fn characters(value: &HeaderValue) -> String {
    value.as_bytes().iter().map(|byte| char::from(*byte)).collect()
}

/// The headers that were kept.
pub(super) fn headers(kept: &[(String, String)]) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(kept.len());
    for (name, value) in kept {
        let bytes: Option<Vec<u8>> = value.chars().map(|it| u8::try_from(it).ok()).collect();
        let value = bytes.and_then(|bytes| HeaderValue::from_bytes(&bytes).ok());
        if let (Ok(name), Some(value)) = (HeaderName::from_bytes(name.as_bytes()), value) {
            headers.append(name, value);
        }
    }
    headers
}

/// An answer as it is kept.
pub(super) fn kept_answer(reply: &http::response::Parts, body: bytes::Bytes) -> KeptAnswer {
    let header =
        |(name, value): (&HeaderName, &HeaderValue)| (name.as_str().to_owned(), characters(value));
    let (status, headers) = (reply.status.as_u16(), reply.headers.iter().map(header).collect());
    KeptAnswer { head: KeptAnswerHead { status, headers }, body }
}

/// The jobs, where there have been any; looking for one makes no file.
pub(super) async fn opened<'a>(context: &RequestContext<'a>) -> Result<&'a Arc<OpenJobs>, Problem> {
    let jobs = &context.state.jobs;
    if jobs.exist() { Ok(jobs.open().await?) } else { Err(JobError::Unknown.into()) }
}

/// `GET /jobs/{id}`, with `wait` once it was answered or the time is over; or its changes as events.
pub(super) async fn show(context: &RequestContext<'_>, id: &str) -> HttpResult {
    if events::accepted(&context.parts.headers) {
        let jobs = opened(context).await?;
        return job_events::follow(context, Arc::clone(jobs), id.parse()?).await;
    }
    let view = awaited(context, id).await?.1;
    Ok(respond::json(StatusCode::OK, &JobDocument::of(&view)))
}

/// `GET /jobs/{id}/result`: what the prediction would have answered.
pub(super) async fn result(context: &RequestContext<'_>, id: &str) -> HttpResult {
    let (jobs, view) = awaited(context, id).await?;
    if !view.state.is_ended() {
        let message = format!(
            "Job {id} has no result yet, it is {}: GET /jobs/{id}?wait=30s answers when it has one.",
            word(view.state)
        );
        return Err(Problem::new(ErrorCode::Conflict, message));
    }
    answer(jobs, &context.caller.job_owner(), view.id).await
}

/// The answer of a job that has ended, as it was.
pub(super) async fn answer(jobs: &OpenJobs, owner: &JobOwner, id: JobId) -> HttpResult {
    let answer = jobs.answer(owner, id).await?;
    let mut reply = HttpResponse::new(ResponseBody::whole(answer.body));
    *reply.headers_mut() = headers(&answer.head.headers);
    respond::set_status(&mut reply, answer.head.status, "");
    Ok(reply)
}

/// `DELETE /jobs/{id}`.
pub(super) async fn delete(context: &RequestContext<'_>, id: &str) -> HttpResult {
    let jobs = opened(context).await?;
    jobs.delete(&context.caller.job_owner(), id.parse()?).await?;
    Ok(respond::status(StatusCode::OK, &format!("Job \"{id}\" deleted")))
}

/// A page of jobs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JobPage {
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<String>,
    jobs: Vec<JobDocument>,
}

/// `GET /jobs`. Who has no key is nobody in particular, and would be told the ids of all others who have none.
pub(super) async fn list(context: &RequestContext<'_>) -> HttpResult {
    let owner = context.caller.job_owner();
    if owner == JobOwner::default() {
        let message = "Jobs are listed for the key that made them, and this request has none: ask for a job by its id, GET /jobs/{id}.";
        return Err(Problem::new(ErrorCode::Denied, message));
    }
    let query = context.query();
    let state = query.text("state").map(|text| {
        let known = JobState::WORDS.iter().find(|(word, _)| *word == text);
        known.map(|(_, state)| *state).ok_or_else(|| {
            Problem::bad_request(
                "Parameter state must be queued, running, succeeded, failed or cancelled.",
            )
        })
    });
    let number = |name: &str| {
        let read = query.text(name).map(|text| text.parse::<u64>());
        let wrong = |_| Problem::bad_request(format!("Parameter {name} must be a whole number."));
        read.transpose().map_err(wrong)
    };
    let filter = JobFilter {
        state: state.transpose()?,
        model: query.text("model").map(str::to_owned),
        before: number("next_page_token")?,
        limit: number("limit")?.map_or(PAGE_MAX, |limit| (limit as usize).clamp(1, PAGE_MAX)),
    };
    let (views, next) = match context.state.jobs.exist() {
        true => opened(context).await?.list(&owner, &filter).await?,
        false => (Vec::new(), None),
    };
    let jobs = views.iter().map(JobDocument::of).collect();
    let page = JobPage { next_page_token: next.map(|next| next.to_string()), jobs };
    Ok(respond::json(StatusCode::OK, &page))
}

/// A job of the caller's. With `wait` it is awaited for so long, and no longer than the server lives.
async fn awaited<'a>(
    context: &RequestContext<'a>,
    id: &str,
) -> Result<(&'a Arc<OpenJobs>, JobView), Problem> {
    let jobs = opened(context).await?;
    let (owner, id) = (context.caller.job_owner(), id.parse()?);
    let wait = wait(context)?;
    let view = jobs.view(&owner, id).await?;
    if wait.is_zero() || view.state.is_ended() {
        return Ok((jobs, view));
    }
    let drained = async {
        while !context.state.engine.draining() {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    };
    tokio::select! {
        ended = jobs.ended(&owner, id) => Ok((jobs, ended?)),
        () = tokio::time::sleep(wait) => Ok((jobs, jobs.view(&owner, id).await?)),
        () = drained => Ok((jobs, jobs.view(&owner, id).await?)),
    }
}

/// How long the client waits: `30s`, or a number of seconds; at most a minute.
fn wait(context: &RequestContext<'_>) -> Result<Duration, Problem> {
    let query = context.query();
    let Some(text) = query.text("wait") else { return Ok(Duration::ZERO) };
    let seconds = text.parse().ok().map(Duration::from_secs);
    let wait = seconds.or_else(|| humantime::parse_duration(text).ok());
    let wait =
        wait.ok_or_else(|| Problem::bad_request("Parameter wait must be a time such as 30s."))?;
    Ok(wait.min(WAIT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_prefer_asks_for_a_job_among_other_preferences() {
        for (values, expected) in [
            (&["respond-async"][..], true),
            (&["Respond-Async, wait=10"], true),
            (&["wait=10", "respond-async; x=1"], true),
            (&["return=minimal"], false),
            (&["respond-async-not"], false),
            (&[], false),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(PREFER, HeaderValue::from_static(value));
            }
            assert_eq!(is_asked(&headers), expected, "{values:?}");
        }
    }

    #[test]
    fn keys_are_not_kept_and_other_headers_are_as_they_came() {
        let mut sent = HeaderMap::new();
        sent.append(AUTHORIZATION, HeaderValue::from_static("Bearer secret"));
        sent.append(PREFER, HeaderValue::from_static("respond-async"));
        sent.append(IDEMPOTENCY_KEY, HeaderValue::from_static("k"));
        sent.append("x-a", HeaderValue::from_bytes(b"gr\xfcn").unwrap());
        sent.append("x-a", HeaderValue::from_static("2"));
        let back = headers(&kept_headers(&sent, None));
        let values: Vec<_> = back.get_all("x-a").iter().map(HeaderValue::as_bytes).collect();
        assert_eq!((back.len(), values), (2, vec![&b"gr\xfcn"[..], b"2"]));
    }
}
