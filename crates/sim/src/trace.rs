//! Recorded arrivals: a table of seconds, or the access log of a server.
//!
//! Only times are taken from a recording. Lines that are not requests for a prediction are left
//! out and counted, so that health checks are not planned for.

use std::fmt;

/// When requests came, in seconds from the first, sorted.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The times.
    pub times: Vec<f64>,
    /// Lines that were left out.
    pub skipped: usize,
}

/// Why a text is no recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoTrace;

impl fmt::Display for NoTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "it has fewer than two requests at different times; a recording is a CSV whose first \
             column (or the one called offset_s) is seconds, or an access log of jitney or TorchServe",
        )
    }
}

impl std::error::Error for NoTrace {}

impl Trace {
    /// Reads a recording of either kind.
    ///
    /// # Errors
    /// There are fewer than two different times in it.
    pub fn parse(text: &str) -> Result<Self, NoTrace> {
        let column = text.lines().next().map_or(0, seconds_column);
        let (mut times, mut skipped) = (Vec::new(), 0);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match logged(line).or_else(|| tabled(line, column)) {
                Some(at) => times.push(at),
                None => skipped += 1,
            }
        }
        times.sort_by(f64::total_cmp);
        let first = times.first().copied().unwrap_or(0.0);
        times.iter_mut().for_each(|at| *at -= first);
        match times.last() {
            Some(&last) if last > 0.0 => Ok(Self { times, skipped }),
            _ => Err(NoTrace),
        }
    }

    /// Requests per second, in the mean.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let span = self.times.last().copied().unwrap_or(0.0);
        (self.times.len() - 1) as f64 / span.max(1e-9)
    }
}

fn seconds_column(header: &str) -> usize {
    let names = ["offset_s", "seconds", "time_s", "timestamp_s", "at_s"];
    header.split(',').position(|field| names.contains(&field.trim())).unwrap_or(0)
}

fn tabled(line: &str, column: usize) -> Option<f64> {
    let at: f64 = line.split(',').nth(column)?.trim().parse().ok()?;
    at.is_finite().then_some(at)
}

/// `2025-01-01T00:00:00,123 - /127.0.0.1:40000 "POST /predictions/noop HTTP/1.1" 200 3`: the time is
/// that of the answer and the last number the milliseconds it took.
fn logged(line: &str) -> Option<f64> {
    let (stamp, rest) = line.split_once(" - ")?;
    let (_, rest) = rest.split_once('"')?;
    let (request, rest) = rest.split_once('"')?;
    let path = request.split(' ').nth(1).unwrap_or(request);
    let asks =
        ["/predictions/", "/infer", "/invocations", "/explanations/", "Predictions", "ModelInfer"];
    asks.iter().any(|part| path.contains(part)).then_some(())?;
    let took: f64 = rest.split_whitespace().last()?.parse().ok()?;
    Some(stamp_seconds(stamp)? - took / 1e3)
}

/// Seconds since an arbitrary day of a stamp such as `2025-01-01T00:00:00,123`.
fn stamp_seconds(stamp: &str) -> Option<f64> {
    let (date, time) = stamp.trim().split_once('T')?;
    let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.split(':').map(|part| part.replace(',', ".").parse::<f64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    Some(days(year, month, day) as f64 * 86_400.0 + hour * 3600.0 + minute * 60.0 + second)
}

/// Days of the civil calendar, counted as Hinnant does.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_gives_its_column_of_seconds() {
        let trace = Trace::parse("tokens,offset_s\n7,3.5\n8,3.0\n9,5.0\n").expect("a trace");
        assert_eq!(trace, Trace { times: vec![0.0, 0.5, 2.0], skipped: 1 });
        assert!((trace.rate() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn an_access_log_gives_the_times_at_which_predictions_arrived() {
        let log = "2025-12-31T23:59:59,900 - /127.0.0.1:1 \"POST /predictions/a HTTP/1.1\" 200 100\n\
                   2025-12-31T23:59:59,950 - /127.0.0.1:1 \"GET /ping HTTP/1.1\" 200 0\n\
                   2026-01-01T00:00:01,000 - /127.0.0.1:2 \"POST /v2/models/a/infer HTTP/1.1\" 200 200\n";
        let trace = Trace::parse(log).expect("a trace");
        assert_eq!(trace.skipped, 1);
        assert!((trace.times[1] - 1.0).abs() < 1e-6, "{trace:?}");
    }

    #[test]
    fn a_text_without_times_is_rejected() {
        for text in ["", "a,b\nc,d\n", "0.0\n0.0\n"] {
            assert_eq!(Trace::parse(text), Err(NoTrace), "{text:?}");
        }
    }
}
