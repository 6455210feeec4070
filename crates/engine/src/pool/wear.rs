//! When a worker that works is replaced all the same: it has run enough requests, or keeps too much memory.
//!
//! Apart from `supervisor`, which tells it of batches; it starts and ends nothing.

/// What a worker may do until it is replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WearLimits {
    /// Requests that it may run.
    pub(crate) requests: Option<u32>,
    /// Bytes that it may hold once a batch is over.
    pub(crate) memory: Option<u64>,
}

/// Why a worker is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplaceReason {
    /// The driver no longer lists its GPU.
    GpuGone(u32),
    /// It has run so many requests.
    Requests(u32),
    /// It holds so many bytes.
    Memory(u64),
}

/// What a worker has done since it was started.
#[derive(Debug)]
pub(super) struct Wear {
    limits: WearLimits,
    requests: u32,
    /// Its end was asked for; that is done once.
    told: bool,
}

impl Wear {
    pub(super) fn new(limits: WearLimits) -> Self {
        Self { limits, requests: 0, told: false }
    }

    /// A batch is over. Says why the worker is to be replaced, once.
    pub(super) fn add(&mut self, requests: u32, memory: u64) -> Option<ReplaceReason> {
        let limits = self.limits;
        self.requests = self.requests.saturating_add(requests);
        let reason = if limits.requests.is_some_and(|most| self.requests >= most) {
            ReplaceReason::Requests(self.requests)
        } else if limits.memory.is_some_and(|most| memory > most) {
            ReplaceReason::Memory(memory)
        } else {
            return None;
        };
        (!std::mem::replace(&mut self.told, true)).then_some(reason)
    }
}
