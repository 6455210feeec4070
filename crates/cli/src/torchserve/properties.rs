//! `config.properties` as Java reads it, with `$$NAME$$` replaced from the environment. Which keys
//! exist is not known here.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use java_properties::{LineContent, PropertiesIter};

use crate::env::Env;
use crate::failure::Failure;

/// One entry of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// The key.
    pub key: String,
    /// The value, escapes and variables resolved.
    pub value: String,
    /// Where it stands, for complaints.
    pub line: usize,
    /// The file it stands in.
    pub file: Arc<Path>,
}

/// Reads the file.
pub fn read(path: &Path, env: &Env) -> Result<Vec<Property>, Failure> {
    let bytes = std::fs::read(path)
        .map_err(|error| Failure::failed(format!("cannot read {}: {error}", path.display())))?;
    let properties = parse(&bytes, env).map_err(|failure| Failure {
        message: format!("{}: {}", path.display(), failure.message),
        ..failure
    })?;
    let file: Arc<Path> = path.into();
    Ok(properties.into_iter().map(|one| Property { file: Arc::clone(&file), ..one }).collect())
}

/// Reads the file's bytes.
pub fn parse(bytes: &[u8], env: &Env) -> Result<Vec<Property>, Failure> {
    let mut properties = Vec::new();
    let file: Arc<Path> = Path::new("").into();
    if bytes.starts_with(b"\xfe\xff") || bytes.starts_with(b"\xff\xfe") {
        return Err(Failure::failed("the file is in UTF-16; save it as UTF-8".to_owned()));
    }
    // The reader panics on a file that ends within the first bytes of a byte order mark.
    for line in PropertiesIter::new(bytes.chain(b"\n".as_slice())) {
        let line = line.map_err(|error| Failure::failed(error.to_string()))?;
        let number = line.line_number();
        if let LineContent::KVPair(key, value) = line.consume_content() {
            let value = substitute(value.trim(), env)?;
            properties.push(Property { key, value, line: number, file: Arc::clone(&file) });
        }
    }
    Ok(properties)
}

/// Replaces every `$$NAME$$`; a name that is not set stops the start, as upstream.
fn substitute(value: &str, env: &Env) -> Result<String, Failure> {
    let mut result = String::with_capacity(value.len());
    let mut rest = value;
    while let Some((before, name, after)) = next_variable(rest) {
        let text = env
            .text(name)
            .ok_or_else(|| Failure::failed(format!("Invalid Environment Variable {name}")))?;
        result.push_str(before);
        result.push_str(text);
        rest = after;
    }
    result.push_str(rest);
    Ok(result)
}

/// The text before the next variable, its name, the text after it. Names are `\w+`; `$$` around
/// anything else stays as it is.
fn next_variable(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    while let Some(start) = text[from..].find("$$").map(|at| from + at) {
        let inside = &text[start + 2..];
        let length = inside.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        if length > 0 && inside[length..].starts_with("$$") {
            return Some((&text[..start], &inside[..length], &inside[length + 2..]));
        }
        from = start + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, &str)]) {
        let env = Env::from([("PORT", "9"), ("HOST_NAME", "h")]);
        let read = parse(text.as_bytes(), &env).expect("reads");
        let pairs: Vec<_> = read.iter().map(|p| (p.key.as_str(), p.value.as_str())).collect();
        assert_eq!(pairs, expected, "{text}");
    }

    #[test]
    fn the_file_is_read_as_java_reads_it() {
        check("# note\n! note\n   a = 1\nb: 2\nc  3\n", &[("a", "1"), ("b", "2"), ("c", "3")]);
        check("a=https\\://x\\u0041\n", &[("a", "https://xA")]);
        check("a=GET, \\\n    POST\nb=\n", &[("a", "GET, POST"), ("b", "")]);
        check("m={\\\n  \"one\": {\\\n  }\\\n}\n", &[("m", "{\"one\": {}}")]);
    }

    #[test]
    fn half_a_byte_order_mark_is_a_key() {
        for text in [&b"\xff"[..], b"\xef\xbb", b"\xfe"] {
            assert_eq!(parse(text, &Env::default()).expect("reads").len(), 1, "{text:?}");
        }
        check("a=b\\", &[("a", "b")]);
        let why = parse(b"\xfe\xff\xff\xff\nk", &Env::default()).expect_err("another encoding");
        assert!(why.message.contains("UTF-16"), "{}", why.message);
    }

    #[test]
    fn variables_are_replaced_wherever_they_stand() {
        check("a=http://$$HOST_NAME$$:$$PORT$$/\n", &[("a", "http://h:9/")]);
        check("a=$$ $$PORT$$ $$\n", &[("a", "$$ 9 $$")]);
    }

    #[test]
    fn a_missing_variable_stops_the_start() {
        let failure = parse(b"a=$$NOT_SET$$", &Env::default()).expect_err("refused");
        assert_eq!(failure.message, "Invalid Environment Variable NOT_SET");
        assert_eq!(failure.code, 1);
    }
}
