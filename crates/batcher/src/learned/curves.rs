//! One service model per group, and the curve that a decision reads.
//!
//! The curve knows what the model alone does not: the sizes a batch is padded to, how long it takes to
//! prepare, and the safety factor.

use super::service::Service;
use crate::request::Nanos;

/// Groups with a model of their own; the others share the last one. Chosen: more kinds of input than
/// a model usually has; it limits memory.
const GROUPS: usize = 32;
/// What an item takes where nothing was learned and there is no objective, in nanoseconds. Chosen: a
/// millisecond; the first batches replace it.
const GUESS: Nanos = 1_000_000;

/// The service models of all groups seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Curves {
    known: Vec<(u16, Service)>,
    /// How long preparing takes, by the same index; empty where workers do not.
    prepare: Vec<Option<Box<Service>>>,
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

    /// Whether anything is known about preparing.
    pub(crate) fn prepares(&self) -> bool {
        !self.prepare.is_empty()
    }

    /// How long preparing a batch takes; a group of which nothing is known is like the first one.
    pub(crate) fn prepare(&self, index: usize) -> Option<&Service> {
        let own = self.prepare.get(index).and_then(Option::as_deref);
        own.or_else(|| self.prepare.iter().flatten().next().map(Box::as_ref))
    }

    /// The same by the name of the group.
    pub(crate) fn prepare_of(&self, group: u16) -> Option<&Service> {
        if self.prepare.is_empty() {
            return None;
        }
        let index = self.known.iter().position(|(it, _)| *it == group);
        self.prepare(index.unwrap_or(0))
    }

    /// Preparing a batch of this group and size took this long.
    pub(crate) fn learn_prepare(&mut self, (group, size): (u16, u64), took: Nanos) {
        let index = self.index(group, None);
        if self.prepare.len() <= index {
            self.prepare.resize_with(index + 1, || None);
        }
        self.prepare[index].get_or_insert_with(|| Box::new(Service::new(took))).learn(size, took);
    }

    /// The same as a guess: what comes next counts more than all that it rests on.
    pub(super) fn doubted(&self) -> Self {
        let mut copy = self.clone();
        let prepare = copy.prepare.iter_mut().flatten().map(Box::as_mut);
        copy.known.iter_mut().map(|(_, service)| service).chain(prepare).for_each(Service::doubt);
        copy
    }

    /// Takes over the groups that another has beyond these, with what is known of them: an index is good for both then.
    pub(super) fn add_missing(&mut self, other: &Self) {
        let more = other.doubted();
        self.known.extend(more.known.into_iter().skip(self.known.len()));
        self.prepare.extend(more.prepare.into_iter().skip(self.prepare.len()));
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

/// How much longer each stage takes while the other one is busy, as a share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stretch {
    pub(crate) model: f64,
    pub(crate) prepare: f64,
}

/// How a batch is prepared, on a worker that does so while it runs another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchPreparation<'a> {
    pub(crate) service: &'a Service,
    pub(crate) stretch: Stretch,
    /// Until the worker's model could take the batch: so long preparing it costs nothing.
    pub(crate) head_start: f64,
    /// Whether further batches are prepared while others run.
    pub(crate) overlaps: bool,
}

/// One model as a decision sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Curve<'a> {
    pub(crate) service: &'a Service,
    /// Whether any size runs as it is and nothing is prepared.
    plain: bool,
    /// Ascending; empty where any size runs as it is.
    sizes: &'a [u32],
    /// The size of an item: the sizes above count items.
    item: u64,
    preparation: Option<BatchPreparation<'a>>,
    /// From the expected time to the one that deadlines are planned with.
    pub(crate) factor: f64,
}

impl<'a> Curve<'a> {
    pub(crate) fn new(service: &'a Service, sizes: &'a [u32]) -> Self {
        let (plain, factor) = (sizes.is_empty(), service.factor.value);
        Self { service, plain, sizes, item: 1, preparation: None, factor }
    }

