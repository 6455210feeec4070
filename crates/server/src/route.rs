//! What a path says: which APIs a listener offers, which model a path names, and how a path is compared.
//!
//! The endpoints themselves are the rows of `rest::endpoints`. Nothing here touches a model or a body.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Which APIs a listener offers; several when addresses coincide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Apis {
    /// Predictions and health.
    pub inference: bool,
    /// Models and workers.
    pub management: bool,
    /// Prometheus text.
    pub metrics: bool,
    /// The health and metadata endpoints of the Open Inference Protocol, beside inference.
    pub oip: bool,
    /// Models under their own names, `/docs` and `/openapi.json`, beside inference.
    pub natural: bool,
    /// SageMaker's health and execution parameters, beside inference.
    pub sagemaker: bool,
    /// Whether health and readiness need no token.
    pub open_health: bool,
    /// Whether `/` leads browsers to the dashboard, beside management.
    pub home: bool,
}

impl Apis {
    /// What the inference port of `jitney serve` offers.
    pub(crate) const PREDICTIONS: Self = Self {
        inference: true,
        oip: true,
        natural: true,
        management: false,
        metrics: false,
        sagemaker: false,
        open_health: false,
        home: false,
    };
}

/// A model, and perhaps a version, that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelRef<'a> {
    /// The model's name.
    pub model: &'a str,
    /// The version; the default one when absent.
    pub version: Option<&'a str>,
}

/// The path of a prediction. The routes differ in what the handler sees, as in TorchServe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictRoute<'a> {
    /// The model.
    pub target: ModelRef<'a>,
    /// The header `explain` that the handler sees, where the route has one.
    pub explain: Option<bool>,
    /// The header `url_path` that the handler sees, where the route has one.
    pub url_path: Option<&'a str>,
    /// Whether the query's fields become parameters.
    pub query_counts: bool,
    /// Whether the body is the Open Inference Protocol's JSON.
    pub open_inference: bool,
}

impl<'a> PredictRoute<'a> {
    /// A route on which the handler sees nothing but the request.
    pub fn new(target: ModelRef<'a>) -> Self {
        Self { target, explain: None, url_path: None, query_counts: false, open_inference: false }
    }

    /// The same, with the query's fields as parameters.
    pub fn with_query(target: ModelRef<'a>) -> Self {
        Self { query_counts: true, ..Self::new(target) }
    }
}

/// What stands in the places of a pattern's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathNames<'a> {
    /// `{model}`.
    pub model: Option<&'a str>,
    /// `{version}`.
    pub version: Option<&'a str>,
    /// `{workflow}`.
    pub workflow: Option<&'a str>,
    /// Whatever has another name: a file, a region, an endpoint, a path below a model's.
    pub rest: &'a str,
    /// What the path of a mount begins with.
    pub mount: &'a str,
}

impl<'a> PathNames<'a> {
    /// The model that the path names.
    pub fn target(&self) -> ModelRef<'a> {
        ModelRef { model: self.model.unwrap_or_default(), version: self.version }
    }

    fn set(&mut self, name: &str, value: &'a str) {
        match name {
            "model" => self.model = Some(value),
            "version" => self.version = Some(value),
            "workflow" => self.workflow = Some(value),
            _ => self.rest = value,
        }
    }
}

/// The path as TorchServe compares it; costs nothing unless it is encoded.
pub fn decode(path: &str) -> Cow<'_, str> {
    if path.contains('%') {
        percent_decode_str(path).decode_utf8_lossy()
    } else {
        Cow::Borrowed(path)
    }
}

/// Paths that the server's platform chose, each with the path of the row that answers it.
#[derive(Clone, Debug, Default)]
pub struct RouteAliases(Vec<(String, &'static str)>);

impl RouteAliases {
    /// Lets a chosen path lead to that of a row. One that is empty leads nowhere.
    #[must_use]
    pub fn with(mut self, chosen: &str, row: &'static str) -> Self {
        self.0.push((trim(&decode(chosen)).to_owned(), row));
        self
    }

    /// The decoded path, or the one that it stands for.
    #[inline]
    pub fn decode<'a>(&self, path: &'a str) -> Cow<'a, str> {
        let decoded = decode(path);
        if self.0.is_empty() {
            return decoded;
        }
        let found = self.0.iter().find(|(chosen, _)| chosen == trim(&decoded));
        found.map_or(decoded, |(_, row)| Cow::Borrowed(*row))
    }
}

/// A decoded path without the slashes around it, as patterns are compared with it.
pub fn trim(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    path.strip_prefix('/').unwrap_or(path)
}

