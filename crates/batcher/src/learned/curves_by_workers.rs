//! What was learned with other numbers of workers.
//!
//! Workers of a model share the processors, so how long a batch takes depends on how many of them there are. When their
//! number changes, what was learned with the new one is taken up again. Of a number that is new the last one is the
//! guess.

use super::curves::Curves;

/// Numbers of workers that are remembered. Chosen: those around which a load moves; it limits memory.
const NUMBERS: usize = 8;
/// So many batches of a size make a number of workers one that is remembered. Chosen: their mean is trusted then.
const LEARNED: u32 = 8;

/// The curves that are not in use, the one that was left last at the end.
#[derive(Debug, Default)]
pub(super) struct CurvesByWorkers {
    /// With so many workers the curves in use were learned; 0 before there was one.
    workers: u32,
    /// How often others were taken up.
    pub(super) changes: u64,
    left: Vec<(u32, Curves)>,
}

impl CurvesByWorkers {
    /// How many workers there are; 0 before there was one.
    pub(super) fn workers(&self) -> u32 {
        self.workers
    }

    /// How many there were before that changed last, and what was learned with them.
    pub(super) fn before(&self) -> Option<(u32, &Curves)> {
        self.left.last().map(|(workers, curves)| (*workers, curves))
    }

    /// So many workers are there from now on: puts what was learned with them in the place of `current`.
    pub(super) fn change(&mut self, workers: u32, current: &mut Curves) {
        // Without any nothing is learned, and the next one is like the last.
        if workers == self.workers || workers == 0 {
            return;
        }
        let before = std::mem::replace(&mut self.workers, workers);
        if before == 0 {
            return;
        }
        self.changes += 1;
        let known = self.left.iter().position(|(number, _)| *number == workers);
        let mut next = match known {
            Some(at) => self.left.remove(at).1,
            None => current.doubted(),
        };
        next.add_missing(current);
        let left = std::mem::replace(current, next);
        // Several may come or go within a moment: what was learned with those between is a guess.
        if !left.points().any(|it| it.samples >= LEARNED) {
            return;
        }
        if self.left.len() == NUMBERS {
            self.left.remove(0);
        }
        self.left.push((before, left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: (u16, u64) = (0, 1);

    fn learn(curves: &mut Curves, group: u16, took: u64, batches: usize) {
        (0..batches).for_each(|_| curves.learn((group, 1), took, 0.9));
    }

    fn mean(curves: &mut Curves, (group, size): (u16, u64)) -> f64 {
        let at = curves.index(group, None);
        curves.get(at).mean(size)
    }

    #[test]
    fn what_was_learned_with_a_number_of_workers_is_taken_up_again() {
        let (mut others, mut curves) = (CurvesByWorkers::default(), Curves::default());
        others.change(1, &mut curves);
        learn(&mut curves, 0, 1_000_000, 50);
        others.change(2, &mut curves);
        assert_eq!(mean(&mut curves, ONE), 1_000_000.0, "the last number is the guess");
        learn(&mut curves, 0, 2_000_000, 24);
        assert!(mean(&mut curves, ONE) > 1_800_000.0, "some batches count more than fifty before");
        learn(&mut curves, 0, 2_000_000, 50);
        others.change(1, &mut curves);
        assert_eq!(mean(&mut curves, ONE), 1_000_000.0);
        others.change(0, &mut curves);
        others.change(2, &mut curves);
        assert!(mean(&mut curves, ONE) > 1_900_000.0, "none is no number");
    }

    #[test]
    fn a_group_that_came_meanwhile_has_the_same_index_everywhere() {
        let (mut others, mut curves) = (CurvesByWorkers::default(), Curves::default());
        others.change(1, &mut curves);
        learn(&mut curves, 0, 1_000, 9);
        others.change(2, &mut curves);
        learn(&mut curves, 7, 5_000, 9);
        let at = curves.index(7, None);
        others.change(1, &mut curves);
        assert_eq!((curves.index(7, None), mean(&mut curves, (7, 1))), (at, 5_000.0));
        for number in 2..100 {
            others.change(number, &mut curves);
            learn(&mut curves, 0, 1_000, 9);
        }
        assert_eq!(others.left.len(), NUMBERS);
        assert_eq!(curves.index(7, None), at);
    }
}
