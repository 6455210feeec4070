//! Commands against a running server: they ask its management API, `jobs` its inference API, and print what it says. stdout is
//! data, stderr is talk.

mod change;
pub mod client;
mod details;
mod document;
pub mod events;
mod jobs;
mod logs;
mod no_answer;
pub mod rates;
mod server_api;
pub mod status;
mod target;
mod token;
pub mod words;

use std::future::Future;

use jitney_engine::traffic_split::TrafficSplit;
use jitney_telemetry::overview::{
    ModelOverview, OverviewDocument, OverviewHistory, OverviewSample,
};
use serde_json::{Value, json};

use crate::console;
use crate::env::Env;
use crate::failure::{FAILED, Failure, cannot};
use crate::flags::change::{
    DefaultFlags, RegisterFlags, ScaleFlags, SetFlags, TrafficFlags, UnregisterFlags,
};
use crate::flags::remote::{LogsFlags, ModelsFlags, StatusFlags};
pub use jobs::main as jobs;

use client::RemoteClient;
use target::ModelTarget;

/// Runs a command on a runtime of its own.
pub fn block_on<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(cannot("start a runtime"))?.block_on(command)
}

/// `jitney status`
pub fn status(flags: &StatusFlags, env: &Env) -> Result<u8, Failure> {
    let client = RemoteClient::new(&flags.server, env)?;
    let (document, overview) = block_on(overview(&client))?;
    if flags.server.json {
        print_json(&document);
    } else {
        let samples = block_on(recent(&client, &overview))?;
        console::out(status::render(&client.address(), &overview, &samples));
    }
    Ok(if overview.server.is_ready() { 0 } else { FAILED })
}

/// `jitney models`
pub fn models(flags: &ModelsFlags, env: &Env) -> Result<u8, Failure> {
    let client = RemoteClient::new(&flags.server, env)?;
    let target = flags.model.as_deref().map(ModelTarget::parse).transpose()?;
    let (document, overview) = block_on(overview(&client))?;
    let Some(target) = target else {
        if flags.server.json {
            print_json(&json!({ "models": document["models"] }));
        } else {
            let samples = block_on(recent(&client, &overview))?;
            status::models(&overview, &samples).iter().for_each(console::out);
        }
        return Ok(0);
    };
    let meant = |model: &&ModelOverview| target.matches(&model.name, &model.version);
    let found: Vec<_> = overview.models.iter().filter(meant).collect();
    if found.is_empty() {
        let names = overview.models.iter().map(|model| model.name.as_str());
        let nearest = jitney_settings::did_you_mean(&target.model, names);
        let hint = nearest.unwrap_or_else(|| "`jitney models` lists them".to_owned());
        return Err(Failure::failed(format!("the server has no model {target}")).hint(hint));
    }
    if flags.server.json {
        let all = document["models"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |model: &Value, key: &str| model[key].as_str().unwrap_or_default().to_owned();
        let meant = |model: &&Value| target.matches(&text(model, "name"), &text(model, "version"));
        print_json(&json!({ "models": all.iter().filter(meant).collect::<Vec<_>>() }));
    } else {
        let texts: Vec<_> = found.into_iter().map(details::render).collect();
        console::out(texts.join("\n\n"));
    }
    Ok(0)
}

/// `jitney register`
pub fn register(flags: &RegisterFlags, env: &Env) -> Result<u8, Failure> {
    let client = RemoteClient::new(&flags.server, env)?;
    let done = block_on(change::register(&client, flags))?;
    if done["status"].as_str().is_some_and(|text| text.contains("with 0 initial workers")) {
        console::err("it has no workers yet; `jitney scale MODEL 1` starts one");
    }
    Ok(announce(&done, flags.server.json))
}

/// `jitney scale`
pub fn scale(flags: &ScaleFlags, env: &Env) -> Result<u8, Failure> {
    let client = RemoteClient::new(&flags.server, env)?;
    Ok(announce(&block_on(change::scale(&client, flags))?, flags.server.json))
}

/// `jitney set`
pub fn set(flags: &SetFlags, env: &Env) -> Result<u8, Failure> {
    let client = RemoteClient::new(&flags.server, env)?;
    Ok(announce(&block_on(change::set(&client, flags))?, flags.server.json))
}

/// `jitney default`
pub fn set_default(flags: &DefaultFlags, env: &Env) -> Result<u8, Failure> {
    let client = RemoteClient::new(&flags.server, env)?;
    Ok(announce(&block_on(change::set_default(&client, flags))?, flags.server.json))
}

/// `jitney traffic`
pub fn traffic(flags: &TrafficFlags, env: &Env) -> Result<u8, Failure> {
    let client = RemoteClient::new(&flags.server, env)?;
    let split = block_on(change::traffic(&client, flags))?;
    if flags.server.json {
        print_json(&split);
        return Ok(0);
    }
    let split: TrafficSplit = document::read(split).map_err(cannot("read the shares"))?;
    console::out(split.sentence());
    Ok(0)
}

/// `jitney unregister`
pub fn unregister(flags: &UnregisterFlags, env: &Env) -> Result<u8, Failure> {
    let client = RemoteClient::new(&flags.server, env)?;
    match block_on(change::unregister(&client, flags))? {
        Some(done) => Ok(announce(&done, flags.server.json)),
        None => {
            console::err("nothing was changed");
            Ok(FAILED)
        }
    }
}

/// `jitney logs`
pub fn logs(flags: &LogsFlags, env: &Env) -> Result<u8, Failure> {
    let client = RemoteClient::new(&flags.server, env)?;
    block_on(logs::print(&client, flags, env))?;
    Ok(0)
}

/// The document as it came, and what is read of it.
pub async fn overview(client: &RemoteClient) -> Result<(Value, OverviewDocument), Failure> {
    let document = client.document(&["overview"], &[]).await?;
    let read = document::read(document.clone());
    read.map(|overview| (document, overview)).map_err(cannot("read the server's overview"))
}

/// The samples that the server kept. Without them there are no rates, and nothing else is missing.
pub async fn history(client: &RemoteClient) -> Result<Vec<OverviewSample>, Failure> {
    let mut events = client.events(&["overview", "stream"], &[]).await?;
    while let Some(event) = events.next().await? {
        if event.name == "history" {
            return Ok(event.read::<OverviewHistory>().unwrap_or_default().samples.into());
        }
    }
    Ok(Vec::new())
}

async fn recent(
    client: &RemoteClient,
    overview: &OverviewDocument,
) -> Result<Vec<OverviewSample>, Failure> {
    let mut samples = history(client).await.unwrap_or_default();
    samples.extend(overview.sample.clone());
    Ok(status::recent(samples))
}

fn print_json(document: &Value) {
    console::out(format!("{document:#}"));
}

/// What the server answered to a change.
fn announce(answer: &Value, json: bool) -> u8 {
    match answer["status"].as_str() {
        Some(text) if !json => console::out(text),
        _ => print_json(answer),
    }
    0
}
