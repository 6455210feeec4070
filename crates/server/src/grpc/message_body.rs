//! The body of a gRPC request, message by message: a message is passed on when all of it is here.
//!
//! tonic reserves memory for the length that a message claims. Here a message that comes in pieces is
//! collected first, and takes its share of the server's memory as it comes; a client that is too slow loses
//! it. Messages that came whole pass as they are, and compressed ones inflated.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use hyper::body::{Body, Frame, Incoming};
use jitney_engine::admission::{Admission, CutReason, HeldBytes};
use jitney_engine::quota::Quota;
use jitney_net::GrowingBody;
use jitney_net::compression::Coding;
use tonic::Status;

use super::compression::InflatingMessage;
use crate::errors::Problem;

/// Bytes before a message: a flag and the length.
pub(super) const HEAD: usize = 5;

/// A request's body.
pub(super) struct MessageBody {
    body: Incoming,
    messages: MessageCollector,
    /// What the reader has not taken yet.
    ready: VecDeque<Bytes>,
    /// What was looked at and comes first.
    seen: Option<MessageFrame>,
    /// A compressed message that is being inflated.
    inflating: Option<InflatingMessage>,
    /// The memory of the call's head, where that is counted.
    _head: Option<HeldBytes>,
}

/// The end, or what comes next.
type MessageFrame = Option<Result<Frame<Bytes>, Status>>;

impl MessageBody {
    pub(super) fn new(
        body: Incoming,
        admission: &Arc<Admission>,
        limit: usize,
        encoding: Option<Coding>,
    ) -> Self {
        let messages = MessageCollector {
            encoding,
            admission: Arc::clone(admission),
            quota: None,
            limit: limit.min(usize::try_from(admission.bodies_max()).unwrap_or(usize::MAX)),
            state: MessageState::Head(BytesMut::new()),
        };
        let (seen, inflating, head) = (None, None, None);
        Self { body, messages, ready: VecDeque::new(), seen, inflating, _head: head }
    }

    /// The same behind a head that counts.
    pub(super) fn behind(self, head: Option<HeldBytes>) -> Self {
        Self { _head: head, ..self }
    }

    /// The same, whose messages take their memory from the quota of the client's key, too.
    pub(super) fn charged(mut self, quota: Option<Arc<Quota>>) -> Self {
        self.messages.quota = quota;
        self
    }

    /// How its messages may be compressed.
    pub(super) fn encoding(&self) -> Option<Coding> {
        self.messages.encoding
    }

    /// What is ready to be read, inflated where it is compressed. Inflating lets others have their turn.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        loop {
            if let Some(message) = &mut self.inflating {
                if !message.step()? {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                if let Some(message) = self.inflating.take().map(InflatingMessage::finish) {
                    let head = head(message.len())?;
                    self.ready.push_front(message);
                    return Poll::Ready(Ok(Some(head)));
                }
            }
            let Some(bytes) = self.ready.pop_front() else { return Poll::Ready(Ok(None)) };
            self.inflating = self.messages.inflate(&bytes, &mut self.ready);
            if self.inflating.is_none() {
                return Poll::Ready(Ok(Some(bytes)));
            }
        }
    }

    /// The only message, if all of it is here, not compressed, and `read` can read it. Otherwise it is left
    /// for the next reader, which would copy it.
    pub(super) fn poll_only_message<T>(
        &mut self,
        context: &mut Context<'_>,
        read: impl FnOnce(&Bytes) -> Option<T>,
    ) -> Poll<Option<T>> {
        let frame = ready!(Pin::new(&mut *self).poll_frame(context));
        let data = match &frame {
            Some(Ok(frame)) => frame.data_ref().filter(|data| data.starts_with(&[0])),
            Some(Err(_)) | None => None,
        };
        let message = data.and_then(|data| self.only_message(data));
        let read = message.as_ref().and_then(read);
        if read.is_none() {
            self.seen = Some(frame);
        }
        Poll::Ready(read)
    }

    /// The message whose head these bytes are, or begin with, if nothing follows it.
    fn only_message(&self, data: &Bytes) -> Option<Bytes> {
        let (message, behind) = match self.ready.front() {
            Some(message) if data.len() == HEAD => (message.clone(), self.ready.len() - 1),
            _ => (data.slice(HEAD.min(data.len())..), self.ready.len()),
        };
        let only = behind == 0 && length(data)? == message.len() && self.is_drained();
        only.then_some(message)
    }

    /// Whether nothing will come but what is ready.
    fn is_drained(&self) -> bool {
        self.seen.is_none()
            && self.inflating.is_none()
            && self.messages.is_between()
            && self.body.is_end_stream()
    }
}