/// Compares a trimmed path with a pattern, and returns what stands in the places of its names.
///
/// A pattern is a path of words and of these places, each as long as one segment, which may be empty:
/// `{name}`; `{name!}`, without a colon; `{name}:verb`, where the first colon ends the name; `*`, which has
/// no name; `~word`, in any case. `{name+}` is one segment or more, and `**` at the end is any number.
pub fn matches<'a>(pattern: &str, path: &'a str) -> Option<PathNames<'a>> {
    let (pattern, path) = after_same_words(&pattern[1..], path);
    let (mut names, mut left, mut places) = (PathNames::default(), Some(path), Some(pattern));
    while let Some(pattern) = places {
        let (place, more) = first_segment(pattern);
        if place == "**" {
            return Some(names);
        }
        let all = left?;
        if let Some(name) = place.strip_suffix("+}") {
            let Some(last) = more else {
                names.set(&name[1..], all);
                return Some(names);
            };
            let (many, end) = all.rsplit_once('/')?;
            names.set(&name[1..], many);
            return (end == last).then_some(names);
        }
        let (segment, rest) = first_segment(all);
        match place.strip_prefix('{') {
            Some(name) => take_name(name, segment, &mut names)?,
            None if !is_word(place, segment) => return None,
            None => {}
        }
        (left, places) = (rest, more);
    }
    left.is_none().then_some(names)
}

/// What follows the segments that a pattern and a path begin with alike, up to the first place for a name. Most of a
/// path is compared here, and once.
fn after_same_words<'p, 'a>(pattern: &'p str, path: &'a str) -> (&'p str, &'a str) {
    let mut after = 0;
    for (at, (place, byte)) in pattern.bytes().zip(path.bytes()).enumerate() {
        if place != byte || matches!(place, b'{' | b'~') {
            break;
        }
        if byte == b'/' {
            after = at + 1;
        }
    }
    (&pattern[after..], &path[after..])
}

/// Up to the first slash, and what follows it. Byte by byte: segments are too short for a better search to pay.
fn first_segment(text: &str) -> (&str, Option<&str>) {
    match text.bytes().position(|byte| byte == b'/') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

fn is_word(place: &str, segment: &str) -> bool {
    match place.strip_prefix('~') {
        Some(word) => word.eq_ignore_ascii_case(segment),
        None => place == segment || place == "*",
    }
}

/// Takes the name of a place, of which `{` was read before.
fn take_name<'a>(place: &str, segment: &'a str, names: &mut PathNames<'a>) -> Option<()> {
    let (name, after) = place.split_at(place.bytes().position(|byte| byte == b'}')?);
    let after = &after[1..];
    let value = match after.strip_prefix(':') {
        Some(verb) => segment.split_once(':').filter(|(_, it)| *it == verb)?.0,
        None => segment,
    };
    let plain = name.strip_suffix('!');
    if plain.is_some() && value.contains(':') {
        return None;
    }
    names.set(plain.unwrap_or(name), value);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str, path: &'static str) -> Option<[Option<&'static str>; 3]> {
        let names = matches(pattern, trim(path))?;
        Some([names.model, names.version, Some(names.rest).filter(|rest| !rest.is_empty())])
    }

    #[test]
    fn a_pattern_is_words_and_places() {
        let (m, v, none) = (Some("m"), Some("2"), None);
        for (pattern, path, expected) in [
            ("/", "/", Some([none; 3])),
            ("/", "//", Some([none; 3])),
            ("/", "/m", none_at_all()),
            ("/ping", "/ping/", Some([none; 3])),
            ("/ping", "//ping", none_at_all()),
            ("/{model}", "/m", Some([m, none, none])),
            ("/{model}", "/", Some([Some(""), none, none])),
            ("/{model}", "/m/x", none_at_all()),
            ("/models/{model}/{version}", "/models/m/2", Some([m, v, none])),
            ("/models/{model}/{version}", "/models//2", Some([Some(""), v, none])),
            ("/models/{model}/{version}", "/models/m", none_at_all()),
            ("/models/{model}/x", "/models/{model}/x", Some([Some("{model}"), none, none])),
            ("/~word/{model}", "/~word/m", none_at_all()),
            ("/~word/{model}", "/WORD/m", Some([m, none, none])),
            ("/v1/{model}:predict", "/v1/m:predict", Some([m, none, none])),
            ("/v1/{model}:predict", "/v1/m:x:predict", none_at_all()),
            ("/v1/{model}:predict", "/v1/m", none_at_all()),
            ("/v1/{model!}", "/v1/m", Some([m, none, none])),
            ("/v1/{model!}", "/v1/m:predict", none_at_all()),
            ("/a/{rest+}", "/a/b/c", Some([none, none, Some("b/c")])),
            ("/a/{rest+}", "/a", none_at_all()),
            ("/a/{model+}/load", "/a/m/load", Some([m, none, none])),
            ("/a/{model+}/load", "/a/b/c/load", Some([Some("b/c"), none, none])),
            ("/a/{model+}/load", "/a/load", none_at_all()),
            ("/a/*/c", "/a/b/c", Some([none; 3])),
            ("/~wf/{model}/**", "/WF/m", Some([m, none, none])),
            ("/~wf/{model}/**", "/wf/m/x/y", Some([m, none, none])),
            ("/~wf/{model}/**", "/wf", none_at_all()),
        ] {
            assert_eq!(found(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_chosen_path_leads_to_a_row_and_others_to_themselves() {
        let aliases = RouteAliases::default().with("/v1/e/1:predict", "/invocations");
        assert_eq!(aliases.decode("/v1/e/1%3Apredict/"), "/invocations");
        assert_eq!(aliases.decode("/v1/e/1"), "/v1/e/1");
        assert_eq!(RouteAliases::default().decode("/a%20b"), "/a b");
    }

    fn none_at_all() -> Option<[Option<&'static str>; 3]> {
        None
    }
}
