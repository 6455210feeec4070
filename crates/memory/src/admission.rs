//! The gate in front of every queue: how many requests, items and bytes may be under way at once.
//!
//! Admission is by weight and not only by count, because a thousand images are not a thousand
//! sentences. A [`Permit`] travels inside the request and gives its share back when it is dropped,
//! wherever that happens, so nothing has to be counted down by hand.
//!
//! Bytes are one account: bodies on their way in, requests that wait or run, and answers that their
//! clients have not read. When it is full, the slowest clients lose theirs first (see `transfers`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::time::Instant;

use crate::quota::{Quota, QuotaMet, QuotaUse};
use crate::transfers::{ClientTransfer, TransferKind, Transfers};

pub use crate::transfers::{CutReason, CutSwitch, TransferRules};

/// One of the limits is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at the limit of {what}")]
pub struct LimitMet {
    /// Of what: `requests`, `items` or `bytes`.
    pub what: &'static str,
}

/// The most that may be under way in the whole server.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionLimits {
    /// Requests, waiting or running.
    pub requests: u64,
    /// Items, waiting or running.
    pub items: u64,
    /// Items of one request, so that none alone takes what all share.
    pub request_items: u64,
    /// The part of all of these that one of several clients with keys may have.
    pub share: f64,
    /// Bytes of bodies on their way in, of inputs, and of answers that are not yet read.
    pub bytes: u64,
    /// Whether the bodies of requests that failed are kept among these bytes.
    pub keeps_failed: bool,
    /// When a client is too slow.
    pub transfers: TransferRules,
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        let transfers = TransferRules::default();
        Self {
            requests: 100_000,
            items: 1_000_000,
            request_items: 250_000,
            share: 0.25,
            bytes: 4 << 30,
            keeps_failed: false,
            transfers,
        }
    }
}

/// Counts what is under way against the limits.
#[derive(Debug)]
pub struct Admission {
    limits: AdmissionLimits,
    requests: AtomicU64,
    items: AtomicU64,
    bytes: AtomicU64,
    transfers: Transfers,
}

