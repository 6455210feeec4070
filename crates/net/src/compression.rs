//! Compressed bodies, both ways: which codings there are, which one a client sent or accepts, and how bytes
//! are taken out of one and put into one.
//!
//! Both ways work in steps of bounded size and hold no more than a step's output beside what they were given.
//! Whoever drives them counts what comes out and lets other tasks run in between.

mod compressor;
mod decompressor;

use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH};

pub use compressor::{compress, pays};
pub use decompressor::Decompressor;

/// Why a compressed body cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodingError {
    /// It is compressed in a way that is not known, or in several.
    #[error(
        "The request body's Content-Encoding \"{}\" is not known here; send one of {}, or none.",
        .0.escape_default(),
        Coding::KNOWN
    )]
    Unknown(String),
    /// It is not what its coding says.
    #[error("The request body is not valid {}: {why}.", coding.name())]
    Broken {
        /// What it should be.
        coding: Coding,
        /// What is wrong with it.
        why: String,
    },
}

/// A way to compress a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// As in RFC 8878.
    Zstd,
    /// As in RFC 1952.
    Gzip,
    /// As in RFC 1950, or RFC 1951 without a head.
    Deflate,
}

impl Coding {
    /// All of them, those first that are cheapest for what they save.
    const ALL: [Self; 3] = [Self::Zstd, Self::Gzip, Self::Deflate];
    /// All of them, as `Accept-Encoding` lists them.
    pub const KNOWN: &str = "gzip, zstd, deflate";

    /// Its name in a header.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    /// The coding of this name.
    pub fn named(name: &str) -> Option<Self> {
        let name = if name.eq_ignore_ascii_case("x-gzip") { "gzip" } else { name };
        Self::ALL.into_iter().find(|coding| name.eq_ignore_ascii_case(coding.name()))
    }

    /// The coding of a request's body. The headers then tell of the body as it is without.
    ///
    /// # Errors
    /// It is not known, or there are several.
    pub fn take(headers: &mut HeaderMap) -> Result<Option<Self>, CodingError> {
        let mut given = headers.get_all(CONTENT_ENCODING).iter();
        let (first, more) = (given.next(), given.next());
        let Some(name) = first.map(|value| value.to_str().unwrap_or("?").trim()) else {
            return Ok(None);
        };
        if more.is_none() && (name.is_empty() || name.eq_ignore_ascii_case("identity")) {
            return Ok(None);
        }
        let coding = Self::named(name)
            .filter(|_| more.is_none())
            .ok_or_else(|| CodingError::Unknown(name.to_owned()))?;
        headers.remove(CONTENT_ENCODING);
        headers.remove(CONTENT_LENGTH);
        Ok(Some(coding))
    }

    /// The coding that a client likes best, if it likes any.
    pub fn accepted(headers: &HeaderMap) -> Option<Self> {
        let mut qualities = [None; Self::ALL.len()];
        let mut others = 0;
        let values =
            headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        for entry in values.flat_map(|value| value.split(',')) {
            let (name, parameters) = entry.split_once(';').unwrap_or((entry, ""));
            let quality = quality(parameters);
            match Self::named(name.trim()) {
                Some(coding) => qualities[coding as usize] = Some(quality),
                None if name.trim() == "*" => others = quality,
                None => {}
            }
        }
        let rated = Self::ALL.map(|coding| (qualities[coding as usize].unwrap_or(others), coding));
        // The first of those that are liked alike.
        let best = rated.into_iter().rev().max_by_key(|(quality, _)| *quality);
        best.filter(|(quality, _)| *quality > 0).map(|(_, coding)| coding)
    }
}

/// The quality that follows a coding's name, in thousandths; nothing that cannot be read is liked.
fn quality(parameters: &str) -> u16 {
    let mut values = parameters.split(';').filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    let Some(text) = values.next() else { return 1000 };
    let value: f32 = text.parse().unwrap_or(0.0);
    (value.clamp(0.0, 1.0) * 1000.0).round() as u16
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(name: http::HeaderName, values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_client_gets_what_it_likes_best() {
        let accepted =
            |values: &[&'static str]| Coding::accepted(&headers(ACCEPT_ENCODING, values));
        for (values, expected) in [
            (&["gzip, deflate, br, zstd"][..], Some(Coding::Zstd)),
            (&["gzip, deflate"], Some(Coding::Gzip)),
            (&["gzip;q=0.5, deflate;q=0.8"], Some(Coding::Deflate)),
            (&["deflate", "GZIP"], Some(Coding::Gzip)),
            (&["x-gzip"], Some(Coding::Gzip)),
            (&["zstd;q=0, gzip;q=0.001"], Some(Coding::Gzip)),
            (&["*"], Some(Coding::Zstd)),
            (&["zstd;q=0,*;q=0.3"], Some(Coding::Gzip)),
            (&["gzip; Q=1.000 ; ext=1"], Some(Coding::Gzip)),
            (&["gzip;q=0"], None),
            (&["gzip;q=soon"], None),
            (&["gzip;q=NaN"], None),
            (&["br"], None),
            (&["identity"], None),
            (&[""], None),
            (&[], None),
        ] {
            assert_eq!(accepted(values), expected, "{values:?}");
        }
    }

    #[test]
    fn the_headers_tell_of_the_body_without_its_coding() {
        let mut sent = headers(CONTENT_ENCODING, &["GZip"]);
        sent.insert(CONTENT_LENGTH, HeaderValue::from(7));
        assert_eq!(Coding::take(&mut sent), Ok(Some(Coding::Gzip)));
        assert!(sent.is_empty());
        for none in ["identity", ""] {
            assert_eq!(Coding::take(&mut headers(CONTENT_ENCODING, &[none])), Ok(None));
        }
    }

    #[test]
    fn an_unknown_coding_is_told_the_known_ones() {
        for values in [&["br"][..], &["gzip, zstd"], &["gzip", "gzip"], &["identity", "gzip"]] {
            let error = Coding::take(&mut headers(CONTENT_ENCODING, values)).unwrap_err();
            assert_eq!(error, CodingError::Unknown(values[0].to_owned()));
            assert!(error.to_string().contains(Coding::KNOWN), "{error}");
        }
    }
}
