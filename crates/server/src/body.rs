//! A request's body on its way in: read within the server's limit, or thrown away politely.
//!
//! A body that came in one piece is passed on without a copy. One that is too large is refused
//! before it is read if the client says so, and while it is read if it does not. Closing with unread
//! bytes makes the system reset the connection, which can destroy the answer before the client reads
//! it; so whatever nobody reads is thrown away for a moment while the answer is on its way.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::runtime::Handle;

use crate::errors::Problem;

/// Room reserved at once for a body of known length; larger ones grow as they come.
const RESERVE_MAX: u64 = 8 << 20;
/// Bodies above this usually arrive after their head; below it, with it.
const LARGE: u64 = 16 << 10;
/// How long and how much of an unread body is thrown away.
const DISCARD_TIME: Duration = Duration::from_secs(5);
const DISCARD_BYTES: usize = 256 << 20;

/// A body that has not been read yet; dropping it throws the rest away.
pub(crate) struct RequestBody {
    body: Option<Incoming>,
    /// The client waits for `100 Continue` and has sent nothing yet.
    expects: bool,
}

impl RequestBody {
    pub(crate) fn new(body: Incoming, expects: bool) -> Self {
        Self { body: Some(body), expects }
    }

    /// Whether it says that it is more than what comes along with a request's head.
    pub(crate) fn large(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.size_hint().lower() > LARGE)
    }

    /// The whole body.
    ///
    /// # Errors
    /// Too large, or broken off; in the latter case nobody is there to read the answer.
    pub(crate) async fn read(mut self, limit: u64) -> Result<Bytes, Problem> {
        let Some(body) = &mut self.body else { return Ok(Bytes::new()) };
        let announced = body.size_hint();
        if announced.lower() > limit {
            return Err(Problem::too_large(limit));
        }
        let first = next(body).await?.unwrap_or_default();
        if body.is_end_stream() && first.len() as u64 <= limit {
            return Ok(first);
        }
        let room = announced.exact().unwrap_or(0).min(RESERVE_MAX).max(first.len() as u64);
        let mut whole = BytesMut::with_capacity(room as usize);
        whole.extend_from_slice(&first);
        while whole.len() as u64 <= limit {
            match next(body).await? {
                Some(data) => whole.extend_from_slice(&data),
                None => return Ok(whole.freeze()),
            }
        }
        // It said that it would send, and now it does.
        self.expects = false;
        Err(Problem::too_large(limit))
    }
}

/// The next piece of data; trailers are passed over.
async fn next(body: &mut Incoming) -> Result<Option<Bytes>, Problem> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            tracing::debug!(%error, "a request's body broke off");
            Problem::bad_request("Invalid HTTP message.")
        })?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) else { return };
        if let (false, Ok(runtime)) = (self.expects, Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(DISCARD_TIME, discard(body)));
        }
    }
}

async fn discard(mut body: Incoming) {
    let mut seen = 0;
    while let Ok(Some(data)) = next(&mut body).await {
        seen += data.len();
        if seen > DISCARD_BYTES {
            return;
        }
    }
}
