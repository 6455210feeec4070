//! Why requests are rejected, in sentences for the log.

/// Whether the server is well and the request was not.
pub(super) fn is_the_clients_mistake(reason: &str) -> bool {
    matches!(reason, "bad_input" | "too_large")
}

/// The sentence for a reason.
pub(super) fn why(reason: &str, queue_max: u32, answers_per_second: f64) -> String {
    let rate = format!("the model answers about {} requests/s", shown(answers_per_second));
    let why = match reason {
        "queue_full" => format!("the queue of {queue_max} is full; {rate}"),
        "expired" => format!("they waited until their deadline had passed; {rate}"),
        "hopeless" => format!("they could not be answered before their deadline; {rate}"),
        "overload" => format!("the queue holds more than can be answered in time; {rate}"),
        "quota" => "their tenant has used its share".to_owned(),
        "crowded" => "max_request_memory is full".to_owned(),
        "no_worker" => "the model has no worker; scale it up".to_owned(),
        "not_loaded" => "the model could not be loaded; the error is in its own line".to_owned(),
        "loading" => "the model is still loading".to_owned(),
        "poison" => "the same request has made workers exit before".to_owned(),
        "bad_input" => "their input is not valid; each caller is told what is wrong".to_owned(),
        "too_large" => "they are larger than a batch may be".to_owned(),
        other => other.to_owned(),
    };
    format!("requests were rejected: {why}")
}

/// A rate for people: one digit behind the point only where it is small.
fn shown(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

#[cfg(test)]
mod tests {
    use jitney_engine::REJECTIONS;

    use super::*;

    #[test]
    fn every_reason_has_a_sentence() {
        for reason in REJECTIONS.into_iter().filter(|reason| *reason != "draining") {
            let sentence = why(reason, 100, 180.4);
            assert!(!sentence.ends_with(&format!(": {reason}")), "{sentence}");
        }
        assert_eq!(
            why("queue_full", 100, 180.4),
            "requests were rejected: the queue of 100 is full; the model answers about 180 requests/s"
        );
    }
}