impl Admission {
    /// A gate with nothing under way.
    pub fn new(limits: AdmissionLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            requests: AtomicU64::new(0),
            items: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            transfers: Transfers::new(limits.transfers),
        })
    }

    /// Takes one request's share, or says which limit is met.
    pub fn admit(self: &Arc<Self>, items: u64, bytes: u64) -> Result<Permit, LimitMet> {
        // The permit exists before the checks, so that a rejection gives back what was taken.
        let permit = Permit { admission: Arc::clone(self), items, bytes, used: None };
        let requests = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let items = self.items.fetch_add(items, Ordering::Relaxed) + items;
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let met = [
            ("requests", requests > self.limits.requests),
            ("items", items > self.limits.items),
            ("bytes", bytes > self.limits.bytes && !self.make_room(bytes, self.limits.bytes, None)),
        ];
        match met.into_iter().find(|(_, over)| *over) {
            None => Ok(permit),
            Some((what, _)) => Err(LimitMet { what }),
        }
    }

    /// Takes bytes for something that waits before it is admitted.
    pub fn hold(self: &Arc<Self>, bytes: u64) -> Result<HeldBytes, LimitMet> {
        let held = HeldBytes { admission: Arc::clone(self), bytes };
        let total = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if total > self.limits.bytes && !self.make_room(total, self.limits.bytes, None) {
            return Err(LimitMet { what: "bytes" });
        }
        Ok(held)
    }

    /// Counts bytes of something that exists already, even where they are too many.
    pub fn keep(self: &Arc<Self>, bytes: u64) -> HeldBytes {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        HeldBytes { admission: Arc::clone(self), bytes }
    }

    /// Counts bytes of an answer that a worker has ready, before they are taken from it. None where they pass the limit
    /// and clients can make room by reading what they have: then the worker had better wait.
    pub fn hold_reply(self: &Arc<Self>, bytes: u64) -> Option<HeldBytes> {
        let over = || (self.bytes() + bytes).saturating_sub(self.limits.bytes);
        if over() > 0 {
            self.cut_beyond_limit(self.bytes() + bytes);
            let over = over();
            if over > 0 && over <= self.transfers.unread() {
                return None;
            }
        }
        Some(self.keep(bytes))
    }

    /// Takes bytes for the body of a request that failed, where such bodies are kept and there is room. Nobody is
    /// cut for it.
    pub fn keep_failed(self: &Arc<Self>, bytes: u64) -> Option<HeldBytes> {
        self.limits.keeps_failed.then(|| self.keep_if_room(bytes)).flatten()
    }

    /// Takes bytes for something that may as well not be kept. Nobody is cut for it.
    pub fn keep_if_room(self: &Arc<Self>, bytes: u64) -> Option<HeldBytes> {
        let has_room = self.bytes().saturating_add(bytes) <= self.limits.bytes;
        has_room.then(|| self.keep(bytes))
    }

    /// A body that begins to come in; it has no bytes yet.
    pub fn body(self: &Arc<Self>) -> TransferShare {
        self.transfer(ClientTransfer::new(TransferKind::Body, Arc::default()))
    }

    /// An answer that goes to a client. It exists already, so its bytes count even where they are too
    /// many. The switch ends the client's connection.
    pub fn answer(self: &Arc<Self>, bytes: u64, switch: &Arc<CutSwitch>) -> TransferShare {
        let transfer = ClientTransfer::new(TransferKind::Answer, Arc::clone(switch));
        transfer.held.store(bytes, Ordering::Relaxed);
        let total = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.cut_beyond_limit(total);
        self.transfer(transfer)
    }

    fn transfer(self: &Arc<Self>, transfer: ClientTransfer) -> TransferShare {
        let transfer = Arc::new(transfer);
        let number = self.transfers.enter(&transfer);
        TransferShare { admission: Arc::clone(self), transfer, number, charged: None }
    }

    /// Cuts clients that are too slow, and more while the limit is passed; called every [`TransferRules::look_every`].
    pub fn cut_overdue(&self) {
        self.give_back(self.transfers.cut_overdue());
        self.cut_beyond_limit(self.bytes());
    }

    /// Answers can bring the account beyond its limit; then the slowest clients go, as far as that helps.
    fn cut_beyond_limit(&self, total: u64) {
        if let Some(over) = total.checked_sub(self.limits.bytes).filter(|over| *over > 0) {
            self.give_back(self.transfers.cut_slowest(over, None, true));
        }
    }

    /// Cuts slow clients until `total` bytes are within `limit`; false if that is not possible.
    fn make_room(&self, total: u64, limit: u64, faster: Option<&ClientTransfer>) -> bool {
        let wanted = total - limit;
        let freed = self.transfers.cut_slowest(wanted, faster, false);
        self.give_back(freed);
        freed >= wanted
    }

    /// Counts bytes that their owner gives back by itself.
    pub fn take_over(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives back what was taken over.
    pub fn give_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Requests under way now.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Bytes in the account now.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The limits.
    pub fn limits(&self) -> &AdmissionLimits {
        &self.limits
    }

    /// Bytes that bodies on their way in may bring the account to: a quarter is kept for requests that
    /// came whole.
    pub fn bodies_max(&self) -> u64 {
        self.limits.bytes - self.limits.bytes / 4
    }

    /// Clients that were cut for this reason, or not let in.
    pub fn cut_count(&self, reason: CutReason) -> u64 {
        self.transfers.cut_count(reason)
    }

    /// The rules for slow clients.
    pub fn rules(&self) -> &TransferRules {
        self.transfers.rules()
    }
}

/// One request's share of the limits.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    items: u64,
    bytes: u64,
    /// Its share of its client's quota, if that has one. Boxed: most have none, and requests are moved often.
    used: Option<Box<QuotaUse>>,
}

impl Permit {
    /// Takes the request's share of its client's quota, too.
    pub fn charge(&mut self, quota: &Arc<Quota>, now: Instant) -> Result<(), QuotaMet> {
        self.used = Some(Box::new(quota.admit(now, self.items, self.bytes)?));
        Ok(())
    }

