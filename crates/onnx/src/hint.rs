//! Hints in error messages about unknown names: the nearest known name, and the client's own text cut
//! to a length that fits a sentence.

use jitney_engine::local::TensorSpec;

/// The known name nearest to `word`, if it is near enough to have been meant.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = word.chars().count().max(3) / 3;
    known
        .into_iter()
        .map(|name| (strsim::levenshtein(word, name), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// ` (did you mean "x"?)`, or nothing.
pub(super) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default()
}

/// The names of inputs or outputs, as sentences list them.
pub(super) fn names(specs: &[TensorSpec]) -> String {
    specs.iter().map(|spec| format!("{:?}", spec.name)).collect::<Vec<_>>().join(", ")
}

/// A client's words as a sentence may repeat them: a megabyte of nonsense is cut short.
pub(super) fn clip(words: &str) -> String {
    const LENGTH_MAX: usize = 200;
    match words.char_indices().nth(LENGTH_MAX) {
        Some((end, _)) => format!("{}...", &words[..end]),
        None => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_are_cut_between_letters() {
        assert_eq!(clip("short"), "short");
        assert_eq!(clip(&"ä".repeat(1000)), "ä".repeat(200) + "...");
    }

    #[test]
    fn a_typo_finds_its_word_and_a_stranger_finds_none() {
        let known = ["name", "version", "max_batch_size"];
        assert_eq!(nearest("max_batchsize", known), Some("max_batch_size"));
        assert_eq!(nearest("versoin", known), Some("version"));
        assert_eq!(nearest("colour", known), None);
    }
}
