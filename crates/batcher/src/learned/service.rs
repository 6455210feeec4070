//! How long a batch of a given size takes: learned from every batch that was answered.
//!
//! A cell per size with a short memory, a straight line through all sizes for cells with few
//! batches, and a safety factor for deadlines. It is robust (one slow batch moves it little), it
//! forgets, and it notices when everything has become slower or faster at once. The table never
//! falls as sizes grow.

use crate::request::Nanos;

/// Batches a cell remembers. Chosen: it follows a change within a second or so of full load.
const CELL_MEMORY: f64 = 32.0;
/// From how many batches on a cell needs no line. Chosen: its mean is then surer than the line.
const CELL_SURE: f64 = 8.0;
/// What the line weighs, in batches, against a cell that is not sure. Chosen: two batches are worth
/// as much as the line.
const LINE_WEIGHT: f64 = 2.0;
/// Once this many batches are known, one that takes more than twice the mean counts as twice.
/// Chosen: before, it may be the mean that is wrong.
const CLIP_AFTER: u32 = 20;
/// This many surprises in a row on the same side mean that the machine has changed its pace. Bound:
/// by chance once in 256.
const DRIFT_RUN: usize = 8;
/// A batch that is further from its mean than this share is a surprise. Chosen: beyond the usual
/// scatter of a machine.
const SURPRISE: f64 = 0.25;
/// Before anything is known the first batches hold no more than this. Chosen: a batch that is too
/// large is lost once, while small ones for too long lose all requests that come meanwhile.
const FIRST_CAP: u64 = 8;
/// A batch holds at most so many times the largest that was tried. Chosen: three steps reach 512.
const GROWTH: u64 = 4;
/// No request is given up while this share of batches would be fast enough. Measured: on settings
/// drawn by chance (example `heldout`).
const LUCKY: f64 = 0.05;
/// What one more item costs at a step, in slopes of the line. Chosen: scatter makes smaller ones
/// appear.
const STEP: f64 = 3.0;
/// A cell that was not seen for so many batches takes no longer than the line says. Chosen: sizes that are
/// used come more often, and a size that was slow once, as all are at first, must be tried again.
const FORGOTTEN: u32 = 64;
/// What was known of it is dropped if it takes less than this share of that. Chosen: more is the scatter of
/// a machine.
const FASTER: f64 = 0.9;
/// What the line weighs where no batch was seen, in batches. Chosen: next to nothing against any.
const UNSEEN: f64 = 0.1;
/// The whole table is computed anew after so many batches. Chosen: it saves time, and the line moves
/// slowly.
const WHOLE_EVERY: u32 = 8;

#[derive(Clone, Copy, Debug, Default)]
struct SizeCell {
    batches: f64,
    mean: f64,
    /// Which of all batches the last one was.
    last: u32,
}

/// The service model of one kind of batch.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    cells: [SizeCell; CELLS],
    /// The blended, monotone table, in nanoseconds.
    table: [f64; CELLS],
    fit: LineFit,
    slope: f64,
    /// From the expected time to the one that deadlines are planned with, and to that of a fast batch.
    pub(crate) factor: Tail,
    pub(crate) luck: Tail,
    /// Ratios of the latest surprises, all on the same side.
    run: [f64; DRIFT_RUN],
    run_len: usize,
    batches: u32,
    smallest: u64,
    largest: u64,
    /// Cells of the table that are kept up to date; beyond them the line is used.
    end: usize,
}

impl Service {
    /// Nothing is known yet: half of `guess` is fixed, and each item costs the other half.
    pub(crate) fn new(guess: Nanos) -> Self {
        let guess = guess.max(1) as f64;
        Self {
            cells: [SizeCell::default(); CELLS],
            table: std::array::from_fn(|at| guess * (0.5 + 0.5 * SIZES[at] as f64)),
            fit: LineFit::default(),
            slope: guess / 2.0,
            // Another quantile is told with the batches of a model.
            factor: Tail::new(1.05, 0.9, (0.02, 0.002), (1.0, 2.0)),
            luck: Tail::new(0.95, LUCKY, (0.02, 0.002), (0.5, 1.0)),
            run: [1.0; DRIFT_RUN],
            run_len: 0,
            batches: 0,
            smallest: u64::MAX,
            largest: 0,
            end: CELLS,
        }
    }

