//! A connection as a client sees it, whatever protocol it speaks: one request at a time, each with
//! its time to the answer.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::answer::{Exchange, ExchangeFailure};
use crate::dial::{Dialer, LoadProtocol};
use crate::http1::Http1Connection;
use crate::http2::{Http2Connection, Http2Slot};
use crate::payload::RequestPayload;

/// Makes connections.
pub(crate) struct ConnectionMaker {
    dialer: Rc<Dialer>,
    /// Requests at a time on a connection of HTTP/2.
    streams: usize,
    shared: RefCell<Vec<Rc<Http2Connection>>>,
}

impl ConnectionMaker {
    pub(crate) fn new(dialer: Rc<Dialer>, streams: usize) -> Self {
        Self { dialer, streams: streams.max(1), shared: RefCell::default() }
    }

    /// The how-manieth connection of a client; with HTTP/2 neighbours share one.
    pub(crate) fn make(&self, number: usize) -> LoadConnection {
        let wire = match self.dialer.protocol() {
            LoadProtocol::Http1 => Wire::Http1(Http1Connection::new(Rc::clone(&self.dialer))),
            LoadProtocol::Http2 | LoadProtocol::Grpc => {
                let (at, mut shared) = (number / self.streams, self.shared.borrow_mut());
                while shared.len() <= at {
                    shared.push(Rc::new(Http2Connection::new(Rc::clone(&self.dialer))));
                }
                Wire::Http2(Http2Slot::new(Rc::clone(&shared[at])))
            }
        };
        LoadConnection { wire, limit: Box::pin(sleep_until(Instant::now())) }
    }
}

/// A connection.
pub(crate) struct LoadConnection {
    wire: Wire,
    /// Moved on with every request, which is cheaper than a new one.
    limit: Pin<Box<Sleep>>,
}

enum Wire {
    Http1(Http1Connection),
    Http2(Http2Slot),
}

impl LoadConnection {
    /// Sends a request and waits for its answer, until a time.
    pub(crate) async fn exchange(&mut self, payload: &RequestPayload, until: Instant) -> Exchange {
        self.limit.as_mut().reset(until);
        let exchange = async {
            match &mut self.wire {
                Wire::Http1(wire) => wire.exchange(payload).await,
                Wire::Http2(wire) => wire.exchange(payload).await,
            }
        };
        let ended = tokio::select! {
            biased;
            ended = exchange => ended,
            () = self.limit.as_mut() => Err(ExchangeFailure::Timeout),
        };
        ended.unwrap_or_else(Exchange::failed)
    }
}
