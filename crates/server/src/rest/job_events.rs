//! The changes of a job as Server-Sent Events, until it has ended.
//!
//! An event holds the document of the job as it is then, so that nothing piles up for a client that reads slowly. The
//! stream ends with the job, with the server and after an hour; a browser's `EventSource` then asks again, unless the
//! event `end` came.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use jitney_engine::Engine;
use jitney_jobs::{JobId, JobOwner, JobView, OpenJobs};
use jitney_net::{ResponseBody, events};
use tokio::time::Instant;

use super::context::RequestContext;
use super::job_document::JobDocument;
use super::overview;
use crate::auth::{Gate, GuardedOperation};
use crate::respond::HttpResult;

/// The longest time that one stream goes on.
const LONGEST: Duration = Duration::from_secs(3600);
/// How often it is looked whether the server ends.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After so many looks without an event a comment tells that the connection lives.
const QUIET_LOOKS: u32 = 15;

/// A job that somebody follows.
struct FollowedJob {
    jobs: Arc<OpenJobs>,
    engine: Arc<Engine>,
    owner: JobOwner,
    id: JobId,
    /// As it was told last.
    view: JobView,
    until: Instant,
}

/// The changes of a job of the caller's, for as long as the caller may see it.
pub(super) async fn follow(
    context: &RequestContext<'_>,
    jobs: Arc<OpenJobs>,
    id: JobId,
) -> HttpResult {
    let owner = context.caller.job_owner();
    let view = jobs.view(&owner, id).await?;
    let (first, engine) = (told(&view), Arc::clone(&context.state.engine));
    let job = FollowedJob { jobs, engine, owner, id, view, until: Instant::now() + LONGEST };
    let rest = stream::unfold(Some(job), |job| async {
        let mut job = job?;
        let (piece, goes_on) = job.next().await?;
        Some((Ok(piece), goes_on.then_some(job)))
    });
    let mut caller = context.caller.clone();
    let allowed = move || caller.check_again(Gate::Inference, GuardedOperation::Job, None).is_ok();
    Ok(overview::events(ResponseBody::pieces(first, rest).while_allowed(allowed)))
}

impl FollowedJob {
    /// The next piece, and whether more may come.
    async fn next(&mut self) -> Option<(Bytes, bool)> {
        if self.view.state.is_ended() {
            return Some((events::end(), false));
        }
        for _ in 0..QUIET_LOOKS {
            tokio::select! {
                changed = self.jobs.changed(&self.owner, self.id, &self.view) => {
                    // It was deleted, or has expired.
                    let Ok(view) = changed else { return Some((events::end(), false)) };
                    self.view = view;
                    return Some((told(&self.view), true));
                }
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            if self.engine.draining() || Instant::now() >= self.until {
                return None;
            }
        }
        Some((Bytes::from_static(b":\n\n"), true))
    }
}

fn told(view: &JobView) -> Bytes {
    let document = serde_json::to_vec(&JobDocument::of(view)).unwrap_or_default();
    events::event("job", &document)
}
