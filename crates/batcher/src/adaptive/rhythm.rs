//! In what batches clients that come back are best served: how large, and how many at a time.
//!
//! So many clients as there are can share one batch, or take turns in two or three of which one is
//! prepared while another runs; or some wait while the others fill a size at which the model runs.
//! Each keeps its rhythm, so what counts is how many are answered per unit of time. A batch more at a
//! time pays only while smaller batches are not much slower for each item.

use crate::learned::curves::Curve;

/// All clients are back after so many times the time in which half of them are. Derived: three
/// quarters of exponential times.
const ALL_BACK: f64 = 2.0;

/// The batches in which clients that come back take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rhythm {
    /// The size of the requests of all clients together.
    pub(crate) clients: u64,
    pub(crate) size: u64,
    /// Where two of different sizes take turns, the smaller one.
    pub(crate) least: u64,
    /// How many a worker has at a time.
    pub(crate) at_a_time: u32,
}

/// What the choice looks at, for one worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round<'a> {
    pub(crate) curve: Curve<'a>,
    /// The size of the requests of all clients together.
    pub(crate) clients: u64,
    /// The time in which half of them come back.
    pub(crate) turn: f64,
    pub(crate) cap: u64,
}

impl Round<'_> {
    /// The rhythm with so many batches at a time in which the most are answered per unit of time; none
    /// where clients take so long to come back that there is none.
    pub(crate) fn best(&self, at_a_time: u32) -> Option<Rhythm> {
        let (best, _) = self.best_of(at_a_time);
        let own = self.curve.model(best.size) + self.curve.preparing(best.size);
        (ALL_BACK * self.turn < own).then_some(best)
    }

    fn evenly(&self, size: u64, at_a_time: u32) -> Rhythm {
        Rhythm { clients: self.clients, size, least: size, at_a_time }
    }

    /// The best one with so many batches at a time, and its rate: of the same size, all clients or
    /// not, or two that run at different sizes.
    fn best_of(&self, at_a_time: u32) -> (Rhythm, f64) {
        let fair = self.clients.div_ceil(at_a_time.into()).clamp(1, self.cap.max(1));
        let mut best = (self.evenly(fair, at_a_time), self.rate(fair, at_a_time));
        for size in self.curve.steps_below(fair) {
            let rate = self.rate(size, at_a_time);
            if rate > best.1 {
                best = (self.evenly(size, at_a_time), rate);
            }
        }
        if at_a_time != 2 {
            return best;
        }
        for size in self.curve.steps_below(self.clients.min(self.cap + 1)) {
            let rest = self.clients - size;
            let least = self.curve.steps_below(rest + 1).next();
            let Some(least) = least.filter(|&it| it < size && 2 * it >= size) else { continue };
            let round = self.curve.cycle(size) + self.curve.cycle(least);
            let own = self.curve.model(size) + self.curve.preparing(size);
            let rate = (size + least) as f64 / round.max(own + ALL_BACK * self.turn);
            if rate > best.1 {
                best = (Rhythm { size, least, ..self.evenly(size, at_a_time) }, rate);
            }
        }
        best
    }

    /// Size answered per unit of time in batches of this size.
    fn rate(&self, size: u64, at_a_time: u32) -> f64 {
        let (model, prepare) = (self.curve.model(size), self.curve.preparing(size));
        // Those who are not in these batches wait already, so that fewer must come back in time.
        let (held, clients) = ((size * u64::from(at_a_time + 1)) as f64, self.clients as f64);
        let missing = ((held - clients) / size as f64).clamp(0.0, 1.0);
        let own = model + prepare + ALL_BACK * self.turn * missing;
        let round = match at_a_time {
            1 => own,
            _ => self.curve.cycle(size).max(own / f64::from(at_a_time)),
        };
        (size as f64).min(clients / f64::from(at_a_time)) / round
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learned::curves::{BatchPreparation, Stretch};
    use crate::learned::service::Service;

    /// A service that takes so many microseconds.
    fn service(time: impl Fn(u64) -> u64) -> Service {
        let mut service = Service::new(1000);
        let sizes: Vec<u64> =
            (1..=64).chain([80, 96, 100, 125, 128, 156, 192, 195, 243, 256]).collect();
        for size in sizes.iter().cycle().take(3000) {
            service.learn(*size, 1000 * time(*size));
        }
        service
    }

    /// ResNet-152 in graphs: milliseconds flat for a few, then in proportion; decoding in proportion.
    fn best(clients: u64, at_a_time: u32, sizes: &[u32]) -> (u64, u64, u32) {
        let model = service(|size| 2600 + size.saturating_sub(4) * 115);
        let prepare = service(|size| 300 + size * 50);
        let stretch = Stretch { model: 0.2, prepare: 0.2 };
        let preparation =
            BatchPreparation { service: &prepare, stretch, head_start: 0.0, overlaps: true };
        let curve = Curve::new(&model, sizes).prepared(Some(preparation));
        let rhythm = Round { curve, clients, turn: 200_000.0, cap: 128 }.best(at_a_time);
        rhythm.map_or((0, 0, 0), |it| (it.size, it.least, it.at_a_time))
    }

    #[test]
    fn few_clients_share_a_batch_and_many_take_turns() {
        assert_eq!(best(16, 1, &[]), (16, 16, 1));
        assert_eq!(best(128, 2, &[]), (64, 64, 2));
        assert_eq!(best(384, 2, &[]), (128, 128, 2));
        assert_eq!(best(384, 1, &[]), (128, 128, 1));
    }

    #[test]
    fn a_batch_ends_at_a_size_rather_than_to_be_run_as_a_far_larger_one() {
        let sizes = [1, 2, 4, 8, 16, 32, 64, 128];
        assert_eq!(best(33, 1, &sizes), (32, 32, 1));
        assert_eq!(best(63, 1, &sizes), (63, 63, 1));
        assert_eq!(best(100, 2, &sizes), (64, 32, 2));
    }

    #[test]
    fn clients_that_take_longer_than_a_batch_have_no_rhythm() {
        let model = service(|size| 1000 + 100 * size);
        let rhythm = |turn| {
            let curve = Curve::new(&model, &[]);
            Round { curve, clients: 8, turn, cap: 32 }.best(1)
        };
        assert!(rhythm(800_000.0).is_some() && rhythm(1_000_000.0).is_none());
    }
}
