//! Which models a worker holds of those that it loads when a request asks for them: adapters, weights of customers.
//!
//! A worker keeps the latest used ones. It decides that for itself; here the same is reckoned from the batches that it
//! was handed, so that a request goes where its model is. A wrong guess costs a load and nothing else.

use crate::request::Nanos;

/// The models of one worker, the least recently used first, each with when it was last asked for.
#[derive(Debug, Default)]
pub(crate) struct HeldModels {
    models: Vec<(u64, Nanos)>,
}

impl HeldModels {
    pub(crate) fn holds(&self, model: u64) -> bool {
        self.models.iter().any(|(held, _)| *held == model)
    }

    /// How little is lost if this worker loads another one: the fewest models come first, and of full workers the
    /// one whose least recently used model was used longest ago.
    pub(crate) fn loss(&self, most: usize) -> (Nanos, usize) {
        let full = self.models.len() >= most;
        let oldest = self.models.first().filter(|_| full).map_or(0, |(_, used)| *used);
        (oldest, self.models.len())
    }

    /// A batch of this model is handed over. Returns whether the worker has to load it.
    pub(crate) fn asked(&mut self, model: u64, now: Nanos, most: usize) -> bool {
        let before = self.models.len();
        self.forget(model);
        let loads = self.models.len() == before;
        if loads && before >= most.max(1) {
            self.models.remove(0);
        }
        self.models.push((model, now));
        loads
    }

    pub(crate) fn forget(&mut self, model: u64) {
        self.models.retain(|(held, _)| *held != model);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_model_makes_room() {
        let mut held = HeldModels::default();
        assert_eq!([7, 8, 7].map(|model| held.asked(model, model, 2)), [true, true, false]);
        assert!(held.asked(9, 9, 2));
        assert_eq!([7, 8, 9].map(|model| held.holds(model)), [true, false, true]);
        assert_eq!((held.loss(2), held.loss(3)), ((7, 2), (0, 2)));
        held.forget(9);
        assert!(held.asked(9, 10, 2), "a load that failed");
    }
}
