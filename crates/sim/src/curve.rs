//! How long a worker takes for a batch of each size.
//!
//! Always a table with one time per size, whatever it was made from, so that every policy, bound
//! and plan reads the same numbers. People write it as `5+0.2b`, or as a table of sizes and
//! milliseconds. Chance is added elsewhere (`noise`).

use std::fmt;
use std::str::FromStr;

use jitney_batcher::Nanos;

/// Nanoseconds in a millisecond.
pub const MS: f64 = 1e6;

/// Milliseconds as nanoseconds.
#[must_use]
pub fn ms(ms: f64) -> Nanos {
    (ms * MS).round() as Nanos
}

/// Service times of batches of 1 to [`ServiceCurve::max`] items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceCurve(Vec<Nanos>);

impl ServiceCurve {
    /// A fixed part and a part per item, in milliseconds.
    #[must_use]
    pub fn affine(fixed: f64, per_item: f64, max: usize) -> Self {
        Self::from_fn(max, |size| fixed + per_item * size as f64)
    }

    /// Batches are padded to multiples of `step`; flat up to `flat` items, then a part per item.
    #[must_use]
    pub fn stepped(fixed: f64, per_item: f64, step: usize, flat: usize, max: usize) -> Self {
        Self::from_fn(max, |size| {
            let padded = size.div_ceil(step.max(1)) * step.max(1);
            fixed + per_item * padded.saturating_sub(flat) as f64
        })
    }

    /// One time in milliseconds for every size, from a function of the size.
    #[must_use]
    pub fn from_fn(max: usize, time: impl Fn(usize) -> f64) -> Self {
        Self((1..=max.max(1)).map(|size| ms(time(size)).max(1)).collect())
    }

    /// The largest batch.
    #[must_use]
    pub fn max(&self) -> usize {
        self.0.len()
    }

    /// The time of a batch of `size`; a size beyond the table costs as many whole batches more.
    #[must_use]
    pub fn time(&self, size: usize) -> Nanos {
        match self.0.get(size.saturating_sub(1)) {
            Some(&time) => time,
            None => self.0[self.max() - 1] + self.time(size - self.max()),
        }
    }

    /// The same curve with a smaller largest batch.
    #[must_use]
    pub fn capped(&self, max: usize) -> Self {
        Self(self.0[..max.clamp(1, self.max())].to_vec())
    }

    /// Items per second of `workers` workers that run full batches only.
    #[must_use]
    pub fn capacity(&self, workers: usize) -> f64 {
        let best = (1..=self.max()).map(|size| size as f64 / self.time(size) as f64);
        best.fold(0.0, f64::max) * workers as f64 * 1e9
    }
}

/// A curve without its largest batch.
#[derive(Clone, Debug, PartialEq)]
pub enum WrittenCurve {
    /// A fixed part and a part per item, in milliseconds.
    Line {
        /// Milliseconds per batch.
        fixed: f64,
        /// Milliseconds per item.
        per_item: f64,
    },
    /// Measured sizes and milliseconds, ascending in size, at least one.
    Points(Vec<(usize, f64)>),
}

/// Why a text is no curve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoCurve {
    /// Not of the form `5+0.2b`.
    Line(String),
    /// A line of a table that is not `size,ms`.
    Row(usize),
    /// A table without rows.
    Empty,
    /// A time that is not above zero, or not a number.
    Time,
    /// The same size twice, or size 0.
    Size(usize),
}

impl fmt::Display for NoCurve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(text) => {
                write!(
                    f,
                    "{text:?} is not a curve; write milliseconds per batch and per item, as 5+0.2b"
                )
            }
            Self::Row(line) => write!(f, "line {line} is not of the form size,ms"),
            Self::Empty => {
                write!(f, "there are no sizes in it; a table has lines of the form size,ms")
            }
            Self::Time => write!(f, "a batch must take a time above zero"),
            Self::Size(size) => write!(f, "size {size} cannot be there, or not twice"),
        }
    }
}

impl std::error::Error for NoCurve {}

impl WrittenCurve {
    /// A table from its points, in any order.
    ///
    /// # Errors
    /// There are none, sizes repeat, or a time is not above zero.
    pub fn points(mut points: Vec<(usize, f64)>) -> Result<Self, NoCurve> {
        points.sort_by_key(|&(size, _)| size);
        let twice = points.windows(2).find(|pair| pair[0].0 == pair[1].0).map(|pair| pair[0].0);
        let zero = points.first().filter(|&&(size, _)| size == 0).map(|_| 0);
        if let Some(size) = twice.or(zero) {
            return Err(NoCurve::Size(size));
        }
        if points.is_empty() {
            return Err(NoCurve::Empty);
        }
        let good = points.iter().all(|&(_, ms)| ms > 0.0 && ms.is_finite());
        good.then_some(Self::Points(points)).ok_or(NoCurve::Time)
    }

    /// A table of `size,ms` lines; a first line of words and empty lines are skipped.
    ///
    /// # Errors
    /// A line cannot be read, or the points make no curve.
    pub fn csv(text: &str) -> Result<Self, NoCurve> {
        let mut points = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let mut fields = line.split([',', ';', '\t']).map(str::trim);
            let size = fields.next().and_then(|field| field.parse().ok());
            let ms = fields.next().and_then(|field| field.parse().ok());
            match (size, ms) {
                (Some(size), Some(ms)) => points.push((size, ms)),
                _ if line.trim().is_empty() || line.starts_with('#') || at == 0 => {}
                _ => return Err(NoCurve::Row(at + 1)),
            }
        }
        Self::points(points)
    }

    /// The largest size that was measured, if any was.
    #[must_use]
    pub fn largest(&self) -> Option<usize> {
        match self {
            Self::Line { .. } => None,
            Self::Points(points) => points.last().map(|&(size, _)| size),
        }
    }

    /// The times of all sizes up to `max`: measured, between two measured ones, or continued.
    #[must_use]
    pub fn curve(&self, max: usize) -> ServiceCurve {
        match self {
            Self::Line { fixed, per_item } => ServiceCurve::affine(*fixed, *per_item, max),
            Self::Points(points) => ServiceCurve::from_fn(max, |size| between(points, size)),
        }
    }
}

