//! Bytes that wait for a client: bodies on their way in and answers on their way out. Says which of them
//! are too slow.
//!
//! Only what did not come or go at once is here, so that a usual request never meets the table. The clock
//! is asked when bytes move and when somebody looks; a transfer has no timer of its own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

/// A transfer is not called slow before it is so old.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// Whoever moves so many bytes per second is not cut to make room for another.
const FAST_RATE: u64 = 1 << 20;
/// The recent rate is measured over so many bytes: single bytes now and then count as nothing.
const MILESTONE: u64 = 64 << 10;
/// The lowest rate of a body holds from this age on.
const RATE_GRACE: Duration = Duration::from_secs(20);

/// When a transfer is too slow, whether or not its memory is needed. Zero means never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferRules {
    /// Bytes per second that a body must bring on average, after its first 20 seconds.
    pub body_rate_min: u64,
    /// How long a body may take in all.
    pub body_time_max: Duration,
    /// How long a client may take nothing, or next to nothing, of its answer.
    pub unread_time_max: Duration,
}

/// For tests and for who embeds an engine; the server is given those of its settings.
impl Default for TransferRules {
    fn default() -> Self {
        Self {
            body_rate_min: 1 << 10,
            body_time_max: Duration::from_secs(600),
            unread_time_max: Duration::from_secs(60),
        }
    }
}

impl TransferRules {
    /// How often to look for transfers that are too slow.
    pub fn look_every(&self) -> Duration {
        let shortest = [self.body_time_max, self.unread_time_max, Duration::from_secs(20)];
        let shortest = shortest.into_iter().filter(|time| !time.is_zero()).min();
        (shortest.unwrap_or_default() / 4).max(Duration::from_millis(50))
    }
}

/// Why a transfer was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CutReason {
    /// Its memory was needed, and it was the slowest; or there was none for it.
    Room = 1,
    /// The body came too slowly.
    TooSlow,
    /// The body took too long in all.
    TooLong,
    /// The client did not read its answer.
    Unread,
    /// Other bodies of the same key have the key's share of the memory.
    Key,
}

impl CutReason {
    /// Every reason with its name in metrics.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Room, "room"),
        (Self::TooSlow, "too_slow"),
        (Self::TooLong, "too_long"),
        (Self::Unread, "unread"),
        (Self::Key, "key"),
    ];
}

/// Tells whoever waits for a client that the transfer was cut.
#[derive(Debug, Default)]
pub struct CutSwitch {
    /// A [`CutReason`]; 0 while there is none.
    reason: AtomicU8,
    waker: Mutex<Option<Waker>>,
}

impl CutSwitch {
    /// Why the transfer was cut, if it was.
    pub fn reason(&self) -> Option<CutReason> {
        match self.reason.load(Ordering::Acquire) {
            0 => None,
            reason => CutReason::ALL.get(usize::from(reason) - 1).map(|(reason, _)| *reason),
        }
    }

    /// The same, and whom to wake when it is cut later.
    pub fn watch(&self, waker: &Waker) -> Option<CutReason> {
        let mut parked = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if !parked.as_ref().is_some_and(|parked| parked.will_wake(waker)) {
            *parked = Some(waker.clone());
        }
        drop(parked);
        self.reason()
    }

    fn cut(&self, reason: CutReason) {
        self.reason.store(reason as u8, Ordering::Release);
        let parked = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = parked {
            waker.wake();
        }
    }
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferKind {
    Body,
    Answer,
}

/// A body or an answer that waits for its client.
#[derive(Debug)]
pub(crate) struct ClientTransfer {
    kind: TransferKind,
    began: Instant,
    moved: AtomicU64,
    /// What had moved when the last milestone was reached, and the age then in milliseconds.
    milestone: AtomicU64,
    milestone_age: AtomicU64,
    /// Bytes of the account that it has. Whoever takes some out of here gives them back.
    pub(crate) held: AtomicU64,
    pub(crate) switch: Arc<CutSwitch>,
}

impl ClientTransfer {
    pub(crate) fn new(kind: TransferKind, switch: Arc<CutSwitch>) -> Self {
        Self {
            kind,
            began: Instant::now(),
            moved: AtomicU64::new(0),
            milestone: AtomicU64::new(0),
            milestone_age: AtomicU64::new(0),
            held: AtomicU64::new(0),
            switch,
        }
    }

    /// Bytes came from the client, or went to it.
    pub(crate) fn advance(&self, bytes: u64) {
        let moved = self.moved.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if moved - self.milestone.load(Ordering::Relaxed) >= MILESTONE {
            self.milestone.store(moved, Ordering::Relaxed);
            self.milestone_age.store(self.age(Instant::now()), Ordering::Relaxed);
        }
    }