    /// The account of bytes, for what else the request needs on its way.
    pub fn account(&self) -> &Arc<Admission> {
        &self.admission
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.requests.fetch_sub(1, Ordering::Relaxed);
        self.admission.items.fetch_sub(self.items, Ordering::Relaxed);
        self.admission.give_back(self.bytes);
    }
}

/// Bytes of something that waits before it is admitted.
#[derive(Debug)]
pub struct HeldBytes {
    admission: Arc<Admission>,
    bytes: u64,
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.admission.give_back(self.bytes);
    }
}

/// The bytes of a body on its way in, or of an answer on its way out. They may be taken away at any time,
/// where the client is slow; dropping it gives back what is left.
#[derive(Debug)]
pub struct TransferShare {
    admission: Arc<Admission>,
    transfer: Arc<ClientTransfer>,
    number: u64,
    /// The quota of the client's key, and what the body has of it.
    charged: Option<(Arc<Quota>, AtomicU64)>,
}

impl TransferShare {
    /// Takes what comes from now on from the quota of the client's key, too.
    pub fn charge(&mut self, quota: Option<&Arc<Quota>>) {
        self.charged = quota.map(|quota| (Arc::clone(quota), AtomicU64::new(0)));
    }

    /// Takes so many bytes in all for a body, or says why it must end.
    pub fn grow(&self, bytes: u64) -> Result<(), CutReason> {
        let (admission, transfer) = (&*self.admission, &*self.transfer);
        let more = bytes.saturating_sub(transfer.held.load(Ordering::Relaxed));
        if let Some(reason) = transfer.switch.reason() {
            return Err(reason);
        }
        if let Some((quota, held)) = &self.charged {
            quota.hold(more).map_err(|_| {
                admission.transfers.count(CutReason::Key);
                CutReason::Key
            })?;
            held.fetch_add(more, Ordering::Relaxed);
        }
        transfer.held.fetch_add(more, Ordering::Relaxed);
        let total = admission.bytes.fetch_add(more, Ordering::Relaxed) + more;
        let limit = admission.bodies_max();
        if more > 0 && total > limit && !admission.make_room(total, limit, Some(transfer)) {
            admission.transfers.count(CutReason::Room);
            return Err(CutReason::Room);
        }
        Ok(())
    }

    /// Notes that bytes came or went.
    pub fn advance(&self, bytes: u64) {
        self.transfer.advance(bytes);
    }

