//! A connection of HTTP/1.1: one request at a time, a new connection when the last one ended.

use std::rc::Rc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::answer::{Ending, Exchange, ExchangeFailure};
use crate::dial::{Dialer, Transport};
use crate::payload::RequestPayload;
use crate::response::{self, AnswerBody, ResponseHead};

const BUFFER: usize = 4096;
const BUFFER_MAX: usize = 256 * 1024;

/// The connection; it is opened when it is needed.
pub(crate) struct Http1Connection {
    dialer: Rc<Dialer>,
    transport: Option<Transport>,
    buffer: Vec<u8>,
    filled: usize,
}

impl Http1Connection {
    pub(crate) fn new(dialer: Rc<Dialer>) -> Self {
        Self { dialer, transport: None, buffer: vec![0; BUFFER], filled: 0 }
    }

    /// Sends a request and reads the answer. The connection is taken out while that goes on, so it
    /// is closed if that is not waited for.
    pub(crate) async fn exchange(
        &mut self,
        payload: &RequestPayload,
    ) -> Result<Exchange, ExchangeFailure> {
        let mut transport = match self.transport.take().filter(|open| !open.is_stale()) {
            Some(open) => open,
            None => self.dialer.open().await?,
        };
        self.filled = 0;
        let sent = send(&mut transport, payload).await;
        // A server may answer and close before it has read a large body; then the answer counts.
        let received = self.receive(&mut transport).await;
        let (exchange, close) = match (sent, received) {
            (Ok(()), received) => received?,
            (Err(_), Ok(received)) => (received.0, true),
            (Err(failure), Err(_)) => return Err(failure),
        };
        self.transport = (!close).then_some(transport);
        Ok(exchange)
    }

    async fn receive(
        &mut self,
        transport: &mut Transport,
    ) -> Result<(Exchange, bool), ExchangeFailure> {
        let head = self.head(transport).await?;
        let ending = Ending::Http(head.status);
        let mut body = AnswerBody::new(head.body, !ending.is_answer());
        let mut at = head.length;
        let mut close = head.close || body.ends_with_connection();
        loop {
            let (taken, over) = body.feed(&self.buffer[at..self.filled])?;
            at += taken;
            if over {
                break;
            }
            (at, self.filled) = (0, 0);
            self.make_room(body.left());
            if self.fill(transport).await? == 0 {
                if body.ends_with_connection() {
                    break;
                }
                return Err(ExchangeFailure::Closed);
            }
        }
        // Nobody asked for what comes after the answer.
        close |= at < self.filled;
        let (error, bytes) = (body.kept, body.bytes);
        Ok((Exchange { ending, error, retry_after: head.retry_after, bytes }, close))
    }

    /// The head of the answer, after those that only announce it.
    async fn head(&mut self, transport: &mut Transport) -> Result<ResponseHead, ExchangeFailure> {
        loop {
            if self.filled > 0 {
                match response::head(&self.buffer[..self.filled])? {
                    Some(head) if (100..200).contains(&head.status) && head.status != 101 => {
                        self.buffer.copy_within(head.length..self.filled, 0);
                        self.filled -= head.length;
                        continue;
                    }
                    Some(head) => return Ok(head),
                    None => {}
                }
            }
            if self.filled == self.buffer.len() {
                if self.filled >= BUFFER_MAX {
                    return Err(ExchangeFailure::Malformed);
                }
                self.buffer.resize(2 * self.filled, 0);
            }
            if self.fill(transport).await? == 0 {
                return Err(ExchangeFailure::Closed);
            }
        }
    }

    async fn fill(&mut self, transport: &mut Transport) -> Result<usize, ExchangeFailure> {
        let read = transport.read(&mut self.buffer[self.filled..]).await;
        let read = read.map_err(|error| ExchangeFailure::talking(&error))?;
        self.filled += read;
        Ok(read)
    }

    /// A large body is read in large pieces.
    fn make_room(&mut self, left: u64) {
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(BUFFER_MAX);
        if wanted > self.buffer.len() {
            self.buffer.resize(wanted, 0);
        }
    }
}

async fn send(transport: &mut Transport, payload: &RequestPayload) -> Result<(), ExchangeFailure> {
    let failed = |error: std::io::Error| ExchangeFailure::talking(&error);
    transport.write_all(&payload.bytes).await.map_err(failed)?;
    transport.flush().await.map_err(failed)
}
