//! In which format a scraper wants the page.

use http::HeaderValue;
use http::header::{ACCEPT, HeaderMap};

const PROTOBUF: &str = "application/vnd.google.protobuf";
const MESSAGE: &str = "io.prometheus.client.MetricFamily";

/// The format of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageFormat {
    /// The format that every scraper knows.
    Text,
    /// Messages behind their lengths; with native histograms.
    Protobuf,
}

impl PageFormat {
    /// Protobuf where it is asked for by name and nothing that is also served is liked better.
    pub fn accepted(headers: &HeaderMap) -> Self {
        let ranges = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let (mut text, mut protobuf) = (0.0, 0.0);
        for range in ranges.flat_map(|value| value.split(',')).map(AcceptRange::parse) {
            if range.kind.eq_ignore_ascii_case("text/plain") {
                text = range.quality.max(text);
            } else if range.is_protobuf() {
                protobuf = range.quality.max(protobuf);
            }
        }
        if protobuf > 0.0 && protobuf >= text { Self::Protobuf } else { Self::Text }
    }

    /// Its name in the answer.
    pub fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; \
                 proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        })
    }
}

/// One of the types that a client takes.
struct AcceptRange<'a> {
    kind: &'a str,
    message: &'a str,
    encoding: &'a str,
    quality: f64,
}

impl<'a> AcceptRange<'a> {
    fn parse(range: &'a str) -> Self {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let mut parsed = Self { kind, message: "", encoding: "", quality: 1.0 };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name {
                "proto" => parsed.message = value.trim_matches('"'),
                "encoding" => parsed.encoding = value.trim_matches('"'),
                "q" => parsed.quality = value.parse().unwrap_or(0.0),
                _ => {}
            }
        }
        parsed
    }

    fn is_protobuf(&self) -> bool {
        self.kind == PROTOBUF && self.message == MESSAGE && self.encoding == "delimited"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protobuf_comes_where_it_is_asked_for_by_name() {
        let accepted = |value| {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(value))]);
            PageFormat::accepted(&headers)
        };
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
            encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,\
            text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        let classic = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,\
            */*;q=0.1";
        let last = "text/plain;version=0.0.4;q=0.6,application/vnd.google.protobuf;\
            proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.2";
        assert_eq!(accepted(native), PageFormat::Protobuf);
        for text in [classic, last, "*/*", "application/vnd.google.protobuf", ""] {
            assert_eq!(accepted(text), PageFormat::Text, "{text}");
        }
        assert_eq!(PageFormat::accepted(&HeaderMap::new()), PageFormat::Text);
    }
}
