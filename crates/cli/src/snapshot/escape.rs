//! A property as Java's `Properties.store` writes it, escape by escape: scripts edit these files.

use std::fmt::Write as _;

/// Appends `key=value`.
pub fn line(text: &mut String, key: &str, value: &str) {
    key.chars().for_each(|letter| escaped(text, letter, true));
    text.push('=');
    for (at, letter) in value.chars().enumerate() {
        escaped(text, letter, at == 0);
    }
    text.push('\n');
}

/// In a value only a space at the beginning needs a backslash.
fn escaped(text: &mut String, letter: char, space_too: bool) {
    match letter {
        ' ' if space_too => text.push_str("\\ "),
        '\t' => text.push_str("\\t"),
        '\n' => text.push_str("\\n"),
        '\r' => text.push_str("\\r"),
        '\x0c' => text.push_str("\\f"),
        '\\' | '=' | ':' | '#' | '!' => text.extend(['\\', letter]),
        ' '..='~' => text.push(letter),
        other => other.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\u{unit:04X}");
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Env;
    use crate::torchserve::properties::parse;

    #[test]
    fn every_value_is_written_as_java_does_and_read_back_as_it_was() {
        for (value, written) in [
            ("http://127.0.0.1:8080", "http\\://127.0.0.1\\:8080"),
            ("  two words", "\\  two words"),
            ("{\n  \"a\": 1\n}", "{\\n  \"a\"\\: 1\\n}"),
            ("a=b#c!d\\e\tf", "a\\=b\\#c\\!d\\\\e\\tf"),
            ("ü😀\x01", "\\u00FC\\uD83D\\uDE00\\u0001"),
            ("", ""),
        ] {
            let mut text = String::new();
            line(&mut text, "k y", value);
            assert_eq!(text, format!("k\\ y={written}\n"));
            if !value.starts_with(' ') && !value.contains('😀') {
                let read = parse(text.as_bytes(), &Env::default()).expect("reads");
                assert_eq!((read[0].key.as_str(), read[0].value.as_str()), ("k y", value));
            }
        }
    }

    /// As the fuzz target `properties` looks at any bytes.
    #[test]
    fn the_corpus_is_read_back_as_it_was() {
        let pairs = |bytes: &[u8]| {
            let read = parse(bytes, &Env::from([("HOME", "/home/user")])).ok()?;
            // A snapshot writes what is in force, so variables are no part of it.
            let kept = read.into_iter().filter(|one| !one.value.contains("$$"));
            Some(kept.map(|one| (one.key, one.value)).collect::<Vec<_>>())
        };
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/properties");
        for file in std::fs::read_dir(corpus).expect("a corpus") {
            let bytes = std::fs::read(file.expect("a file").path()).expect("reads");
            let Some(read) = pairs(&bytes) else { continue };
            let mut text = String::new();
            read.iter().for_each(|(key, value)| line(&mut text, key, value));
            assert_eq!(pairs(text.as_bytes()), Some(read), "{text}");
        }
    }
}