/// Straight lines between the points; beyond them the nearest line goes on, never below the last
/// point to the right or a proportional share to the left.
fn between(points: &[(usize, f64)], size: usize) -> f64 {
    let right = points.partition_point(|&(at, _)| at < size);
    match (right.checked_sub(1).map(|at| points[at]), points.get(right).copied()) {
        (_, Some((at, ms))) if at == size => ms,
        (Some(left), Some(right)) => on_line(left, right, size),
        (None, Some(first)) => match points.get(1) {
            Some(&second) => on_line(first, second, size).clamp(first.1 / first.0 as f64, first.1),
            None => first.1,
        },
        (Some(last), None) => match points.len() {
            1 => last.1 * size as f64 / last.0 as f64,
            n => on_line(points[n - 2], last, size).max(last.1),
        },
        (None, None) => 0.0,
    }
}

fn on_line((x0, y0): (usize, f64), (x1, y1): (usize, f64), size: usize) -> f64 {
    y0 + (y1 - y0) * (size as f64 - x0 as f64) / (x1 as f64 - x0 as f64)
}

impl FromStr for WrittenCurve {
    type Err = NoCurve;

    /// `5+0.2b`, `5 + 0.2 b`, `5`, `0.2b`; an `ms` behind a number is understood.
    fn from_str(text: &str) -> Result<Self, NoCurve> {
        let bad = || NoCurve::Line(text.to_owned());
        let plain = text.replace("ms", "").replace([' ', '*'], "");
        let (mut fixed, mut per_item) = (None, None);
        for part in plain.split('+') {
            let (place, number) = match part.strip_suffix('b') {
                Some(number) => (&mut per_item, number),
                None => (&mut fixed, part),
            };
            let number: f64 = number.parse().map_err(|_| bad())?;
            if place.replace(number).is_some() || number < 0.0 || !number.is_finite() {
                return Err(bad());
            }
        }
        let (fixed, per_item) = (fixed.unwrap_or(0.0), per_item.unwrap_or(0.0));
        if fixed + per_item > 0.0 { Ok(Self::Line { fixed, per_item }) } else { Err(NoCurve::Time) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_affine_curve_is_a_line() {
        let curve = ServiceCurve::affine(5.0, 0.2, 4);
        assert_eq!(
            (1..=4).map(|b| curve.time(b)).collect::<Vec<_>>(),
            [5_200_000, 5_400_000, 5_600_000, 5_800_000]
        );
    }

    #[test]
    fn a_stepped_curve_is_flat_between_its_steps() {
        let curve = ServiceCurve::stepped(3.0, 0.11, 8, 16, 64);
        assert_eq!(curve.time(1), curve.time(16));
        assert_eq!(curve.time(17), curve.time(24));
        assert_eq!(curve.time(24) - curve.time(16), ms(0.88));
    }

    #[test]
    fn capacity_is_that_of_the_most_efficient_size() {
        assert!((ServiceCurve::affine(1.0, 1.0, 9).capacity(2) - 1800.0).abs() < 1e-6);
    }

    fn check(text: &str, fixed: f64, per_item: f64) {
        assert_eq!(text.parse(), Ok(WrittenCurve::Line { fixed, per_item }), "{text}");
    }

    #[test]
    fn a_line_is_read_as_people_write_it() {
        check("5+0.2b", 5.0, 0.2);
        check("5ms + 0.2ms b", 5.0, 0.2);
        check("0.5*b+3", 3.0, 0.5);
        check("20", 20.0, 0.0);
    }

    #[test]
    fn what_is_no_line_says_how_to_write_one() {
        for text in ["", "b", "5+0.2c", "5+6", "1b+2b", "-5+1b", "nan+1b"] {
            let error = text.parse::<WrittenCurve>().expect_err(text);
            assert!(error.to_string().contains("5+0.2b"), "{text}: {error}");
        }
        assert_eq!("0+0b".parse::<WrittenCurve>(), Err(NoCurve::Time));
    }

    #[test]
    fn a_table_is_interpolated_between_and_continued_beyond_its_sizes() {
        let curve = WrittenCurve::csv("size,ms\n2,10\n4,12\n8,20\n").expect("a table").curve(16);
        let ms = |size| curve.time(size) as f64 / 1e6;
        assert_eq!(
            (ms(1), ms(2), ms(3), ms(4), ms(6), ms(8), ms(16)),
            (9.0, 10.0, 11.0, 12.0, 16.0, 20.0, 36.0)
        );
    }

    #[test]
    fn a_table_that_cannot_be_right_is_rejected() {
        assert_eq!(WrittenCurve::csv("size,ms\n1,2\nx,3\n"), Err(NoCurve::Row(3)));
        assert_eq!(WrittenCurve::csv("size,ms\n"), Err(NoCurve::Empty));
        assert_eq!(WrittenCurve::csv("1,2\n1,3\n"), Err(NoCurve::Size(1)));
        assert_eq!(WrittenCurve::csv("1,0\n"), Err(NoCurve::Time));
    }
}
