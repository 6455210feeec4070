//! An answer's timing as a `Server-Timing` header (over gRPC a trailer), which browsers and proxies
//! already understand.

use std::io::Write;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use jitney_engine::call::{Padding, Timing};
use jitney_net::{push_number, push_thousandths};

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
    let mut text = Vec::with_capacity(128);
    text.extend_from_slice(b"queue;dur=");
    push_millis(&mut text, timing.queue);
    text.extend_from_slice(b", compute;dur=");
    push_millis(&mut text, timing.compute);
    text.extend_from_slice(b", batch;desc=\"");
    push_number(&mut text, timing.batch_items.into());
    text.extend_from_slice(b" of ");
    push_number(&mut text, timing.batch_items_max.into());
    text.extend_from_slice(b", ");
    text.extend_from_slice(timing.reason.as_str().as_bytes());
    if timing.attempt > 1 {
        let _ = write!(text, ", attempt {}", timing.attempt);
    }
    push_batches(&mut text, &timing.batches);
    push_padding(&mut text, timing.padding);
    text.push(b'"');
    HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static(""))
}

/// The sizes of the batches of a request in parts, the first ones if there are many.
fn push_batches(text: &mut Vec<u8>, batches: &[u32]) {
    if batches.is_empty() {
        return;
    }
    let _ = write!(text, ", last of {}:", batches.len());
    for items in batches.iter().take(BATCHES_LISTED) {
        let _ = write!(text, " {items}");
    }
    if batches.len() > BATCHES_LISTED {
        text.extend_from_slice(b" ...");
    }
}

/// How much of a padded batch was padding.
fn push_padding(text: &mut Vec<u8>, padding: Option<Padding>) {
    if let Some(padding) = padding {
        let _ = write!(text, ", {:.0}% padding", 100.0 * padding.waste());
    }
}

/// Milliseconds with microseconds behind the point.
fn push_millis(text: &mut Vec<u8>, duration: Duration) {
    let micros = duration.as_micros() as u64;
    push_number(text, micros / 1000);
    text.push(b'.');
    push_thousandths(text, (micros % 1000) as u32);
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
            let mut text = Vec::new();
            push_padding(&mut text, Some(Padding { real, padded }));
            String::from_utf8(text).unwrap()
        };
        assert_eq!([text_of(180, 200), text_of(7, 7)], [", 10% padding", ", 0% padding"]);
    }

    #[test]
    fn a_request_in_parts_is_told_the_sizes_of_its_batches() {
        let text_of = |batches: &[u32]| {
            let mut text = Vec::new();
            push_batches(&mut text, batches);
            String::from_utf8(text).unwrap()
        };
        assert_eq!(text_of(&[]), "");
        assert_eq!(text_of(&[32, 32, 6]), ", last of 3: 32 32 6");
        assert_eq!(text_of(&[4; 9]), ", last of 9: 4 4 4 4 4 4 4 4 ...");
    }
}
