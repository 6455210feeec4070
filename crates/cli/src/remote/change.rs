//! Changes of a running server: register, scale, set, default, traffic, unregister. Those that wait for workers
//! say meanwhile what they wait for.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use jitney_settings::{Setting, did_you_mean, model};
use jitney_telemetry::overview::{ModelOverview, OverviewDocument};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::{RemoteClient, model_path};
use super::target::ModelTarget;
use crate::console;
use crate::failure::Failure;
use crate::flags::change::{
    DefaultFlags, RegisterFlags, ScaleFlags, SetFlags, TrafficFlags, UnregisterFlags, WorkerCount,
};
use crate::progress::Progress;

/// The time between two looks at what a change waits for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Registers a model.
pub async fn register(client: &RemoteClient, flags: &RegisterFlags) -> Result<Value, Failure> {
    let mut query = vec![("url".to_owned(), flags.source.clone())];
    let mut add = |name: &str, value: Option<&String>| {
        query.extend(value.map(|value| (name.to_owned(), value.clone())));
    };
    add("model_name", flags.name.as_ref());
    add("handler", flags.handler.as_ref());
    add("sha256", flags.sha256.as_ref());
    add("replace", flags.replace.as_ref());
    add("synchronous", Some(&(!flags.no_wait).to_string()));
    for setting in model::SETTINGS {
        if let (Some(name), Some(value)) =
            (setting.parameter.names.first(), flags.parameters.0.show(setting))
        {
            query.push(((*name).to_owned(), value));
        }
    }
    let query = borrowed(&query);
    let asked = client.change(Method::POST, &["models"], &query);
    let waits_for = |model: &ModelOverview| model.state == "loading";
    watched(client, asked, &format!("registering {}", flags.source), waits_for)
        .await
        .map_err(|failure| explain(failure, &flags.source))
}

/// A path that only this machine knows is the usual reason why a server does not find a file.
fn explain(failure: Failure, source: &str) -> Failure {
    if failure.hint.is_some() || failure.code != crate::failure::FAILED {
        return failure;
    }
    if Path::new(source).exists() && !source.contains("://") {
        return failure.hint(format!(
            "the server reads files only from its model store (--model-store); {source} is a file of \
             this machine: copy it there and name it alone, or start the server with it"
        ));
    }
    failure
}

/// Changes the number of workers.
pub async fn scale(client: &RemoteClient, flags: &ScaleFlags) -> Result<Value, Failure> {
    let target = ModelTarget::parse(&flags.model)?;
    let pinned = match flags.count {
        Some(WorkerCount::Pinned(count)) => Some(count),
        Some(WorkerCount::Auto) | None => flags.workers,
    };
    let (min, max) = (pinned.or(flags.min_workers), pinned.or(flags.max_workers));
    let mut query = vec![("synchronous".to_owned(), (!flags.no_wait).to_string())];
    let auto = flags.count == Some(WorkerCount::Auto);
    query.extend(auto.then(|| ("workers".to_owned(), "auto".to_owned())));
    query.extend(min.map(|min| ("min_worker".to_owned(), min.to_string())));
    query.extend(max.map(|max| ("max_worker".to_owned(), max.to_string())));
    let (path, query) = (model_path(&target), borrowed(&query));
    let asked = client.change(Method::PUT, &path, &query);
    let meant = |model: &ModelOverview| target.matches(&model.name, &model.version);
    watched(client, asked, &format!("scaling {target}"), meant).await
}

/// Changes live settings.
pub async fn set(client: &RemoteClient, flags: &SetFlags) -> Result<Value, Failure> {
    let target = ModelTarget::parse(&flags.model)?;
    let mut query = flags.changes.iter().map(|text| live(text)).collect::<Result<Vec<_>, _>>()?;
    query.extend(flags.endpoint.as_ref().map(|name| ("endpoint".to_owned(), name.clone())));
    client.change(Method::PUT, &model_path(&target), &borrowed(&query)).await
}

/// `SETTING=VALUE` as a parameter. The name may be the setting's, its flag's or the parameter's own.
fn live(text: &str) -> Result<(String, String), Failure> {
    let known = || model::SETTINGS.iter().copied().filter(|setting| setting.live);
    let names = || known().map(|setting| setting.name);
    let Some((name, value)) = text.split_once('=') else {
        return Err(Failure::usage(format!("\"{text}\" is not SETTING=VALUE"))
            .hint("for example: jitney set resnet max_latency_ms=50"));
    };
    let called =
        |setting: &&Setting| setting.is_called(name) || setting.parameter.names.contains(&name);
    let Some(setting) = known().find(called) else {
        let list = format!("these can: {}", names().collect::<Vec<_>>().join(", "));
        let other = model::SETTINGS.iter().any(|setting| setting.is_called(name));
        let message = if other {
            format!("{name} cannot be changed while the model runs")
        } else {
            format!("{name} is not a setting of a model that runs")
        };
        let hint = if other { None } else { did_you_mean(name, names()) };
        return Err(Failure::usage(message).hint(hint.unwrap_or(list)));
    };
    let parsed = setting.kind.parse(value).map_err(|expected| {
        Failure::usage(format!("{} must be {expected}, not \"{value}\"", setting.name))
    })?;
    let parameter = setting.parameter.names.first().copied().unwrap_or(setting.name);
    Ok((parameter.to_owned(), setting.kind.show(&parsed)))
}

