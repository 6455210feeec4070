//! Lists of names and values in variables, `name=value,name=value`: headers for the collector, and what is known
//! of the server.

use percent_encoding::percent_decode_str;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::env::Env;

/// The headers that the collector asks for, such as a key. What is no header is left out with a remark, which
/// does not repeat its value.
pub fn read(env: &Env, remarks: &mut Vec<String>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for variable in ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"] {
        for (name, value) in pairs(env.text(variable).unwrap_or_default()) {
            match (name.parse::<HeaderName>(), HeaderValue::from_str(&value)) {
                (Ok(name), Ok(mut value)) => {
                    value.set_sensitive(true);
                    headers.insert(name, value);
                }
                _ => remarks.push(format!("{variable}: {name:?} is no header, left out")),
            }
        }
    }
    headers
}

/// The pairs of a list; values may be percent-encoded.
pub fn pairs(list: &str) -> Vec<(String, String)> {
    let pairs = list.split(',').filter_map(|pair| pair.split_once('='));
    let decoded = |text: &str| percent_decode_str(text.trim()).decode_utf8_lossy().into_owned();
    pairs.map(|(name, value)| (name.trim().to_owned(), decoded(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_a_list_with_encoded_values() {
        let list = "Authorization=Basic%20a%3D%3D, x-team = shop ,nonsense,bad name=1";
        let (env, mut remarks) = (Env::from([("OTEL_EXPORTER_OTLP_HEADERS", list)]), Vec::new());
        let headers = read(&env, &mut remarks);
        assert_eq!(
            (&headers["authorization"], &headers["x-team"]),
            (&HeaderValue::from_static("Basic a=="), &HeaderValue::from_static("shop"),)
        );
        assert_eq!(remarks, ["OTEL_EXPORTER_OTLP_HEADERS: \"bad name\" is no header, left out"]);
    }
}
