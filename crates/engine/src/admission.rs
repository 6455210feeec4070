//! The gate in front of every queue: how many requests, items and bytes may be under way at once.
//!
//! Admission is by weight and not only by count, because a thousand images are not a thousand
//! sentences. A [`Permit`] travels inside the request and gives its share back when it is dropped,
//! wherever that happens, so nothing has to be counted down by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::CallError;

/// The most that may be under way in the whole server.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionLimits {
    /// Requests, waiting or running.
    pub requests: u64,
    /// Items, waiting or running.
    pub items: u64,
    /// Bytes of their inputs.
    pub bytes: u64,
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        Self { requests: 100_000, items: 1_000_000, bytes: 4 << 30 }
    }
}

/// Counts what is under way against the limits.
#[derive(Debug)]
pub struct Admission {
    limits: AdmissionLimits,
    requests: AtomicU64,
    items: AtomicU64,
    bytes: AtomicU64,
}

impl Admission {
    /// A gate with nothing under way.
    pub fn new(limits: AdmissionLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            requests: AtomicU64::new(0),
            items: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        })
    }

    /// Takes one request's share, or says which limit is met.
    pub fn admit(self: &Arc<Self>, items: u64, bytes: u64) -> Result<Permit, CallError> {
        // The permit exists before the checks, so that a rejection gives back what was taken.
        let permit = Permit { admission: Arc::clone(self), items, bytes };
        let requests = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let items = self.items.fetch_add(items, Ordering::Relaxed) + items;
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let met = [
            ("requests", requests > self.limits.requests),
            ("items", items > self.limits.items),
            ("bytes", bytes > self.limits.bytes),
        ];
        match met.into_iter().find(|(_, over)| *over) {
            None => Ok(permit),
            Some((what, _)) => Err(CallError::ServerFull { what }),
        }
    }

    /// Requests under way now.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

/// One request's share of the limits.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    items: u64,
    bytes: u64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.requests.fetch_sub(1, Ordering::Relaxed);
        self.admission.items.fetch_sub(self.items, Ordering::Relaxed);
        self.admission.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Arc<Admission> {
        Admission::new(AdmissionLimits { requests: 2, items: 10, bytes: 100 })
    }

    fn rejected_by(result: Result<Permit, CallError>) -> Option<&'static str> {
        match result {
            Err(CallError::ServerFull { what }) => Some(what),
            _ => None,
        }
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
}