    /// Ready when the transfer was cut.
    pub fn poll_cut(&self, context: &mut Context<'_>) -> Poll<CutReason> {
        self.transfer.switch.watch(context.waker()).map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for TransferShare {
    fn drop(&mut self) {
        self.admission.transfers.remove(self.number);
        self.admission.give_back(self.transfer.held.swap(0, Ordering::Relaxed));
        if let Some((quota, held)) = &self.charged {
            quota.give_back(held.load(Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::QuotaLimits;

    fn gate() -> Arc<Admission> {
        Admission::new(AdmissionLimits {
            requests: 2,
            items: 10,
            bytes: 100,
            ..AdmissionLimits::default()
        })
    }

    fn rejected_by(result: Result<Permit, LimitMet>) -> Option<&'static str> {
        match result {
            Err(LimitMet { what }) => Some(what),
            _ => None,
        }
    }

    #[test]
    fn bodies_of_failed_requests_count_where_they_are_kept_and_fit() {
        let limits = AdmissionLimits { bytes: 1000, ..AdmissionLimits::default() };
        assert!(Admission::new(limits).keep_failed(1).is_none(), "off");
        let admission = Admission::new(AdmissionLimits { keeps_failed: true, ..limits });
        let kept = admission.keep_failed(800);
        assert_eq!((kept.is_some(), admission.bytes()), (true, 800));
        assert!(admission.keep_failed(300).is_none(), "full");
        drop(kept);
        assert_eq!(admission.bytes(), 0);
    }

    #[test]
    fn each_limit_rejects_on_its_own() {
        let gate = gate();
        assert_eq!(rejected_by(gate.admit(11, 1)), Some("items"));
        assert_eq!(rejected_by(gate.admit(1, 101)), Some("bytes"));
        let _held = [gate.admit(1, 1), gate.admit(1, 1)];
        assert_eq!(rejected_by(gate.admit(1, 1)), Some("requests"));
    }

    #[test]
    fn a_rejection_and_a_dropped_permit_give_everything_back() {
        let gate = gate();
        drop(gate.admit(11, 1));
        drop(gate.admit(10, 100));
        assert_eq!(gate.requests(), 0);
        assert!(gate.admit(10, 100).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_request_takes_the_bytes_of_the_slowest_body() {
        let gate = gate();
        let body = gate.body();
        assert_eq!(body.grow(75), Ok(()));
        assert_eq!(gate.body().grow(1), Err(CutReason::Room), "bodies leave room for requests");
        assert_eq!(rejected_by(gate.admit(1, 26)), Some("bytes"), "too young to be called slow");
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        let permit = gate.admit(1, 26);
        assert!(permit.is_ok());
        assert_eq!(body.grow(76), Err(CutReason::Room));
        assert_eq!(gate.bytes(), 26, "what was cut is free at once");
        drop(body);
        assert_eq!(gate.bytes(), 26, "and is given back once");
        drop(permit);
        assert_eq!(gate.bytes(), 0);
    }

    #[test]
    fn the_bodies_of_a_key_have_its_share_together() {
        let gate = gate();
        let limits = QuotaLimits { bytes: 25, ..QuotaLimits::NONE };
        let quota = Quota::new(limits, Instant::now());
        let body = |quota| {
            let mut body = gate.body();
            body.charge(quota);
            body
        };
        let [first, second] = [(); 2].map(|()| body(Some(&quota)));
        assert_eq!((first.grow(20), second.grow(5)), (Ok(()), Ok(())));
        assert_eq!(second.grow(6), Err(CutReason::Key));
        assert_eq!(body(None).grow(40), Ok(()), "others have theirs");
        assert!(quota.admit(Instant::now(), 1, 1).is_err(), "requests that came whole count too");
        drop(first);
        assert_eq!(second.grow(25), Ok(()));
        drop(second);
        assert!(quota.admit(Instant::now(), 1, 25).is_ok());
        assert_eq!(gate.bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_stays_with_its_worker_while_others_are_not_read() {
        let gate = gate();
        let answer = gate.answer(80, &Arc::default());
        assert!(gate.hold_reply(20).is_some(), "it fits");
        assert!(gate.hold_reply(21).is_none());
        let requests = gate.admit(1, 20);
        assert!(gate.hold_reply(81).is_some(), "reading would not make room for it");
        assert!(gate.hold_reply(21).is_none());
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        assert!(gate.hold_reply(21).is_some(), "who does not read was cut");
        drop((answer, requests));
        assert_eq!(gate.bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn every_path_gives_back_what_was_taken() {
        let limits = AdmissionLimits { bytes: 1000, ..AdmissionLimits::default() };
        for seed in 1..=50_u64 {
            let gate = Admission::new(limits);
            let (mut dice, mut sum) = (seed, 0);
            let mut roll = |sides: u64| {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (dice >> 33) % sides
            };
            let (mut bodies, mut answers) = (Vec::new(), Vec::new());
            let (mut permits, mut held) = (Vec::new(), Vec::new());
            for _ in 0..300 {
                let bytes = roll(300);
                match roll(9) {
                    0 => bodies.push(gate.body()),
                    1 => answers.push(gate.answer(bytes, &Arc::default())),
                    2 => permits.extend(gate.admit(1, bytes)),
                    3 => held.extend(gate.hold(bytes)),
                    4 => drop(bodies.pop()),
                    5 => drop((answers.pop(), permits.pop(), held.pop())),
                    6 => tokio::time::advance(std::time::Duration::from_millis(bytes * 10)).await,
                    7 => gate.cut_overdue(),
                    _ => {
                        let refused = bodies.pop().filter(|body| body.grow(bytes * 3).is_ok());
                        bodies.extend(refused);
                    }
                }
                sum += gate.bytes();
            }
            assert!(sum > 0);
            drop((bodies, answers, permits, held));
            assert_eq!(gate.bytes(), 0, "seed {seed}");
        }
    }
}