    /// The same for a model that runs at these numbers of items of this size.
    pub(crate) fn at_sizes(self, sizes: &'a [u32], item: u64) -> Self {
        Self { plain: self.plain && sizes.is_empty(), sizes, item: item.max(1), ..self }
    }

    /// The same on workers that prepare.
    pub(crate) fn prepared(self, preparation: Option<BatchPreparation<'a>>) -> Self {
        Self { plain: self.plain && preparation.is_none(), preparation, ..self }
    }

    /// The same where one batch is prepared and run before the next.
    pub(crate) fn one_by_one(self) -> Self {
        let apart = |it: BatchPreparation<'a>| BatchPreparation { overlaps: false, ..it };
        Self { preparation: self.preparation.map(apart), ..self }
    }

    /// The same for batches that follow on a busy worker.
    #[inline]
    pub(crate) fn following(self) -> Self {
        if self.plain {
            return self;
        }
        let follow = |it: BatchPreparation<'a>| {
            let head_start = if it.overlaps { f64::INFINITY } else { 0.0 };
            BatchPreparation { head_start, ..it }
        };
        Self { preparation: self.preparation.map(follow), ..self }
    }

    /// The same for requests that can only be in time if the batch is a fast one.
    pub(crate) fn with_luck(self) -> Self {
        Self { factor: self.service.luck.value, ..self }
    }

    /// The size a batch runs at.
    fn padded(&self, size: u64) -> u64 {
        let above = self.sizes.iter().map(|&it| u64::from(it) * self.item).find(|&it| it >= size);
        above.unwrap_or(size)
    }

    /// The expected time of a batch of this size, from when the worker's model could take it.
    #[inline]
    pub(crate) fn mean(&self, size: u64) -> f64 {
        if self.plain { self.service.mean(size) } else { self.staged_mean(size) }
    }

    #[cold]
    fn staged_mean(&self, size: u64) -> f64 {
        let late = |it: &BatchPreparation<'_>| (it.service.mean(size) - it.head_start).max(0.0);
        self.model(size) + self.preparation.as_ref().map_or(0.0, late)
    }

    /// The time of its model alone.
    pub(crate) fn model(&self, size: u64) -> f64 {
        self.service.mean(self.padded(size))
    }

    /// The time of preparing it.
    pub(crate) fn preparing(&self, size: u64) -> f64 {
        self.preparation.as_ref().map_or(0.0, |it| it.service.mean(size))
    }

    /// The time between the ends of two such batches on a busy worker.
    #[inline]
    pub(crate) fn cycle(&self, size: u64) -> f64 {
        if self.plain { self.service.mean(size) } else { self.staged_cycle(size) }
    }

    #[cold]
    fn staged_cycle(&self, size: u64) -> f64 {
        let Some(BatchPreparation { stretch, overlaps, .. }) = self.preparation else {
            return self.mean(size);
        };
        let (model, prepare) = (self.model(size), self.preparing(size));
        match overlaps {
            true => {
                let both = model.min(prepare);
                (model + stretch.model * both).max(prepare + stretch.prepare * both)
            }
            false => model + prepare,
        }
    }

    /// Sizes below this one at which the model runs, largest first; none where any size does.
    pub(crate) fn steps_below(&self, size: u64) -> impl Iterator<Item = u64> + 'a {
        let item = self.item;
        self.sizes.iter().rev().map(move |&it| u64::from(it) * item).filter(move |&it| it < size)
    }

    /// The time that deadlines are planned with.
    pub(crate) fn planned(&self, size: u64) -> f64 {
        self.mean(size) * self.factor
    }

    /// The same for a fast batch.
    #[inline]
    pub(crate) fn lucky(&self, size: u64) -> f64 {
        self.mean(size) * self.service.luck.value
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
            sizes => sizes.iter().any(|&it| u64::from(it) * self.item == size),
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
        let curve = Curve { sizes: &[4, 8, 16], plain: false, ..curve };
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