    /// Milliseconds since it began.
    fn age(&self, now: Instant) -> u64 {
        u64::try_from(now.duration_since(self.began).as_millis()).unwrap_or(u64::MAX)
    }

    /// Milliseconds since the last milestone.
    fn rest(&self, now: Instant) -> u64 {
        self.age(now).saturating_sub(self.milestone_age.load(Ordering::Relaxed))
    }

    /// Bytes per second over its life or since its last milestone, whichever is less. One that has just
    /// begun counts as fast.
    fn rate(&self, now: Instant) -> u64 {
        let age = self.age(now);
        if u128::from(age) < SETTLE_TIME.as_millis() {
            return u64::MAX;
        }
        per_second(self.moved.load(Ordering::Relaxed), age)
            .min(per_second(MILESTONE, self.rest(now).max(1)))
    }

    fn overdue(&self, now: Instant, rules: &TransferRules) -> Option<CutReason> {
        let over =
            |millis: u64, most: Duration| !most.is_zero() && u128::from(millis) >= most.as_millis();
        let age = self.age(now);
        match self.kind {
            TransferKind::Body if over(age, rules.body_time_max) => Some(CutReason::TooLong),
            TransferKind::Body => {
                let rate = per_second(self.moved.load(Ordering::Relaxed), age.max(1));
                (over(age, RATE_GRACE) && rate < rules.body_rate_min).then_some(CutReason::TooSlow)
            }
            TransferKind::Answer => {
                over(self.rest(now), rules.unread_time_max).then_some(CutReason::Unread)
            }
        }
    }
}

fn per_second(bytes: u64, millis: u64) -> u64 {
    bytes.saturating_mul(1000) / millis
}

/// All transfers that wait for a client.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    rules: TransferRules,
    table: Mutex<TransferTable>,
    /// How many were cut, by reason.
    cut: [AtomicU64; CutReason::ALL.len()],
}

#[derive(Debug, Default)]
struct TransferTable {
    next: u64,
    under_way: BTreeMap<u64, Arc<ClientTransfer>>,
}

impl Transfers {
    pub(crate) fn new(rules: TransferRules) -> Self {
        Self { rules, ..Self::default() }
    }

    pub(crate) fn rules(&self) -> &TransferRules {
        &self.rules
    }

    fn lock(&self) -> MutexGuard<'_, TransferTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a transfer; returns its number.
    pub(crate) fn enter(&self, transfer: &Arc<ClientTransfer>) -> u64 {
        let mut table = self.lock();
        table.next += 1;
        let number = table.next;
        table.under_way.insert(number, Arc::clone(transfer));
        number
    }

    pub(crate) fn remove(&self, number: u64) {
        self.lock().under_way.remove(&number);
    }

    /// How many were cut for this reason.
    pub(crate) fn cut_count(&self, reason: CutReason) -> u64 {
        self.cut[reason as usize - 1].load(Ordering::Relaxed)
    }