/// Makes another version the default.
pub async fn set_default(client: &RemoteClient, flags: &DefaultFlags) -> Result<Value, Failure> {
    let path = ["models", &flags.model, &flags.version, "set-default"];
    client.change(Method::PUT, &path, &[]).await
}

/// Changes the shares of versions, or asks for them.
pub async fn traffic(client: &RemoteClient, flags: &TrafficFlags) -> Result<Value, Failure> {
    let path = ["models", &flags.model, "traffic"];
    if flags.off {
        return client.change(Method::DELETE, &path, &[]).await;
    }
    if flags.shares.is_empty() && flags.shadow.is_none() {
        if flags.sticky.is_some() || !flags.returns.is_empty() {
            let hint = "such as: jitney traffic resnet 1.0=90 2.0=10";
            return Err(Failure::usage("say which versions share the requests").hint(hint));
        }
        return client.document(&path, &[]).await;
    }
    let shares: BTreeMap<_, _> = flags.shares.iter().cloned().collect();
    let mut split = json!({ "shares": shares });
    if let Some(sticky) = &flags.sticky {
        split["sticky"] = json!(sticky);
    }
    if let Some(promote) = &flags.promote {
        split["promote"] = json!(promote);
    }
    for (name, value) in &flags.returns {
        split["return"][name] = value.parse::<u64>().map_or_else(|_| json!(value), |it| json!(it));
    }
    if let Some((version, share)) = &flags.shadow {
        split["shadow"] = json!({ "version": version, "share": share });
        if let Some(same) = &flags.same {
            split["shadow"]["same"] = json!(same);
        }
        split["shadow_samples"] = json!(flags.shadow_samples.unwrap_or(0));
    }
    client.put(&path, &split).await
}

/// Removes a version; nothing if the user says no.
pub async fn unregister(
    client: &RemoteClient,
    flags: &UnregisterFlags,
) -> Result<Option<Value>, Failure> {
    let target = ModelTarget::parse(&flags.model)?;
    let asks = !flags.yes && console::can_ask();
    if asks && !console::confirmed(&question(client, &target).await) {
        return Ok(None);
    }
    client.change(Method::DELETE, &model_path(&target), &[]).await.map(Some)
}

/// What would be removed, as far as the server tells.
async fn question(client: &RemoteClient, target: &ModelTarget) -> String {
    let overview: OverviewDocument = client.get(&["overview"]).await.unwrap_or_default();
    let meant = |model: &&ModelOverview| {
        target.matches(&model.name, &model.version)
            && (target.version.is_some() || model.is_default)
    };
    match overview.models.iter().find(meant) {
        Some(model) => format!(
            "Unregister {} version {} with {} workers from {}?",
            model.name,
            model.version,
            model.workers.len(),
            client.address()
        ),
        None => format!("Unregister {target} from {}?", client.address()),
    }
}

fn borrowed(query: &[(String, String)]) -> Vec<(&str, &str)> {
    query.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// Waits for a change, and says meanwhile how the models stand that it waits for.
async fn watched(
    client: &RemoteClient,
    change: impl Future<Output = Result<Value, Failure>>,
    what: &str,
    waits_for: impl Fn(&ModelOverview) -> bool,
) -> Result<Value, Failure> {
    let (mut progress, started) = (Progress::new(), Instant::now());
    let mut ticks = tokio::time::interval_at(started + LOOK_EVERY, LOOK_EVERY);
    tokio::pin!(change);
    loop {
        tokio::select! {
            done = &mut change => return done,
            _ = ticks.tick() => {
                // A server that is busy with the change may not answer this; then only the time is shown.
                let overview: OverviewDocument = client.get(&["overview"]).await.unwrap_or_default();
                let models = overview.models.iter().filter(|model| waits_for(model));
                let standing: Vec<_> = models.map(standing).collect();
                let seconds = started.elapsed().as_secs();
                progress.say(&format!("{what}, {seconds} s {}", standing.join("; ")));
            }
        }
    }
}

fn standing(model: &ModelOverview) -> String {
    let progress = model.workers.iter().find_map(|worker| worker.progress.as_ref());
    let progress = progress.map(|progress| format!(", {progress}")).unwrap_or_default();
    format!("({}: {} workers ready{progress})", model.key(), model.workers_ready())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_settings_are_checked_before_they_are_sent() {
        let sent = |text: &str| live(text).map_err(|failure| failure.to_string());
        let pair = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(sent("max_latency_ms=2s"), pair("max_latency_ms", "2000"));
        assert_eq!(sent("max_batch_size=8"), pair("batch_size", "8"));
        assert_eq!(sent("batch-size=8"), pair("batch_size", "8"));
        assert_eq!(sent("queue=5"), pair("job_queue_size", "5"));
        for (text, expected) in [
            ("max_latency=5", "did you mean `max_latency_ms`?"),
            ("isolation=thread", "isolation cannot be changed while the model runs"),
            ("max_batch_size=many", "max_batch_size must be a whole number"),
            ("queue", "is not SETTING=VALUE"),
        ] {
            let message = sent(text).expect_err(text);
            assert!(message.contains(expected), "{message}");
        }
    }
}
