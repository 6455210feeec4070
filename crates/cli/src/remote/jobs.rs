//! `jitney jobs`: requests that a server answers later. It asks the address of predictions, with the key that made
//! the jobs.

use std::io::Read as _;
use std::path::Path;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use super::client::RemoteClient;
use super::server_api::ServerApi;
use super::target::ModelTarget;
use super::words::{self, AlignedTable};
use super::{announce, block_on, document, print_json};
use crate::console;
use crate::env::Env;
use crate::failure::{FAILED, Failure, cannot};
use crate::flags::jobs::{
    JobServerFlags, JobWord, JobsCommand, JobsFlags, ListJobsFlags, OneJobFlags, ResultFlags,
    SomeJobsFlags, SubmitFlags,
};

/// How long one request waits for the end of a job.
const WAIT: &str = "20s";

/// A job as a server shows it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ShownJob {
    id: String,
    state: String,
    model: String,
    created: String,
    ended: String,
    status: Option<u16>,
    expires: String,
    attempts: u32,
}

/// A page of jobs.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ShownPage {
    jobs: Vec<ShownJob>,
    next_page_token: Option<String>,
}

/// Carries out a command.
pub fn main(flags: &JobsFlags, env: &Env) -> Result<u8, Failure> {
    let client =
        |flags: &JobServerFlags| RemoteClient::of(ServerApi::Inference, &flags.into(), env);
    match &flags.command {
        JobsCommand::Submit(flags) => block_on(submit(&client(&flags.server)?, flags)),
        JobsCommand::List(flags) => block_on(list(&client(&flags.server)?, flags)),
        JobsCommand::Show(flags) => block_on(show(&client(&flags.server)?, flags)),
        JobsCommand::Wait(flags) => block_on(wait(&client(&flags.server)?, flags)),
        JobsCommand::Result(flags) => block_on(result(&client(&flags.one.server)?, flags)),
        JobsCommand::Delete(flags) => block_on(delete(&client(&flags.server)?, flags)),
    }
}

async fn submit(client: &RemoteClient, flags: &SubmitFlags) -> Result<u8, Failure> {
    let target = ModelTarget::parse(&flags.model)?;
    let body = data(&flags.data)?;
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok();
    let usual = if is_json { "application/json" } else { "application/octet-stream" };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, header(flags.content_type.as_deref().unwrap_or(usual))?);
    headers.insert(HeaderName::from_static("prefer"), header("respond-async")?);
    if let Some(key) = &flags.idempotency_key {
        headers.insert(HeaderName::from_static("idempotency-key"), header(key)?);
    }
    if let Some(url) = &flags.webhook {
        headers.insert(HeaderName::from_static("x-jitney-webhook"), header(url)?);
    }
    let path = path(&target, flags.endpoint.as_deref());
    let job = client.post(&path, headers, body).await?;
    if flags.server.json {
        print_json(&job);
    } else {
        console::out(shown(job)?.id);
    }
    Ok(0)
}

/// Where a prediction is asked for.
fn path<'a>(target: &'a ModelTarget, endpoint: Option<&'a str>) -> Vec<&'a str> {
    match (endpoint, target.version.as_deref()) {
        (Some(endpoint), None) => vec![&target.model, endpoint],
        (endpoint, version) => {
            ["predictions", &target.model].into_iter().chain(version).chain(endpoint).collect()
        }
    }
}

/// A text as it is, the content of a file, or of stdin.
fn data(text: &str) -> Result<Vec<u8>, Failure> {
    match text.strip_prefix('@') {
        None => Ok(text.as_bytes().to_vec()),
        Some("-") => {
            let mut read = Vec::new();
            std::io::stdin().lock().read_to_end(&mut read).map_err(cannot("read stdin"))?;
            Ok(read)
        }
        Some(file) => {
            std::fs::read(file).map_err(|error| Failure::file("read", Path::new(file), &error))
        }
    }
}

fn header(text: &str) -> Result<HeaderValue, Failure> {
    HeaderValue::from_str(text)
        .map_err(|_| Failure::usage(format!("{text:?} cannot be sent in a header")))
}