    /// Counts a transfer that was not let in at all.
    pub(crate) fn count(&self, reason: CutReason) {
        self.cut[reason as usize - 1].fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes of answers that wait for their clients.
    pub(crate) fn unread(&self) -> u64 {
        let table = self.lock();
        let answers = table.under_way.values().filter(|it| it.kind == TransferKind::Answer);
        answers.map(|it| it.held.load(Ordering::Relaxed)).sum()
    }

    /// Cuts the slowest transfers until `wanted` bytes are free, for one that is faster than they are.
    /// Returns the bytes that they had. Where that is not enough nothing is cut, unless `anyway`.
    pub(crate) fn cut_slowest(
        &self,
        wanted: u64,
        faster: Option<&ClientTransfer>,
        anyway: bool,
    ) -> u64 {
        let now = Instant::now();
        let most = faster.map_or(u64::MAX, |faster| faster.rate(now)).min(FAST_RATE);
        let mut table = self.lock();
        let mut slow: Vec<_> = table
            .under_way
            .iter()
            .map(|(number, it)| (it.rate(now), *number, it.held.load(Ordering::Relaxed)))
            .filter(|(rate, _, held)| *rate < most && *held > 0)
            .collect();
        slow.sort_unstable();
        let mut found = 0;
        let enough = slow.iter().position(|(_, _, held)| {
            found += held;
            found >= wanted
        });
        let count = match enough {
            Some(last) => last + 1,
            None if anyway => slow.len(),
            None => return 0,
        };
        let cut = slow[..count].iter().filter_map(|(_, number, _)| table.under_way.remove(number));
        cut.map(|it| self.cut(&it, CutReason::Room)).sum()
    }

    /// Cuts what is too slow by the rules; returns the bytes that it had.
    pub(crate) fn cut_overdue(&self) -> u64 {
        let mut table = self.lock();
        if table.under_way.is_empty() {
            return 0;
        }
        let now = Instant::now();
        let mut freed = 0;
        table.under_way.retain(|_, it| {
            let Some(reason) = it.overdue(now, &self.rules) else { return true };
            freed += self.cut(it, reason);
            false
        });
        freed
    }

    fn cut(&self, transfer: &ClientTransfer, reason: CutReason) -> u64 {
        // Several answers of one connection end with it, and count once.
        if transfer.switch.reason().is_none() {
            self.count(reason);
            transfer.switch.cut(reason);
        }
        transfer.held.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    async fn after(millis: u64) {
        tokio::time::advance(Duration::from_millis(millis)).await;
    }

    fn transfer(kind: TransferKind, held: u64) -> Arc<ClientTransfer> {
        let transfer = ClientTransfer::new(kind, Arc::default());
        transfer.held.store(held, Ordering::Relaxed);
        Arc::new(transfer)
    }

    fn body(all: &Transfers, held: u64) -> Arc<ClientTransfer> {
        let body = transfer(TransferKind::Body, held);
        all.enter(&body);
        body
    }

    #[tokio::test(start_paused = true)]
    async fn the_slowest_is_cut_first_and_a_young_or_a_fast_one_never() {
        let all = Transfers::default();
        let [slow, slower, fast] = [100, 100, 100].map(|held| body(&all, held));
        assert_eq!(all.cut_slowest(1, None, false), 0, "all are too young to be called slow");
        after(2000).await;
        let young = body(&all, 100);
        slow.advance(200 * KIB);
        slower.advance(100 * KIB);
        fast.advance(20_000 * KIB);
        after(10).await;
        assert_eq!(all.cut_slowest(301, None, false), 0, "nothing is cut in vain");
        let young_and_fast = 200;
        assert_eq!(all.cut_slowest(1 + young_and_fast, Some(&slower), true), 0);
        assert_eq!(all.cut_slowest(1, None, false), 100);
        assert_eq!(slower.switch.reason(), Some(CutReason::Room));
        assert_eq!(
            all.cut_slowest(1, Some(&slow), false),
            0,
            "none is slower than the one that asks"
        );
        assert_eq!(all.cut_slowest(1, Some(&young), false), 100);
        assert_eq!(slow.switch.reason(), Some(CutReason::Room));
        assert_eq!(all.cut_slowest(1, None, false), 0);
        assert_eq!((fast.switch.reason(), young.switch.reason()), (None, None));
        assert_eq!(all.cut_count(CutReason::Room), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_came_fast_and_then_drips_is_slow() {
        let all = Transfers::default();
        let drips = body(&all, 1);
        drips.advance(6500 * KIB);
        for _ in 0..3 {
            after(500).await;
            drips.advance(1);
        }
        assert_eq!(all.cut_slowest(1, None, false), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_below_the_lowest_rate_is_cut_after_its_grace() {
        let all = Transfers::default();
        let [slow, steady] = [1, 1].map(|held| body(&all, held));
        for _ in 0..19 {
            after(1000).await;
            slow.advance(KIB / 2);
            steady.advance(KIB + 1);
            assert_eq!(all.cut_overdue(), 0);
        }
        after(1000).await;
        steady.advance(2 * KIB);
        assert_eq!(all.cut_overdue(), 1);
        assert_eq!(slow.switch.reason(), Some(CutReason::TooSlow));
        assert_eq!(steady.switch.reason(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_has_a_time_in_all() {
        let all = Transfers::default();
        let steady = body(&all, 5);
        for _ in 0..599 {
            after(1000).await;
            steady.advance(MILESTONE);
            assert_eq!(all.cut_overdue(), 0);
        }
        after(1000).await;
        assert_eq!(all.cut_overdue(), 5);
        assert_eq!(steady.switch.reason(), Some(CutReason::TooLong));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_cut_when_its_client_takes_nothing_of_it() {
        let all = Transfers::default();
        let [read, unread] = [1, 1].map(|held| transfer(TransferKind::Answer, held));
        all.enter(&read);
        all.enter(&unread);
        for _ in 0..59 {
            after(1000).await;
            read.advance(MILESTONE);
            unread.advance(1);
            assert_eq!(all.cut_overdue(), 0);
        }
        after(1000).await;
        assert_eq!(all.cut_overdue(), 1);
        assert_eq!(unread.switch.reason(), Some(CutReason::Unread));
        after(3_600_000).await;
        assert_eq!(all.cut_overdue(), 1, "the other one stands still now");
    }

    #[tokio::test(start_paused = true)]
    async fn zero_means_never() {
        let never = Duration::ZERO;
        let rules =
            TransferRules { body_rate_min: 0, body_time_max: never, unread_time_max: never };
        let all = Transfers::new(rules);
        body(&all, 1);
        all.enter(&transfer(TransferKind::Answer, 1));
        after(3_600_000).await;
        assert_eq!(all.cut_overdue(), 0);
    }
}