    // Learning

    /// A batch of this size took this long.
    pub(crate) fn learn(&mut self, size: u64, took: Nanos) {
        let at = nearest(size);
        let expected = self.mean(size);
        let ratio = took.max(1) as f64 / expected;
        self.notice_drift(at, ratio);
        let clip = if self.batches >= CLIP_AFTER { 2.0 } else { f64::MAX };
        let time = took.max(1) as f64;
        let time = if ratio > clip { clip * expected } else { time };
        self.batches = self.batches.saturating_add(1);
        self.smallest = self.smallest.min(size);
        self.largest = self.largest.max(size);
        self.learn_factor(at, ratio);
        self.fit.learn(size as f64, time);
        self.slope = self.fit.slope();
        // A size between two cells is moved to the nearer one along the line.
        let time = time + self.slope * (SIZES[at] as f64 - size as f64);
        let forgotten = self.forgotten(at);
        let cell = &mut self.cells[at];
        if forgotten && time < FASTER * cell.mean {
            cell.batches = 0.0;
        }
        cell.last = self.batches;
        cell.batches = (cell.batches + 1.0).min(CELL_MEMORY);
        cell.mean += (time - cell.mean) / cell.batches;
        if forgotten { self.blend() } else { self.refresh(at) }
    }

    /// Only sizes that are known count: one batch of a size shows no scatter.
    fn learn_factor(&mut self, at: usize, ratio: f64) {
        if self.cells[at].batches >= 1.0 {
            self.factor.learn(ratio * (1.0 - 1e-6));
            self.luck.learn(ratio * (1.0 + 1e-6));
        }
    }

    /// Rescales everything by the median of a run of surprises in sizes that were well known.
    fn notice_drift(&mut self, at: usize, ratio: f64) {
        if self.cells[at].batches < CELL_SURE {
            return;
        }
        let same_side = self.run_len == 0 || (self.run[0] > 1.0) == (ratio > 1.0);
        if (ratio - 1.0).abs() <= SURPRISE || !same_side {
            self.run_len = 0;
        }
        if (ratio - 1.0).abs() > SURPRISE {
            self.run[self.run_len] = ratio;
            self.run_len += 1;
        }
        if self.run_len == DRIFT_RUN {
            self.run.sort_unstable_by(f64::total_cmp);
            self.rescale(self.run[DRIFT_RUN / 2]);
        }
    }

    /// All of it may have changed: it is a guess from now on, which the next batches replace.
    pub(crate) fn doubt(&mut self) {
        if self.known() {
            self.rescale(1.0);
        }
    }

    fn rescale(&mut self, ratio: f64) {
        self.run_len = 0;
        for cell in &mut self.cells {
            cell.mean *= ratio;
            cell.batches = cell.batches.min(1.0);
        }
        self.fit.scale(ratio);
        self.slope = self.fit.slope();
        self.blend();
    }

    /// Brings the table up to date: the cell that has learned, and now and then all of them, since
    /// the line moves slowly.
    fn refresh(&mut self, at: usize) {
        if self.batches <= CLIP_AFTER || self.batches.is_multiple_of(WHOLE_EVERY) {
            return self.blend();
        }
        let least = if at == 0 { 1.0 } else { self.table[at - 1] };
        self.table[at] =
            self.cell(at).0.max(least).min(self.table.get(at + 1).map_or(f64::MAX, |it| *it));
    }

    fn blend(&mut self) {
        // Sizes far above all that were seen need no table: the line is as good.
        let end = (floor(self.largest.saturating_mul(4).max(8)) + 2).min(CELLS);
        for at in 0..end {
            let (time, weight) = self.cell(at);
            self.table[at] = time.max(1.0);
            if at > 0 && self.table[at - 1] > self.table[at] {
                self.pool(at, weight);
            }
        }
        self.end = end;
    }

