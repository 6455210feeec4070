//! A metric as a worker prints it: `name.unit:value|#Dim:value,…|#type:KIND|#hostname:host,epoch[,ids]`.
//!
//! Handlers print what they like, so everything is checked: a [`PrintedMetric`] can be put on the page as it
//! is. Anything else is `None` and no error for the handler.

use super::family::MetricKind;

/// Values of labels are cut here, so that a handler cannot fill the page with one.
const VALUE_BYTES_MAX: usize = 256;
/// Labels of one metric.
const DIMENSIONS_MAX: usize = 16;

/// Labels that the page adds itself.
const RESERVED: [&str; 2] = ["Hostname", "le"];

/// A valid metric.
#[derive(Debug, PartialEq)]
pub(super) struct PrintedMetric<'a> {
    pub(super) name: &'a str,
    pub(super) unit: &'a str,
    pub(super) value: f64,
    pub(super) kind: MetricKind,
    /// MetricNames and values.
    pub(super) dimensions: Vec<(&'a str, &'a str)>,
    /// The requests it belongs to, with commas between them; may be empty.
    pub(super) requests: &'a str,
}

impl<'a> PrintedMetric<'a> {
    /// Reads a line, without the `[METRICS]` at its beginning.
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let mut parts = line.trim().split("|#");
        let (metric, value) = parts.next()?.rsplit_once(':')?;
        let (name, unit) = metric.split_once('.')?;
        let dimensions = dimensions(parts.next()?)?;
        let mut rest = parts.next()?;
        let mut kind = MetricKind::Counter;
        if let Some(name) = rest.strip_prefix("type:") {
            kind = kind_of(name)?;
            rest = parts.next()?;
        }
        let requests = rest.strip_prefix("hostname:")?.splitn(3, ',').nth(2).unwrap_or_default();
        let fits = is_name(name) && is_word(unit) && parts.next().is_none();
        let value = number(value, kind)?;
        fits.then_some(Self { name, unit, value, kind, dimensions, requests })
    }
}

/// Only what can be added up: a counter never falls.
fn number(text: &str, kind: MetricKind) -> Option<f64> {
    let value: f64 = text.parse().ok().filter(|value: &f64| value.is_finite())?;
    (kind != MetricKind::Counter || value >= 0.0).then_some(value)
}

fn kind_of(name: &str) -> Option<MetricKind> {
    match name {
        "COUNTER" => Some(MetricKind::Counter),
        "GAUGE" => Some(MetricKind::Gauge),
        "HISTOGRAM" => Some(MetricKind::Histogram),
        _ => None,
    }
}

fn dimensions(text: &str) -> Option<Vec<(&str, &str)>> {
    let parts: Vec<&str> = text.split(',').filter(|part| !part.is_empty()).collect();
    if parts.len() > DIMENSIONS_MAX {
        return None;
    }
    let dimensions: Vec<(&str, &str)> = parts.into_iter().map(dimension).collect::<Option<_>>()?;
    let twice = |at: usize| dimensions[..at].iter().any(|known| known.0 == dimensions[at].0);
    (!(0..dimensions.len()).any(twice)).then_some(dimensions)
}

fn dimension(part: &str) -> Option<(&str, &str)> {
    let (name, value) = part.split_once(':')?;
    (is_name(name) && !RESERVED.contains(&name))
        .then(|| (name, &value[..value.floor_char_boundary(VALUE_BYTES_MAX)]))
}

/// What Prometheus allows as a name of a metric or label, without colons.
fn is_name(text: &str) -> bool {
    let starts = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    text.bytes().next().is_some_and(starts) && is_word(text)
}

fn is_word(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=128).contains(&text.len()) && text.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_in_all_its_parts() {
        let line = "T.Milliseconds:1.5|#ConnectionStage:a:b,ModelName:m|#type:GAUGE|#hostname:h,17,id-a,id-b";
        let expected = PrintedMetric {
            name: "T",
            unit: "Milliseconds",
            value: 1.5,
            kind: MetricKind::Gauge,
            dimensions: vec![("ConnectionStage", "a:b"), ("ModelName", "m")],
            requests: "id-a,id-b",
        };
        assert_eq!(PrintedMetric::parse(line), Some(expected));
        let plain = PrintedMetric::parse("C.Count:2|#|#hostname:h,17\r\n").expect("reads");
        assert_eq!((plain.kind, plain.value, plain.requests), (MetricKind::Counter, 2.0, ""));
        assert!(plain.dimensions.is_empty());
    }

    #[test]
    fn hostile_lines_come_to_nothing() {
        for line in [
            "",
            "x",
            "T.ms",
            "T.ms:1",
            "T.ms:1|#",
            "T.ms:1|#|#type:GAUGE",
            "T:1|#|#type:GAUGE|#hostname:h,1",
            ".ms:1|#|#type:GAUGE|#hostname:h,1",
            "T.:1|#|#type:GAUGE|#hostname:h,1",
            "T.ms:|#|#type:GAUGE|#hostname:h,1",
            "T.ms:one|#|#type:GAUGE|#hostname:h,1",
            "T.ms:NaN|#|#type:GAUGE|#hostname:h,1",
            "T.ms:inf|#|#type:GAUGE|#hostname:h,1",
            "T.ms:1e999|#|#type:GAUGE|#hostname:h,1",
            "T.ms:-1|#|#type:COUNTER|#hostname:h,1",
            "T.ms:1|#|#type:METER|#hostname:h,1",
            "T.ms:1|#a|#type:GAUGE|#hostname:h,1",
            "T.ms:1|#a b:c|#type:GAUGE|#hostname:h,1",
            "T.ms:1|#a\"}:c|#type:GAUGE|#hostname:h,1",
            "T.ms:1|#Hostname:c|#type:GAUGE|#hostname:h,1",
            "T.ms:1|#a:b,a:c|#type:GAUGE|#hostname:h,1",
            "T.ms:1|#le:1|#type:HISTOGRAM|#hostname:h,1",
            "T.ms:1|#0a:c|#type:GAUGE|#hostname:h,1",
            "T\n# TYPE x counter.ms:1|#|#type:GAUGE|#hostname:h,1",
            "T{a=\"b\"}.ms:1|#|#type:GAUGE|#hostname:h,1",
            "T.m\u{fc}:1|#|#type:GAUGE|#hostname:h,1",
            "T.ms:1|#|#type:GAUGE|#hostname:h,1|#more",
        ] {
            assert_eq!(PrintedMetric::parse(line), None, "{line}");
        }
        let many = format!("T.ms:1|#{}|#type:GAUGE|#hostname:h,1", "a:b,".repeat(17));
        assert_eq!(PrintedMetric::parse(&many), None);
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        let line = format!("T.ms:1|#a:{}|#type:GAUGE|#hostname:h,1", "\u{fc}".repeat(1000));
        let parsed = PrintedMetric::parse(&line).expect("reads");
        assert_eq!(parsed.dimensions[0].1.len(), VALUE_BYTES_MAX);
    }
}