async fn list(client: &RemoteClient, flags: &ListJobsFlags) -> Result<u8, Failure> {
    let state = flags.state.map(|state| match state {
        JobWord::Queued => "queued",
        JobWord::Running => "running",
        JobWord::Succeeded => "succeeded",
        JobWord::Failed => "failed",
        JobWord::Cancelled => "cancelled",
    });
    let limit = flags.limit.to_string();
    let mut query = vec![("limit", limit.as_str())];
    query.extend(state.map(|state| ("state", state)));
    query.extend(flags.model.as_deref().map(|model| ("model", model)));
    query.extend(flags.page.as_deref().map(|page| ("next_page_token", page)));
    let page = client.document(&["jobs"], &query).await?;
    if flags.server.json {
        print_json(&page);
        return Ok(0);
    }
    let page: ShownPage = document::read(page).map_err(cannot("read the list of jobs"))?;
    let titles = ["JOB", "STATE", "STATUS", "MODEL", "CREATED", "ENDED"];
    let mut table = AlignedTable::new(&titles, &[0, 1, 3, 4, 5]);
    for job in &page.jobs {
        let status = job.status.map_or_else(|| "-".to_owned(), |status| status.to_string());
        let ended = if job.ended.is_empty() { "-" } else { &job.ended };
        let cells = [&job.id, &job.state, &status, &job.model, &job.created, ended];
        table.row(cells.map(words::plain).to_vec());
    }
    table.render().iter().for_each(console::out);
    if let Some(next) = &page.next_page_token {
        console::err(format!("there are more: --page {next}"));
    }
    Ok(0)
}

async fn show(client: &RemoteClient, flags: &OneJobFlags) -> Result<u8, Failure> {
    let job = client.document(&["jobs", &flags.job], &[]).await?;
    if flags.server.json {
        print_json(&job);
        return Ok(0);
    }
    let job = shown(job)?;
    let lines = [
        ("job", job.id),
        ("state", job.state),
        ("model", job.model),
        ("created", job.created),
        ("ended", job.ended),
        ("status", job.status.map(|status| status.to_string()).unwrap_or_default()),
        ("expires", job.expires),
        ("attempts", job.attempts.to_string()),
    ];
    for (name, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        console::out(format!("{name:<9}{}", words::plain(value)));
    }
    Ok(0)
}

async fn wait(client: &RemoteClient, flags: &SomeJobsFlags) -> Result<u8, Failure> {
    let mut failed = false;
    for id in &flags.jobs {
        let job = ended(client, id).await?;
        if flags.server.json {
            print_json(&job);
        }
        let job = shown(job)?;
        failed |= job.state != "succeeded";
        if !flags.server.json {
            let status = job.status.unwrap_or_default();
            console::out(format!("{} {} {status}", job.id, words::plain(&job.state)));
        }
    }
    Ok(if failed { FAILED } else { 0 })
}

/// The document of a job, once it has ended.
async fn ended(client: &RemoteClient, id: &str) -> Result<Value, Failure> {
    loop {
        let job = client.document(&["jobs", id], &[("wait", WAIT)]).await?;
        if !job["result"].is_null() {
            return Ok(job);
        }
    }
}

async fn result(client: &RemoteClient, flags: &ResultFlags) -> Result<u8, Failure> {
    ended(client, &flags.one.job).await?;
    let (status, body) = client.answer(&["jobs", &flags.one.job, "result"]).await?;
    match &flags.output {
        None => console::bytes(&body),
        Some(file) => {
            std::fs::write(file, &body).map_err(|error| Failure::file("write", file, &error))?;
        }
    }
    if status < StatusCode::BAD_REQUEST {
        return Ok(0);
    }
    console::err(format!("the prediction was answered with status {}", status.as_u16()));
    Ok(FAILED)
}

async fn delete(client: &RemoteClient, flags: &SomeJobsFlags) -> Result<u8, Failure> {
    for id in &flags.jobs {
        let done = client.change(Method::DELETE, &["jobs", id], &[]).await?;
        announce(&done, flags.server.json);
    }
    Ok(0)
}

fn shown(job: Value) -> Result<ShownJob, Failure> {
    document::read(job).map_err(cannot("read the job"))
}
