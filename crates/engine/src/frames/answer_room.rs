//! The memory of a worker's large answers, which are counted before they are taken from it. While clients do not read
//! what they have, and there is no memory for more, the worker waits with its answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::admission::{Admission, HeldBytes};

/// Frames of which less is missing are not counted: they are read before anything else happens.
pub(super) const COUNTED_MIN: usize = 64 * 1024;

/// How often room is looked for while an answer waits, and how many times: clients that read nothing are cut before.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOKS_MAX: u32 = 40;

/// What one connection knows of the large answer that is coming.
pub(super) struct AnswerRoom {
    /// Where it is counted.
    account: Arc<Admission>,
    /// What is counted of it, given back when it is here.
    coming: Option<HeldBytes>,
    /// When room is looked for again, and how often it was.
    look: Option<Pin<Box<Sleep>>>,
    looks: u32,
}

impl AnswerRoom {
    pub(super) fn new(account: &Arc<Admission>) -> Self {
        Self { account: Arc::clone(account), coming: None, look: None, looks: 0 }
    }

    /// Ready when there is memory for what is missing of a frame, or when that was waited for long enough.
    pub(super) fn poll_take(&mut self, missing: usize, context: &mut Context<'_>) -> Poll<()> {
        while self.coming.is_none() {
            if let Some(look) = &mut self.look {
                ready!(look.as_mut().poll(context));
                (self.look, self.looks) = (None, self.looks + 1);
            }
            let bytes = missing as u64;
            let enough = || (self.looks >= LOOKS_MAX).then(|| self.account.keep(bytes));
            self.coming = self.account.hold_reply(bytes).or_else(enough);
            if self.coming.is_none() {
                self.look = Some(Box::pin(sleep(LOOK_EVERY)));
            }
        }
        self.looks = 0;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use bytes::BytesMut;

    use super::super::connection::WorkerConnection;
    use super::super::frame::{FrameHeader, FrameKind};
    use super::*;
    use crate::admission::AdmissionLimits;

    #[tokio::test(start_paused = true)]
    async fn a_large_answer_stays_with_its_worker_while_clients_do_not_read() {
        let limits = AdmissionLimits { bytes: 150_000, ..AdmissionLimits::default() };
        let account = Admission::new(limits);
        let (here, mut there) = UnixStream::pair().expect("a pair");
        let mut connection = WorkerConnection::new(here).expect("a socket");
        connection.account = Some(Arc::clone(&account));
        let mut head = BytesMut::new();
        let header = FrameHeader { length: 130_000, kind: FrameKind::Reply, count: 1, id: 1 };
        header.encode(&mut head);
        for cut in [false, true] {
            let unread = account.answer(100_000, &Arc::default());
            there.write_all(&head).expect("a head");
            there.write_all(&[0; 130_000]).expect("an answer");
            let early = tokio::time::timeout(Duration::from_millis(900), connection.receive());
            assert!(early.await.is_err(), "there is no room");
            let unread = Some(unread).filter(|_| cut);
            // Who has read, or who is cut because it does not, makes room.
            assert_eq!(connection.receive().await.expect("an answer").1.len(), 130_000);
            drop(unread);
            assert_eq!(account.bytes(), 0);
        }
    }
}
