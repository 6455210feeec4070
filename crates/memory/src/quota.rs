//! What one client may ask for: items a second, and requests, items and bytes at a time.
//!
//! A client is whoever holds a key. Its quota stands beside the limits of the whole server (see `admission`):
//! a request is admitted where both have room for it. Time comes as an argument.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Why a request is beyond its client's quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaMet {
    /// It alone brings more than the client may ever ask for at once.
    #[error("a request with this key may bring at most {0}")]
    Burst(u64),
    /// The client asked for too much lately; after this time there is room for the request.
    #[error("the key has used up its items")]
    Rate(Duration),
    /// As much of the client's is under way as may be.
    #[error("at the key's limit of {0}")]
    UnderWay(&'static str),
}

/// Items that a client may ask for: so many a second, and so many at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ItemRate {
    per_second: f64,
    burst: u64,
}

impl ItemRate {
    /// A rate above zero and a burst of at least one item; else there is none.
    pub fn new(per_second: f64, burst: u64) -> Option<Self> {
        let valid = per_second.is_finite() && per_second >= f64::MIN_POSITIVE && burst > 0;
        valid.then_some(Self { per_second, burst })
    }

    /// Items that become free in a second.
    pub fn per_second(&self) -> f64 {
        self.per_second
    }

    /// Items that may be taken at once.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// The nanoseconds in which so many items become free again.
    fn time_of(&self, items: u64) -> u64 {
        (items as f64 * 1e9 / self.per_second) as u64
    }

    /// Takes items. All that was taken before is free again at `free_at`; returns when it is with these.
    /// Both are nanoseconds of the same clock as `now`.
    ///
    /// # Errors
    /// There are not so many items now, or never.
    pub fn take(&self, free_at: u64, now: u64, items: u64) -> Result<u64, QuotaMet> {
        if items > self.burst {
            return Err(QuotaMet::Burst(self.burst));
        }
        let next = free_at.max(now).saturating_add(self.time_of(items));
        let most = now.saturating_add(self.time_of(self.burst));
        match next.checked_sub(most) {
            None | Some(0) => Ok(next),
            Some(wait) => Err(QuotaMet::Rate(Duration::from_nanos(wait))),
        }
    }
}

/// The limits of one client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuotaLimits {
    /// Items a second, if they are limited.
    pub rate: Option<ItemRate>,
    /// Requests under way.
    pub requests: u64,
    /// Items under way.
    pub items: u64,
    /// Bytes of requests under way.
    pub bytes: u64,
}

impl QuotaLimits {
    /// None at all.
    pub const NONE: Self =
        Self { rate: None, requests: u64::MAX, items: u64::MAX, bytes: u64::MAX };
}

/// Counts what one client asks for against its limits.
#[derive(Debug)]
pub struct Quota {
    limits: QuotaLimits,
    began: Instant,
    /// When all items are free again, in nanoseconds from `began`.
    free_at: AtomicU64,
    requests: AtomicU64,
    items: AtomicU64,
    bytes: AtomicU64,
}

impl Quota {
    /// A quota of which nothing is used.
    pub fn new(limits: QuotaLimits, now: Instant) -> Arc<Self> {
        Arc::new(Self {
            limits,
            began: now,
            free_at: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            items: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        })
    }

    /// The limits.
    pub fn limits(&self) -> &QuotaLimits {
        &self.limits
    }

    /// Takes one request's share.
    ///
    /// # Errors
    /// One of the limits is met; nothing is taken then.
    pub fn admit(
        self: &Arc<Self>,
        now: Instant,
        items: u64,
        bytes: u64,
    ) -> Result<QuotaUse, QuotaMet> {
        // It exists before the checks, so that a rejection gives back what was taken.
        let used = QuotaUse { quota: Arc::clone(self), items, bytes };
        let sum = |of: &AtomicU64, more: u64| of.fetch_add(more, Ordering::Relaxed) + more;
        let met = [
            ("requests", sum(&self.requests, 1) > self.limits.requests),
            ("items", sum(&self.items, items) > self.limits.items),
            ("bytes", sum(&self.bytes, bytes) > self.limits.bytes),
        ];
        if let Some((what, _)) = met.into_iter().find(|(_, over)| *over) {
            return Err(QuotaMet::UnderWay(what));
        }
        match &self.limits.rate {
            Some(rate) => self.take(rate, now, items).map(|()| used),
            None => Ok(used),
        }
    }

