//! "Did you mean …?": the known name closest to one that is not known.

/// The known name most like `word`, if any is like it at all.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let scored =
        known.into_iter().map(|name| (strsim::jaro_winkler(&word, &name.to_lowercase()), name));
    scored
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// The hint that goes with an unknown name.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(word, known).map(|name| format!("did you mean `{name}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["job_queue_size", "model_store", "load_models", "max_request_size"];

    #[test]
    fn a_slip_of_the_finger_is_recognised() {
        for (typed, meant) in [
            ("jobqueue_size", "job_queue_size"),
            ("model_stroe", "model_store"),
            ("LOAD_MODEL", "load_models"),
            ("max_requests_size", "max_request_size"),
        ] {
            assert_eq!(nearest(typed, KNOWN), Some(meant), "{typed}");
        }
    }

    #[test]
    fn nothing_is_suggested_for_nonsense() {
        assert_eq!(nearest("zzz", KNOWN), None);
    }
}
