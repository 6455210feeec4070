//! Times as the overview writes them.

use std::time::SystemTime;

/// Milliseconds of Unix time.
pub(super) fn unix_millis() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// A time as RFC 3339 with milliseconds.
pub(super) fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}
