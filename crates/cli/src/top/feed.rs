//! What comes from the server: documents over one stream, which is opened again when it ends, and the
//! decisions of the chosen model, asked for now and then.

use std::time::Duration;

use jitney_telemetry::overview::{OverviewDocument, OverviewHistory};
use tokio::sync::{mpsc, watch};

use super::watched::RemoteBatching;
use crate::failure::Failure;
use crate::remote::client::RemoteClient;

/// The pause before the stream is opened again: it doubles up to a maximum.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The time between two questions for decisions.
const WHY_EVERY: Duration = Duration::from_secs(2);

/// Something new.
#[derive(Debug)]
pub enum FeedEvent {
    /// The samples that the server kept.
    History(OverviewHistory),
    /// A document.
    Overview(Box<OverviewDocument>),
    /// The stream ended, for this reason.
    Lost(Failure),
    /// The last decisions of a model.
    Why(String, RemoteBatching),
}

/// Brings documents until nobody listens.
pub async fn documents(client: RemoteClient, events: mpsc::Sender<FeedEvent>) {
    let mut pause = PAUSE;
    while !events.is_closed() {
        let ended = stream(&client, &events, &mut pause).await;
        let reason =
            ended.err().unwrap_or_else(|| Failure::unreachable("the server ended the stream"));
        if events.send(FeedEvent::Lost(reason)).await.is_err() {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn stream(
    client: &RemoteClient,
    events: &mpsc::Sender<FeedEvent>,
    pause: &mut Duration,
) -> Result<(), Failure> {
    let mut stream = client.events(&["overview", "stream"], &[]).await?;
    while let Some(event) = stream.next().await? {
        let event = match event.name.as_str() {
            "history" => FeedEvent::History(event.read().unwrap_or_default()),
            "overview" => match event.read() {
                Ok(overview) => FeedEvent::Overview(Box::new(overview)),
                Err(error) => {
                    return Err(Failure::failed(format!("its overview cannot be read: {error}")));
                }
            },
            _ => continue,
        };
        *pause = PAUSE;
        if events.send(event).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Brings the decisions of the chosen model until nobody listens.
pub async fn decisions(
    client: RemoteClient,
    mut chosen: watch::Receiver<Option<String>>,
    events: mpsc::Sender<FeedEvent>,
) {
    loop {
        let key = chosen.borrow_and_update().clone();
        if let Some(key) = key
            && let Some(batching) = why(&client, &key).await
            && events.send(FeedEvent::Why(key, batching)).await.is_err()
        {
            return;
        }
        // Another choice is answered at once.
        if let Ok(Err(_)) = tokio::time::timeout(WHY_EVERY, chosen.changed()).await {
            return;
        }
    }
}

/// The last decisions of a model.
pub async fn why(client: &RemoteClient, key: &str) -> Option<RemoteBatching> {
    let (model, version) = key.rsplit_once('/')?;
    client.get(&["models", model, version, "batching"]).await.ok()
}
