//! The unit in which a time is set.

use std::time::Duration;

/// The longest time that can be set; longer ones make no sense to any clock.
const SECONDS_MAX: f64 = 1e10;

/// What a bare number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Milliseconds.
    Millis,
    /// Seconds.
    Seconds,
    /// Seconds; a part of a second counts as a whole one.
    WholeSeconds,
    /// Minutes.
    Minutes,
}

impl TimeUnit {
    pub(crate) fn seconds(self) -> f64 {
        match self {
            Self::Millis => 1e-3,
            Self::Seconds | Self::WholeSeconds => 1.0,
            Self::Minutes => 60.0,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Millis => "milliseconds",
            Self::Seconds | Self::WholeSeconds => "seconds",
            Self::Minutes => "minutes",
        }
    }

    /// Reads a number of this unit, or a time such as `10ms`.
    pub(crate) fn parse(self, text: &str) -> Option<Duration> {
        if let Ok(number) = text.parse() {
            return self.of(number);
        }
        let time = humantime::parse_duration(text).ok()?;
        (time.as_secs_f64() <= SECONDS_MAX).then(|| self.rounded(time))
    }

    pub(crate) fn of(self, number: f64) -> Option<Duration> {
        let seconds = number * self.seconds();
        let fits = number >= 0.0 && seconds <= SECONDS_MAX;
        let time = fits.then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()?;
        Some(self.rounded(time))
    }

    /// Whole seconds are rounded up, so that a timeout never becomes zero.
    fn rounded(self, time: Duration) -> Duration {
        match self {
            Self::WholeSeconds if time.subsec_nanos() > 0 => {
                Duration::from_secs(time.as_secs() + 1)
            }
            Self::Millis | Self::Seconds | Self::WholeSeconds | Self::Minutes => time,
        }
    }

    pub(crate) fn show(self, time: Duration) -> String {
        let number = match self {
            Self::Millis => time.as_nanos() as f64 / 1e6,
            Self::Seconds | Self::WholeSeconds | Self::Minutes => {
                time.as_secs_f64() / self.seconds()
            }
        };
        number.to_string()
    }
}
