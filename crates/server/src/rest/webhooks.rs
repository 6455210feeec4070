//! Webhooks: who submits a job may name a URL that is told when the job has ended (ADR 0056).
//!
//! A message tells of the job and does not hold its result: who reads that shows its key. It is sent at least once, and
//! what came of each attempt is written down, so that a restart changes nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use http::HeaderName;
use jitney_jobs::{DueWebhook, Jobs, OpenJobs, WebhookOutcome, receiver};
use serde::Serialize;

use super::context::RequestContext;
use super::job_document::{JobDocument, shown, unix_millis, word};
use crate::errors::{ErrorCode, Problem};
use crate::webhook_sender::{WebhookFailure, WebhookMessage, WebhookRejection, WebhookSender};

/// Where to tell of the end of a job.
pub(super) const WEBHOOK: HeaderName = HeaderName::from_static("x-jitney-webhook");

/// Messages that are under way at a time.
const PARALLEL: usize = 32;
/// Of them, those to one receiver: one that is slow leaves places for others.
const PARALLEL_EACH: usize = 8;
/// Attempts in all.
const ATTEMPTS_MAX: u32 = 9;
/// The time before the second attempt; it grows fourfold with each. The last one is made after about six hours.
const DELAY: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_secs(4 * 3600);

/// The URL that a request wants to be told.
pub(super) fn asked(context: &RequestContext<'_>) -> Result<Option<String>, Problem> {
    let Some(url) = context.parts.headers.get(WEBHOOK) else { return Ok(None) };
    let Some(sender) = &context.state.parts.webhooks else {
        let message = "This server sends no webhooks: its operator names the URLs that may be told with webhook_urls.";
        return Err(Problem::new(ErrorCode::Denied, message));
    };
    let unreadable = || WebhookRejection::Unreadable("it is not ASCII".to_owned());
    let checked = url.to_str().map_err(|_| unreadable()).and_then(|url| sender.check(url));
    checked.map(Some).map_err(|rejection| match rejection {
        WebhookRejection::Unreadable(why) => Problem::bad_request(format!(
            "Header X-Jitney-Webhook must be a URL such as https://hooks.example.com/jobs: {why}."
        )),
        WebhookRejection::NotAllowed(why) => {
            let message = format!("No webhook may be sent to the URL of X-Jitney-Webhook: {why}.");
            Problem::new(ErrorCode::Denied, message)
        }
    })
}

/// What the receiver gets.
#[derive(Serialize)]
struct JobEndDocument {
    r#type: String,
    timestamp: String,
    data: JobDocument,
}

impl JobEndDocument {
    fn of(webhook: &DueWebhook) -> Self {
        let mut job = webhook.job.clone();
        // How far this message is changes from attempt to attempt.
        job.webhook = None;
        let ended = job.ended.map_or(job.created, |(at, _)| at);
        Self {
            r#type: format!("job.{}", word(job.state)),
            timestamp: shown(ended),
            data: JobDocument::of(&job),
        }
    }
}

/// Sends webhooks, some at a time, from the first job on.
pub(crate) async fn deliver(jobs: &Jobs, sender: &dyn WebhookSender) {
    let jobs = jobs.begun().await;
    let mut under_way = FuturesUnordered::new();
    let mut told: HashMap<String, usize> = HashMap::new();
    loop {
        let now = unix_millis();
        let has_room = under_way.len() < PARALLEL;
        let busy = told.iter().filter(|(_, messages)| **messages >= PARALLEL_EACH);
        let busy: Vec<_> = busy.map(|(receiver, _)| receiver.clone()).collect();
        if has_room && let Some(webhook) = jobs.take_webhook(now, &busy).await {
            let receiver = receiver(&webhook.url).to_owned();
            *told.entry(receiver.clone()).or_default() += 1;
            under_way.push(attempt(jobs, sender, webhook).map(|()| receiver));
            continue;
        }
        tokio::select! {
            Some(receiver) = under_way.next() => {
                if let Entry::Occupied(mut messages) = told.entry(receiver) {
                    *messages.get_mut() -= 1;
                    if *messages.get() == 0 {
                        messages.remove();
                    }
                }
            }
            () = jobs.webhook_work(now, &busy), if has_room => {}
        }
    }
}

async fn attempt(jobs: &OpenJobs, sender: &dyn WebhookSender, webhook: DueWebhook) {
    let body = serde_json::to_vec(&JobEndDocument::of(&webhook)).unwrap_or_default();
    let message = WebhookMessage { id: webhook.job.id.to_string(), body: body.into() };
    let sent = sender.send(&webhook.url, message).await;
    let outcome = outcome(unix_millis(), webhook.attempts, sent.as_ref().err());
    if let Err(WebhookFailure { why, .. }) = &sent {
        let (job, attempt) = (webhook.job.id, webhook.attempts + 1);
        match outcome {
            WebhookOutcome::Failed => {
                tracing::warn!(%job, attempt, why, "a webhook could not be delivered");
            }
            WebhookOutcome::Again(_) | WebhookOutcome::Delivered => {
                tracing::info!(%job, attempt, why, "a webhook is sent again");
            }
        }
    }
    if let Err(error) = jobs.webhook_sent(&webhook, outcome).await {
        tracing::warn!(job = %webhook.job.id, %error, "what came of a webhook is not kept");
    }
}

/// What follows from an attempt after so many others.
fn outcome(now: u64, attempts: u32, failure: Option<&WebhookFailure>) -> WebhookOutcome {
    match failure {
        None => WebhookOutcome::Delivered,
        Some(failure) if !failure.again || attempts + 1 >= ATTEMPTS_MAX => WebhookOutcome::Failed,
        Some(_) => {
            let delay = DELAY.saturating_mul(4_u32.saturating_pow(attempts)).min(DELAY_MAX);
            let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            WebhookOutcome::Again(now.saturating_add(delay))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_bounded_and_further_and_further_apart() {
        let away = WebhookFailure { why: String::new(), again: true };
        let mut delays = Vec::new();
        while let WebhookOutcome::Again(at) = outcome(7, delays.len() as u32, Some(&away)) {
            delays.push((at - 7) / 1000);
        }
        assert_eq!(delays, [1, 4, 16, 64, 256, 1024, 4096, 14400]);
        let never = WebhookFailure { again: false, ..away };
        assert_eq!(outcome(7, 0, Some(&never)), WebhookOutcome::Failed);
        assert_eq!(outcome(7, 8, None), WebhookOutcome::Delivered);
    }
}
