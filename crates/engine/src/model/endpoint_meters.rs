//! What the endpoints of a definition did, each by itself. Models with one endpoint or none count nothing
//! here: their own numbers say the same.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::histogram::{AtomicHistogram, Distribution, ITEMS, TIME_US, TimeHistogram};
use crate::pending::EndpointIndex;

/// Endpoints that are counted each by itself, so that metrics stay few; further ones are counted together.
const APART_MAX: usize = 31;

/// The name of the further ones; no function of Python is called so.
const FURTHER: &str = "(others)";

/// Where the endpoint with this number among so many is counted; nowhere if it is the only one.
pub(super) fn index_of(number: usize, count: usize) -> Option<EndpointIndex> {
    (count > 1).then_some(EndpointIndex(number.min(APART_MAX) as u8))
}

/// What an endpoint did so far.
#[derive(Clone, Debug)]
pub struct EndpointMeasures {
    /// Its name.
    pub name: String,
    /// Requests for it that fit.
    pub requests: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Those of them that were answered after their deadline or objective.
    pub late: u64,
    /// Microseconds from admission to answer.
    pub latency_us: Distribution,
    /// Microseconds that answered requests waited.
    pub queue_us: Distribution,
    /// Microseconds that answered batches ran.
    pub compute_us: Distribution,
    /// Items of dispatched batches.
    pub batch_items: Distribution,
}

#[derive(Debug)]
struct EndpointMeter {
    name: String,
    requests: AtomicU64,
    answered: AtomicU64,
    late: AtomicU64,
    latency_us: TimeHistogram,
    queue_us: AtomicHistogram,
    compute_us: AtomicHistogram,
    batch_items: AtomicHistogram,
}

/// The meters of all endpoints, by their index.
#[derive(Debug, Default)]
pub(crate) struct EndpointMeters(Box<[EndpointMeter]>);

impl EndpointMeters {
    pub(crate) fn new(names: &[String]) -> Self {
        if names.len() < 2 {
            return Self::default();
        }
        let further = (names.len() > APART_MAX).then_some(FURTHER);
        let names = names.iter().take(APART_MAX).map(String::as_str).chain(further);
        let meter = |name: &str| EndpointMeter {
            name: name.to_owned(),
            requests: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            late: AtomicU64::new(0),
            latency_us: TimeHistogram::default(),
            queue_us: AtomicHistogram::new(TIME_US),
            compute_us: AtomicHistogram::new(TIME_US),
            batch_items: AtomicHistogram::new(ITEMS),
        };
        Self(names.map(meter).collect())
    }

    /// A request for it came.
    pub(super) fn requested(&self, index: EndpointIndex) {
        if let Some(meter) = self.0.get(usize::from(index.0)) {
            meter.requests.fetch_add(1, Relaxed);
        }
    }

    /// A batch of it is dispatched.
    pub(super) fn dispatched(&self, index: EndpointIndex, items: u32) {
        if let Some(meter) = self.0.get(usize::from(index.0)) {
            meter.batch_items.record(items.into());
        }
    }

    /// A request for it waited so long; the first of its batch says how long that ran.
    pub(super) fn ran(&self, index: EndpointIndex, queue: Duration, compute: Option<Duration>) {
        if let Some(meter) = self.0.get(usize::from(index.0)) {
            meter.queue_us.record(queue.as_micros() as u64);
            if let Some(compute) = compute {
                meter.compute_us.record(compute.as_micros() as u64);
            }
        }
    }

    /// A request for it was answered.
    pub(super) fn answered(&self, index: EndpointIndex, latency: Duration, is_late: bool) {
        if let Some(meter) = self.0.get(usize::from(index.0)) {
            meter.answered.fetch_add(1, Relaxed);
            meter.late.fetch_add(is_late.into(), Relaxed);
            meter.latency_us.record(latency.as_micros() as u64);
        }
    }

    pub(super) fn read(&self) -> Vec<EndpointMeasures> {
        let read = |meter: &EndpointMeter| EndpointMeasures {
            name: meter.name.clone(),
            requests: meter.requests.load(Relaxed),
            answered: meter.answered.load(Relaxed),
            late: meter.late.load(Relaxed),
            latency_us: meter.latency_us.read(),
            queue_us: meter.queue_us.read(),
            compute_us: meter.compute_us.read(),
            batch_items: meter.batch_items.read(),
        };
        self.0.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_with_one_endpoint_counts_nothing_and_one_with_many_not_more_than_a_few() {
        let names = |count: usize| (0..count).map(|at| format!("e{at}")).collect::<Vec<_>>();
        assert_eq!(index_of(0, 1), None);
        assert!(EndpointMeters::new(&names(1)).read().is_empty());
        let meters = EndpointMeters::new(&names(100));
        for number in 0..100 {
            meters.requested(index_of(number, 100).expect("an index"));
        }
        let read = meters.read();
        assert_eq!((read.len(), read[0].requests, read[31].requests), (32, 1, 69));
        assert_eq!(read[31].name, FURTHER);
    }
}
