//! A stream's right on a connection of HTTP/2: several share one connection, which is opened by the
//! first that needs it and again after it ended. gRPC is HTTP/2 with a status behind the body.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use h2::client::SendRequest;
use http::HeaderMap;
use tokio::sync::Mutex;
use tokio::task::spawn_local;

use crate::answer::{Ending, Exchange, ExchangeFailure};
use crate::dial::{Dialer, LoadProtocol};
use crate::payload::RequestPayload;

/// What a stream and a connection may hold that was not read yet.
const WINDOW: u32 = 4 * 1024 * 1024;
const KEPT_MAX: usize = 4096;

/// A connection that several requests share.
pub(crate) struct Http2Connection {
    dialer: Rc<Dialer>,
    open: Mutex<Option<SendRequest<Bytes>>>,
    /// How many times it was opened.
    generation: Cell<u64>,
}

impl Http2Connection {
    pub(crate) fn new(dialer: Rc<Dialer>) -> Self {
        Self { dialer, open: Mutex::new(None), generation: Cell::new(0) }
    }

    async fn sender(&self) -> Result<(u64, SendRequest<Bytes>), ExchangeFailure> {
        let mut open = self.open.lock().await;
        if let Some(sender) = &*open {
            return Ok((self.generation.get(), sender.clone()));
        }
        let transport = self.dialer.open().await?;
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
        let (sender, connection) =
            builder.handshake(transport).await.map_err(|error| failure(&error))?;
        // Its end shows in its streams.
        spawn_local(async move { connection.await.ok() });
        self.generation.set(self.generation.get() + 1);
        *open = Some(sender.clone());
        Ok((self.generation.get(), sender))
    }

    /// The connection of this generation is of no use any more.
    async fn forget(&self, generation: u64) {
        if self.generation.get() == generation {
            *self.open.lock().await = None;
        }
    }
}

/// The right to one request at a time on a shared connection.
pub(crate) struct Http2Slot {
    connection: Rc<Http2Connection>,
}

impl Http2Slot {
    pub(crate) fn new(connection: Rc<Http2Connection>) -> Self {
        Self { connection }
    }

    pub(crate) async fn exchange(
        &mut self,
        payload: &RequestPayload,
    ) -> Result<Exchange, ExchangeFailure> {
        let (mut generation, sender) = self.connection.sender().await?;
        let sender = match sender.ready().await {
            Ok(sender) => sender,
            Err(_) => {
                // It was closed while it was not used; the request was not sent yet.
                self.connection.forget(generation).await;
                let again = self.connection.sender().await?;
                generation = again.0;
                again.1.ready().await.map_err(|error| failure(&error))?
            }
        };
        let ended = stream(sender, payload, self.connection.dialer.protocol()).await;
        match ended {
            Ok(exchange) => Ok(exchange),
            Err(error) => {
                if !error.is_reset() || error.is_go_away() {
                    self.connection.forget(generation).await;
                }
                Err(failure(&error))
            }
        }
    }
}

async fn stream(
    mut sender: SendRequest<Bytes>,
    payload: &RequestPayload,
    protocol: LoadProtocol,
) -> Result<Exchange, h2::Error> {
    let empty = payload.body.is_empty();
    let (response, mut body) = sender.send_request(payload.head.clone(), empty)?;
    if !empty {
        body.send_data(payload.body.clone(), true)?;
    }
    let (head, mut body) = response.await?.into_parts();
    let http = Ending::Http(head.status.as_u16());
    let (mut bytes, mut kept) = (0, Vec::new());
    while let Some(data) = body.data().await {
        let data = data?;
        bytes += data.len() as u64;
        if !http.is_answer() && kept.len() < KEPT_MAX {
            kept.extend_from_slice(&data);
        }
        let _ = body.flow_control().release_capacity(data.len());
    }
    let trailers = body.trailers().await?;
    if protocol == LoadProtocol::Grpc && http.is_answer() {
        return Ok(grpc(trailers.as_ref().unwrap_or(&head.headers), bytes));
    }
    let retry_after = head.headers.contains_key("retry-after");
    let error = (!http.is_answer()).then_some(kept);
    Ok(Exchange { ending: http, error, retry_after, bytes })
}

/// The status of gRPC, from the trailers, or from the head of an answer without a body.
fn grpc(fields: &HeaderMap, bytes: u64) -> Exchange {
    let code = fields.get("grpc-status").and_then(|code| code.to_str().ok()?.parse().ok());
    let Some(code) = code else { return Exchange::failed(ExchangeFailure::Malformed) };
    let error = fields.get("grpc-message").map(|text| text.as_bytes().to_vec());
    let retry_after = fields.contains_key("retry-after");
    Exchange { ending: Ending::Grpc(code), error, retry_after, bytes }
}

fn failure(error: &h2::Error) -> ExchangeFailure {
    match error.get_io() {
        Some(error) => ExchangeFailure::talking(error),
        None if error.is_reset() || error.is_go_away() => ExchangeFailure::Reset,
        None => ExchangeFailure::Malformed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn the_status_of_grpc_is_read_from_its_fields() {
        let mut fields = HeaderMap::new();
        assert_eq!(grpc(&fields, 1).ending, Ending::Failed(ExchangeFailure::Malformed));
        fields.insert("grpc-status", HeaderValue::from_static("0"));
        assert_eq!(grpc(&fields, 7), Exchange::answered(Ending::Grpc(0), 7));
        fields.insert("grpc-status", HeaderValue::from_static("14"));
        fields.insert("grpc-message", HeaderValue::from_static("It is full. [reason: queue_full]"));
        fields.insert("retry-after", HeaderValue::from_static("1"));
        let rejected = grpc(&fields, 0);
        assert_eq!(rejected.reason().as_deref(), Some("queue_full"));
        assert!(rejected.ending.is_rejection() && rejected.retry_after);
    }
}
