//! BentoML's tasks: jobs under the paths of an API. A definition says which paths these are; what its API would have
//! answered is the result of the task.

use std::sync::Arc;

use http::StatusCode;
use jitney_jobs::{JobError, JobId, JobOwner, JobState, JobView, NewJob, OpenJobs};
use jitney_net::RequestBody;
use serde::Serialize;

use super::context::RequestContext;
use super::job_document::{shown, unix_millis};
use super::jobs::{self, kept_answer};
use crate::errors::{ErrorCode, Problem};
use crate::respond::{self, HttpResult};
use crate::route::PathNames;

/// A task as BentoML's clients read it.
#[derive(Serialize)]
struct TaskDocument {
    task_id: JobId,
    status: &'static str,
    created_at: String,
    /// Nobody noted when its last attempt began.
    executed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<String>,
}

impl TaskDocument {
    fn of(view: &JobView) -> Self {
        let status = match view.state {
            JobState::Queued => "pending",
            JobState::Running => "in_progress",
            JobState::Succeeded => "completed",
            JobState::Failed => "failed",
            JobState::Cancelled => "canceled",
        };
        Self {
            task_id: view.id,
            status,
            created_at: shown(view.created),
            executed_at: None,
            completed_at: view.ended.map(|(at, _)| shown(at)),
        }
    }
}

/// A task of the caller's.
struct FoundTask<'a> {
    jobs: &'a Arc<OpenJobs>,
    owner: JobOwner,
    view: JobView,
}

/// The task that the query names, of the API that the path names.
async fn find<'a>(
    context: &RequestContext<'a>,
    names: PathNames<'_>,
) -> Result<FoundTask<'a>, Problem> {
    let query = context.query();
    let id = query.text("task_id").ok_or_else(|| {
        Problem::bad_request("Parameter task_id must have the id that submit answered with.")
    })?;
    let (jobs, owner) = (jobs::opened(context).await?, context.caller.job_owner());
    let view = jobs.view(&owner, id.parse()?).await?;
    if names.model != Some(view.model.as_str()) {
        return Err(JobError::Unknown.into());
    }
    Ok(FoundTask { jobs, owner, view })
}

impl FoundTask<'_> {
    fn ended(&self) -> Result<JobId, Problem> {
        let JobView { id, state, .. } = self.view;
        let early = || Problem::bad_request(format!("Task {id} is not completed yet."));
        state.is_ended().then_some(id).ok_or_else(early)
    }
}

fn told(view: &JobView) -> HttpResult {
    Ok(respond::json(StatusCode::OK, &TaskDocument::of(view)))
}

/// `POST /{task}/submit`.
pub(super) async fn submit(
    context: &RequestContext<'_>,
    names: PathNames<'_>,
    body: RequestBody,
) -> HttpResult {
    let path = names.mount.strip_suffix("/submit").unwrap_or(names.mount);
    told(&jobs::keep(context, names, Some(path), body).await?)
}

/// `GET /{task}/status?task_id=`.
pub(super) async fn status(context: &RequestContext<'_>, names: PathNames<'_>) -> HttpResult {
    told(&find(context, names).await?.view)
}

/// `GET /{task}/get?task_id=`: what the API would have answered.
pub(super) async fn get(context: &RequestContext<'_>, names: PathNames<'_>) -> HttpResult {
    let task = find(context, names).await?;
    jobs::answer(task.jobs, &task.owner, task.ended()?).await
}

/// `PUT /{task}/cancel?task_id=`: ends a task that waits or runs. One that has ended stays as it is.
pub(super) async fn cancel(context: &RequestContext<'_>, names: PathNames<'_>) -> HttpResult {
    let FoundTask { jobs, owner, view } = find(context, names).await?;
    let problem = Problem::new(ErrorCode::Conflict, "The task was cancelled.");
    let reply = respond::problem(&problem, None);
    let body = reply.body().here().clone();
    let answer = kept_answer(&reply.into_parts().0, body);
    told(&jobs.cancel(&owner, view.id, answer, unix_millis()).await?)
}

/// `POST /{task}/retry?task_id=`: a new task with the request of one that has ended.
pub(super) async fn retry(context: &RequestContext<'_>, names: PathNames<'_>) -> HttpResult {
    let task = find(context, names).await?;
    let request = task.jobs.asked(&task.owner, task.ended()?).await?;
    let FoundTask { jobs, owner, view: JobView { model, .. } } = task;
    let _held = context.state.inference.hold(&model, request.body.len() as u64)?;
    let (idempotency, webhook) = (None, None);
    let new = NewJob { owner, model, idempotency, request, again: true, webhook };
    told(&jobs.submit(new, unix_millis()).await?)
}