    /// Lets the cells up to this one, of this weight, share a mean where times would fall as sizes grow.
    #[cold]
    fn pool(&mut self, at: usize, weight: f64) {
        let (mut from, mut time, mut weight) = (at, self.table[at], weight);
        while from > 0 && self.table[from - 1] > time {
            let shared = self.table[from - 1];
            while from > 0 && self.table[from - 1] == shared {
                from -= 1;
                let (other, more) = self.cell(from);
                weight += more;
                time += (other.max(1.0) - time) * more / weight;
            }
        }
        self.table[from..=at].fill(time);
    }

    /// Whether a size has not run for long.
    fn forgotten(&self, at: usize) -> bool {
        self.batches - self.cells[at].last > FORGOTTEN
    }

    /// The time of a cell, mixed with the line while the cell has few batches, and what it weighs against
    /// others, in batches.
    fn cell(&self, at: usize) -> (f64, f64) {
        let SizeCell { batches, mean, .. } = self.cells[at];
        let forgotten = self.forgotten(at);
        if batches >= CELL_SURE && !forgotten {
            return (mean, batches);
        }
        let line = self.fit.at(SIZES[at] as f64, self.slope);
        if batches == 0.0 {
            (line, UNSEEN)
        } else if forgotten {
            (mean.min(line), UNSEEN)
        } else {
            ((batches * mean + LINE_WEIGHT * line) / (batches + LINE_WEIGHT), batches)
        }
    }

    // Asking

    /// The expected time of a batch of this size.
    #[inline]
    pub(crate) fn mean(&self, size: u64) -> f64 {
        // Nearly all sizes asked for have a cell of their own.
        match self.table.get((size as usize).wrapping_sub(1)) {
            Some(&mean) if size <= DENSE && (size as usize) < self.end => mean,
            _ => self.mean_between(size),
        }
    }

    fn mean_between(&self, size: u64) -> f64 {
        let at = floor(size);
        if at + 1 >= self.end {
            return self.table[self.end - 1].max(self.fit.at(size as f64, self.slope));
        }
        let below = self.table[at];
        match SIZES.get(at + 1) {
            Some(&next) if size > SIZES[at] => {
                let part = (size - SIZES[at]) as f64 / (next - SIZES[at]) as f64;
                below + part * (self.table[at + 1] - below)
            }
            _ => below,
        }
    }

    /// The largest size worth trying by what was seen.
    pub(crate) fn cap(&self) -> u64 {
        FIRST_CAP.max(self.largest.saturating_mul(GROWTH))
    }

    /// Whether anything was learned.
    pub(crate) fn known(&self) -> bool {
        self.batches > 0
    }

    /// Whether batches of different sizes were seen, so that one can tell what a larger one takes;
    /// or so many of one size that there may be no other.
    pub(crate) fn compared(&self) -> bool {
        self.smallest < self.largest || self.batches >= CLIP_AFTER
    }

    /// Whether one more than this size is known to cost far more than one more elsewhere.
    pub(crate) fn step_above(&self, size: u64) -> bool {
        let at = floor(size);
        let sure = |at: usize| self.cells.get(at).is_some_and(|it| it.batches >= CELL_SURE);
        SIZES[at] == size
            && sure(at)
            && sure(at + 1)
            && SIZES[at + 1] == size + 1
            && self.table[at + 1] - self.table[at] > STEP * self.slope
    }

    /// Size, mean and number of batches of every cell in use.
    pub(crate) fn points(&self) -> impl Iterator<Item = (u64, f64, u32)> + '_ {
        let used = (0..CELLS).filter(|&at| self.cells[at].batches > 0.0);
        used.map(|at| (SIZES[at], self.table[at], self.cells[at].batches as u32))
    }
}

