//! Times as the overview writes them.

use std::time::SystemTime;

/// Milliseconds of Unix time.
pub(super) fn unix_millis() -> u64 {
    since_1970(SystemTime::now())
}

/// The same of a time as [`rfc3339`] writes it; 0 if it is none.
pub(super) fn millis_of(text: &str) -> u64 {
    humantime::parse_rfc3339(text).map_or(0, since_1970)
}

fn since_1970(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A time as RFC 3339 with milliseconds.
pub(super) fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}