impl Body for MessageBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if let Some(seen) = this.seen.take() {
            return Poll::Ready(seen);
        }
        loop {
            if let Some(bytes) = ready!(this.poll_ready(context))? {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            if let Poll::Ready(reason) = this.messages.poll_cut(context) {
                return Poll::Ready(Some(Err(Problem::cut(reason).into())));
            }
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                None if this.messages.is_between() => return Poll::Ready(None),
                None => {
                    let half = Status::internal("Unexpected EOF decoding stream.");
                    return Poll::Ready(Some(Err(half)));
                }
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(Status::from_error(error.into()))));
                }
                Some(Ok(frame)) => frame,
            };
            match frame.into_data() {
                Ok(data) if this.messages.passes(&data) => {
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Ok(data) => {
                    let took = this.messages.push(data, &mut this.ready);
                    took.map_err(|reason| Status::from(Problem::cut(reason)))?;
                }
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ready.is_empty() && self.is_drained()
    }
}

/// Cuts bytes into whole messages.
struct MessageCollector {
    admission: Arc<Admission>,
    quota: Option<Arc<Quota>>,
    /// The longest message; tonic rejects a longer one when it sees its head.
    limit: usize,
    /// How messages may be compressed. Then each is passed by itself, after its head.
    encoding: Option<Coding>,
    state: MessageState,
}

enum MessageState {
    /// Between messages, with what is here of the next one's head.
    Head(BytesMut),
    /// Inside a message; its head, and how many bytes are still to come.
    Message(Bytes, GrowingBody, usize),
    /// The reader will reject what comes.
    Rejected,
}

impl MessageCollector {
    fn is_between(&self) -> bool {
        match &self.state {
            MessageState::Head(head) => head.is_empty(),
            MessageState::Message(..) => false,
            MessageState::Rejected => true,
        }
    }

    /// Whether these bytes are whole messages.
    fn passes(&self, data: &[u8]) -> bool {
        let between = matches!(&self.state, MessageState::Head(head) if head.is_empty());
        between && self.whole_messages(data) == data.len()
    }

    /// Bytes at the front that are whole messages and can be passed as they are.
    fn whole_messages(&self, data: &[u8]) -> usize {
        if self.encoding.is_some() { 0 } else { whole_messages(data, self.limit) }
    }

    /// Begins to inflate the message after this head, if it is compressed.
    fn inflate(&self, head: &Bytes, ready: &mut VecDeque<Bytes>) -> Option<InflatingMessage> {
        let encoding = self.encoding.filter(|_| head.len() == HEAD && head[0] == 1)?;
        let message = ready.pop_front()?;
        Some(InflatingMessage::new(encoding, message, self.growing(self.limit), self.limit))
    }

    /// A message of at most so many bytes.
    fn growing(&self, length: usize) -> GrowingBody {
        GrowingBody::new(&self.admission, length as u64).charged(self.quota.as_ref())
    }

    fn poll_cut(&self, context: &mut Context<'_>) -> Poll<CutReason> {
        match &self.state {
            MessageState::Message(_, message, _) => message.poll_cut(context),
            MessageState::Head(_) | MessageState::Rejected => Poll::Pending,
        }
    }

    /// Adds bytes; what is complete goes to `out`.
    fn push(&mut self, mut data: Bytes, out: &mut VecDeque<Bytes>) -> Result<(), CutReason> {
        while !data.is_empty() {
            match &mut self.state {
                MessageState::Rejected => {
                    out.push_back(data);
                    return Ok(());
                }
                MessageState::Message(head, message, missing) => {
                    let piece = data.split_to(data.len().min(*missing));
                    message.push(&piece)?;
                    *missing -= piece.len();
                    if *missing == 0 {
                        let head = std::mem::take(head);
                        let next = MessageState::Head(BytesMut::new());
                        let MessageState::Message(_, message, _) =
                            std::mem::replace(&mut self.state, next)
                        else {
                            return Ok(());
                        };
                        // The head by itself: the reader then reserves exactly what follows.
                        out.extend([head, message.finish()]);
                    }
                }
                MessageState::Head(part) if part.is_empty() => {
                    let whole = self.whole_messages(&data);
                    if whole > 0 {
                        out.push_back(data.split_to(whole));
                    }
                    self.begin(&mut data, out);
                }
                MessageState::Head(part) => {
                    part.extend_from_slice(&data.split_to(data.len().min(HEAD - part.len())));
                    if part.len() == HEAD {
                        let mut head = std::mem::take(part).freeze();
                        self.begin(&mut head, out);
                    }
                }
            }
        }
        Ok(())
    }

