//! One service model per group, and the curve that a decision reads.
//!
//! The curve knows what the model alone does not: the sizes a batch is padded to, and the safety
//! factor.

use super::service::Service;
use crate::request::Nanos;

/// Groups with a model of their own; the others share the last one.
const GROUPS: usize = 32;
/// What an item takes where nothing was learned and there is no objective.
const GUESS: Nanos = 1_000_000;

/// The service models of all groups seen.
#[derive(Debug, Default)]
pub(crate) struct Curves {
    known: Vec<(u16, Service)>,
}

impl Curves {
    /// The index of a group's model. A new model starts with the time of the first one.
    pub(crate) fn index(&mut self, group: u16, objective: Option<Nanos>) -> usize {
        if let Some(at) = self.known.iter().position(|(it, _)| *it == group) {
            return at;
        }
        if self.known.len() == GROUPS {
            return GROUPS - 1;
        }
        let elder = self.known.first().map(|(_, service)| service.mean(1) as Nanos);
        let guess = elder.or(objective.map(|time| time / 10)).unwrap_or(GUESS);
        self.known.push((group, Service::new(guess)));
        self.known.len() - 1
    }

    pub(crate) fn get(&self, index: usize) -> &Service {
        &self.known[index].1
    }

    /// A batch of this group and size took this long; deadlines are planned with the quantile `safe`.
    pub(crate) fn learn(&mut self, (group, size): (u16, u64), took: Nanos, safe: f64) {
        let index = self.index(group, None);
        let service = &mut self.known[index].1;
        service.factor.share = safe;
        service.learn(size, took);
    }

    pub(crate) fn points(&self) -> impl Iterator<Item = CurvePoint> + '_ {
        self.known.iter().flat_map(|(group, service)| {
            service.points().map(|(size, mean, samples)| CurvePoint {
                group: *group,
                size,
                mean: mean as Nanos,
                planned: (mean * service.factor.value) as Nanos,
                samples,
            })
        })
    }
}

/// One point of the learned service curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// The group whose curve this is.
    pub group: u16,
    /// Size of the batch, in the unit of [`Config::measure`](crate::Config).
    pub size: u64,
    /// Mean service time.
    pub mean: Nanos,
    /// The service time that deadlines are planned with.
    pub planned: Nanos,
    /// Batches this rests on; older ones are forgotten, so it has a ceiling.
    pub samples: u32,
}

/// One model as a decision sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Curve<'a> {
    pub(crate) service: &'a Service,
    /// Ascending; empty where any size runs as it is.
    sizes: &'a [u32],
    /// From the expected time to the one that deadlines are planned with.
    pub(crate) factor: f64,
}

impl<'a> Curve<'a> {
    pub(crate) fn new(service: &'a Service, sizes: &'a [u32]) -> Self {
        Self { service, sizes, factor: service.factor.value }
    }

    /// The same for requests that can only be in time if the batch is a fast one.
    pub(crate) fn with_luck(self) -> Self {
        Self { factor: self.service.luck.value, ..self }
    }

    /// The size a batch runs at.
    fn padded(&self, size: u64) -> u64 {
        let above = self.sizes.iter().map(|&it| u64::from(it)).find(|&it| it >= size);
        above.unwrap_or(size)
    }

    /// The expected time of a batch of this size.
    pub(crate) fn mean(&self, size: u64) -> f64 {
        let size = if self.sizes.is_empty() { size } else { self.padded(size) };
        self.service.mean(size)
    }

    /// The time that deadlines are planned with.
    pub(crate) fn planned(&self, size: u64) -> f64 {
        self.mean(size) * self.factor
    }

    /// The largest size up to `cap` that is planned to be done in this time; 0 if none is.
    pub(crate) fn largest_within(&self, cap: u64, time: f64) -> u64 {
        if self.planned(cap) <= time {
            return cap;
        }
        let (mut low, mut high) = (0, cap);
        while low + 1 < high {
            let middle = low.midpoint(high);
            if self.planned(middle) <= time { low = middle } else { high = middle }
        }
        low
    }

    /// Whether one more than this size costs far more than one more elsewhere.
    pub(crate) fn step_above(&self, size: u64) -> bool {
        match self.sizes {
            [] => self.service.step_above(size),
            sizes => u32::try_from(size).is_ok_and(|size| sizes.binary_search(&size).is_ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_size_within_a_time_is_found_on_the_padded_curve() {
        let mut service = Service::new(1000);
        for n in 0..2000 {
            service.learn(n % 16 + 1, 1000 * (n % 16 + 1));
        }
        let curve = Curve::new(&service, &[]);
        assert_eq!(curve.largest_within(16, 8_100.0), 8);
        assert_eq!(curve.largest_within(16, 900.0), 0);
        assert_eq!(curve.largest_within(16, 1e9), 16);
        let curve = Curve { sizes: &[4, 8, 16], ..curve };
        assert_eq!((curve.padded(5), curve.padded(17)), (8, 17));
        assert_eq!(curve.largest_within(16, 9_100.0), 8);
        assert_eq!(curve.largest_within(16, 3_000.0), 0, "even one item runs as four");
        assert!(curve.step_above(8) && !curve.step_above(9));
    }

    #[test]
    fn buckets_learn_apart_and_beyond_the_bound_share_a_model() {
        let mut curves = Curves::default();
        (0..100).for_each(|group| curves.learn((group, 1), 1000, 0.9));
        assert_eq!(curves.points().count(), GROUPS);
    }
}
