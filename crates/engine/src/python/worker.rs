//! A loaded Python process, seen from the pool: runs one batch at a time, dies, is ended.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use bytes::Bytes;
use tokio::process::Child;
use tokio::time::timeout;

use super::LinkError;
use super::frame::{BatchFrame, FrameError, Header, Kind, decode_failed, decode_reply};
use super::link::Link;
use crate::call::{Input, Payload, Rider};
use crate::outcome::{BatchOutcome, Death};
use crate::pool::{BoxFuture, Worker};

const SIGKILL: i32 = 9;

/// How long a process may take to be reaped after it hung up, and to leave after it was asked to.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct PythonWorker {
    child: Child,
    link: Link,
}

impl PythonWorker {
    pub(crate) fn new(child: Child, link: Link) -> Self {
        Self { child, link }
    }

    async fn ride(&mut self, batch: u64, riders: &[Rider]) -> Result<BatchOutcome, LinkError> {
        let inputs: Vec<&Input> = riders.iter().filter_map(raw).collect();
        assert_eq!(inputs.len(), riders.len(), "a Python model is given raw inputs only");
        self.link.send_batch(BatchFrame::new(batch, inputs)).await?;
        let (header, payload) = self.receive().await?;
        if header.id == batch && header.kind == Kind::Reply {
            Ok(BatchOutcome::Items(decode_reply(header.count, payload)?))
        } else if header.id == batch && header.kind == Kind::Failed {
            Ok(BatchOutcome::Failed(decode_failed(&payload)?))
        } else {
            Err(FrameError::Unexpected(header.kind).into())
        }
    }

    /// The next frame, or the end of the process: a child that the handler forked may keep the
    /// connection open after the worker itself is gone.
    async fn receive(&mut self) -> Result<(Header, Bytes), LinkError> {
        tokio::select! {
            biased;
            received = self.link.receive() => received,
            _ = self.child.wait() => Err(LinkError::Closed),
        }
    }

    /// Turns a broken link into a death, once the process has been reaped or killed.
    async fn autopsy(&mut self, error: LinkError) -> Death {
        match error {
            LinkError::Protocol(error) => {
                tracing::error!(%error, "worker broke the protocol");
                Death::Garbled
            }
            LinkError::Closed | LinkError::Io(_) => {
                let exit = timeout(LEAVE_TIMEOUT, self.child.wait()).await;
                let signal = exit.ok().and_then(Result::ok).and_then(|status| status.signal());
                Death::Crashed { killed: signal == Some(SIGKILL) }
            }
        }
    }
}

fn raw(rider: &Rider) -> Option<&Input> {
    match &rider.payload {
        Payload::Raw(input) => Some(input),
        Payload::Tensors(_) => None,
    }
}

impl Worker for PythonWorker {
    fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    fn run<'a>(
        &'a mut self,
        batch: u64,
        riders: &'a [Rider],
    ) -> BoxFuture<'a, Result<BatchOutcome, Death>> {
        Box::pin(async move {
            match self.ride(batch, riders).await {
                Ok(outcome) => Ok(outcome),
                Err(error) => Err(self.autopsy(error).await),
            }
        })
    }

    fn died(&mut self) -> BoxFuture<'_, Death> {
        Box::pin(async move {
            let error = match self.receive().await {
                Ok((header, _)) => FrameError::Unexpected(header.kind).into(),
                Err(error) => error,
            };
            self.autopsy(error).await
        })
    }

    fn end(mut self: Box<Self>, force: bool) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if !force && self.link.send_control(Kind::Stop, &serde_json::json!({})).await.is_ok() {
                drop(timeout(LEAVE_TIMEOUT, self.child.wait()).await);
            }
            // Fails only when the process is gone already, which is what we want.
            drop(self.child.kill().await);
        })
    }
}
