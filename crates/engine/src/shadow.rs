//! A shadow: a version that gets copies of requests which another version answers, and whose answers are only compared.
//!
//! Here are counted what came of the copies, and kept what operators asked to look at. Copies give way to everything:
//! [`has_room`] says whether one may be sent. Who copies, calls and compares is the server's inference service.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use crate::admission::{Admission, HeldBytes};
use crate::traffic_split::TrafficSplit;

/// Copies of one version that may be under way, from when their requests come. Chosen: as many as a full batch of large
/// ones, a few times.
const COPIES_MAX: u32 = 256;

/// Bytes of one pair of answers that is kept; larger ones are not.
const SAMPLE_BYTES_MAX: usize = 256 << 10;

/// How long a pair of answers is kept. Chosen: long enough to look at it in a rollout.
pub const SAMPLES_KEPT: Duration = Duration::from_secs(3600);

/// What came of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShadowOutcome {
    /// Its answer was the same as the one that the client got.
    Same,
    /// It was another.
    Different,
    /// The shadow failed where the other version answered.
    Failed,
    /// It was not run: there was no room.
    Dropped,
    /// The model that compares did not say which.
    Uncompared,
}

/// The outcomes by their names, in the order in which they are counted.
const OUTCOMES: [&str; 5] = ["same", "different", "failed", "dropped", "uncompared"];

/// Two answers that differ.
#[derive(Debug)]
pub struct ShadowSample {
    /// The id of the request.
    pub id: String,
    /// When it was kept.
    pub time: SystemTime,
    /// What the client got.
    pub old: String,
    /// What the shadow answered.
    pub new: String,
    expires: Instant,
    _held: HeldBytes,
}

/// Both ends of a shadow, which every version has: whether its own requests are copied, and what came of the copies
/// that it got.
#[derive(Debug, Default)]
pub struct ShadowBook {
    /// Whether a shadow gets copies of the requests of this version, so that others do not look.
    copied: AtomicBool,
    /// The rules of that.
    split: ArcSwapOption<TrafficSplit>,
    /// The share of requests of which this version gets copies, in millionths.
    share: AtomicU32,
    counts: [AtomicU64; OUTCOMES.len()],
    under_way: AtomicU32,
    samples: Mutex<Vec<Arc<ShadowSample>>>,
}

/// The right to one copy, given back when it is dropped.
#[derive(Debug)]
pub struct CopyPermit(Arc<ShadowBook>);

impl Drop for CopyPermit {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Relaxed);
    }
}

impl ShadowBook {
    /// Written with the table of models.
    pub(crate) fn set(&self, version: &str, split: Option<&Arc<TrafficSplit>>) {
        let rule = split.and_then(|split| split.shadow.as_ref());
        let own = rule.filter(|rule| rule.version == version);
        let copied = split.filter(|_| rule.is_some() && own.is_none());
        self.split.store(copied.cloned());
        self.copied.store(copied.is_some(), Relaxed);
        self.share.store(own.map_or(0, |rule| (rule.share * 1e4).round() as u32), Relaxed);
    }

    /// Whether requests of this version are copied.
    #[inline]
    pub fn is_copied(&self) -> bool {
        self.copied.load(Relaxed)
    }

    /// How they are.
    pub fn rules(&self) -> Option<Arc<TrafficSplit>> {
        self.split.load_full()
    }

    /// The share of requests of which this version gets copies, from 0 to 1, where it is a shadow.
    pub fn share(&self) -> Option<f64> {
        Some(self.share.load(Relaxed)).filter(|it| *it > 0).map(|it| f64::from(it) / 1e6)
    }

    /// The right to one more copy for this version, unless too many are under way.
    pub fn permit(self: &Arc<Self>) -> Option<CopyPermit> {
        let permit = CopyPermit(Arc::clone(self));
        let before = self.under_way.fetch_add(1, Relaxed);
        (before < COPIES_MAX).then_some(permit)
    }

    /// Counts a copy that has ended.
    pub fn count(&self, outcome: ShadowOutcome) {
        self.counts[outcome as usize].fetch_add(1, Relaxed);
    }

    /// How many copies ended how.
    pub fn counts(&self) -> [(&'static str, u64); OUTCOMES.len()] {
        std::array::from_fn(|at| (OUTCOMES[at], self.counts[at].load(Relaxed)))
    }

    /// Keeps two answers, if fewer than so many are kept and there is memory for them: whether it did.
    pub fn keep(
        &self,
        most: usize,
        admission: &Arc<Admission>,
        id: &str,
        [old, new]: [String; 2],
    ) -> bool {
        let (bytes, now) = (id.len() + old.len() + new.len(), Instant::now());
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() >= most || bytes > SAMPLE_BYTES_MAX {
            return false;
        }
        let Some(held) = admission.keep_if_room(bytes as u64) else { return false };
        samples.push(Arc::new(ShadowSample {
            id: id.to_owned(),
            time: SystemTime::now(),
            old,
            new,
            expires: now + SAMPLES_KEPT,
            _held: held,
        }));
        true
    }

    /// The pairs that are kept, the first one first. Those whose time is over go.
    pub fn samples(&self) -> Vec<Arc<ShadowSample>> {
        let now = Instant::now();
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.retain(|sample| sample.expires > now);
        samples.clone()
    }

    /// Forgets the pairs that are kept.
    pub(crate) fn forget(&self) {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// How busy a version is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Occupancy {
    /// Whether a worker serves.
    pub ready: bool,
    /// Requests that wait.
    pub waiting: u32,
    /// The most items in a batch.
    pub batch_max: u32,
    /// Workers that run a batch, as far as the requests under way tell.
    pub busy: u64,
    /// Whether its workers run on GPUs, so that processors are not what they compute with.
    pub on_gpu: bool,
}

/// Whether a copy may be sent: no more requests wait, for the shadow or for the version that answers, than a batch
/// takes, and a processor is idle on which the copy can run.
pub fn has_room(shadow: Occupancy, answering: Occupancy, processors: u64) -> bool {
    let crowded = |it: Occupancy| it.waiting >= it.batch_max.max(1);
    let idle = shadow.on_gpu || shadow.busy + answering.busy < processors;
    shadow.ready && !crowded(shadow) && !crowded(answering) && idle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_sent_only_where_nobody_waits_for_it() {
        let idle = Occupancy { ready: true, batch_max: 4, ..Occupancy::default() };
        let with = |edit: fn(&mut Occupancy)| {
            let mut it = idle;
            edit(&mut it);
            it
        };
        assert!(has_room(idle, idle, 2));
        assert!(has_room(with(|it| it.waiting = 3), with(|it| it.waiting = 3), 2));
        assert!(!has_room(with(|it| it.waiting = 4), idle, 2), "the shadow is busy");
        assert!(!has_room(idle, with(|it| it.waiting = 4), 2), "the other version is");
        assert!(!has_room(with(|it| it.ready = false), idle, 2), "it is not loaded");
        assert!(has_room(with(|it| it.busy = 1), idle, 2));
        assert!(!has_room(with(|it| it.busy = 1), with(|it| it.busy = 1), 2), "no processor");
        let on_gpu = with(|it| it.on_gpu = true);
        assert!(has_room(on_gpu, with(|it| it.busy = 2), 2), "it needs none");
        let single = with(|it| it.batch_max = 0);
        assert!(has_room(single, single, 1));
    }
}
