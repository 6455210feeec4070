//! Answers the jobs that are kept, some at a time, by the same code as requests that are waited for.
//!
//! They run as bulk and wait for space in a full queue. What another attempt may help is tried again later, within
//! bounds; what the server's own end breaks off is tried again by the next server. Nothing runs before the first job.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderValue, Request};
use http_body_util::{BodyExt as _, Limited};
use jitney_jobs::{JobError, Jobs, KeptAnswer, KeptRequest, OpenJobs, TakenJob};
use jitney_net::RequestBody;
use jitney_net::connection::{ConnectionStage, Peer};
use jitney_net::open_connections::{ListedConnection, OpenConnections};
use jitney_net::request_id::XRequestId;
use jitney_telemetry::trace::RequestTrace;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::answer;
use super::context::RequestContext;
use super::job_document::unix_millis;
use super::jobs::{headers, kept_answer};
use crate::auth::BrowserRule;
use crate::errors::{ErrorCode, Problem};
use crate::keys::Caller;
use crate::respond::{self, HttpResponse};
use crate::route::Apis;
use crate::state::ServerState;

/// Attempts in all where the server, the model or the key had no room or no worker.
const ATTEMPTS_MAX: u32 = 10;
/// Attempts in all where a worker exited; the engine tries each of them on two workers.
const CRASHES_MAX: u32 = 3;
/// The time before the second attempt; it doubles with each.
const DELAY: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_secs(60);
/// The largest answer that is kept: one that comes in pieces has no other limit.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// How often a folder is tried that another server has, or a database that does not answer.
const OPEN_AGAIN: Duration = Duration::from_secs(1);

/// Answers jobs on these runtimes, by turns, until they end.
pub(crate) fn serve_jobs(state: &Arc<ServerState>, apis: Apis, runtimes: &[Handle]) {
    if let Some(first) = runtimes.first() {
        first.spawn(run(Arc::clone(state), apis, runtimes.to_vec()));
    }
}

async fn run(state: Arc<ServerState>, apis: Apis, runtimes: Vec<Handle>) {
    if state.jobs.exist() {
        open(&state.jobs).await;
    }
    let jobs = Arc::clone(state.jobs.begun().await);
    let connections = OpenConnections::new(1, Duration::MAX);
    let Some(permit) = connections.permit().await else { return };
    let number = state.peers.fetch_add(1, Relaxed);
    let listed = connections.list(number, permit);
    let (open, admission) = (Arc::clone(&listed.open), Arc::clone(state.engine.admission()));
    let peer = Peer::new(number, "jobs".to_owned(), open, admission);
    peer.enter(ConnectionStage::Busy);
    let parallel = state.jobs.config().parallel;
    let runner = Arc::new(JobRunner { state, jobs, apis, peer, _listed: listed });
    for runtime in runtimes.iter().cycle() {
        let Some(job) = runner.next(parallel).await else { return };
        let runner = Arc::clone(&runner);
        runtime.spawn(async move { runner.run(job).await });
    }
}

/// Opens what has jobs. A server that hands its ports over has the folder until it ends, and a database may be away.
async fn open(jobs: &Jobs) {
    let mut told = false;
    while let Err(error) = jobs.open().await {
        if !std::mem::replace(&mut told, true) {
            tracing::warn!(%error, "the jobs that are kept are not answered yet");
        }
        tokio::time::sleep(OPEN_AGAIN).await;
    }
}

struct JobRunner {
    state: Arc<ServerState>,
    jobs: Arc<OpenJobs>,
    apis: Apis,
    /// Where all jobs come from.
    peer: Peer,
    _listed: ListedConnection,
}

/// A job that is taken: it is tried again if whoever runs it ends without a word.
struct Taken<'a> {
    jobs: &'a OpenJobs,
    number: u64,
    settled: bool,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.jobs.put_back(self.number, later(DELAY_MAX), false);
        }
    }
}

/// How an attempt ended.
enum JobAttempt {
    Answered(KeptAnswer),
    /// Another one may help, after so long. It does not count where the server broke it off.
    Again {
        delay: Duration,
        ours: bool,
    },
}

fn later(delay: Duration) -> u64 {
    unix_millis().saturating_add(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))
}

impl JobRunner {
    /// The next job, once there is one; none when the server ends.
    async fn next(&self, parallel: usize) -> Option<TakenJob> {
        loop {
            let now = unix_millis();
            if let Err(error) = self.jobs.expire(now).await {
                tracing::warn!(%error, "old jobs stay on disk");
            }
            if self.state.engine.draining() {
                return None;
            }
            if let Some(job) = self.jobs.take(now, parallel).await {
                return Some(job);
            }
            self.jobs.work(now, parallel).await;
        }
    }

    /// Runs a job to its end, to its next attempt, or until its owner deletes it.
    async fn run(&self, job: TakenJob) {
        let mut taken = Taken { jobs: &self.jobs, number: job.number, settled: false };
        let attempt = tokio::select! {
            attempt = self.attempt(&job) => attempt,
            // To put it back changes nothing any more.
            () = self.jobs.over(&job) => return,
        };
        let (delay, ours) = match attempt {
            JobAttempt::Again { delay, ours } => (delay, ours),
            JobAttempt::Answered(answer) => match self.keep(&job, answer).await {
                Ok(()) => {
                    taken.settled = true;
                    return;
                }
                Err(error) => {
                    tracing::error!(job = %job.id, %error, "the answer of a job is not kept, it is run again");
                    (DELAY_MAX, true)
                }
            },
        };
        taken.settled = true;
        self.jobs.put_back(job.number, later(delay), ours);
    }

