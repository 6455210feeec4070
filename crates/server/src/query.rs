//! Fields of a query, a form or a small JSON object, read by TorchServe's rules.
//!
//! The rules are Java's: the first of repeated keys counts, a number that cannot be read counts as
//! absent, and only `true` is true. All endpoints use them.

mod lenient;

use std::borrow::Cow;

use percent_encoding::percent_decode;
use serde_json::{Number, Value};

/// Named texts in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFields {
    fields: Vec<(String, String)>,
}

impl RequestFields {
    /// Reads `a=1&b=two+words`.
    pub fn from_query(query: Option<&str>) -> Self {
        let pairs = pairs(query.unwrap_or("").as_bytes());
        let text = |part: Cow<'_, [u8]>| String::from_utf8_lossy(&part).into_owned();
        Self { fields: pairs.map(|(name, value)| (text(name), text(value))).collect() }
    }

    /// Reads a JSON object of plain values, whose quotes may be single ones or missing.
    ///
    /// # Errors
    /// A sentence for the client when it is no such object.
    pub fn from_json(body: &[u8]) -> Result<Self, String> {
        let value: Value = match serde_json::from_slice(body) {
            Ok(value) => value,
            Err(error) => {
                let fields = lenient::object(body);
                let wrong = || format!("The request body is not valid JSON: {error}");
                return fields.map(|fields| Self { fields }).ok_or_else(wrong);
            }
        };
        let Value::Object(object) = value else {
            return Err("The request body must be a JSON object.".to_owned());
        };
        let mut fields = Vec::with_capacity(object.len());
        for (name, value) in object {
            match value {
                Value::Null => {}
                Value::Bool(flag) => fields.push((name, flag.to_string())),
                Value::Number(number) => fields.push((name, plain(&number))),
                Value::String(text) => fields.push((name, text)),
                Value::Array(_) | Value::Object(_) => {
                    return Err(format!("Parameter {name} must be a plain value."));
                }
            }
        }
        Ok(Self { fields })
    }

    /// The first value of this name.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A 32-bit number; absent when it cannot be read as one.
    pub fn integer(&self, name: &str) -> Option<i32> {
        self.text(name)?.parse().ok()
    }

    /// Java's `parseBoolean`; `default` only when the field is absent.
    pub fn boolean(&self, name: &str, default: bool) -> bool {
        self.text(name).map_or(default, |value| value.eq_ignore_ascii_case("true"))
    }

    /// All values of this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.iter().filter(move |(known, _)| *known == name).map(|(_, value)| value)
    }

    /// All fields, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// A number as a query would spell it: `4.0` is the whole number 4.
fn plain(number: &Number) -> String {
    let float = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0);
    float.map_or_else(|| number.to_string(), |whole| format!("{whole:.0}"))
}

/// The decoded names and values of url-encoded text; a field without `=` has an empty value.
pub(crate) fn pairs(encoded: &[u8]) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
    encoded.split(|byte| *byte == b'&').filter(|field| !field.is_empty()).map(|field| {
        let middle = field.iter().position(|byte| *byte == b'=').unwrap_or(field.len());
        let value = field.get(middle + 1..).unwrap_or_default();
        (decoded(&field[..middle]), decoded(value))
    })
}

fn decoded(part: &[u8]) -> Cow<'_, [u8]> {
    if part.contains(&b'+') {
        let spaced: Vec<u8> =
            part.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
        return Cow::Owned(percent_decode(&spaced).collect());
    }
    percent_decode(part).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(query: &str) -> RequestFields {
        RequestFields::from_query(Some(query))
    }

    #[test]
    fn a_query_is_decoded_and_its_first_value_counts() {
        let fields = fields("a=1&b=two+words&b=no&c=%2Fx%3D%26&flag&=empty&&d=a=b");
        assert_eq!(fields.text("a"), Some("1"));
        assert_eq!(fields.text("b"), Some("two words"));
        assert_eq!(fields.all("b").collect::<Vec<_>>(), ["two words", "no"]);
        assert_eq!(fields.text("c"), Some("/x=&"));
        assert_eq!(fields.text("flag"), Some(""));
        assert_eq!(fields.text("d"), Some("a=b"));
        assert_eq!(fields.text("absent"), None);
        assert_eq!(RequestFields::from_query(None), RequestFields::default());
    }

    #[test]
    fn numbers_that_cannot_be_read_are_absent() {
        let cases = [
            ("3", Some(3)),
            ("-1", Some(-1)),
            ("+4", Some(4)),
            ("many", None),
            ("1.5", None),
            ("99999999999", None),
            ("", None),
            (" 1", None),
        ];
        for (text, expected) in cases {
            let fields = RequestFields { fields: vec![("n".to_owned(), text.to_owned())] };
            assert_eq!(fields.integer("n"), expected, "{text:?}");
        }
    }

    #[test]
    fn only_true_is_true() {
        for (query, expected) in [
            ("s=true", true),
            ("s=TRUE", true),
            ("s=1", false),
            ("s=no", false),
            ("s=", false),
            ("s", false),
            ("", true),
        ] {
            assert_eq!(fields(query).boolean("s", true), expected, "{query}");
        }
    }

    #[test]
    fn a_json_object_reads_like_a_query() {
        let json = br#"{"url": "a.mar", "batch_size": 3, "synchronous": false, "handler": null}"#;
        let fields = RequestFields::from_json(json).unwrap();
        assert_eq!(fields.text("url"), Some("a.mar"));
        assert_eq!(fields.integer("batch_size"), Some(3));
        let floats = RequestFields::from_json(br#"{"batch_size": 4.0, "limit": 4.5}"#).unwrap();
        assert_eq!((floats.integer("batch_size"), floats.integer("limit")), (Some(4), None));
        assert!(!fields.boolean("synchronous", true));
        assert_eq!(fields.text("handler"), None);
    }

    #[test]
    fn other_json_is_refused() {
        for json in ["", "{", "[1]", "\"x\"", r#"{"a": [1]}"#, r#"{"a": {}}"#] {
            assert!(RequestFields::from_json(json.as_bytes()).is_err(), "{json}");
        }
    }
}
