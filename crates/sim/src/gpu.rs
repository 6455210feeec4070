//! A GPU that several workers run their models on: workers of one model, or of several beside each other.
//!
//! It only says how fast each of them runs at a time. Batches are prepared apart from it, and a policy
//! learns no more of it than how long its own batches took.

use jitney_batcher::Nanos;

use crate::pipeline::Pipeline;

/// How batches share a GPU that could be in their models at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuSharing {
    /// One after another, the one first that could run first.
    Turns,
    /// All at once, each at its part of the speed.
    Parts,
}

impl GpuSharing {
    /// Counts the work of all workers until now, and gives each of them its speed from now on.
    pub(crate) fn share(self, now: Nanos, workers: &mut [&mut Pipeline]) {
        for worker in &mut *workers {
            worker.advance(now);
        }
        let asks = || workers.iter().map(|worker| worker.asks_since()).enumerate();
        let asking = asks().filter_map(|(at, since)| Some((since?, at)));
        let count = asking.clone().count() as f64;
        let first = asking.min().map(|(_, at)| at);
        for (at, worker) in workers.iter_mut().enumerate() {
            worker.speed = match self {
                Self::Turns if first == Some(at) => 1.0,
                Self::Turns => 0.0,
                Self::Parts => 1.0 / count.max(1.0),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::ServiceCurve;
    use crate::pipeline::Stages;

    /// Three workers with a batch each: when it is over, and how long it was in the model.
    fn play(sharing: GpuSharing) -> Vec<(Nanos, Nanos)> {
        let stages =
            Stages { prepare: ServiceCurve::affine(1.0, 0.0, 1), slots: 1, contention: 1.0 };
        let mut workers: Vec<Pipeline> = (0..3).map(|_| Pipeline::new(Some(&stages))).collect();
        for (worker, (prepare, run)) in workers.iter_mut().zip([(10, 100), (30, 200), (20, 60)]) {
            worker.push(0, vec![1], prepare, run);
        }
        let mut over = vec![(0, 0); 3];
        loop {
            let next = workers.iter().enumerate().filter_map(|(at, it)| Some((it.next()?, at)));
            let Some(((now, last), at)) = next.min() else { return over };
            match last {
                true => over[at] = (now, workers[at].finish(now).expect("it ran").1.exec),
                false => workers[at].advance(now),
            }
            sharing.share(now, &mut workers.iter_mut().collect::<Vec<_>>());
        }
    }

    #[test]
    fn batches_run_in_turns_as_they_were_prepared() {
        // The model of the third begins at 110, that of the second at 170.
        assert_eq!(play(GpuSharing::Turns), [(110, 100), (370, 340), (170, 150)]);
    }

    #[test]
    fn batches_that_run_together_do_as_much_in_all() {
        // From 10 on one of them runs, from 20 on two, from 30 on three. The third is over when it has had 5
        // and then a third of 165, the first when 30 more are done by two, the second runs alone from then on.
        let over = play(GpuSharing::Parts);
        assert_eq!(
            over.iter().map(|it| it.0).max(),
            Some(370),
            "10 of preparing and 360 of models"
        );
        assert_eq!(over, [(255, 245), (370, 340), (195, 175)]);
    }
}