    /// Begins with the start of a message that is not whole.
    fn begin(&mut self, data: &mut Bytes, out: &mut VecDeque<Bytes>) {
        self.state = match length(data) {
            None => MessageState::Head(BytesMut::from(&std::mem::take(data)[..])),
            // Its head is enough to reject it.
            Some(length) if length > self.limit => {
                out.push_back(std::mem::take(data));
                MessageState::Rejected
            }
            Some(0) => {
                out.push_back(data.split_to(HEAD));
                MessageState::Head(BytesMut::new())
            }
            Some(length) => {
                let head = data.split_to(HEAD);
                MessageState::Message(head, self.growing(length), length)
            }
        };
    }
}

/// The head of a message that is not compressed.
fn head(length: usize) -> Result<Bytes, Status> {
    let length = u32::try_from(length).map_err(|_| Status::internal("A message is too long."))?;
    let mut head = BytesMut::with_capacity(HEAD);
    head.put_u8(0);
    head.put_u32(length);
    Ok(head.freeze())
}

/// The length that a message's head says, if the head is here.
fn length(data: &[u8]) -> Option<usize> {
    let mut rest = data.get(1..HEAD)?;
    Some(rest.get_u32() as usize)
}

/// Bytes at the front that are whole messages.
fn whole_messages(data: &[u8], limit: usize) -> usize {
    let mut at = 0;
    while let Some(length) = length(&data[at..]).filter(|length| *length <= limit)
        && data.len() - at - HEAD >= length
    {
        at += HEAD + length;
    }
    at
}

#[cfg(test)]
mod tests {
    use jitney_engine::admission::AdmissionLimits;

    use super::*;

    fn collector(bytes: u64) -> MessageCollector {
        let limits = AdmissionLimits { bytes, ..AdmissionLimits::default() };
        let state = MessageState::Head(BytesMut::new());
        let (admission, limit) = (Admission::new(limits), 1000);
        MessageCollector { admission, quota: None, limit, encoding: None, state }
    }

    fn message(length: usize) -> Vec<u8> {
        let head = [&[0][..], &(length as u32).to_be_bytes()].concat();
        [head, (0..length).map(|at| at as u8).collect()].concat()
    }

    #[test]
    fn messages_pass_whole_however_they_are_cut() {
        let sent: Vec<u8> = [0, 300, 1, 0, 999, 7].into_iter().flat_map(message).collect();
        for step in [1, 2, 4, 5, 6, 100, 306, 5000] {
            let (mut collector, mut out) = (collector(1 << 30), VecDeque::new());
            for piece in sent.chunks(step) {
                collector.push(Bytes::copy_from_slice(piece), &mut out).unwrap();
            }
            assert!(collector.is_between(), "{step}");
            let passed: Vec<u8> = out.iter().flatten().copied().collect();
            assert!(passed == sent, "{step}");
            assert_eq!(collector.admission.bytes(), 0, "{step}");
        }
    }

    #[test]
    fn a_message_that_came_whole_is_not_copied() {
        let (mut collector, mut out) = (collector(0), VecDeque::new());
        let sent = Bytes::from(message(400));
        collector.push(sent.clone(), &mut out).unwrap();
        assert_eq!(out.pop_front().map(|passed| passed.as_ptr()), Some(sent.as_ptr()));
    }

    #[test]
    fn a_claim_costs_only_what_came_and_nothing_is_passed_before_its_end() {
        let (mut collector, mut out) = (collector(1 << 30), VecDeque::new());
        collector.limit = 1 << 29;
        let sent = message(100_000_000);
        collector.push(Bytes::copy_from_slice(&sent[..50]), &mut out).unwrap();
        assert!(out.is_empty() && !collector.is_between());
        assert_eq!(collector.admission.bytes(), 16 << 10);
    }

    #[test]
    fn without_memory_a_message_in_pieces_is_cut() {
        let (mut collector, mut out) = (collector(1000), VecDeque::new());
        let sent = message(800);
        let pushed = collector.push(Bytes::copy_from_slice(&sent[..500]), &mut out);
        assert_eq!(pushed, Err(CutReason::Room));
    }

    #[test]
    fn a_message_that_is_too_long_passes_at_once_to_be_rejected() {
        let (mut collector, mut out) = (collector(1 << 30), VecDeque::new());
        let sent = [message(3), message(1001)[..20].to_vec()].concat();
        collector.push(Bytes::from(sent.clone()), &mut out).unwrap();
        assert_eq!(out.iter().map(Bytes::len).sum::<usize>(), sent.len());
        assert!(collector.is_between());
    }
}