    /// Takes bytes for a body on its way in.
    ///
    /// # Errors
    /// As much of the client's is under way as may be; nothing is taken then.
    pub(crate) fn hold(&self, bytes: u64) -> Result<(), QuotaMet> {
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.limits.bytes {
            self.give_back(bytes);
            return Err(QuotaMet::UnderWay("bytes"));
        }
        Ok(())
    }

    /// Gives back what was taken for a body.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn take(&self, rate: &ItemRate, now: Instant, items: u64) -> Result<(), QuotaMet> {
        let now = now.saturating_duration_since(self.began).as_nanos() as u64;
        let mut free_at = self.free_at.load(Ordering::Relaxed);
        loop {
            let next = rate.take(free_at, now, items)?;
            let (order, other) = (Ordering::Relaxed, Ordering::Relaxed);
            match self.free_at.compare_exchange_weak(free_at, next, order, other) {
                Ok(_) => return Ok(()),
                Err(seen) => free_at = seen,
            }
        }
    }
}

/// What a request has of its client's quota; dropping it gives back what is under way.
#[derive(Debug)]
pub struct QuotaUse {
    quota: Arc<Quota>,
    items: u64,
    bytes: u64,
}

impl Drop for QuotaUse {
    fn drop(&mut self) {
        self.quota.requests.fetch_sub(1, Ordering::Relaxed);
        self.quota.items.fetch_sub(self.items, Ordering::Relaxed);
        self.quota.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_burst_is_exact_and_so_is_the_wait_behind_it() {
        for (per_second, burst) in [(10.0, 5), (3.0, 3), (0.5, 1), (1e6, 1000), (7.3, 40)] {
            let rate = ItemRate::new(per_second, burst).unwrap();
            let (now, mut free_at) = (77 * SECOND, 0);
            for _ in 0..burst {
                free_at = rate.take(free_at, now, 1).unwrap();
            }
            let Err(QuotaMet::Rate(wait)) = rate.take(free_at, now, 1) else {
                panic!("{per_second}: more than the burst")
            };
            let one = 1.0 / per_second;
            assert!((wait.as_secs_f64() - one).abs() < 1e-6, "{per_second}: {wait:?}");
            let then = now + wait.as_nanos() as u64;
            assert!(rate.take(free_at, then - 1, 1).is_err(), "{per_second}: not before");
            assert!(rate.take(free_at, then, 1).is_ok(), "{per_second}: then");
        }
    }

    #[test]
    fn over_a_long_time_the_rate_holds() {
        let rate = ItemRate::new(100.0, 20).unwrap();
        let (mut free_at, mut taken) = (0, 0);
        for tick in 0..100_000_u64 {
            let now = tick * SECOND / 1000;
            let items = 1 + tick % 7;
            if let Ok(next) = rate.take(free_at, now, items) {
                (free_at, taken) = (next, taken + items);
            }
        }
        assert!((9_990..=10_020).contains(&taken), "{taken} in 100 s");
    }

    #[test]
    fn what_is_more_than_the_burst_never_fits() {
        let rate = ItemRate::new(1.0, 4).unwrap();
        assert_eq!(rate.take(0, SECOND, 5), Err(QuotaMet::Burst(4)));
        for (per_second, burst) in
            [(0.0, 1), (-1.0, 1), (f64::NAN, 1), (f64::INFINITY, 1), (1.0, 0)]
        {
            assert_eq!(ItemRate::new(per_second, burst), None, "{per_second} {burst}");
        }
    }

    #[test]
    fn each_limit_rejects_on_its_own_and_gives_back() {
        let now = Instant::now();
        let limits = QuotaLimits { rate: ItemRate::new(1.0, 8), requests: 2, items: 6, bytes: 100 };
        let quota = Quota::new(limits, now);
        let met = |items, bytes| quota.admit(now, items, bytes).map(drop);
        assert_eq!(met(7, 1), Err(QuotaMet::UnderWay("items")));
        assert_eq!(met(1, 101), Err(QuotaMet::UnderWay("bytes")));
        let held = [quota.admit(now, 3, 50).unwrap(), quota.admit(now, 3, 50).unwrap()];
        assert_eq!(met(1, 1), Err(QuotaMet::UnderWay("requests")));
        drop(held);
        assert_eq!(met(3, 1), Err(QuotaMet::Rate(Duration::from_secs(1))), "two items are left");
        assert_eq!(met(2, 1), Ok(()));
        assert!(quota.admit(now + Duration::from_secs(8), 6, 100).is_ok(), "all are free again");
    }
}