    /// Keeps an answer, or in place of one that does not fit the reason.
    async fn keep(&self, job: &TakenJob, answer: KeptAnswer) -> Result<(), JobError> {
        let bytes = answer.body.len();
        match self.jobs.end(job, answer, unix_millis()).await {
            Err(JobError::TooLarge { .. }) => {
                let message = format!(
                    "The answer has {bytes} bytes, for which there is no room among the jobs that are kept (jobs_size)."
                );
                let problem = Problem::new(ErrorCode::DiskFull, message);
                let reply = respond::problem(&problem, None);
                self.jobs.end(job, self.whole(reply).await, unix_millis()).await
            }
            ended => ended,
        }
    }

    async fn attempt(&self, job: &TakenJob) -> JobAttempt {
        let kept = match self.state.inference.hold(&job.model, job.bytes) {
            Ok(_held) => self.jobs.request(job).await,
            Err(_) => return again(job.attempts),
        };
        let (kept, caller) = match kept {
            Ok(kept) => {
                let caller = self.caller(job, &kept);
                (kept, caller)
            }
            Err(JobError::Away(_)) => return JobAttempt::Again { delay: DELAY, ours: true },
            Err(error) => return JobAttempt::Answered(self.failed(&error.into()).await),
        };
        let KeptRequest { head, body } = kept;
        let request = Request::builder().method(head.method.as_str()).uri(head.uri.as_str());
        let (Ok(request), Ok(id)) = (request.body(()), HeaderValue::try_from(&head.id)) else {
            let problem =
                Problem::new(ErrorCode::Internal, "The request of this job cannot be read.");
            return JobAttempt::Answered(self.failed(&problem).await);
        };
        let mut parts = request.into_parts().0;
        parts.headers = headers(&head.headers);
        let (id, upgrade) = (XRequestId::Client(id), OnceLock::new());
        let nobody = Caller::ANYBODY;
        let started = Instant::now();
        let trace = self.state.parts.tracer.as_ref().and_then(|tracer| {
            let facts = || answer::facts(&self.state, self.apis, &self.peer, &parts, &id);
            RequestTrace::begin(tracer, &parts.headers, started, facts)
        });
        let context = RequestContext {
            state: &self.state,
            apis: self.apis,
            browsers: BrowserRule::of(&self.state.config.inference),
            peer: &self.peer,
            upgrade: &upgrade,
            parts: &parts,
            id: &id,
            trace: trace.as_ref(),
            caller: caller.as_ref().unwrap_or(&nobody),
            started,
            authorized: None,
            job: true,
        };
        let answered = match (&caller, job.late) {
            (_, true) => Err(late()),
            (None, _) => Err(Problem::unknown_key()),
            (Some(_), false) => answer::again(&context, RequestBody::whole(body)).await,
        };
        if let Some(trace) = &trace {
            let status = answered.as_ref().map_or_else(|it| it.status, |it| it.status().as_u16());
            trace.end("http.response.status_code", status.into(), status >= 500);
        }
        match answered {
            Ok(reply) => JobAttempt::Answered(self.whole(reply).await),
            Err(problem) if self.state.engine.draining() && problem.code == ErrorCode::Ending => {
                JobAttempt::Again { delay: DELAY, ours: true }
            }
            Err(problem) if job.attempts + 1 < attempts_max(problem.code) => again(job.attempts),
            Err(problem) => {
                JobAttempt::Answered(self.whole(answer::failure(&context, &problem)).await)
            }
        }
    }

    /// Whoever made the job, with the key's terms as they are now; none where the key is in force no more.
    fn caller(&self, job: &TakenJob, kept: &KeptRequest) -> Option<Caller> {
        let Some(keys) = &self.state.parts.keys else {
            return job.owner.key.is_none().then_some(Caller::ANYBODY);
        };
        let caller = keys.holder(job.owner.key.as_deref(), Instant::now())?;
        let tenant = kept.head.tenant.as_deref();
        Some(tenant.map_or(caller.clone(), |tenant| caller.of_tenant(tenant)))
    }

    async fn failed(&self, problem: &Problem) -> KeptAnswer {
        self.whole(respond::problem(problem, None)).await
    }

    /// The whole of an answer, within what may be kept.
    async fn whole(&self, reply: HttpResponse) -> KeptAnswer {
        let limit = self.state.jobs.config().bytes_max.min(ANSWER_BYTES_MAX) as usize;
        let (parts, body) = reply.into_parts();
        match Limited::new(body, limit).collect().await {
            Ok(body) => kept_answer(&parts, body.to_bytes()),
            Err(error) => {
                let message = format!("The answer broke off: {error}.");
                let broken = respond::problem(&Problem::new(ErrorCode::Internal, message), None);
                let text = broken.body().here().clone();
                kept_answer(&broken.into_parts().0, text)
            }
        }
    }
}

fn late() -> Problem {
    let message = "The job waited for longer than jobs are kept (jobs_keep), and was not run.";
    Problem::new(ErrorCode::Expired, message)
}

fn again(attempts: u32) -> JobAttempt {
    let delay = DELAY.saturating_mul(1 << attempts.min(16)).min(DELAY_MAX);
    JobAttempt::Again { delay, ours: false }
}

/// How often a job is tried in all that ends with this failure. A model that was there when the job came may be loaded
/// again.
fn attempts_max(code: ErrorCode) -> u32 {
    use ErrorCode::{
        Busy, Ending, ModelNotFound, NoRoom, NoWorker, PluginAway, Quota, VersionNotFound,
        WorkerDied, WorkerKilled,
    };
    let later = [Busy, Ending, ModelNotFound, NoRoom, NoWorker, PluginAway, Quota, VersionNotFound];
    if later.contains(&code) {
        ATTEMPTS_MAX
    } else if [WorkerDied, WorkerKilled].contains(&code) {
        CRASHES_MAX
    } else {
        1
    }
}
