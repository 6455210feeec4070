//! An answer's timing as a `Server-Timing` header (over gRPC a trailer), which browsers and proxies
//! already understand.

use std::fmt::Write;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use jitney_engine::call::{Padding, Timing};

/// The header's name.
pub(crate) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Batches of one request whose sizes are listed.
const BATCHES_LISTED: usize = 8;

/// For example `queue;dur=1.804, compute;dur=5.210, batch;desc="8 of 32, idle"`: waited 1.8 ms,
/// ran 5.2 ms, in a batch of 8 items of at most 32 that was dispatched because a worker was idle. For a
/// request in several batches it names the last one and the sizes of all:
/// `batch;desc="6 of 32, idle, last of 3: 32 32 6"`. Where items are padded it has the share of
/// padding: `batch;desc="8 of 32, idle, 12% padding"`.
pub(crate) fn header(timing: &Timing) -> HeaderValue {
    let mut text = String::with_capacity(96);
    text.push_str("queue;dur=");
    push_millis(&mut text, timing.queue);
    text.push_str(", compute;dur=");
    push_millis(&mut text, timing.compute);
    let Timing { batch_items, batch_items_max, reason, attempt, .. } = timing;
    let _ = write!(text, ", batch;desc=\"{batch_items} of {batch_items_max}, {}", reason.as_str());
    if *attempt > 1 {
        let _ = write!(text, ", attempt {attempt}");
    }
    push_batches(&mut text, &timing.batches);
    push_padding(&mut text, timing.padding);
    text.push('"');
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

/// The sizes of the batches of a request in parts, the first ones if there are many.
fn push_batches(text: &mut String, batches: &[u32]) {
    if batches.is_empty() {
        return;
    }
    let _ = write!(text, ", last of {}:", batches.len());
    for items in batches.iter().take(BATCHES_LISTED) {
        let _ = write!(text, " {items}");
    }
    if batches.len() > BATCHES_LISTED {
        text.push_str(" ...");
    }
}

/// How much of a padded batch was padding.
fn push_padding(text: &mut String, padding: Option<Padding>) {
    if let Some(padding) = padding {
        let _ = write!(text, ", {:.0}% padding", 100.0 * padding.waste());
    }
}

/// Milliseconds with microseconds behind the point.
fn push_millis(text: &mut String, duration: Duration) {
    let micros = duration.as_micros();
    let _ = write!(text, "{}.{:03}", micros / 1000, micros % 1000);
}

#[cfg(test)]
mod tests {
    use super::*;
    use jitney_engine::DispatchReason;

    #[test]
    fn a_timing_fits_into_one_header() {
        let mut timing = Timing {
            queue: Duration::from_micros(1804),
            compute: Duration::from_micros(5_210),
            batch_items: 8,
            batch_items_max: 32,
            position: 3,
            reason: DispatchReason::Idle,
            attempt: 1,
            batch: 7,
            batches: Vec::new(),
            padding: None,
        };
        let expected = "queue;dur=1.804, compute;dur=5.210, batch;desc=\"8 of 32, idle\"";
        assert_eq!(header(&timing), expected);
        timing.attempt = 2;
        timing.reason = DispatchReason::Retry;
        timing.compute = Duration::from_nanos(999);
        let expected =
            "queue;dur=1.804, compute;dur=0.000, batch;desc=\"8 of 32, retry, attempt 2\"";
        assert_eq!(header(&timing), expected);
    }

    #[test]
    fn a_padded_batch_tells_how_much_of_it_is_padding() {
        let text_of = |real, padded| {
            let mut text = String::new();
            push_padding(&mut text, Some(Padding { real, padded }));
            text
        };
        assert_eq!([text_of(180, 200), text_of(7, 7)], [", 10% padding", ", 0% padding"]);
    }

    #[test]
    fn a_request_in_parts_is_told_the_sizes_of_its_batches() {
        let text_of = |batches: &[u32]| {
            let mut text = String::new();
            push_batches(&mut text, batches);
            text
        };
        assert_eq!(text_of(&[]), "");
        assert_eq!(text_of(&[32, 32, 6]), ", last of 3: 32 32 6");
        assert_eq!(text_of(&[4; 9]), ", last of 9: 4 4 4 4 4 4 4 4 ...");
    }
}
