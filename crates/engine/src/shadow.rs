//! A shadow: a version that gets copies of requests which another version answers, and whose answers are only compared.
//!
//! Here are counted what came of the copies, and kept what operators asked to look at. Copies give way to everything:
//! [`has_room_for_copy`] says whether one may be sent. Who copies, calls and compares is the server's inference service.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
pub use jitney_batcher::{Occupancy, has_room_for_copy};
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

/// How many copies ended how.
pub type ShadowCounts = [(&'static str, u64); OUTCOMES.len()];

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

/// Both ends of a shadow: whether a version's own requests are copied, and what came of the copies that it got.
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
    pub fn counts(&self) -> ShadowCounts {
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