// The sizes that have a cell: all up to 64, then steps of a quarter.

/// Up to here every size has its own cell. Bound: the length of the table follows from it.
const DENSE: u64 = 64;
/// Cells; the last one stands for all sizes from about 2^31 on. Bound: the length of the table.
const CELLS: usize = 144;

/// The size each cell stands for.
static SIZES: [u64; CELLS] = sizes();

const fn sizes() -> [u64; CELLS] {
    let mut sizes = [0; CELLS];
    let mut at = 0;
    while at < CELLS {
        sizes[at] = if at < DENSE as usize { at as u64 + 1 } else { sizes[at - 1] * 5 / 4 };
        at += 1;
    }
    sizes
}

/// The cell of the largest size that is not above this one. No size is below 1.
fn floor(size: u64) -> usize {
    if size <= DENSE {
        return size.max(1) as usize - 1;
    }
    SIZES.partition_point(|&it| it <= size) - 1
}

/// The cell nearest to a size.
fn nearest(size: u64) -> usize {
    let at = floor(size);
    let above = SIZES.get(at + 1).is_some_and(|&next| next - size < size - SIZES[at]);
    at + usize::from(above)
}

// The line is used for sizes that were hardly seen. A ridge towards "half of the time is fixed" keeps it
// sane while all batches have one size, where least squares alone would be singular.

/// Batches that the line remembers. Chosen: eight times what a cell does, since it sees all sizes.
const MEMORY: f64 = 256.0;
/// What the guess that half of the time is fixed weighs against the batches seen. Chosen: little,
/// once sizes differ.
const RIDGE: f64 = 0.05;

/// Running moments of (size, time).
#[derive(Clone, Debug, Default)]
struct LineFit {
    batches: f64,
    size: f64,
    time: f64,
    var: f64,
    cov: f64,
}

impl LineFit {
    /// One more batch.
    fn learn(&mut self, size: f64, time: f64) {
        self.batches += 1.0;
        let share = 1.0 / self.batches.min(MEMORY);
        let (dx, dy) = (size - self.size, time - self.time);
        self.size += share * dx;
        self.time += share * dy;
        self.var = (1.0 - share) * (self.var + share * dx * dx);
        self.cov = (1.0 - share) * (self.cov + share * dx * dy);
    }

    /// All times were and will be this many times as long.
    fn scale(&mut self, ratio: f64) {
        self.time *= ratio;
        self.cov *= ratio;
    }

    /// The time one more unit of size takes.
    fn slope(&self) -> f64 {
        if self.batches == 0.0 {
            return 0.0;
        }
        let whole = self.time / self.size;
        let ridge = RIDGE * self.size * self.size / self.batches.min(MEMORY);
        let slope = (self.cov + ridge * whole / 2.0) / (self.var + ridge);
        slope.clamp(0.0, whole)
    }

    /// The time at a size, by a slope asked for before.
    fn at(&self, size: f64, slope: f64) -> f64 {
        self.time + slope * (size - self.size)
    }
}

/// A tracked quantile.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    /// The estimate.
    pub(crate) value: f64,
    /// Which quantile it is.
    pub(crate) share: f64,
    step: f64,
    least_step: f64,
    /// The estimate never leaves these.
    bounds: (f64, f64),
}

impl Tail {
    /// Tracks the quantile at `share`, from a first guess, with a first and a least step.
    pub(crate) fn new(value: f64, share: f64, steps: (f64, f64), bounds: (f64, f64)) -> Self {
        Self { value, share, step: steps.0, least_step: steps.1, bounds }
    }

    /// One more figure.
    pub(crate) fn learn(&mut self, figure: f64) {
        let above = figure > self.value;
        self.value += self.step * if above { self.share } else { self.share - 1.0 };
        self.value = self.value.max(self.bounds.0).min(self.bounds.1);
        self.step = (self.step * 0.97).max(self.least_step);
    }
}

#[cfg(test)]
#[path = "service/tests.rs"]
mod tests;
